"""Rows to sketch: the one loop for all rows, from columns in memory and from log files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray, IntArray, ScoreType
from mcnet.data.columns import (
    DescribeRow,
    as_array,
    as_floats,
    describe_row,
    label_floats,
    labels_column,
    scores_column,
    weights_column,
)
from mcnet.data.fields import FieldColumn
from mcnet.data.negative_sampling import restore_negatives
from mcnet.data.read_options import read_options
from mcnet.errors import InputError
from mcnet.sketch.accumulator import Accumulator
from mcnet.sketch.folds import MOST_FOLDS, assign_folds, check_folds, folds_column
from mcnet.sketch.grid import Resolution, make_grid
from mcnet.sketch.likely_mistakes import warn_of_mistakes
from mcnet.sketch.sketch import Sketch

__all__ = ["Batch", "ColumnNames", "LargestWeight", "RowReading", "sketch_batches", "sketch_parts"]


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


def _added(accumulator: Accumulator, batch: Batch, names: ColumnNames, reading: RowReading) -> int:
    """Add one batch; what is said of missing values names the option that leaves them out."""
    try:
        return _add(accumulator, batch, names, reading)
    except InputError as error:
        if not any(words in str(error) for words in (" missing, NaN", " missing or NaN")):
            raise
        raise InputError(f"{error}, or leave them out with mcnet.scan(..., drop_missing=True)") from None


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
