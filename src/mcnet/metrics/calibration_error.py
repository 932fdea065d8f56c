"""Calibration errors: of field values (PCOC, F-RCE, F-ECE), of bins (Prob-ECE, Cal-N), smooth (smECE)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.fft import dct, idct

from mcnet._shared.arrays import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.intervals import (
    Estimate,
    error_interval,
    expected_absolute,
    expected_relative,
    noise_aware_interval,
    two_sided,
    wilson,
)
from mcnet.metrics.sums import GroupSums, columns, group_sums, order_by_probability
from mcnet.plots.figures import Reliability

# Calibration by field value: PCOC with its interval and spread, F-RCE, F-ECE.


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
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}; it must be 0 or more (the usual values are 0.01 and 0)")
    kept = sums.where((sums.weight > 0) & ((sums.positives > 0) | (not drop_empty)))
    shares = kept.weight / max(kept.weight.sum(), 1e-300)
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


def f_ece(sums: GroupSums, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """Field-level calibration error in probability: `(1/|D|) Σ_c |Σ_c(y − p)|`."""
    kept = sums.where(sums.weight > 0)
    total = kept.weight.sum()

    def error(positives: FloatArray) -> FloatArray:
        return np.asarray(np.abs(positives - kept.predicted).sum(axis=-1) / total)

    low, high = error_interval(kept, error, level, seed)
    floor = float(expected_absolute(kept).sum() / total)
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
    if bins < 1:
        raise InputError(f"bins is {bins}; at least one bin is needed")
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

    def error(positives: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt((np.expm1(np.abs(np.log(predicted / positives))) ** 2).mean(axis=-1)))

    # A draw without positives counts as half of one: its error is large, not infinite.
    low, high = error_interval(kept, lambda drawn: error(np.maximum(drawn + delta, 0.5)), level, seed)
    # To first order e = |Σy − Σp| / Σp.
    floor = float(np.sqrt((kept.noise_variance / predicted**2).mean()))
    return Estimate(float(error(positives)), low, high, floor)


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


# Smooth calibration error (smECE): bins replaced by a kernel whose width the data choose.

_COARSEST, _FINEST = 2**12, 2**20
_POINTS_PER_WIDTH = 10
_DRAWS = 200
_FEWEST_DRAWS = 64
"""Draws of each of several parts, whose noise averages out."""


def smooth_ece(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Smooth calibration error: `smECE_h = ∫ |E[(y − p)·K_h(t, p)]| dt` at the width h where `smECE_h = h`.

    K is a Gaussian kernel reflected at 0 and 1. Reflection makes smoothing a multiplication of cosine
    coefficients, so the grid can be as fine as the width needs: at a click rate of 2 % the width is often
    below 0.001. The interval is that of the error at this width.
    """
    return mean_smooth_ece([columns(probabilities, labels, weight)], level=level, seed=seed)


def mean_smooth_ece(
    parts: Sequence[tuple[FloatArray, FloatArray, FloatArray]], *, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Return the mean of the error over parts of the rows (p, y, w), each weighted by its rows."""
    rng = np.random.default_rng(seed)
    total = sum(float(w.sum()) for _, _, w in parts)
    draws = max(_DRAWS // len(parts), _FEWEST_DRAWS)
    result = [_smooth_error(*_cells(p, y, w), float(w.sum()) / total, rng, draws) for p, y, w in parts]
    value, floor = sum(part.value for part in result), sum(part.floor for part in result)
    differences = np.concatenate([part.differences for part in result])
    noise = np.concatenate([part.noise for part in result], axis=1)
    whole = float(np.abs(differences).sum())
    low, high = noise_aware_interval(
        whole, lambda step: step * whole, lambda step: np.abs(step * differences + noise).sum(axis=-1), level
    )
    return Estimate(value, low, high, floor)


@dataclass(frozen=True)
class _SmoothError:
    """What some rows add to the smooth error: value, floor, smoothed differences along [0, 1], draws of their noise."""

    value: float
    floor: float
    differences: FloatArray
    noise: FloatArray


def _smooth_error(
    p: FloatArray, y: FloatArray, w: FloatArray, weight: float, rng: np.random.Generator, draws: int
) -> _SmoothError:
    """Return the smooth error of some rows times their weight among all rows."""
    total = float(w.sum())
    share = w / total
    size = _COARSEST
    while True:
        transformed = dct(_spread(p, share * (y - p), size), norm="ortho")
        width = _fixed_point(lambda h: float(np.abs(_smoothed(transformed, h)).sum()))  # noqa: B023
        if width * size >= _POINTS_PER_WIDTH or size == _FINEST or np.abs(transformed).max() < 1e-12:
            break
        size *= 4
    value = float(np.abs(_smoothed(transformed, width)).sum())
    floor = _floor(p, share, total, size)
    # An error far below the floor is luck, and its width too small to describe noise with.
    differences, noise = _noise(p, y, share, max(width, floor / 2), total, rng, draws)
    return _SmoothError(weight * value, weight * floor, weight * differences, weight * noise)


def smooth_ece_at(
    width: float, probabilities: npt.ArrayLike, labels: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> float:
    """Return the smooth calibration error at a given kernel width."""
    p, y, w = _cells(*columns(probabilities, labels, weight))
    residual = _spread(p, w * (y - p) / w.sum(), _grid_size(width, _POINTS_PER_WIDTH, _COARSEST, _FINEST))
    return float(np.abs(_smoothed(dct(residual, norm="ortho"), width)).sum())


def _cells(p: FloatArray, y: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge rows closer than the finest grid can tell apart into one cell at their mean."""
    if p.size < _FINEST // 8:
        return p, y, w
    place = (p * _FINEST).astype(np.intp)
    weights: FloatArray = np.bincount(place, w).astype(np.float64, copy=False)
    kept = weights > 0
    weights = weights[kept]
    return np.bincount(place, w * p)[kept] / weights, np.bincount(place, w * y)[kept] / weights, weights


def _grid_size(width: float, points: int, least: int, most: int) -> int:
    """Return the power of two that puts this many grid points into a width, within limits."""
    return int(np.clip(2 ** np.ceil(np.log2(points / max(width, 1e-12))), least, most))


def _spread(p: FloatArray, mass: FloatArray, size: int) -> FloatArray:
    """Put each mass on the two nearest of `size` cell centres of [0, 1], in proportion to nearness."""
    position = p * size
    position += 0.5
    left = position.astype(np.intp)
    position -= left
    right_mass = position * mass
    padded = np.bincount(left, mass - right_mass, size + 2) + np.bincount(left + 1, right_mass, size + 2)
    grid: FloatArray = padded[1:-1].astype(np.float64)
    grid[0] += padded[0]
    grid[-1] += padded[-1]
    return grid


def _smoothed(transformed: FloatArray, width: float) -> FloatArray:
    """Smooth a measure given by its cosine coefficients with a reflected Gaussian of this width."""
    size = transformed.shape[-1]
    # Coefficients that the kernel takes below 1e-16 are left out: at wide kernels hardly any remain.
    kept = min(size, int(8.6 / (np.pi * max(width, 1e-12))) + 2)
    damped = np.zeros_like(transformed)
    damped[..., :kept] = transformed[..., :kept] * np.exp(-0.5 * (np.pi * width * np.arange(kept)) ** 2)
    smoothed: FloatArray = idct(damped, norm="ortho", axis=-1)
    return smoothed


def _fixed_point(error: Callable[[float], float]) -> float:
    """Return the width h at which the error, which falls as h grows, equals h."""
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high and high > 1e-9:
        # Errors lie anywhere between 1e-5 and 1: halve the exponent until the bracket is narrow.
        middle = np.sqrt(max(low, 1e-3 * high) * high)
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return float((low + high) / 2)


def _floor(p: FloatArray, share: FloatArray, total: float, size: int) -> float:
    """Return the error to expect from true probabilities: the mean absolute value of smoothed label noise."""
    variance = dct(_spread(p, share * p * (1 - p) / total, size), norm="ortho")

    def error(width: float) -> float:
        # The square of a Gaussian of width h is one of width h/√2, divided by 2h√π.
        density = _smoothed(variance, width / np.sqrt(2)) / (2 * np.sqrt(np.pi) * max(width, 1e-12)) * size
        return float(np.sqrt(2 / np.pi * np.maximum(density, 0.0)).sum() / size)

    return float(_fixed_point(error))


def _noise(
    p: FloatArray, y: FloatArray, share: FloatArray, width: float, total: float, rng: np.random.Generator, draws: int
) -> tuple[FloatArray, FloatArray]:
    """Return the smoothed differences on a grid, and draws of the noise in them."""
    size = _grid_size(width, 3, 2**8, 2**16)
    variance = _spread(p, share * (y * (1 - 2 * p) + p * p) / total, size)
    weights = _smoothed(dct(_spread(p, share, size), norm="ortho"), width)
    # Where hardly a row lies, there is hardly an error: the tail of the grid is not worth its draws.
    kept = weights > 1e-6 * weights.max()
    differences = _smoothed(dct(_spread(p, share * (y - p), size), norm="ortho"), width)[kept]
    deviation = np.sqrt(np.maximum(variance, 0.0))
    noise = np.stack(
        [_smoothed(dct(deviation * rng.standard_normal(size), norm="ortho"), width)[kept] for _ in range(draws)]
    )
    return differences, noise
