"""Validated columns: scores, labels and weights of any array-like as plain float64 arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, inside_unit, sigmoid
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.tables import refuse_lazy
from mcnet.errors import InputError

__all__ = [
    "DescribeRow",
    "as_array",
    "as_floats",
    "check_lengths",
    "check_total_weight",
    "describe_row",
    "label_floats",
    "labels_column",
    "scores_column",
    "weights_column",
    "without_mask",
]

DescribeRow = Callable[[int], str]
"""Names a row for messages, given its number in all rows: "row 3", or "row 3 of b.parquet"."""

_WIDE_INTEGERS = ("Int128", "UInt128")
"""Types of Polars that NumPy does not have."""


def describe_row(row: int) -> str:
    """Name a row of columns in memory."""
    return f"row {row}"


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Return any array-like (NumPy, pandas, Polars, Arrow, list, scalar sequence) as one NumPy array."""
    array: NDArray[Any]
    refuse_lazy(values, name)
    if isinstance(values, np.ndarray):
        array = without_mask(values)
    elif hasattr(values, "to_numpy"):
        array = _table_column(values)
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


def _table_column(values: Any) -> NDArray[Any]:
    """Return a column of pandas, Polars or Arrow as an array."""
    if str(getattr(values, "dtype", "")) in _WIDE_INTEGERS:
        return np.array(values.to_list(), dtype=object)
    try:
        return np.asarray(values.to_numpy())
    except Exception:
        # Arrow refuses a copy (nulls, booleans, several chunks) unless it is asked for by its own name.
        return np.asarray(values.to_numpy(zero_copy_only=False))


def as_floats(values: Any, name: str, first_row: int = 0, describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return a column as float64, missing values as NaN; refuse what is not a number."""
    array = as_array(_polars_floats(values), name)
    if array.dtype.kind in "cmM":
        raise InputError(f"{name} is a column of {array.dtype}, not of plain numbers; convert the column first")
    try:
        if not _has_odd_texts(array):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    numbers = [_number(value, name, first_row + row, describe_row) for row, value in enumerate(array.tolist())]
    return np.array(numbers, dtype=np.float64)


def label_floats(values: Any, name: str, first_row: int = 0, describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return a column of labels as `as_floats` does; the strings true and false are 1 and 0.

    >>> label_floats(["true", "False", "1"], "label")
    array([1., 0., 1.])
    """
    try:
        return as_floats(values, name, first_row, describe_row)
    except InputError:
        listed = as_array(values, name).tolist()
        flags = [_FLAGS.get(value.lower(), value) if isinstance(value, str) else value for value in listed]
        if all(one is other for one, other in zip(flags, listed, strict=True)):
            raise
    return as_floats(flags, name, first_row, describe_row)


_FLAGS = {"true": 1.0, "false": 0.0}


def _has_odd_texts(array: NDArray[Any]) -> bool:
    """Tell whether there is a text such as 0_1, which Python takes for a number."""
    return array.dtype.kind in "OUS" and any(_is_odd(value) for value in array.tolist())


def _is_odd(value: Any) -> bool:
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
        problem = f"{name} is not a number in {describe_row(row)}: {value!r}; convert the column first"
        raise InputError(problem) from None
    except OverflowError:
        problem = f"{name} is a number beyond the largest float in {describe_row(row)}; check the column"
        raise InputError(problem) from None


def _refuse(
    name: str,
    bad: NDArray[np.bool_],
    values: FloatArray,
    what: str,
    advice: str,
    first_row: int,
    describe_row: DescribeRow,
) -> None:
    if bad.any():
        rows = np.flatnonzero(bad)
        count = f"{len(rows):,} value{'s' if len(rows) > 1 else ''}"
        # All digits: 1.0000001 must not read as 1.
        first = f"{describe_row(first_row + int(rows[0]))}, {repr(float(values[rows[0]])).removesuffix('.0')}"
        raise InputError(f"{name} has {count} {what} (first: {first}); {advice}")


def _require_rows(name: str, values: FloatArray) -> None:
    if len(values) == 0:
        raise InputError(f"{name} is empty; at least one row is needed")


def scores_column(
    values: Any,
    *,
    score_type: ScoreType = "probability",
    name: str = "score",
    first_row: int = 0,
    describe_row: DescribeRow = describe_row,
    clip: bool = True,
) -> FloatArray:
    """Return scores as probabilities, clipped to [SCORE_FLOOR, 1 - SCORE_FLOOR].

    Parameters
    ----------
    values : a column of numbers.
    score_type : "probability" for numbers in [0, 1], "logit" for any numbers.
    name, first_row, describe_row : what messages call the column and its rows.
    clip : whether to clip; False saves a copy where the next step clips anyway.

    >>> scores_column([0.0, 0.25])
    array([1.0e-07, 2.5e-01])
    >>> scores_column([-1.0986122886681098], score_type="logit").round(6)
    array([0.25])
    """
    if score_type not in ("probability", "logit"):
        raise InputError(f"score_type is {score_type!r}; it must be 'probability' or 'logit'")
    scores = as_floats(values, name, first_row, describe_row)
    _require_rows(name, scores)
    if score_type == "logit":
        _refuse(name, np.isnan(scores), scores, "missing or NaN", "drop or fill these rows", first_row, describe_row)
        scores = sigmoid(scores)
        return clip_scores(scores) if clip else scores
    if not inside_unit(scores):
        _refuse(
            name,
            ~np.isfinite(scores),
            scores,
            "missing, NaN or infinite",
            "drop or fill these rows",
            first_row,
            describe_row,
        )
        outside = (scores < 0.0) | (scores > 1.0)
        _refuse(
            name,
            outside,
            scores,
            "outside [0, 1]",
            "pass logits with score_type='logit', percentages divided by 100",
            first_row,
            describe_row,
        )
    return clip_scores(scores) if clip else scores


def labels_column(
    values: Any, *, name: str = "label", first_row: int = 0, describe_row: DescribeRow = describe_row
) -> FloatArray:
    """Return labels as float64 in [0, 1]: 0/1, booleans (also as strings), or fractions of aggregated rows.

    >>> labels_column([True, False, 1])
    array([1., 0., 1.])
    """
    labels = label_floats(values, name, first_row, describe_row)
    _require_rows(name, labels)
    if not inside_unit(labels):
        _refuse(
            name, ~np.isfinite(labels), labels, "missing, NaN or infinite", "drop these rows", first_row, describe_row
        )
        advice = "labels are 0/1, booleans, or fractions with the number of impressions as weight"
        _refuse(name, (labels < 0.0) | (labels > 1.0), labels, "outside [0, 1]", advice, first_row, describe_row)
    return labels


LEAST_TOTAL_WEIGHT, MOST_TOTAL_WEIGHT = 1e-100, 1e100
"""Total weights that rows may be judged and followed over time with: squares of them are computed."""


def weights_column(
    values: Any, *, name: str = "weight", first_row: int = 0, describe_row: DescribeRow = describe_row
) -> FloatArray:
    """Return weights as finite float64 ≥ 0.

    >>> weights_column([1, 0.5])
    array([1. , 0.5])
    """
    weights = as_floats(values, name, first_row, describe_row)
    _require_rows(name, weights)
    if not (weights.min() >= 0.0 and weights.max() < np.inf):
        _refuse(
            name,
            ~np.isfinite(weights),
            weights,
            "missing, NaN or infinite",
            "give them a number",
            first_row,
            describe_row,
        )
        _refuse(
            name, weights < 0.0, weights, "below 0", "weights are counts or importances ≥ 0", first_row, describe_row
        )
    return weights


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
        found = ", ".join(f"{name} has {n:,}" for name, n in lengths.items())
        raise InputError(f"the columns differ in length: {found} rows; they must describe the same rows")
