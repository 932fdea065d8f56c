"""Calibration by field value: PCOC with its interval and spread, F-RCE, F-ECE, MF-RCE."""

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.group_sums import GroupSums
from mcnet.metrics.intervals import two_sided
from mcnet.metrics.noise_floor import expected_absolute, expected_relative
from mcnet.metrics.truth_interval import error_interval

__all__ = ["f_ece", "f_rce", "group_pcoc", "mf_rce", "pcoc", "pcoc_std"]


def pcoc(sums: GroupSums, *, level: float = 0.95) -> Estimate:
    """Return predicted over observed positives, over all groups: `Σp / Σy`; 1 is calibrated, above 1 over-predicted.

    The interval is the delta method's on the logarithm.

    >>> from mcnet.metrics.group_sums import group_sums
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

    >>> from mcnet.metrics.group_sums import group_sums
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
        note = f"{empty} field values have no positives: pass epsilon > 0 or drop_empty=True"
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
