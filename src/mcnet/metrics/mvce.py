"""Multi-view calibration error: the mean error of random bins, and how much of it is noise."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.field_error import f_ece
from mcnet.metrics.group_sums import group_sums, joined_sums
from mcnet.metrics.probability_columns import columns

__all__ = ["mean_mvce", "mvce"]


def mvce(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    bin_size: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Return the mean of `|mean p − mean y|` over random bins of `bin_size` rows.

    It is defined by shuffling the rows many times; this is the value that the shuffles converge to. The
    error of a random bin is normal with the overall bias μ as its mean and `s²/n · (1 − n/N)` as its
    variance, s² being the variance of p − y, so its mean absolute value is known: no draw, no seed, and
    cells of a sketch count as their rows. As the bins are random, it sees the overall bias and noise,
    nothing else: read it against its floor `√(2/π) · √(mean p(1−p) / n)`. Without noise the bias |μ| is
    left: the interval is that of |μ|, as for every other error, and may lie below the value.
    """
    return mean_mvce([columns(probabilities, labels, weight)], bin_size=bin_size, level=level, seed=seed)


def mean_mvce(
    parts: Sequence[tuple[FloatArray, FloatArray, FloatArray]],
    *,
    bin_size: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Return the mean of the error over parts of the rows (p, y, w), each weighted by its rows."""
    if bin_size < 1:
        raise InputError(f"bin_size is {bin_size}; at least one row per bin is needed")
    share = np.array([w.sum() for _, _, w in parts])
    share /= share.sum()
    values, floors = np.array([_error(p, y, w, bin_size) for p, y, w in parts]).T
    # The weighted mean of the parts' biases is the error of a field whose values are the parts.
    bias = f_ece(joined_sums([group_sums(p, y, None, w) for p, y, w in parts]), level=level, seed=seed)
    return Estimate(float(share @ values), bias.low, bias.high, float(share @ floors))


def _error(p: FloatArray, y: FloatArray, w: FloatArray, bin_size: int) -> tuple[float, float]:
    """Return the error of random bins and its noise floor."""
    total = w.sum()
    size = min(float(bin_size), float(total))
    positive = w * y
    negative = w - positive
    bias = float((positive @ (p - 1) + negative @ p) / total)
    spread = float((positive @ (p - 1 - bias) ** 2 + negative @ (p - bias) ** 2) / total)
    value = _mean_absolute(bias, spread * (1 - size / total) / size)
    return value, float(np.sqrt(2 / np.pi * (w @ (p * (1 - p))) / total / size))


def _mean_absolute(mean: float, variance: float) -> float:
    """Return E|X| of a normal X."""
    if variance <= 0:
        return abs(mean)
    deviation = np.sqrt(variance)
    ratio = mean / deviation
    density = np.exp(-0.5 * ratio * ratio) / np.sqrt(2 * np.pi)
    return float(2 * deviation * density + mean * (1 - 2 * ndtr(-ratio)))
