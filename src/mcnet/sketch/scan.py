"""Sketch log files of any size in one pass and bounded memory."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from mcnet._shared.typing import ScoreType
from mcnet.data.columns import labels_column, scores_column, weights_column
from mcnet.data.fields import field_columns
from mcnet.data.files import FilePaths, batches, open_log, source_name
from mcnet.data.negative_sampling import restore_negatives
from mcnet.data.periods import cut_to_periods
from mcnet.errors import InputError
from mcnet.sketch.accumulator import Accumulator
from mcnet.sketch.folds import MOST_FOLDS, check_folds, deal_rows, folds_column
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution, make_grid
from mcnet.sketch.sketch import Sketch

__all__ = ["scan"]


def scan(
    files: FilePaths,
    *,
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    folds: int | str = 1,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str] | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Sketch:
    """Sketch log files (Parquet, CSV, Arrow; paths, globs, folders) in one pass and bounded memory.

    Parameters are names of columns; `folds` is a number of folds to deal the rows into or the name of a column of fold
    numbers. `every` names fields of moments and the periods to cut them to: {"time": "1h"}; the units are m, h, d, w,
    mo and y, and plain numbers for columns that count. The rest is as in Sketch.from_rows. `progress` is called with
    the number of rows of each batch read.
    """
    names = [] if field is None else [field] if isinstance(field, str) else list(field)
    number = MOST_FOLDS if isinstance(folds, str) else check_folds(folds)
    numbers = [score, label] + [column for column in (weight, folds) if isinstance(column, str)]
    columns = [*numbers, *names]
    if len(set(columns)) < len(columns):
        twice = next(c for c in columns if columns.count(c) > 1)
        raise InputError(
            f"the column {twice!r} is used twice; score, label, fields, weight and folds are columns of their own"
        )
    every = every or {}
    for name in every:
        if name not in names:
            raise InputError(f"every names {name!r}, which is no field of this scan; pass it as a field too")
    files = files if isinstance(files, str | PathLike) else list(files)
    source = source_name(files)
    grid = make_grid(resolution)
    accumulator = Accumulator(grid, number)
    rows = 0
    for batch in batches(open_log(files, numbers=numbers, texts=names), columns, source=source, progress=progress):
        if len(batch) == 0:
            continue
        y = labels_column(batch[label], name=label, first_row=rows)
        w = None if weight is None else weights_column(batch[weight], name=weight, first_row=rows)
        y, w = restore_negatives(y, w, negatives_kept)
        fold = None
        if isinstance(folds, str):
            fold = folds_column(batch[folds], name=folds, first_row=rows)
        elif number > 1:
            fold = deal_rows(rows, len(batch), number)
        s = scores_column(batch[score], score_type=score_type, name=score, first_row=rows)
        parts = {name: cut_to_periods(batch[name], every[name]) if name in every else batch[name] for name in names}
        fields = field_columns(parts) if names else []
        accumulator.add(s, y, w, fields, fold)
        rows += len(batch)
    if accumulator.rows == 0:
        raise InputError(f"{source} has no rows" if rows == 0 else f"every row of {source} has weight 0")
    contexts, cells = accumulator.finish()
    used = int(np.max(cells.fold)) + 1 if isinstance(folds, str) else number
    read = {"score": score, "label": label, "score_type": score_type, "negatives_kept": float(negatives_kept)}
    if weight is not None:
        read["weight"] = weight
    return Sketch(contexts, cells, grid.resolution, used, accumulator.rows, read)
