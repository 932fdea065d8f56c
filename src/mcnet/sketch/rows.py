"""Sketch columns in memory, some rows at a time."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mcnet._shared.typing import ScoreType
from mcnet.data.columns import as_array, as_floats, check_lengths
from mcnet.data.fields import FieldColumn
from mcnet.errors import InputError
from mcnet.sketch.build import Batch, ColumnNames, RowReading, sketch_batches
from mcnet.sketch.folds import check_folds, folds_column
from mcnet.sketch.grid import Resolution
from mcnet.sketch.sketch import Sketch

__all__ = ["ROWS_AT_A_TIME", "sketch_columns"]

ROWS_AT_A_TIME = 1 << 18
"""Rows validated and added at a time: the temporary columns stay in the cache."""


def sketch_columns(
    scores: Any,
    labels: Any,
    weight: Any,
    fields: list[FieldColumn],
    folds: Any,
    names: ColumnNames,
    *,
    resolution: Resolution,
    score_type: ScoreType,
    negatives_kept: float,
    drop_missing: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Sketch:
    """Sketch whole columns; see Sketch.from_rows for the parameters, `sketch_batches` for `names` and `columns`."""
    score, label = _column(scores, names.score), _column(labels, names.label)
    weights = None if weight is None else _column(weight, names.weight)
    fold = None if isinstance(folds, int | np.integer) else folds_column(folds, name=names.folds)
    lengths = {names.score: score, names.label: label, names.weight: weights, names.folds: fold}
    check_lengths(**lengths, **{f"field {column.name}": column for column in fields})
    if len(score) == 0:
        raise InputError(f"{names.score} is empty; at least one row is needed")

    def batches() -> Iterator[Batch]:
        for start in range(0, len(score), ROWS_AT_A_TIME):
            part = slice(start, min(start + ROWS_AT_A_TIME, len(score)))
            yield Batch(
                start,
                score[part],
                label[part],
                None if weights is None else weights[part],
                None if fold is None else fold[part],
                [column[part] for column in fields],
            )

    number = check_folds(folds) if fold is None else int(fold.max()) + 1
    reading = RowReading(number, resolution, score_type, negatives_kept, drop_missing)
    return sketch_batches(batches(), names, reading, columns=columns)


def _column(values: Any, name: str) -> Any:
    """Return a column as an array; texts and other objects as numbers at once, since slices of them are slow."""
    array = as_array(values, name)
    return as_floats(values, name) if array.dtype == object and hasattr(values, "null_count") else array
