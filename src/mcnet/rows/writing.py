"""Write a file whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcnet.errors import InputError

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it takes the place of `path`, on failure it is removed."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; make it first")
    if target.is_dir():
        raise InputError(f"{target} is a folder; name a file")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        # mkstemp makes private files; the result gets the permissions any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
