"""Types of arrays, and small mathematics on them: logits, sigmoids, log-loss, clipping, sums by group."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# The types of arrays, one name each.

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]
IndexArray = NDArray[np.integer]
"""Whole numbers of any width."""
MaskArray = NDArray[np.bool_]
ScoreType = Literal["probability", "logit"]
"""What the scores are: probabilities in [0, 1], or logits."""


# Small mathematics that every package uses: logits, sigmoids, log-loss, clipping, sums by group.

SCORE_FLOOR = 1e-7
"""Scores are clipped to [SCORE_FLOOR, 1 - SCORE_FLOOR], so that every logit is finite."""

PROBABILITY_FLOOR = 1e-12
"""Calibrated probabilities stay inside [PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR]."""


ROWS_AT_A_TIME = 1_000_000
"""Rows or cells that are computed together, where there may be so many that their memory counts."""

_FEW_ENOUGH_FOR_THE_CACHE = 16_384
"""This many numbers go through several steps one after the other without leaving the cache."""


def sigmoid(logits: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    if np.size(logits) > _FEW_ENOUGH_FOR_THE_CACHE:
        flat = np.ascontiguousarray(logits).reshape(-1)
        return by_pieces(sigmoid, flat, size=_FEW_ENOUGH_FOR_THE_CACHE).reshape(np.shape(logits))
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def softplus(logits: FloatArray) -> FloatArray:
    """Return log(1 + exp(x)) without overflow; NumPy's logaddexp(0, x) takes twice the time."""
    return np.asarray(np.maximum(logits, 0.0) + np.log1p(np.exp(-np.abs(logits))))


def logit(probabilities: FloatArray) -> FloatArray:
    """Return log(p / (1 - p)) of probabilities strictly inside (0, 1)."""
    return np.log(probabilities) - np.log1p(-probabilities)


def log_loss_sum(logits: FloatArray, weight: FloatArray, positives: FloatArray) -> float:
    """Return Σ w·log(1 + e^f) − Σ positives·f, the log-loss of all rows together."""
    return float(weight @ softplus(logits) - positives @ logits)


def sums_by(index: NDArray[Any], values: FloatArray, number: int) -> FloatArray:
    """Return the sum of the values at each index 0 … number − 1.

    >>> sums_by(np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]), 3)
    array([4., 0., 2.])
    """
    size = max(ROWS_AT_A_TIME, number)
    total = np.bincount(index[:size], weights=values[:size], minlength=number).astype(np.float64, copy=False)
    for start in range(size, len(index), size):
        piece = slice(start, start + size)
        total += np.bincount(index[piece], weights=values[piece], minlength=number)
    return total


def by_pieces(function: Callable[..., FloatArray], *columns: NDArray[Any], size: int = ROWS_AT_A_TIME) -> FloatArray:
    """Return function(*columns), which works number by number, computed in pieces that need little memory.

    >>> by_pieces(np.sqrt, np.array([4.0, 9.0]))
    array([2., 3.])
    """
    number = len(columns[0])
    if number <= size:
        return function(*columns)
    result = np.empty(number)
    for start in range(0, number, size):
        piece = slice(start, start + size)
        result[piece] = function(*(column[piece] for column in columns))
    return result


def clip_scores(scores: FloatArray) -> FloatArray:
    """Return the scores moved into [SCORE_FLOOR, 1 - SCORE_FLOOR]."""
    return np.clip(scores, SCORE_FLOOR, 1.0 - SCORE_FLOOR)


def clip_probabilities(probabilities: FloatArray) -> FloatArray:
    """Return the probabilities moved into [PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR]."""
    return np.clip(probabilities, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)


def inside_unit(*columns: FloatArray) -> bool:
    """Tell whether no column has a value outside [0, 1], nor NaN."""
    # NaN fails both comparisons, so one look at the extremes settles the usual case without a mask.
    return all(len(column) == 0 or bool(column.min() >= 0.0 and column.max() <= 1.0) for column in columns)
