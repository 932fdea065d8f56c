"""Write a file whole or not at all."""

import os
import uuid
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
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    # Made by the system's own call, so that it has the permissions any new file would have.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
