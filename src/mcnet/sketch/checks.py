"""Digests of files and of sketches, by which rows that are added twice are noticed."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mcnet.rows.locations import Location

if TYPE_CHECKING:
    from mcnet.sketch.sketch import Sketch

# Sources: short digests of what a sketch was made from, so that rows that are added twice are noticed.

LEAST_ROWS_TO_RECOGNISE = 100
"""Sketches of fewer rows may be equal without being made of the same rows."""

_DIGEST_BYTES = 8
_SAMPLED_BYTES = 1 << 16
"""Of a file, the first and the last bytes are read, and its size."""


def file_digests(paths: Sequence[Location], where: str | None = None) -> tuple[str, ...] | None:
    """Return a digest per file: the same for copies of a file, whatever their names; None if some are not on disk.

    The rows of a file that meet one condition are not those that meet another.
    """
    local = [path for path in paths if isinstance(path, Path)]
    return tuple(_file_digest(path, where) for path in local) if len(local) == len(paths) else None


def _file_digest(path: Path, where: str | None) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=b"" if where is None else b"where")
    if where is not None:
        digest.update(repr(where).encode())
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLED_BYTES))
        if size > _SAMPLED_BYTES:
            file.seek(-min(_SAMPLED_BYTES, size - _SAMPLED_BYTES), 2)
            digest.update(file.read())
    return digest.hexdigest()


def content_digest(sketch: "Sketch") -> str:
    """Return a digest of the fields, their values and the cells of a sketch."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    contexts, cells = sketch.contexts, sketch.cells
    digest.update(repr((contexts.names, sketch.resolution, sketch.folds, sketch.rows)).encode())
    for values in contexts.values:
        digest.update(repr(values).encode())
    for column in (contexts.table, cells.context, cells.key, cells.fold, cells.sums):
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()
