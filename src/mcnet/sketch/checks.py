"""Checks before rows are sketched: names of columns, and digests by which rows that are added twice are noticed."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet.errors import InputError
from mcnet.rows.locations import Location

if TYPE_CHECKING:
    from mcnet.sketch.sketch import Sketch

__all__ = ["LEAST_ROWS_TO_RECOGNISE", "check_columns", "content_digest", "file_digests"]

# Check the names of columns before anything is read: they must be texts, and each used once.


def check_columns(
    score: str, label: str, weight: str | None, folds: int | str, fields: list[str], every: Mapping[str, Any]
) -> None:
    """Refuse names that are no names, or used twice, before anything is read."""
    columns = [score, label, *(column for column in (weight, folds) if isinstance(column, str)), *fields]
    for column in (score, label, *fields):
        if not isinstance(column, str):
            raise InputError(
                f"scan takes names of columns, not {type(column).__name__}; give columns to mcnet.Sketch.from_rows"
            )
    if len(set(columns)) < len(columns):
        twice = next(c for c in columns if columns.count(c) > 1)
        raise InputError(
            f"the column {twice!r} is used twice; score, label, fields, weight and folds must be different columns"
        )
    for name in every:
        if name not in fields:
            raise InputError(f"every names {name!r}, which is not a field of this scan; pass it as a field too")


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
