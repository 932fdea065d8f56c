"""Proper scores, their differences, and the distance to a known truth."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.intervals import normal_interval
from mcnet.metrics.probability_columns import columns

__all__ = ["Difference", "brier", "excess_log_loss", "kl_to_truth", "log_loss", "log_loss_difference"]

CLIP = 1e-15


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, its standard error and interval; negative when the first prediction is better."""

    value: float
    standard_error: float
    low: float
    high: float


def log_loss(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    clip: float = CLIP,
    level: float = 0.95,
) -> Estimate:
    """Return the mean of `−y·log p − (1−y)·log(1−p)`, with p clipped to `[clip, 1 − clip]`.

    >>> round(log_loss([0.25, 0.5], [0, 1]).value, 6)
    0.490415
    """
    p, y, w = columns(probabilities, labels, weight)
    if_positive, if_negative = _log_terms(p, clip)
    return _mean(-if_positive, -if_negative, y, w, level)


def brier(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
) -> Estimate:
    """Return the mean squared error of the probabilities: `mean (p − y)²`.

    >>> brier([0.25, 0.5], [0, 1]).value
    0.15625
    """
    p, y, w = columns(probabilities, labels, weight)
    return _mean((1 - p) ** 2, p * p, y, w, level)


def log_loss_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    clip: float = CLIP,
    level: float = 0.95,
) -> Difference:
    """Log-loss of the first prediction minus that of the second, on the same rows.

    The rows are paired, so what both predictions find hard cancels, and the standard error is that of the
    difference.

    >>> round(log_loss_difference([0.4, 0.6], [0.5, 0.5], [0, 1]).value, 4)
    -0.1823
    """
    p, y, w = columns(first, labels, weight)
    q, _, _ = columns(second, labels, weight)
    (p1, p0), (q1, q0) = _log_terms(p, clip), _log_terms(q, clip)
    value, error = _moments(q1 - p1, q0 - p0, y, w)
    return Difference(value, error, *normal_interval(value, error, level))


def excess_log_loss(
    probabilities: npt.ArrayLike,
    truth: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    clip: float = CLIP,
    level: float = 0.95,
) -> Estimate:
    """Log-loss minus the log-loss of the true probabilities on the same labels."""
    found = log_loss_difference(probabilities, truth, labels, weight, clip=clip, level=level)
    return Estimate(found.value, found.low, found.high)


def kl_to_truth(
    probabilities: npt.ArrayLike,
    truth: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    clip: float = CLIP,
    level: float = 0.95,
) -> Estimate:
    """Return the mean of `t·log(t/p) + (1−t)·log((1−t)/(1−p))`: the excess log-loss without the noise of the labels.

    >>> kl_to_truth([0.2, 0.3], [0.2, 0.3]).value
    0.0
    """
    p, t, w = columns(probabilities, truth, weight)
    (p1, p0), (t1, t0) = _log_terms(p, clip), _log_terms(t, clip)
    divergence = t * (t1 - p1) + (1 - t) * (t0 - p0)
    value, error = _moments(divergence, divergence, t, w)
    low, high = normal_interval(value, error, level)
    return Estimate(value, max(low, 0.0), high)


def _log_terms(p: FloatArray, clip: float) -> tuple[FloatArray, FloatArray]:
    if not 0 < clip < 0.5:
        raise InputError(f"clip is {clip}; it must lie between 0 and 0.5, for example 1e-15")
    inside = np.clip(p, clip, 1 - clip)
    return np.log(inside), np.log1p(-inside)


def _mean(if_positive: FloatArray, if_negative: FloatArray, y: FloatArray, w: FloatArray, level: float) -> Estimate:
    value, error = _moments(if_positive, if_negative, y, w)
    low, high = normal_interval(value, error, level)
    return Estimate(value, max(low, 0.0), high)  # no loss is below 0


def _moments(if_positive: FloatArray, if_negative: FloatArray, y: FloatArray, w: FloatArray) -> tuple[float, float]:
    """Return the mean and its standard error of a loss known for either label; w·y rows are positive."""
    total = w.sum()
    positive = w * y
    negative = w - positive
    value = (positive @ if_positive + negative @ if_negative) / total
    variance = positive @ (if_positive - value) ** 2 + negative @ (if_negative - value) ** 2
    return float(value), float(np.sqrt(variance) / total)
