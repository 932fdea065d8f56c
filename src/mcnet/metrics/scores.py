"""Scores of single rows and of their order: log-loss, Brier, distance to a known truth, AUC, GAUC."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcnet._shared.arrays import FloatArray, IndexArray, MaskArray, sigmoid
from mcnet._shared.messages import counted
from mcnet.errors import InputError
from mcnet.metrics.intervals import Estimate, normal_interval, tails, two_sided
from mcnet.metrics.sums import columns, order_by_probability
from mcnet.rows.columns import check_lengths

# Proper scores, their differences, and the distance to a known truth.

CLIP = 1e-15
_ROUNDING = 1e-12
"""How far sums of weights may put an AUC off by rounding."""


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
    result = log_loss_difference(probabilities, truth, labels, weight, clip=clip, level=level)
    return Estimate(result.value, result.low, result.high)


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
    return _mean(divergence, divergence, t, w, level)


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


# How well the order of the probabilities separates positives from negatives: AUC and GAUC.


@dataclass(frozen=True)
class GroupAuc:
    """The AUC of each group, its variance, and its weights; NaN where a group has one class only."""

    auc: FloatArray
    variance: FloatArray
    positives: FloatArray
    negatives: FloatArray


def auc(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
) -> Estimate:
    """Chance that a positive scores above a negative, ties counting half (the area under the ROC curve).

    The interval is DeLong's, on the logit of the AUC so that it stays within (0, 1).

    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).value
    0.75
    """
    p, y, w = columns(probabilities, labels, weight)
    result = group_auc(p, y, w)
    value, variance = _without_rounding(float(result.auc[0])), float(result.variance[0])
    if np.isnan(value):
        which = "positive" if result.negatives[0] <= 0 else "negative"
        return Estimate(np.nan, note=f"AUC needs both classes, and all labels are {which}")
    return Estimate(value, *_interval(value, variance, float(min(result.positives[0], result.negatives[0])), level))


def gauc(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    codes: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
) -> Estimate:
    """Return the mean of the groups' AUCs, each weighted by the group's rows; groups of one class are left out.

    The interval treats the groups as given and adds up the variances of their AUCs; it is on the logit, too.

    >>> gauc([0.1, 0.4, 0.35, 0.8], [0, 1, 1, 0], [0, 0, 1, 1]).value
    0.5
    """
    p, y, w = columns(probabilities, labels, weight)
    groups = np.asarray(codes)
    check_lengths(probabilities=p, codes=groups)
    return mean_auc(p, y, w, groups, level=level)


def mean_auc(
    p: FloatArray, y: FloatArray, w: FloatArray, groups: IndexArray, *, level: float = 0.95, of: str = "group"
) -> Estimate:
    """Return the mean of the AUCs of groups, each weighted by its rows; `of` says in the notes what they are."""
    result = group_auc(p, y, w, groups, int(groups.max()) + 1)
    known = ~np.isnan(result.auc)
    single = int(((result.positives + result.negatives > 0) & ~known).sum())
    if not known.any():
        return Estimate(np.nan, note=f"AUC needs a {of} with both classes, and there is none")
    share = (result.positives + result.negatives)[known]
    share /= share.sum()
    value = _without_rounding(float(share @ result.auc[known]))
    # All orders are perfect with probability ΠA^pairs, which is at most (Σ share · A)^(the least pairs ÷ share).
    pairs = float((np.minimum(result.positives, result.negatives)[known] / share).min())
    note = f"{counted(single, of)} of one class left out" if single else ""
    return Estimate(value, *_interval(value, float(share**2 @ result.variance[known]), pairs, level), note=note)


def _without_rounding(value: float) -> float:
    """Return an AUC; one that only the rounding of sums keeps from 0 or 1, on either side, as 0 or 1."""
    nearest = np.rint(value)
    return float(nearest) if abs(value - nearest) < _ROUNDING else value


def _interval(value: float, variance: float, pairs: float, level: float) -> tuple[float, float]:
    """Return the interval of an AUC, on its logit so that it stays within (0, 1).

    A perfect order has no spread to tell from. As many pairs as share no row, each in order with probability A, are all
    in order with probability A^pairs: its interval goes from the A at which that is (1 − level)/2 to 1.
    """
    if value in (0.0, 1.0):
        reach = -float(np.expm1(np.log(tails(level)[0]) / pairs))
        return (0.0, reach) if value == 0.0 else (1.0 - reach, 1.0)
    centre = np.log(value / (1 - value))
    reach = two_sided(level) * np.sqrt(variance) / (value * (1 - value))
    low, high = sigmoid(np.array([centre - reach, centre + reach]))
    return min(float(low), value), max(float(high), value)


def group_auc(p: FloatArray, y: FloatArray, w: FloatArray, codes: IndexArray | None = None, count: int = 1) -> GroupAuc:
    """Return the AUC of each group and its variance after DeLong, in one sort.

    A row's placement is the share of the other class that it beats; the AUC is the mean placement of the
    positives, and its variance the sum over both classes of the variance of the mean placement.
    """
    order = order_by_probability(p)
    p, y, w = p[order], y[order], w[order]
    positive = w * y
    negative = w - positive
    new = p[1:] != p[:-1]
    if codes is None or count == 1:
        positive, negative = _merge_ties(new, positive, negative)
        return _placements(positive, negative, None, 1)
    tie = np.concatenate((np.zeros(1, dtype=np.int32), np.cumsum(new, dtype=np.int32)))
    # Small integers are sorted by radix, several times faster than by comparison.
    groups = codes[order].astype(np.uint16 if count <= 2**16 else np.int64)
    by_group = np.argsort(groups, kind="stable")
    positive, negative, tie, groups = positive[by_group], negative[by_group], tie[by_group], groups[by_group]
    new = (tie[1:] != tie[:-1]) | (groups[1:] != groups[:-1])
    if not new.all():
        groups = groups[np.concatenate(([True], new))]
    positive, negative = _merge_ties(new, positive, negative)
    return _placements(positive, negative, groups.astype(np.intp), count)


def _merge_ties(new: MaskArray, positive: FloatArray, negative: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Add up neighbours of equal probability; `new` marks the entries, from the second on, that differ."""
    if new.all():
        return positive, negative
    starts = np.concatenate(([0], np.flatnonzero(new) + 1))
    return np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)


def _placements(positive: FloatArray, negative: FloatArray, groups: IndexArray | None, count: int) -> GroupAuc:
    """Return the AUCs from the weights at each distinct probability, sorted by group and probability."""

    def added(values: FloatArray) -> FloatArray:
        if groups is None:
            return np.asarray(values.sum(keepdims=True))
        return np.bincount(groups, values, count).astype(np.float64, copy=False)

    def spread(values: FloatArray) -> FloatArray:
        return values if groups is None else values[groups]

    def midpoints(weights: FloatArray, totals: FloatArray) -> FloatArray:
        """Return the weight below each entry within its group, plus half its own."""
        middle = np.cumsum(weights)
        middle -= 0.5 * weights
        middle -= spread(np.cumsum(totals) - totals)
        return middle

    m, n = added(positive), added(negative)
    both = (m > 0) & (n > 0)
    m_safe, n_safe = np.where(both, m, 1.0), np.where(both, n, 1.0)
    beaten = midpoints(negative, n)
    beaten /= spread(n_safe)
    value = added(positive * beaten) / m_safe
    beaten -= spread(value)
    beaten *= beaten
    beating = midpoints(positive, m)
    beating /= spread(m_safe)
    beating -= spread(1 - value)
    beating *= beating
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = added(positive * beaten) / (m * (m - 1)) + added(negative * beating) / (n * (n - 1))
    # One positive, or a perfect order, shows no variance of its own: fall back on the exponential model.
    blind = (m <= 1) | (n <= 1) | (value <= 0) | (value >= 1)
    variance = np.where(blind, _exponential_variance(value, m_safe, n_safe), variance)
    return GroupAuc(np.where(both, value, np.nan), np.where(both, variance, np.nan), m, n)


def _exponential_variance(value: FloatArray, m: FloatArray, n: FloatArray) -> FloatArray:
    """Return the variance of an AUC after Hanley and McNeil, for exponentially distributed scores."""
    m, n = np.maximum(m, 1.0), np.maximum(n, 1.0)
    a = (value * m * n + 0.5) / (m * n + 1)
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    return (a * (1 - a) + (m - 1) * (q1 - a * a) + (n - 1) * (q2 - a * a)) / (m * n)
