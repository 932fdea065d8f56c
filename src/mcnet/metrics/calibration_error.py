"""Calibration errors: of field values (PCOC, F-RCE, F-ECE, MF-RCE), of bins (Prob-ECE, Cal-N, reliability), MVCE."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from mcnet._shared.arrays import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.intervals import Estimate, error_interval, expected_absolute, expected_relative, two_sided, wilson
from mcnet.metrics.sums import GroupSums, columns, group_sums, joined_sums, order_by_probability

# Calibration by field value: PCOC with its interval and spread, F-RCE, F-ECE, MF-RCE.


def pcoc(sums: GroupSums, *, level: float = 0.95) -> Estimate:
    """Return predicted over observed positives, over all groups: `Σp / Σy`; 1 is calibrated, above 1 over-predicted.

    The interval is the delta method's on the logarithm.

    >>> from mcnet.metrics.sums import group_sums
    >>> pcoc(group_sums([0.25, 0.5], [0, 1])).value
    0.75
    """
    value, low, high = (float(column[0]) for column in group_pcoc(sums.total(), level=level))
    note = "" if np.isfinite(value) else "PCOC needs a positive label, and there is none"
    return Estimate(value, low, high, note=note)


def group_pcoc(sums: GroupSums, *, level: float = 0.95) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each group's PCOC and the ends of its interval; the PCOC is NaN where no label is positive.

    Without positives the lower end is the exact Poisson one: `Σp / −log((1 − level)/2)`; the upper end is
    infinite.
    """
    z = two_sided(level)
    seen = (sums.positives > 0) & (sums.predicted > 0)
    value = np.divide(sums.predicted, sums.positives, out=np.full(len(sums), np.nan), where=sums.positives > 0)
    with np.errstate(over="ignore"):  # much less weight than a row says nothing: the interval has no end
        reach = np.exp(z * np.where(seen, _log_pcoc_error(sums), 0.0))
    low = np.where(seen, value / reach, sums.predicted / -np.log((1 - level) / 2))
    high = np.where(seen, value * reach, np.where(sums.weight > 0, np.inf, np.nan))
    return value, low, high


def pcoc_std(sums: GroupSums, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """Return the standard deviation of the groups' PCOCs (sample, ddof = 1, unweighted).

    It says how unevenly the values of a field are served.

    Groups without positives have no PCOC and are left out; the note says how many.
    """
    kept = sums.positives > 0
    left_out = int(((sums.weight > 0) & ~kept).sum())
    note = f"{left_out} without positives left out" if left_out else ""
    if kept.sum() < 2:
        return Estimate(np.nan, note="the spread of PCOC needs two field values with positives")
    known = sums.where(kept)
    values = known.predicted / known.positives

    def spread(positives: FloatArray) -> FloatArray:
        pcocs = known.predicted / np.maximum(positives, 0.5)
        return np.asarray(pcocs.std(axis=-1, ddof=1))

    # Under perfect calibration a PCOC varies as Σy does: Var ≈ Σp(1−p) / (Σp)².
    expected = np.where(known.predicted > 0, known.predicted, np.inf)
    floor = float(np.sqrt((known.noise_variance / expected**2).mean()))
    low, high = error_interval(known, spread, level, seed, around_common_bias=True)
    return Estimate(float(values.std(ddof=1)), low, high, floor, note)


def f_rce(
    sums: GroupSums, *, epsilon: float = 0.01, drop_empty: bool = False, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Field-level relative calibration error: `(1/|D|) Σ_c N_c · |Σ_c(y − p)| / Σ_c(y + ε)`.

    ε is added for every row, so that at a rate of 2 % the default ε = 0.01 shrinks the value by a third; ε
    = 0 does not, but is infinite when a group has no positives, unless `drop_empty` leaves such groups out
    of both sums.

    >>> from mcnet.metrics.sums import group_sums
    >>> round(f_rce(group_sums([0.2, 0.4, 0.3], [0, 1, 0]), epsilon=0).value, 6)
    0.1
    """
    kept = _kept(sums, epsilon, drop_empty)
    return _relative(kept, kept.weight / max(kept.weight.sum(), 1e-300), epsilon, level, seed)


def mf_rce(
    sums: GroupSums, *, epsilon: float = 0.01, drop_empty: bool = False, level: float = 0.95, seed: int = 0
) -> Estimate:
    """F-RCE with every field value counting the same: `(1/|C|) Σ_c |Σ_c(y − p)| / Σ_c(y + ε)`."""
    kept = _kept(sums, epsilon, drop_empty)
    return _relative(kept, np.full(len(kept), 1 / max(len(kept), 1)), epsilon, level, seed)


def f_ece(sums: GroupSums, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """Field-level calibration error in probability: `(1/|D|) Σ_c |Σ_c(y − p)|`."""
    kept = sums.where(sums.weight > 0)
    total = kept.weight.sum()

    def error(positives: FloatArray) -> FloatArray:
        return np.asarray(np.abs(positives - kept.predicted).sum(axis=-1) / total)

    low, high = error_interval(kept, error, level, seed)
    floor = float(expected_absolute(kept).sum() / total)
    return Estimate(float(error(kept.positives)), low, high, floor)


def _kept(sums: GroupSums, epsilon: float, drop_empty: bool) -> GroupSums:
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; it must be 0 or more (the usual values are 0.01 and 0)")
    return sums.where((sums.weight > 0) & ((sums.positives > 0) | (not drop_empty)))


def _relative(kept: GroupSums, shares: FloatArray, epsilon: float, level: float, seed: int) -> Estimate:
    """Return the mean of the groups' relative errors, weighted by `shares`."""
    scale = kept.positives + epsilon * kept.weight
    if len(kept) == 0:
        return Estimate(np.nan, note="no field value has a positive label")
    floor = float(shares @ expected_relative(kept, epsilon))
    if not scale.all():
        empty = int((scale == 0).sum())
        values = "value has" if empty == 1 else "values have"
        note = f"{empty} field {values} no positives: pass epsilon > 0 or drop_empty=True"
        return Estimate(np.inf, floor=floor, note=note)

    def error(positives: FloatArray) -> FloatArray:
        # Half a positive stands for none, where ε = 0 would divide by it.
        denominator = np.maximum(positives + epsilon * kept.weight, 0.5 if epsilon == 0 else 0.0)
        return np.asarray(np.abs(positives - kept.predicted) / denominator @ shares)

    low, high = error_interval(kept, error, level, seed)
    return Estimate(float(error(kept.positives)), low, high, floor)


def _log_pcoc_error(sums: GroupSums) -> FloatArray:
    """Return the standard error of log PCOC: `√ Σ(p/Σp − y/Σy)²`."""
    predicted = np.where(sums.predicted > 0, sums.predicted, np.inf)
    positives = np.where(sums.positives > 0, sums.positives, np.inf)
    return np.sqrt(sums.second_moment(1 / positives, 1 / predicted, 0.0))


# Errors over bins of the probability: Prob-ECE, Cal-N, and the reliability table.


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
    in_order: npt.NDArray[np.intp] = numbers[np.cumsum(first) - 1]
    if isinstance(order, slice):
        return in_order
    result = np.empty_like(in_order)
    result[order] = in_order
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

    >>> from mcnet.metrics.sums import group_sums
    >>> bins = group_sums([0.25, 0.5], [0.5, 0.375], [0, 1])
    >>> round(cal_n(bins).value, 3)
    0.745
    """
    kept = sums.where(sums.weight > 0)
    predicted, positives = kept.predicted + delta, kept.positives + delta
    if not (predicted.all() and positives.all()):
        lacking = {"no positives": positives == 0, "only probabilities of 0": predicted == 0}
        problems = [
            f"{int(bins.sum())} of {len(kept)} bins {'has' if bins.sum() == 1 else 'have'} {what}"
            for what, bins in lacking.items()
            if bins.any()
        ]
        return Estimate(np.inf, note=f"{' and '.join(problems)}: use fewer bins or delta > 0")

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
    bin_of_row = equal_mass_bins(p, w, bins)
    return reliability_of_bins(p, bin_of_row, group_sums(p, y, bin_of_row, w), level)


def reliability_of_bins(p: FloatArray, bin_of_row: npt.NDArray[np.intp], sums: GroupSums, level: float) -> Reliability:
    """Return the reliability table of sorted probabilities whose bins and sums are known already."""
    ends = np.flatnonzero(np.diff(bin_of_row, append=bin_of_row[-1] + 1))
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


# Multi-view calibration error: the mean error of random bins, and how much of it is noise.


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
