"""Errors over bins of the probability: Prob-ECE, Cal-N, and the reliability table."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.field_error import f_ece
from mcnet.metrics.group_sums import GroupSums, group_sums
from mcnet.metrics.intervals import wilson
from mcnet.metrics.probability_columns import columns, order_by_probability
from mcnet.metrics.truth_interval import error_interval

__all__ = [
    "Reliability",
    "cal_n",
    "equal_mass_bins",
    "equal_width_bins",
    "prob_ece",
    "prob_ece_width",
    "reliability",
    "reliability_of_bins",
]


def equal_mass_bins(p: FloatArray, w: FloatArray, bins: int) -> npt.NDArray[np.intp]:
    """Return the bin of each row, for bins of about equal weight; equal probabilities share a bin.

    A bin ends with the probability at which the weight so far reaches `j/bins` of the total, so there
    may be fewer bins than asked for, and none is empty.

    >>> equal_mass_bins(np.array([0.3, 0.1, 0.1, 0.2]), np.ones(4), 2).tolist()
    [1, 0, 0, 1]
    """
    _check_bins(bins)
    order = order_by_probability(p)
    ordered, weights = p[order], w[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    below = np.cumsum(weights) - weights
    # The nudge makes sums of fractional weights that differ only in rounding fall into the same bin.
    crossed = np.floor(below[first] * (bins / weights.sum()) + 1e-9)
    numbers = np.cumsum(np.concatenate(([0], (np.diff(crossed) > 0).astype(np.intp))))
    found: npt.NDArray[np.intp] = numbers[np.cumsum(first) - 1]
    if isinstance(order, slice):
        return found
    result = np.empty_like(found)
    result[order] = found
    return result


def equal_width_bins(p: FloatArray, bins: int) -> npt.NDArray[np.intp]:
    """Return the bin of each row, for bins of equal width; p = 1 belongs to the last.

    >>> equal_width_bins(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [0, 1, 1]
    """
    _check_bins(bins)
    return np.minimum((p * bins).astype(np.intp), bins - 1)


def prob_ece(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    bins: int = 20,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Calibration error over bins of equal weight: `(1/|D|) Σ_k |Σ_bin(y − p)|`."""
    p, y, w = columns(probabilities, labels, weight)
    return f_ece(group_sums(p, y, equal_mass_bins(p, w, bins), w), level=level, seed=seed)


def prob_ece_width(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    bins: int = 100,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Calibration error over bins of equal width; at click rates nearly all rows share a few of them."""
    p, y, w = columns(probabilities, labels, weight)
    return f_ece(group_sums(p, y, equal_width_bins(p, bins), w), level=level, seed=seed)


def cal_n(sums: GroupSums, *, delta: float = 0.0, level: float = 0.95, seed: int = 0) -> Estimate:
    """Root mean square of the bins' PCOC errors: `√ mean e²`, e = PCOC − 1 if PCOC ≥ 1, else 1/PCOC − 1.

    `sums` are those of equal-mass bins. A bin without positives, or whose probabilities are all 0, makes it
    infinite; `delta` > 0 is added to both sums of every bin to avoid that.

    >>> from mcnet.metrics.group_sums import group_sums
    >>> bins = group_sums([0.25, 0.5], [0.5, 0.375], [0, 1])
    >>> round(cal_n(bins).value, 3)
    0.745
    """
    kept = sums.where(sums.weight > 0)
    predicted, positives = kept.predicted + delta, kept.positives + delta
    if not (predicted.all() and positives.all()):
        lacking = {"no positives": positives == 0, "only probabilities of 0": predicted == 0}
        found = [f"{int(bins.sum())} of {len(kept)} bins have {what}" for what, bins in lacking.items() if bins.any()]
        return Estimate(np.inf, note=f"{' and '.join(found)}: use fewer bins or delta > 0")

    def error(drawn: FloatArray) -> FloatArray:
        # A draw without positives counts as half of one: its error is large, not infinite.
        log_pcoc = np.log(predicted / np.maximum(drawn + delta, 0.5))
        return np.asarray(np.sqrt((np.expm1(np.abs(log_pcoc)) ** 2).mean(axis=-1)))

    low, high = error_interval(kept, error, level, seed)
    value = np.sqrt((np.expm1(np.abs(np.log(predicted / positives))) ** 2).mean())
    # To first order e = |Σy − Σp| / Σp.
    floor = float(np.sqrt((kept.noise_variance / predicted**2).mean()))
    return Estimate(float(value), low, high, floor)


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows, one entry per bin: prediction, observed rate and its interval."""

    lowest: FloatArray
    highest: FloatArray
    weight: FloatArray
    positives: FloatArray
    mean_prediction: FloatArray
    observed: FloatArray
    observed_low: FloatArray
    observed_high: FloatArray

    def __len__(self) -> int:
        return self.weight.size

    def to_dict(self) -> dict[str, list[float]]:
        """Return the columns as lists."""
        return {name: column.tolist() for name, column in vars(self).items()}


def reliability(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    bins: int = 20,
    level: float = 0.95,
) -> Reliability:
    """Compare mean prediction and observed rate (with Wilson's interval) in bins of about equal weight.

    >>> table = reliability([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 0], bins=2)
    >>> np.round(table.mean_prediction, 2).tolist(), table.observed.tolist()
    ([0.15, 0.35], [0.0, 0.5])
    """
    p, y, w = columns(probabilities, labels, weight)
    p, y, w = p[w > 0], y[w > 0], w[w > 0]
    order = order_by_probability(p)
    p, y, w = p[order], y[order], w[order]
    found = equal_mass_bins(p, w, bins)
    return reliability_of_bins(p, found, group_sums(p, y, found, w), level)


def reliability_of_bins(p: FloatArray, found: npt.NDArray[np.intp], sums: GroupSums, level: float) -> Reliability:
    """Return the reliability table of sorted probabilities whose bins and sums are known already."""
    ends = np.flatnonzero(np.diff(found, append=found[-1] + 1))
    starts = np.concatenate(([0], ends[:-1] + 1))
    low, high = wilson(sums.positives, sums.weight, level)
    return Reliability(
        lowest=p[starts],
        highest=p[ends],
        weight=sums.weight,
        positives=sums.positives,
        mean_prediction=sums.predicted / sums.weight,
        observed=sums.positives / sums.weight,
        observed_low=low,
        observed_high=high,
    )


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise InputError(f"bins is {bins}; at least one bin is needed")
