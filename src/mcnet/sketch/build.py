"""Rows to sketch: the one loop for all rows, from columns in memory and from log files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, isfinite
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError, NoRowsError
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
    values_column,
    weights_column,
)
from mcnet.rows.fields import FieldColumn
from mcnet.rows.locations import read_options
from mcnet.rows.spec import MOST_FOLDS, RowSpec
from mcnet.sketch.accumulate import MOST_INVERSE, Accumulator
from mcnet.sketch.folds import assign_folds, folds_column
from mcnet.sketch.grid import VALUE_UNITS, make_grid, warn_of_small_values
from mcnet.sketch.sketch import Sketch

# Warnings of likely mistakes with columns: ids as fields, scores and labels swapped, shares as weights.

_VALUES_WORTH_A_WARNING = 1_000
"""A field with more values than this, most of them with a single row, is probably an id."""

_BEGINS_AS_DAY = re.compile(r"\d{4}-\d\d-\d\d").match

_NEARLY_ZERO = 1.01e-7
"""Scores of 0 and 1 are clipped to this distance from 0 and 1."""

_LARGEST_IF_PROBABILITY = 1.0 / (1.0 + exp(-1.0)) * (1.0 + 1e-6)
"""What a score of 1 is as a probability, if it is taken for a logit; a score of 0 is a half."""

_WILD_FACTOR = 30.0
"""Scores that are off by more have probably another unit; down-sampled negatives alone move a level as far as that."""
_POSITIVES_WORTH_A_WARNING = 50.0
"""As many positives must be there, or be expected, for their number to tell anything."""

_LIGHTEST_ROW = 0.01
"""Weights that are less than this on average are probably shares, not numbers of rows."""
_ROWS_WORTH_A_WARNING = 100
"""This many rows, at least, must be too light."""


def warn_of_mistakes(sketch: Sketch, spec: RowSpec) -> None:
    """Warn of columns that are probably not what they were taken for."""
    for name, values in zip(sketch.contexts.names, sketch.contexts.values, strict=True):
        different = len(values) > _VALUES_WORTH_A_WARNING and 2 * len(values) > sketch.rows
        # Timestamps may be cut to periods later.
        if different and name not in spec.every and not _BEGINS_AS_DAY(values[0] or ""):
            warn(
                f"field {name!r} has {len(values):,} values in {sketch.rows:,} rows; if it is an id, leave it out: "
                "rare values have too few rows for their own curves"
            )
    if looks_swapped(sketch):
        warn(f"{swapped_columns(sketch)}; if the columns of scores and labels are swapped, swap them back")
    with np.errstate(over="ignore"):  # too much to be added up is said elsewhere
        total = sketch.total_weight
    _warn_of_other_scale(sketch, spec, total)
    # Methods with a prior would keep to it, and intervals be wide.
    if sketch.rows >= _ROWS_WORTH_A_WARNING and 0.0 < total < _LIGHTEST_ROW * sketch.rows:
        warn(
            f"the weights of {sketch.rows:,} rows add up to {total:.3g}, and a weight counts as that many rows; "
            "if weights are shares, divide them by their mean"
        )
    if sketch.value_kind is not None and sketch.rows:
        worth = sketch.values.sum(axis=0) / VALUE_UNITS
        known = total if sketch.value_kind == "row" else sketch.total_positives
        warn_of_small_values(float(worth[0]) / known if known > 0.0 else 0.0)


def looks_swapped(sketch: Sketch) -> bool:
    """Tell whether every score is 0 or 1 and labels, or weights, have fractions."""
    return bool((sketch.positives != np.floor(sketch.positives)).any()) and _only_ends(sketch)


def swapped_columns(sketch: Sketch) -> str:
    """Return by what scores and labels look swapped, in the names of their columns where they are known."""
    score, label = (sketch.columns.get(role, role) for role in ("score", "label"))
    return f"every {score} is 0 or 1 and {label} has fractions"


def _warn_of_other_scale(sketch: Sketch, spec: RowSpec, total: float) -> None:
    """Warn of probabilities that are read as logits, and of scores far above or below the rate of positives."""
    if sketch.rows < _ROWS_WORTH_A_WARNING or not 0.0 < total < np.inf:
        return
    name, score = spec.name_of("score"), sketch.score
    if spec.score_type == "logit" and score.min() * (1.0 + 1e-6) >= 0.5 and score.max() <= _LARGEST_IF_PROBABILITY:
        warn(
            f"{name} has {sketch.rows:,} values, all in [0, 1], which were read as logits",
            Advice("if they are probabilities, leave out {score_type}", score_type="logit"),
        )
        return
    positives, expected = sketch.total_positives, float(sketch.weight @ score)
    if spec.every or not 0.0 < positives < total:  # positives of recent periods may be still to come
        return
    told = f"the mean {name} is {expected / total:.3g} and the mean {spec.name_of('label')} {positives / total:.3g}"
    if expected > max(_WILD_FACTOR * positives, _POSITIVES_WORTH_A_WARNING):
        warn(
            f"{told}; check that they belong together, and that scores are no percentages. If the base predictor was "
            "trained on down-sampled negatives and these rows are all rows, go on: the fit corrects the level"
        )
    elif positives > max(_WILD_FACTOR * expected, _POSITIVES_WORTH_A_WARNING):
        warn(
            f"{told}; check that they belong together",
            Advice("if negatives were down-sampled, pass {negatives_kept}", negatives_kept=None),
        )


def _only_ends(sketch: Sketch) -> bool:
    """Tell whether every score is 0 or 1."""
    grid, cells = sketch.grid, sketch.cells
    sample = cells.key[:: max(1, len(cells) // 100)]
    # A look at a few cells settles the usual case.
    return not any(
        ((grid.lower(keys) > _NEARLY_ZERO) & (grid.upper(keys) < 1.0 - _NEARLY_ZERO)).any()
        for keys in (sample, cells.key)
    )


@dataclass(frozen=True)
class Batch:
    """Some rows as columns of any kind, not yet validated; `folds` is None unless there is a column of folds."""

    first_row: int
    score: Any
    label: Any
    weight: Any = None
    folds: Any = None
    fields: list[FieldColumn] = field(default_factory=list)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the roles in MORE_COLUMNS, where the rows have them."""

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: IntArray | slice) -> "Batch":
        """Return some of the rows."""
        score, label, weight, folds = (
            None if column is None else as_array(column, "column")[rows]
            for column in (self.score, self.label, self.weight, self.folds)
        )
        more = {role: as_array(column, role)[rows] for role, column in self.more.items()}
        return Batch(self.first_row, score, label, weight, folds, [column[rows] for column in self.fields], more)


@dataclass(frozen=True)
class Origin:
    """Where rows come from.

    Attributes
    ----------
    name : what messages call all of them together.
    describe_row : what they call one.
    where : the condition by which rows were chosen.
    digests : short digests of the files; None for rows that are in none.
    """

    name: str = "the table"
    describe_row: DescribeRow = describe_row
    where: str | None = None
    digests: tuple[str, ...] | None = None

    def in_batch(self, first_row: int) -> DescribeRow:
        """Return what names a row of a batch, given its index there."""
        return lambda row: self.describe_row(first_row + row)


@dataclass
class LargestWeight:
    """The largest weight of a row so far: a sketch has sums of weights alone."""

    value: float = 0.0


def sketch_batches(batches: Iterable[Batch], spec: RowSpec, origin: Origin) -> Sketch:
    """Validate batches of rows, in their order, and add them up."""
    (sketch,) = sketch_parts(batches, spec, origin)
    warn_of_mistakes(sketch, spec)
    return sketch


_LEAVE_OUT = Advice(
    "leave them out with mcnet.scan(..., {drop_missing})", shell="leave them out with {drop_missing}", drop_missing=True
)


def sketch_parts(
    batches: Iterable[Batch],
    spec: RowSpec,
    origin: Origin,
    *,
    most_cells: int | None = None,
    largest_weight: LargestWeight | None = None,
) -> Iterator[Sketch]:
    """Validate batches of rows and add them up, in several sketches where one would have too many cells."""
    grid = make_grid(spec.resolution)
    folds = MOST_FOLDS if isinstance(spec.folds, str) else spec.folds

    def finished(accumulator: Accumulator) -> Sketch:
        contexts, cells = accumulator.finish()
        inverse = accumulator.inverse
        if inverse.capped:
            warn(
                f"{inverse.capped / inverse.rows:.2%} of the rows were logged with a probability below "
                f"{1 / MOST_INVERSE:g}: their weight is capped at {MOST_INVERSE:g}"
            )
        return Sketch(
            contexts,
            cells,
            grid.resolution,
            int(np.max(cells.fold)) + 1 if isinstance(spec.folds, str) else folds,
            accumulator.rows,
            columns=spec.columns,
            score_type=spec.score_type,
            negatives_kept=float(spec.negatives_kept),
            known_sources=origin.digests,
            dropped_rows=dropped,
            value_kind=accumulator.value_kind,
            weight_squares=inverse.squares if inverse.rows else None,
        )

    accumulator, rows, parts, dropped = Accumulator(grid, folds), 0, 0, 0
    for batch in batches:
        if len(batch) == 0:
            continue
        try:
            missing = _add(accumulator, batch, spec, origin.in_batch(batch.first_row), largest_weight)
        except InputError as error:
            if error.advice is None or not isinstance(error.found, float) or isfinite(error.found):
                raise
            where: dict[str, Any] = {"column": error.column, "row": error.row, "file": error.file}
            advice = error.advice | _LEAVE_OUT  # a value is missing
            raise InputError(error.what, advice=advice, found=error.found, **where) from None
        if missing:
            dropped += missing
            read_options().dropped_rows += missing
        rows += len(batch)
        if most_cells is not None and accumulator.has_more_cells(most_cells):
            yield finished(accumulator)
            accumulator, parts, dropped = Accumulator(grid, folds), parts + 1, 0
    if rows == 0:
        if origin.where is None:
            raise NoRowsError(f"{origin.name} has no rows; at least one row is needed")
        raise InputError(
            f"{origin.name} has no row that meets the condition {origin.where!r}; at least one row is needed"
        )
    if accumulator.rows:
        yield finished(accumulator)
    elif dropped == rows:
        raise InputError(f"a value is missing in each of the {rows:,} rows of {origin.name}; check the columns")
    elif parts == 0:
        raise InputError(f"every row of {origin.name} has weight 0; at least one row with a weight above 0 is needed")


def _add(
    accumulator: Accumulator,
    batch: Batch,
    spec: RowSpec,
    describe_row: DescribeRow,
    largest_weight: LargestWeight | None,
) -> int:
    """Validate one batch and add it to the cells; return how many rows were dropped."""
    folds = None
    if batch.folds is None and isinstance(spec.folds, int) and spec.folds > 1:
        folds = assign_folds(batch.first_row, len(batch), spec.folds)
    dropped = 0
    if spec.drop_missing or read_options().drop_missing:
        kept = _complete_rows(batch, spec, describe_row)
        dropped = len(batch) - len(kept)
    if dropped:
        batch = batch.take(kept)
        folds = None if folds is None else folds[kept]
        if len(batch) == 0:
            return dropped
    where: dict[str, Any] = {"describe_row": (lambda row: describe_row(int(kept[row]))) if dropped else describe_row}
    score, label = spec.name_of("score"), spec.name_of("label")
    weights: FloatArray | None = None
    if batch.weight is None and spec.score_type == "probability" and spec.negatives_kept == 1.0:
        # The usual rows are validated by the loop that adds them; only if it refuses them is the reason found out.
        labels = label_floats(batch.label, label, **where)
        scores = as_floats(batch.score, score, **where)
    else:
        labels = labels_column(batch.label, name=label, **where)
        if batch.weight is not None:
            weights = weights_column(batch.weight, name=spec.name_of("weight"), **where)
        labels, weights = restore_negatives(labels, weights, spec.negatives_kept)
        scores = scores_column(batch.score, score_type=spec.score_type, name=score, clip=False, **where)
    inverse = None
    if "propensity" in batch.more:
        inverse = accumulator.inverse.of(batch.more["propensity"], spec.name_of("propensity"), where)
        weights = inverse if weights is None else weights * inverse
        accumulator.inverse.squares += float((weights * inverse).sum())
    value = None
    for role in set(batch.more) & {"value", "value_per_positive"}:
        value_name = spec.name_of(role)
        value = as_floats(batch.more[role], value_name, **where)
        if role == "value_per_positive":
            value = np.where(labels > 0.0, value, 0.0)
        accumulator.value_kind = "row" if role == "value" else "positive"
    if largest_weight is not None and weights is not None:
        largest_weight.value = max(largest_weight.value, float(weights.max(initial=0.0)))
    if batch.folds is not None:
        folds = folds_column(batch.folds, name=spec.name_of("folds"), **where)
    if not accumulator.add(scores, labels, weights, batch.fields, folds, value, inverse):
        labels_column(labels, name=label, **where)
        scores_column(scores, name=score, **where)
        if value is not None:
            values_column(value, labels, name=value_name, **where)
    return dropped


def _complete_rows(batch: Batch, spec: RowSpec, describe_row: DescribeRow) -> IntArray:
    """Return the indices of the rows that have a score, a label and a weight."""
    score = as_floats(batch.score, spec.name_of("score"), describe_row)
    label = label_floats(batch.label, spec.name_of("label"), describe_row)
    complete = np.isfinite(score) if spec.score_type == "probability" else ~np.isnan(score)
    complete &= np.isfinite(label)
    for role, column in {"weight": batch.weight, **batch.more}.items():
        if column is not None:
            known = np.isfinite(as_floats(column, spec.name_of(role), describe_row))
            complete &= (known | (label <= 0.0)) if role == "value_per_positive" else known
    return np.flatnonzero(complete)


# Sketch columns in memory, some rows at a time.

ROWS_AT_A_TIME = 1 << 18
"""Rows validated and added at a time: the temporary columns stay in the cache."""


def sketch_columns(rows: Batch, spec: RowSpec) -> Sketch:
    """Sketch whole columns in memory; with a column of folds, `spec` need not say how many there are."""
    others = {role: _column(values, spec.name_of(role)) for role, values in rows.more.items()}
    if "value" in others and "value_per_positive" in others:
        raise InputError("value and value_per_positive were both given; give the one that is known")
    names = {role: spec.name_of(role) for role in ("score", "label", "weight", "folds")}
    score, label = _column(rows.score, names["score"]), _column(rows.label, names["label"])
    weight = None if rows.weight is None else _column(rows.weight, names["weight"])
    fold = None if rows.folds is None else folds_column(rows.folds, name=names["folds"])
    lengths = dict(zip(names.values(), (score, label, weight, fold), strict=True))
    check_lengths(**lengths, **{f"field {column.name}": column for column in rows.fields}, **others)
    if len(score) == 0:
        raise InputError(f"{names['score']} is empty; at least one row is needed")
    whole = Batch(0, score, label, weight, fold, rows.fields, others)
    starts = range(0, len(score), ROWS_AT_A_TIME)
    parts = (replace(whole.take(slice(start, start + ROWS_AT_A_TIME)), first_row=start) for start in starts)
    spec = spec if fold is None else replace(spec, folds=int(fold.max()) + 1)
    return sketch_batches(parts, spec, Origin())


def _column(values: Any, name: str) -> Any:
    """Return a column as an array; strings and other objects as numbers at once, since slices of them are slow."""
    array = as_array(values, name)
    return as_floats(values, name) if array.dtype == object and hasattr(values, "null_count") else array
