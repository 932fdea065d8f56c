"""Sketches as Parquet files: one row a cell, plain columns, a version in the metadata."""

import json
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mcnet._shared.atomic_files import whole_file
from mcnet.data.contexts import Contexts
from mcnet.data.fields import field_columns
from mcnet.errors import FileFormatError, InputError
from mcnet.sketch.cells import Cells
from mcnet.sketch.grid import POSITION_UNITS
from mcnet.sketch.sketch import Sketch

__all__ = ["SKETCH_VERSION", "is_sketch_file", "load_sketch", "save_sketch"]

SKETCH_VERSION = 1
_METADATA = "mcnet.sketch"
_COLUMNS = ("cell", "fold", "weight", "positives", "position")


def save_sketch(sketch: Sketch, path: str | PathLike[str]) -> None:
    """Save a sketch; fields become columns `field:<name>` of texts."""
    frame = pl.DataFrame(
        {
            **{
                f"field:{column.name}": pl.Series(column.values, dtype=pl.String).gather(column.codes)
                for column in sketch.contexts.columns(sketch.context)
            },
            "cell": sketch.cells.key,
            "fold": sketch.fold,
            "weight": sketch.weight,
            "positives": sketch.positives,
            "position": sketch.cells.sums[:, 2],
        }
    )
    about = {
        "version": SKETCH_VERSION,
        "resolution": sketch.resolution,
        "folds": sketch.folds,
        "rows": sketch.rows,
        "fields": list(sketch.contexts.names),
        "columns": dict(sketch.columns),
    }
    with whole_file(path) as part:
        frame.write_parquet(part, metadata={_METADATA: json.dumps(about)})


def _metadata(path: Path) -> str | None:
    try:
        return pl.read_parquet_metadata(path).get(_METADATA)
    except Exception as error:  # Polars has many ways to say that a file is not Parquet
        raise FileFormatError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None


def is_sketch_file(path: str | PathLike[str]) -> bool:
    """Tell whether a file is a saved sketch (and not a log of rows)."""
    path = Path(path)
    if path.suffix != ".parquet" or not path.is_file():
        return False
    return _metadata(path) is not None


def load_sketch(path: str | PathLike[str]) -> Sketch:
    """Load a sketch, or say in one sentence why this file is none."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    text = _metadata(path)
    if text is None:
        raise FileFormatError(f"{path} is a Parquet file but not a sketch; make one with mcnet.scan")
    try:
        return _sketch(json.loads(text), pl.read_parquet(path))
    except (FileFormatError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError) as error:
        raise FileFormatError(f"{path} cannot be used as a sketch: {str(error).splitlines()[0]}") from None


def _sketch(about: dict[str, Any], frame: pl.DataFrame) -> Sketch:
    if about["version"] > SKETCH_VERSION:
        raise FileFormatError(
            f"it has version {about['version']}, this mcnet reads up to {SKETCH_VERSION}: upgrade mcnet"
        )
    names = [f"field:{name}" for name in about["fields"]]
    lacking = [name for name in (*names, *_COLUMNS) if name not in frame.columns]
    if lacking:
        raise FileFormatError(f"it lacks the column {lacking[0]!r}; it was altered: make it again")
    fields = field_columns({name.removeprefix("field:"): frame[name] for name in names}) if names else []
    contexts, codes = Contexts.of(fields, len(frame))
    sums = np.column_stack([frame[name].to_numpy() for name in ("weight", "positives", "position")])
    cells = Cells(codes, frame["cell"].to_numpy().astype(np.int64), frame["fold"].to_numpy().astype(np.int16), sums)
    columns = about.get("columns", {})  # not every sketch says it
    sketch = Sketch(contexts, cells, about["resolution"], about["folds"], about["rows"], columns)
    problem = _problem(sketch)
    if problem:
        raise FileFormatError(f"{problem}; it was altered: make it again")
    return replace(sketch, cells=cells.added_up())


def _problem(sketch: Sketch) -> str | None:
    """Return what is wrong with the cells of a file, or None."""
    weight, positives, position = sketch.cells.sums.T
    slack = 1.0 + 1e-9  # another engine may have added up in another order
    if not (np.isfinite(sketch.cells.sums).all() and (weight > 0.0).all()):
        return "a cell has no weight"
    if not ((positives >= 0.0) & (positives <= weight * slack)).all():
        return "a cell has more positives than weight, or fewer than none"
    if not ((position >= 0.0) & (position <= weight * POSITION_UNITS * slack)).all():
        return "the mean position of a cell lies outside it"
    if not ((sketch.fold >= 0) & (sketch.fold < sketch.folds)).all():
        return f"a fold is none of {sketch.folds}"
    if not sketch.grid.knows(sketch.cells.key):
        return f"a cell is none of resolution {sketch.resolution}"
    return None
