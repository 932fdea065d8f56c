"""Rows to sketch: the one loop for all rows, from columns in memory and from log files."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError
from mcnet.rows.columns import (
    DescribeRow,
    as_array,
    as_floats,
    check_lengths,
    describe_row,
    label_floats,
    labels_column,
    restore_negatives,
    scores_column,
    weights_column,
)
from mcnet.rows.fields import FieldColumn
from mcnet.rows.locations import read_options
from mcnet.sketch.accumulate import Accumulator
from mcnet.sketch.folds import MOST_FOLDS, assign_folds, check_folds, folds_column
from mcnet.sketch.grid import Resolution, make_grid
from mcnet.sketch.sketch import Sketch

__all__ = [
    "Batch",
    "ColumnNames",
    "LargestWeight",
    "RowReading",
    "sketch_batches",
    "sketch_columns",
    "sketch_parts",
    "warn_of_mistakes",
]

# Warnings of likely mistakes with columns: ids as fields, scores and labels swapped, shares as weights.

_VALUES_WORTH_A_WARNING = 1_000
"""A field with more values than this, most of them with a single row, is probably an id."""

_BEGINS_AS_DAY = re.compile(r"\d{4}-\d\d-\d\d").match

_NEARLY_ZERO = 1.01e-7
"""Scores of 0 and 1 are clipped to this distance from 0 and 1."""

_LIGHTEST_ROW = 0.01
"""Weights that are less than this on average are probably shares, not numbers of rows."""
_ROWS_WORTH_A_WARNING = 100
"""This many rows, at least, must be too light."""


def warn_of_mistakes(sketch: Sketch, score: str, label: str, periods: Collection[str] = ()) -> None:
    """Warn of columns that are probably not what they were taken for; `periods` are no fields but times."""
    _warn_of_ids(sketch, periods)
    _warn_of_swapped_columns(sketch, score, label)
    _warn_of_light_rows(sketch)


def _warn_of_ids(sketch: Sketch, periods: Collection[str]) -> None:
    """Warn of a field with a different value in most rows."""
    for name, values in zip(sketch.contexts.names, sketch.contexts.values, strict=True):
        # Moments may be cut to periods later.
        if (
            name not in periods
            and len(values) > _VALUES_WORTH_A_WARNING
            and 2 * len(values) > sketch.rows
            and not _BEGINS_AS_DAY(values[0] or "")
        ):
            warn(
                f"field {name!r} has {len(values):,} values in {sketch.rows:,} rows; if it is an id, leave it out: "
                "rare values have too few rows for their own curves"
            )


def _warn_of_swapped_columns(sketch: Sketch, score: str, label: str) -> None:
    """Warn of scores that are all 0 or 1 beside labels that are fractions."""
    grid, cells = sketch.grid, sketch.cells
    sample = cells.key[:: max(1, len(cells) // 100)]
    for keys in (sample, cells.key):  # a look at a few cells settles the usual case
        if ((grid.lower(keys) > _NEARLY_ZERO) & (grid.upper(keys) < 1.0 - _NEARLY_ZERO)).any():
            return
    if (sketch.positives != np.floor(sketch.positives)).any():
        warn(
            f"every {score} is 0 or 1 and {label} has fractions; "
            "if the columns of scores and labels are swapped, swap them back"
        )


def _warn_of_light_rows(sketch: Sketch) -> None:
    """Warn of weights that add up to next to no rows: methods with a prior would keep to it, and intervals be wide."""
    with np.errstate(over="ignore"):  # too much to be added up is said elsewhere
        total = sketch.total_weight
    if sketch.rows >= _ROWS_WORTH_A_WARNING and 0.0 < total < _LIGHTEST_ROW * sketch.rows:
        warn(
            f"the weights of {sketch.rows:,} rows add up to {total:.3g}, and a weight counts as that many rows; "
            "if weights are shares, divide them by their mean"
        )


# Rows to sketch: the one loop for all rows, from columns in memory and from log files.


@dataclass(frozen=True)
class Batch:
    """Some rows as columns of any kind, not yet validated; `folds` is None unless there is a column of folds."""

    first_row: int
    score: Any
    label: Any
    weight: Any = None
    folds: Any = None
    fields: list[FieldColumn] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: IntArray) -> "Batch":
        """Return some of the rows."""
        score, label, weight, folds = (
            None if column is None else as_array(column, "column")[rows]
            for column in (self.score, self.label, self.weight, self.folds)
        )
        return Batch(self.first_row, score, label, weight, folds, [column[rows] for column in self.fields])


@dataclass(frozen=True)
class ColumnNames:
    """What messages call the columns, the rows and all of them together."""

    score: str = "score"
    label: str = "label"
    weight: str = "weight"
    folds: str = "folds"
    describe_row: DescribeRow = describe_row
    source: str = "the table"
    where: str | None = None
    """The condition by which rows were chosen."""


@dataclass
class LargestWeight:
    """The largest weight of a row so far: a sketch has sums of weights alone."""

    value: float = 0.0


@dataclass(frozen=True)
class RowReading:
    """How rows are read: into how many folds (None for a column of folds), on which grid, as which kind of scores."""

    folds: int | None
    resolution: Resolution
    score_type: ScoreType
    negatives_kept: float
    drop_missing: bool = False
    largest_weight: "LargestWeight | None" = None
    """Where the largest weight of a row is noted, if somebody asks for it."""

    @property
    def needs_no_change(self) -> bool:
        """Whether scores and labels enter the sketch as they are."""
        return self.score_type == "probability" and self.negatives_kept == 1.0


def sketch_batches(
    batches: Iterable[Batch],
    names: ColumnNames,
    reading: RowReading,
    *,
    columns: Mapping[str, str] | None = None,
    sources: tuple[str, ...] | None = None,
) -> Sketch:
    """Validate batches of rows and add them up.

    Parameters
    ----------
    batches : the rows, in their order.
    names : what messages call the columns.
    reading : how the rows are read.
    columns : the names of the columns to remember in the sketch.
    sources : short digests of what the rows come from; by default of the sketch itself.
    """
    (sketch,) = sketch_parts(batches, names, reading, columns=columns, sources=sources)
    warn_of_mistakes(sketch, names.score, names.label)
    return sketch


def sketch_parts(
    batches: Iterable[Batch],
    names: ColumnNames,
    reading: RowReading,
    *,
    columns: Mapping[str, str] | None = None,
    sources: tuple[str, ...] | None = None,
    most_cells: int | None = None,
) -> Iterator[Sketch]:
    """Validate batches of rows and add them up, in several sketches where one would have too many cells.

    Parameters
    ----------
    batches, names, reading, columns, sources : as in `sketch_batches`.
    most_cells : a sketch that has grown beyond this many cells is yielded, and a new one begun; None for one sketch.

    Yields
    ------
    Sketch : their sum has all rows; there is at least one.
    """
    grid = make_grid(reading.resolution)
    folds = MOST_FOLDS if reading.folds is None else check_folds(reading.folds)

    def finished(accumulator: Accumulator) -> Sketch:
        contexts, cells = accumulator.finish()
        return Sketch(
            contexts,
            cells,
            grid.resolution,
            int(np.max(cells.fold)) + 1 if reading.folds is None else reading.folds,
            accumulator.rows,
            columns=dict(columns or {}),
            score_type=reading.score_type,
            negatives_kept=float(reading.negatives_kept),
            known_sources=sources,
            dropped_rows=dropped,
        )

    accumulator, rows, parts, dropped = Accumulator(grid, folds), 0, 0, 0
    for batch in batches:
        if len(batch) == 0:
            continue
        missing = _added(accumulator, batch, names, reading)
        if missing:
            dropped += missing
            read_options().dropped_rows += missing
        rows += len(batch)
        if most_cells is not None and accumulator.has_more_cells(most_cells):
            yield finished(accumulator)
            accumulator, parts, dropped = Accumulator(grid, folds), parts + 1, 0
    if rows == 0:
        found = "has no rows" if names.where is None else f"has no row that meets the condition {names.where!r}"
        raise InputError(f"{names.source} {found}; at least one row is needed")
    if accumulator.rows:
        yield finished(accumulator)
    elif dropped == rows:
        raise InputError(f"a value is missing in each of the {rows:,} rows of {names.source}; check the columns")
    elif parts == 0:
        raise InputError(f"every row of {names.source} has weight 0; at least one row with a weight above 0 is needed")


_LEAVE_OUT = Advice(
    "leave them out with mcnet.scan(..., {drop_missing})", shell="leave them out with {drop_missing}", drop_missing=True
)


def _added(accumulator: Accumulator, batch: Batch, names: ColumnNames, reading: RowReading) -> int:
    """Add one batch; what is said of missing values names the option that leaves them out."""
    try:
        return _add(accumulator, batch, names, reading)
    except InputError as error:
        if isinstance(error.found, float) and error.advice is not None and not isfinite(error.found):
            where: dict[str, Any] = {"column": error.column, "row": error.row, "file": error.file}
            raise InputError(error.what, advice=error.advice | _LEAVE_OUT, found=error.found, **where) from None
        raise


def _add(accumulator: Accumulator, batch: Batch, names: ColumnNames, reading: RowReading) -> int:
    """Validate one batch and add it to the cells; return how many rows were dropped."""
    folds = None
    if batch.folds is None and reading.folds is not None and reading.folds > 1:
        folds = assign_folds(batch.first_row, len(batch), reading.folds)
    dropped = 0
    if reading.drop_missing:
        kept = _complete_rows(batch, names, reading)
        dropped = len(batch) - len(kept)
    if dropped:
        given, batch = batch, batch.take(kept)
        folds = None if folds is None else folds[kept]
        names = replace(names, describe_row=_describe_kept(names.describe_row, given.first_row, kept))
        if len(batch) == 0:
            return dropped
    where: dict[str, Any] = {"first_row": batch.first_row, "describe_row": names.describe_row}
    weights: FloatArray | None = None
    if batch.weight is None and reading.needs_no_change:
        # The usual rows are validated by the loop that adds them; only if it refuses them is the reason found out.
        labels = label_floats(batch.label, names.label, **where)
        scores = as_floats(batch.score, names.score, **where)
    else:
        labels = labels_column(batch.label, name=names.label, **where)
        if batch.weight is not None:
            weights = weights_column(batch.weight, name=names.weight, **where)
        labels, weights = restore_negatives(labels, weights, reading.negatives_kept)
        scores = scores_column(batch.score, score_type=reading.score_type, name=names.score, clip=False, **where)
    if reading.largest_weight is not None and weights is not None:
        reading.largest_weight.value = max(reading.largest_weight.value, float(weights.max(initial=0.0)))
    if batch.folds is not None:
        folds = folds_column(batch.folds, name=names.folds, **where)
    if not accumulator.add(scores, labels, weights, batch.fields, folds):
        labels_column(labels, name=names.label, **where)
        scores_column(scores, name=names.score, **where)
    return dropped


def _complete_rows(batch: Batch, names: ColumnNames, reading: RowReading) -> IntArray:
    """Return the places of the rows that have a score, a label and a weight."""
    where: dict[str, Any] = {"first_row": batch.first_row, "describe_row": names.describe_row}
    score = as_floats(batch.score, names.score, **where)
    complete = np.isfinite(score) if reading.score_type == "probability" else ~np.isnan(score)
    complete &= np.isfinite(label_floats(batch.label, names.label, **where))
    if batch.weight is not None:
        complete &= np.isfinite(as_floats(batch.weight, names.weight, **where))
    return np.flatnonzero(complete)


def _describe_kept(describe: DescribeRow, first_row: int, kept: IntArray) -> DescribeRow:
    """Return a function that names a row by its place before rows were dropped."""
    return lambda row: describe(first_row + int(kept[row - first_row]))


# Sketch columns in memory, some rows at a time.

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
