"""Sketches as Parquet files: one row a cell, plain columns, a version in the metadata."""

import json
from os import PathLike
from pathlib import Path

import numpy as np
import polars as pl

from mcnet.errors import FileFormatError, InputError
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import field_columns
from mcnet.rows.writing import whole_file
from mcnet.sketch.cells import Cells
from mcnet.sketch.grid import make_grid
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
    about = json.loads(text)
    if about["version"] > SKETCH_VERSION:
        raise FileFormatError(
            f"{path} is a sketch of version {about['version']}; this mcnet reads up to {SKETCH_VERSION}: upgrade mcnet"
        )
    frame = pl.read_parquet(path)
    names = [f"field:{name}" for name in about["fields"]]
    lacking = [name for name in (*names, *_COLUMNS) if name not in frame.columns]
    if lacking:
        raise FileFormatError(f"{path} lacks the column {lacking[0]!r} of a sketch; it was altered: make it again")
    fields = field_columns({name.removeprefix("field:"): frame[name] for name in names}) if names else []
    contexts, codes = Contexts.of(fields, len(frame))
    sums = np.column_stack([frame[name].to_numpy() for name in ("weight", "positives", "position")])
    if not (np.isfinite(sums).all() and (sums[:, 0] > 0).all() and (sums[:, 1] >= 0).all()):
        raise FileFormatError(
            f"{path} has cells without a weight or with negative counts; it was altered: make it again"
        )
    make_grid(about["resolution"])
    cells = Cells(codes, frame["cell"].to_numpy().astype(np.int64), frame["fold"].to_numpy().astype(np.int16), sums)
    return Sketch(contexts, cells.added_up(), about["resolution"], about["folds"], about["rows"])
