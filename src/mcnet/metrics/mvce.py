"""Multi-view calibration error: the mean error of random bins, and how much of it is noise."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.intervals import normal_interval
from mcnet.metrics.probability_columns import columns

__all__ = ["mean_mvce", "mvce"]


def mvce(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    bin_size: int = 1000,
    level: float = 0.95,
) -> Estimate:
    """Return the mean of `|mean p − mean y|` over random bins of `bin_size` rows.

    It is defined by shuffling the rows many times; this is the value that the shuffles converge to. The
    error of a random bin is normal with the overall bias μ as its mean and `s²/n · (1 − n/N)` as its
    variance, s² being the variance of p − y, so its mean absolute value is known: no draw, no seed, and
    cells of a sketch count as their rows. As the bins are random, it sees the overall bias and noise,
    nothing else: read it against its floor `√(2/π) · √(mean p(1−p) / n)`.
    """
    return mean_mvce([columns(probabilities, labels, weight)], bin_size=bin_size, level=level)


def mean_mvce(
    parts: Sequence[tuple[FloatArray, FloatArray, FloatArray]], *, bin_size: int = 1000, level: float = 0.95
) -> Estimate:
    """Return the mean of the error over parts of the rows (p, y, w), each weighted by its rows."""
    if bin_size < 1:
        raise InputError(f"bin_size is {bin_size}; at least one row per bin is needed")
    share = np.array([w.sum() for _, _, w in parts])
    share /= share.sum()
    values, errors, floors = np.array([_error(p, y, w, bin_size) for p, y, w in parts]).T
    value = float(share @ values)
    low, high = normal_interval(value, float(np.sqrt(share**2 @ errors**2)), level)
    return Estimate(value, max(low, 0.0), high, float(share @ floors))


def _error(p: FloatArray, y: FloatArray, w: FloatArray, bin_size: int) -> tuple[float, float, float]:
    """Return the error of random bins, its standard error and its noise floor."""
    total = w.sum()
    size = min(float(bin_size), float(total))
    positive = w * y
    negative = w - positive
    bias = float((positive @ (p - 1) + negative @ p) / total)
    if_positive, if_negative = p - 1 - bias, p - bias
    spread = float((positive @ if_positive**2 + negative @ if_negative**2) / total)
    left = 1 - size / total
    value, by_bias, by_variance, bend = _folded(bias, spread * left / size)
    by_spread = by_variance * left / size
    # Where the bias may be noise, so is the slope there; the bend of the curve then takes over.
    noise = spread / total
    by_bias *= np.sqrt(max(1 - noise / bias**2, 0.0)) if bias else 0.0
    influence = [by_bias * part + by_spread * (part**2 - spread) for part in (if_positive, if_negative)]
    first_order = (positive @ influence[0] ** 2 + negative @ influence[1] ** 2) / total**2
    second_order = 0.5 * (bend * noise) ** 2
    error = float(np.sqrt(first_order + second_order))
    return value, error, float(np.sqrt(2 / np.pi * (w @ (p * (1 - p))) / total / size))


def _folded(mean: float, variance: float) -> tuple[float, float, float, float]:
    """Return E|X| of a normal X, its derivatives by mean and by variance, and the second one by mean."""
    if variance <= 0:
        return abs(mean), float(np.sign(mean)), 0.0, 0.0
    deviation = np.sqrt(variance)
    ratio = mean / deviation
    peak = float(np.exp(-0.5 * ratio * ratio) / (np.sqrt(2 * np.pi) * deviation))
    slope = 1 - 2 * float(ndtr(-ratio))
    return float(2 * variance * peak + mean * slope), slope, peak, 2 * peak
