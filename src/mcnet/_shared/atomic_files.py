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
    # The name is chosen before the file is made, so that an interrupt finds nothing it would not remove.
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        part.touch(exist_ok=False)
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
