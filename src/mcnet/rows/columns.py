"""Validated columns: scores, labels and weights of any array-like as plain float64 arrays."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, ScoreType, clip_scores, inside_unit, sigmoid
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError
from mcnet.rows.fields import FieldColumn, field_column, refuse_lazy


class RowName(str):
    """A row as messages call it, "row 3" or "row 3 of b.parquet", and its index there."""

    row: int
    file: str | None

    def __new__(cls, words: str, row: int, file: str | None = None) -> "RowName":
        """Return the words, with the row's index and, of several files, its file."""
        name = super().__new__(cls, words)
        name.row, name.file = row, file
        return name


DescribeRow = Callable[[int], RowName]
"""Names a row for messages, given its index in the column."""

LOGITS_ADVICE = Advice(
    "pass logits with {score_type}, percentages divided by 100",
    service="send logits with {score_type}, percentages divided by 100",
    score_type="logit",
)

_WIDE_INTEGERS = ("Int128", "UInt128")
"""Types of Polars that NumPy does not have."""


def describe_row(row: int) -> RowName:
    """Name a row of columns in memory."""
    return RowName(f"row {row}", row)


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Return any array-like (NumPy, pandas, Polars, Arrow, list, scalar sequence) as one NumPy array."""
    array: NDArray[Any]
    refuse_lazy(values, name)
    if isinstance(values, np.ndarray):
        array = without_mask(values)
    elif str(getattr(values, "dtype", "")) in _WIDE_INTEGERS:
        array = np.array(values.to_list(), dtype=object)
    elif hasattr(values, "to_numpy"):
        try:
            array = np.asarray(values.to_numpy())
        except Exception:
            # Arrow refuses a copy (nulls, booleans, several chunks) unless it is asked for by its own name.
            array = np.asarray(values.to_numpy(zero_copy_only=False))
    elif isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(f"{name} is {type(values).__name__} {values!r}, not a column; pass an array or a list")
    else:
        array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; pass a one-dimensional column")
    return array


def without_mask(values: Any) -> Any:
    """Return a masked array of NumPy as a plain one: masked values are missing ones (NaN among numbers, else None).

    >>> without_mask(np.ma.array([0.3, 0.4], mask=[False, True]))
    array([0.3, nan])
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return values.data
    if values.dtype.kind in "biuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    return np.array(values.tolist(), dtype=object)


def as_floats(values: Any, name: str, describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return a column as float64, missing values as NaN; refuse what is not a number."""
    array = as_array(_polars_floats(values), name)
    if array.dtype.kind in "cmM":
        raise InputError(f"{name} is a column of {array.dtype}, not of plain numbers; convert the column first")
    try:
        if array.dtype.kind not in "OUS" or not any(map(_is_odd, array.tolist())):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    numbers = [_number(value, name, row, describe_row) for row, value in enumerate(array.tolist())]
    return np.array(numbers, dtype=np.float64)


def label_floats(values: Any, name: str, describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return a column of labels as `as_floats` does; the strings true and false are 1 and 0.

    >>> label_floats(["true", "False", "1"], "label")
    array([1., 0., 1.])
    """
    try:
        return as_floats(values, name, describe_row)
    except InputError:
        listed = as_array(values, name).tolist()
        flags = [_FLAGS.get(value.lower(), value) if isinstance(value, str) else value for value in listed]
        if all(one is other for one, other in zip(flags, listed, strict=True)):
            raise
    return as_floats(flags, name, describe_row)


_FLAGS = {"true": 1.0, "false": 0.0}


def _is_odd(value: Any) -> bool:
    """Tell whether this is a string such as 0_1, which Python takes for a number."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return isinstance(text, str) and ("_" in text or not text.isascii())


def _polars_floats(values: Any) -> Any:
    """Return a Polars column of texts or of wide integers as floats if it is all numbers: Python is far slower."""
    if str(getattr(values, "dtype", "")) not in ("String", *_WIDE_INTEGERS) or not hasattr(values, "null_count"):
        return values
    import polars as pl

    numbers = values.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == values.null_count() else values


def _number(value: Any, name: str, row: int, describe_row: DescribeRow) -> float:
    if value is None or type(value).__name__ == "NAType":
        return float("nan")
    try:
        if _is_odd(value):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        where = describe_row(row)
        problem = f"{name} is not a number in {where}: {value!r}; convert the column first"
        raise InputError(problem, column=name, row=where.row, file=where.file, found=value) from None
    except OverflowError:
        where = describe_row(row)
        problem = f"{name} is a number beyond the largest float in {where}; check the column"
        raise InputError(problem, column=name, row=where.row, file=where.file) from None


def _refuse(
    name: str,
    bad: NDArray[np.bool_],
    values: FloatArray,
    what: str,
    advice: Advice | str,
    describe_row: DescribeRow,
) -> None:
    if bad.any():
        rows = np.flatnonzero(bad)
        count = f"{len(rows):,} value{'s' if len(rows) > 1 else ''}"
        # All digits: 1.0000001 must not read as 1.
        where, value = describe_row(int(rows[0])), float(values[rows[0]])
        problem = f"{name} has {count} {what} (first: {where}, {repr(value).removesuffix('.0')})"
        raise InputError(problem, advice=advice, column=name, row=where.row, file=where.file, found=value)


def _require_rows(name: str, values: FloatArray) -> None:
    if len(values) == 0:
        raise InputError(f"{name} is empty; at least one row is needed")


def scores_column(
    values: Any,
    *,
    score_type: ScoreType = "probability",
    name: str = "score",
    describe_row: DescribeRow = describe_row,
    clip: bool = True,
) -> FloatArray:
    """Return scores as probabilities, clipped to [SCORE_FLOOR, 1 - SCORE_FLOOR].

    >>> scores_column([0.0, 0.25])
    array([1.0e-07, 2.5e-01])
    >>> scores_column([-1.0986122886681098], score_type="logit").round(6)
    array([0.25])
    """
    if score_type not in ("probability", "logit"):
        raise InputError(f"score_type is {score_type!r}; it must be 'probability' or 'logit'")
    scores = as_floats(values, name, describe_row)
    _require_rows(name, scores)
    if score_type == "logit":
        _refuse(name, np.isnan(scores), scores, "missing or NaN", "drop or fill these rows", describe_row)
        scores = sigmoid(scores)
    elif not inside_unit(scores):
        _refuse(name, ~np.isfinite(scores), scores, "missing, NaN or infinite", "drop or fill these rows", describe_row)
        outside = (scores < 0.0) | (scores > 1.0)
        _refuse(name, outside, scores, "outside [0, 1]", LOGITS_ADVICE, describe_row)
    return clip_scores(scores) if clip else scores


def labels_column(values: Any, *, name: str = "label", describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return labels as float64 in [0, 1]: 0/1, booleans (also as strings), or fractions of aggregated rows.

    >>> labels_column([True, False, 1])
    array([1., 0., 1.])
    """
    labels = label_floats(values, name, describe_row)
    _require_rows(name, labels)
    if not inside_unit(labels):
        _refuse(name, ~np.isfinite(labels), labels, "missing, NaN or infinite", "drop these rows", describe_row)
        advice = "labels are 0/1, booleans, or fractions with the number of impressions as weight"
        _refuse(name, (labels < 0.0) | (labels > 1.0), labels, "outside [0, 1]", advice, describe_row)
    return labels


LEAST_TOTAL_WEIGHT, MOST_TOTAL_WEIGHT = 1e-100, 1e100
"""Total weights that rows may be judged and followed over time with: squares of them are computed."""


def weights_column(values: Any, *, name: str = "weight", describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return weights as finite float64 ≥ 0.

    >>> weights_column([1, 0.5])
    array([1. , 0.5])
    """
    weights = as_floats(values, name, describe_row)
    _require_rows(name, weights)
    if not (weights.min() >= 0.0 and weights.max() < np.inf):
        _refuse(name, ~np.isfinite(weights), weights, "missing, NaN or infinite", "give them a number", describe_row)
        _refuse(name, weights < 0.0, weights, "below 0", "weights are counts or importances ≥ 0", describe_row)
    return weights


def values_column(
    values: Any,
    labels: FloatArray | None = None,
    *,
    name: str = "value",
    advice: Advice | str | None = None,
    describe_row: DescribeRow = describe_row,
) -> FloatArray:
    """Return what the positives of rows are worth, as finite float64 ≥ 0; labels tell where a value may be missing.

    >>> values_column([1, 0.5])
    array([1. , 0.5])
    """
    column = as_floats(values, name, describe_row)
    _require_rows(name, column)
    if not (column.min() >= 0.0 and column.max() < np.inf):
        missing = ~np.isfinite(column)
        per_positive = labels is not None and missing.any() and not missing[labels > 0.0].any()
        usual = VALUE_ADVICE if per_positive else "give them a number, 0 if a positive is worth nothing"
        _refuse(name, missing, column, "missing, NaN or infinite", advice or usual, describe_row)
        _refuse(name, column < 0.0, column, "below 0", advice or NEGATIVE_VALUE_ADVICE, describe_row)
    return column


VALUE_ADVICE = Advice(
    "if it is known for positives alone, pass it as value_per_positive=",
    shell="if it is known for positives alone, name it with --value-per-positive",
)
NEGATIVE_VALUE_ADVICE = "a value is what a positive earns, ≥ 0; take costs off afterwards"


def check_value(value: float) -> float:
    """Return a value per positive, or raise if it is none."""
    if not 0.0 < value < np.inf:
        raise InputError(f"value is {value:g}; what a positive is worth must be a number above 0")
    return value


def check_total_weight(weight: FloatArray) -> None:
    """Raise unless sums of weights, and of their squares, are ordinary numbers; weights of 0 alone pass.

    >>> check_total_weight(np.array([1.0, 0.5]))
    """
    with np.errstate(over="ignore"):
        total = float(np.sum(weight))
    if total != 0.0 and not LEAST_TOTAL_WEIGHT <= total <= MOST_TOTAL_WEIGHT:
        raise InputError(
            f"the weights add up to {total:.3g}; counts of rows lie between {LEAST_TOTAL_WEIGHT:g} and "
            f"{MOST_TOTAL_WEIGHT:g}: multiply or divide all weights by one number"
        )


def check_lengths(**columns: Any) -> None:
    """Raise unless all columns (those not None) have the same number of rows."""
    lengths = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {n:,}" for name, n in lengths.items())
        raise InputError(f"the columns differ in length: {listed} rows; they must describe the same rows")


# Columns of pandas whose indexes tell that they are not in the same order.


def warn_of_other_order(field: Any = None, **columns: Any) -> None:
    """Warn of columns of pandas that have the index of the first one in another order: rows are taken by position."""
    fields = field if isinstance(field, Mapping) else {"field": field}
    indexed = {
        name: column.index
        for name, column in {**columns, **fields}.items()
        if type(column).__module__.partition(".")[0] == "pandas" and hasattr(column, "index")
    }
    if len(indexed) < 2:
        return
    (first, index), *others = indexed.items()
    for name, other in others:
        if other is index or index.equals(other) or len(index) != len(other) or not index.is_unique:
            continue
        if other.isin(index).all() and other.is_unique:
            warn(
                f"{first} and {name} have the same pandas index in another order, and rows are taken by position; "
                f"if they are to go together by index, pass {name}.reindex({first}.index)"
            )
            return


def row_hashes(first_row: int, rows: int) -> NDArray[np.uint64]:
    """Return 64 pseudo-random bits per row number, the same every time: the splitmix64 finaliser."""
    with np.errstate(over="ignore"):
        mixed = np.arange(first_row + 1, first_row + rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


# Undo the down-sampling of negatives, in the weights of rows or in scores.


def check_negatives_kept(negatives_kept: float) -> None:
    """Refuse what is no fraction of negatives."""
    if not 0.0 < negatives_kept <= 1.0:
        raise InputError(f"negatives_kept is {negatives_kept!r}; it must be the fraction of negatives kept, in (0, 1]")


def restore_negatives(
    labels: FloatArray, weights: FloatArray | None, negatives_kept: float
) -> tuple[FloatArray, FloatArray | None]:
    """Return labels and weights as if no negative had been dropped.

    A negative that survived with probability r stands for 1/r of them: w' = w·(y + (1 − y)/r), y' = w·y/w'.

    >>> labels, weights = restore_negatives(np.array([1.0, 0.0]), None, 0.1)
    >>> labels.tolist(), weights.tolist()
    ([1.0, 0.0], [1.0, 10.0])
    """
    check_negatives_kept(negatives_kept)
    if negatives_kept == 1.0:
        return labels, weights
    counts = np.ones_like(labels) if weights is None else weights
    restored = counts * (labels + (1.0 - labels) / negatives_kept)
    positives = counts * labels
    return np.divide(positives, restored, out=np.zeros_like(labels), where=restored > 0.0), restored


def correct_scores(scores: FloatArray, negatives_kept: float) -> FloatArray:
    """Return the score of a model trained on down-sampled negatives: q = p / (p + (1 − p)/r).

    >>> correct_scores(np.array([0.5]), 0.25)
    array([0.2])
    """
    check_negatives_kept(negatives_kept)
    return scores / (scores + (1.0 - scores) / negatives_kept)


# Ids of rows: were the rows to calibrate on held back from the base predictor's training?


def refuse_overlap(row_ids: Any, base_row_ids: Any) -> None:
    """Raise if a row is among those that the base predictor was trained on.

    >>> refuse_overlap([7, 8], [1, 2, 8])
    Traceback (most recent call last):
    ...
    mcnet.errors.InputError: the base predictor was trained on 1 of the 2 rows (first: row 1, id 8); ...
    """
    own, base = as_array(row_ids, "row_ids"), as_array(base_row_ids, "base_row_ids")
    if len(own) == 0 or len(base) == 0:
        return
    if own.dtype.kind in "iu" and base.dtype.kind in "iu":
        shared = np.isin(own, base)
    else:
        column, known = _texts("row_ids", own), set(_texts("base_row_ids", base).values)
        shared = np.array([value in known for value in column.values], dtype=bool)[column.codes]
    if shared.any():
        first = int(shared.argmax())
        raise InputError(
            f"the base predictor was trained on {int(shared.sum()):,} of the {len(own):,} rows "
            f"(first: row {first}, id {own[first]}); an auxiliary network needs rows that were held back from it"
        )


def _texts(name: str, ids: NDArray[Any]) -> FieldColumn:
    column = field_column(name, ids)
    if None in column.values:
        row = int((column.codes == column.values.index(None)).argmax())
        raise InputError(f"{name} is missing in row {row}; every row needs an id")
    return column
