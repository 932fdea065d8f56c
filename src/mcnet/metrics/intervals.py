"""How sure a metric is: estimates, intervals, noise floors, the bootstrap."""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, ndtri, xlogy

from mcnet._shared.arrays import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.sums import GroupSums, columns
from mcnet.rows.columns import check_lengths

# A measured figure with its confidence interval and, where noise alone produces an error, its floor.


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric: its value on the rows given, an interval for its true value, and its noise floor.

    `floor` is the value to expect from perfectly calibrated probabilities on as many rows; it is NaN for
    metrics that noise does not push up. `note` says why a value is NaN or infinite, and is empty otherwise.

    >>> float(Estimate(0.98, 0.95, 1.01))
    0.98
    """

    value: float
    low: float = nan
    high: float = nan
    floor: float = nan
    note: str = ""

    def __float__(self) -> float:
        return self.value


# Confidence intervals: around a mean, of a rate, and of an error that noise alone pushes up.

_FRACTIONS_OF_GUESS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.6, 2.0)
_HALVINGS = 6


def two_sided(level: float) -> float:
    """Return z such that a normal variable lies within ±z standard deviations with probability `level`.

    >>> round(two_sided(0.95), 3)
    1.96
    """
    return float(ndtri(tails(level)[1]))


def tails(level: float) -> tuple[float, float]:
    """Return the quantiles at the ends of an interval of this level.

    >>> tails(0.5)
    (0.25, 0.75)
    """
    if not 0 < level < 1:
        raise InputError(f"level is {level}; a confidence level lies between 0 and 1, for example 0.95")
    return 0.5 - level / 2, 0.5 + level / 2


def normal_interval(value: float, standard_error: float, level: float) -> tuple[float, float]:
    """Return `value ± z · standard_error`."""
    reach = two_sided(level) * standard_error
    return value - reach, value + reach


def wilson(positives: FloatArray, weight: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's interval of a rate: `(q + z²/2n ± z·√(q(1−q)/n + z²/4n²)) / (1 + z²/n)`.

    >>> low, high = wilson(np.array([2.0]), np.array([100.0]))
    >>> np.round([low[0], high[0]], 4).tolist()
    [0.0055, 0.07]
    """
    z = two_sided(level)
    q = positives / weight
    centre = q + z * z / (2 * weight)
    reach = z * np.sqrt(np.maximum(q * (1 - q), 0.0) / weight + (z / (2 * weight)) ** 2)
    scale = 1 + z * z / weight
    return np.maximum((centre - reach) / scale, 0.0), np.minimum((centre + reach) / scale, 1.0)


def noise_aware_interval(
    observed: float, size: Callable[[float], float], draws: Callable[[float], FloatArray], level: float
) -> tuple[float, float]:
    """Return an interval for the true size of an error that noise pushes up.

    Errors such as F-RCE add up absolute differences, so noise pushes them up, and resampling the rows would
    push them up once more. Instead the test is inverted along a line of possible truths, λ = 0 being perfect
    calibration and λ = 1 the best guess: kept are those under which the observed value lies between the
    quantiles (1 ± level)/2 of its distribution. So the interval starts at 0 exactly when perfect calibration
    explains the value, and near the noise floor it lies below the observed value, which is then mostly noise.
    `size(λ)` is the error of that truth, `draws(λ)` a sample of what would be observed under it.
    """
    z = two_sided(level)

    def ends(values: FloatArray) -> tuple[float, float]:
        if values.size < 1000:
            centre, reach = float(values.mean()), z * float(values.std(ddof=1))
            return centre - reach, centre + reach
        low, high = np.quantile(values, tails(level))
        return float(low), float(high)

    grid, lows, highs = [], [], []
    # A value luckier than most noise must not yield an empty interval: its upper end is the middle value's.
    least = observed
    for step in [*_FRACTIONS_OF_GUESS, *(_FRACTIONS_OF_GUESS[-1] * 2.0**k for k in range(1, 16))]:
        values = draws(step)
        if step == 0:
            least = max(observed, float(np.median(values)))
        low, high = ends(values)
        grid.append(step)
        lows.append(low)
        highs.append(high)
        if step >= 1 and low > least:
            break
    # Quantiles of finite samples may dip by chance; the truth does not.
    low_at = float(np.interp(observed, np.maximum.accumulate(highs), grid))
    high_at = float(np.interp(least, np.maximum.accumulate(lows), grid))
    # Where every label is as it most often is, no draw exceeds the observed value: it is reached by many truths, and
    # the first of them is the end.
    nearly = observed * (1.0 - 1e-9)
    first = int(np.argmax(np.array(highs) >= nearly))
    if first > 0 and nearly <= highs[first] <= observed * (1.0 + 1e-9):
        outside, low_at = grid[first - 1], grid[first]
        for _ in range(_HALVINGS):
            middle = 0.5 * (outside + low_at)
            if ends(draws(middle))[1] >= nearly:
                low_at = middle
            else:
                outside = middle
    return size(low_at) if observed > highs[0] else 0.0, size(high_at)


# What perfect calibration looks like: expected errors when the probabilities are true.

NORMAL_FROM = 25.0
"""From this expected count on, a normal distribution stands for the binomial."""
_COUNTS = np.arange(76.0)
"""Numbers of positives that may occur where fewer than NORMAL_FROM are expected."""
_GROUPS_PER_BLOCK = 4096


def expected_absolute(sums: GroupSums) -> FloatArray:
    """Return E|Σy − Σp| of each group when the probabilities are true.

    With many expected positives it is `√(2/π) · √Σp(1−p)`; with few the distribution of the count is summed.
    """
    value = np.sqrt(2 / np.pi * sums.noise_variance)
    return _few_exactly(sums, value, lambda few: np.abs(_COUNTS - few.predicted[:, None]))


def expected_relative(sums: GroupSums, epsilon: float) -> FloatArray:
    """Return E[|Σy − Σp| / Σ(y + ε)] of each group when the probabilities are true.

    At ε = 0 the expectation is over outcomes with at least one positive; without, the ratio is undefined.
    """
    scale = sums.predicted + epsilon * sums.weight
    value = np.sqrt(2 / np.pi * sums.noise_variance) / np.where(scale > 0, scale, np.inf)

    def ratio(few: GroupSums) -> FloatArray:
        denominator = _COUNTS + epsilon * few.weight[:, None]
        return np.abs(_COUNTS - few.predicted[:, None]) / np.where(denominator > 0, denominator, np.nan)

    return _few_exactly(sums, value, ratio)


def _few_exactly(sums: GroupSums, value: FloatArray, outcome: Callable[[GroupSums], FloatArray]) -> FloatArray:
    """Replace `value`, where few positives are expected, by the mean of `outcome` over their number."""
    few = np.flatnonzero((sums.predicted < NORMAL_FROM) & (sums.predicted > 0))
    value = value.copy()
    # In blocks, as a hundred thousand contexts times every count would fill the memory.
    for block in np.split(few, range(_GROUPS_PER_BLOCK, few.size, _GROUPS_PER_BLOCK)):
        part = sums.where(block)
        values, chances = outcome(part), _chances(part)
        defined = np.isfinite(values)
        chances = np.where(defined, chances, 0.0)
        total = chances.sum(axis=1)
        mean = (np.where(defined, values, 0.0) * chances).sum(axis=1) / np.where(total > 0, total, 1.0)
        value[block] = mean
    return value


def _chances(sums: GroupSums) -> FloatArray:
    """Return the chance of each number of positives, as a binomial of the same mean and variance."""
    # Halves are rounded up for certain: the rounding of the sums must not decide.
    nearest = np.floor(sums.predicted**2 / sums.predicted_squared * (1.0 + 1e-9) + 0.5)
    trials = np.maximum(nearest, np.ceil(sums.predicted * (1.0 - 1e-9)))[:, None]
    rate = sums.predicted[:, None] / trials
    inside = trials >= _COUNTS
    rest = np.where(inside, trials - _COUNTS, 0.0)
    log_chance = gammaln(trials + 1) - gammaln(_COUNTS + 1) - gammaln(rest + 1)
    log_chance += xlogy(_COUNTS, rate) + xlogy(rest, 1 - rate)
    return np.where(inside, np.exp(log_chance), 0.0)


# Possible truths behind the counts of groups, and the interval of an error that follows from them.

_MOST_GROUPS = 10_000


def error_interval(
    sums: GroupSums,
    error: Callable[[FloatArray], FloatArray],
    level: float,
    seed: int,
    *,
    around_common_bias: bool = False,
) -> tuple[float, float]:
    """Return the noise-aware interval of an error that depends on the positives of each group.

    `error` maps numbers of positives (the last axis is the group) to the error. The line of truths leads from
    the predictions to the best guess of the true rates: the bias common to all groups, plus what the groups
    differ from it, shrunk by as much as noise explains. With `around_common_bias` it starts at the common
    bias, which suits errors that only see differences between groups. Beyond 10,000 groups the draws would
    take longer than everything else, and the ends are NaN.
    """
    if len(sums) > _MOST_GROUPS:
        return np.nan, np.nan
    predicted, seen = sums.predicted, sums.positives
    ratio = seen.sum() / max(predicted.sum(), 1e-300)
    variance = np.maximum(sums.noise_variance * ratio, 1e-12)
    common = predicted * ratio
    apart = seen - common
    surplus = float((apart**2 / variance).sum())
    kept = np.sqrt(max(1 - (len(sums) - 1) / surplus, 0.0)) if surplus > 0 else 0.0
    if around_common_bias:
        origin, guess = common, max(kept, 0.1) * apart
    else:
        origin, guess = predicted, common - predicted + kept * apart
    # A difference that is zero by luck keeps a direction, however small.
    direction = np.copysign(np.sqrt(guess**2 + 1e-4 * variance), guess)
    trials = np.maximum(
        np.rint(np.divide(predicted**2, sums.predicted_squared, out=np.ones(len(sums)), where=predicted > 0)),
        np.ceil(np.maximum(predicted, seen)),
    )
    trials = np.maximum(trials, 1.0)
    count = int(np.clip(100_000 // len(sums), 32, 1000))

    def truth(step: float) -> FloatArray:
        return np.asarray(np.clip(origin + step * direction, 0.0, trials))

    def draws(step: float) -> FloatArray:
        return error(_positives(truth(step), trials, count, np.random.default_rng(seed)))

    return noise_aware_interval(
        float(error(seen[None, :])[0]), lambda step: float(error(truth(step)[None, :])[0]), draws, level
    )


_MOST_TRIALS = 2.0**62
"""More trials than this are no 64-bit whole number."""


def _positives(expected: FloatArray, trials: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Draw numbers of positives, one row per draw: binomial where few are expected, else normal."""
    rate = expected / trials
    noise = rng.standard_normal((count, expected.size))
    noise *= np.sqrt(expected * (1 - rate))
    noise += expected
    few = (expected < NORMAL_FROM) | (trials - expected < NORMAL_FROM)
    counted, huge = few & (trials < _MOST_TRIALS), few & (trials >= _MOST_TRIALS)
    if counted.any():
        # One group after the other: the generator prepares for a rate once and then draws fast.
        size = (int(counted.sum()), count)
        noise[:, counted] = rng.binomial(trials[counted, None].astype(np.int64), rate[counted, None], size).T
    if huge.any():  # so many trials that only the rarer outcome can be counted: its number is Poisson's
        rare = np.minimum(expected, trials - expected)[huge, None]
        drawn = rng.poisson(rare, (int(huge.sum()), count))
        noise[:, huge] = np.where(rate[huge, None] < 0.5, drawn, trials[huge, None] - drawn).T
    return np.maximum(noise, 0.0)


# Intervals of any metric by resampling, for your own statistics and for rows in clusters.


def poisson_bootstrap(
    metric: Callable[[FloatArray, FloatArray, FloatArray], float | Estimate],
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    *,
    clusters: npt.ArrayLike | None = None,
    replicates: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Return `metric(p, y, w)` with its percentile interval under the Poisson bootstrap.

    Every row counts Poisson(1) times; a row of weight w and label y is w·y positives and w·(1−y) negatives,
    hence Poisson(w·y) and Poisson(w·(1−y)) of them. With `clusters` (codes from 0, say of a search or a user)
    the rows of a cluster are drawn together, which is right when their labels depend on each other.
    Percentiles suit smooth metrics. For errors made of absolute values see `noise_aware_interval`.

    >>> from mcnet.metrics.scores import brier
    >>> found = poisson_bootstrap(brier, [0.2, 0.6, 0.4], [0, 1, 1])
    >>> bool(found.low < found.value < found.high)
    True
    """
    if replicates < 2:
        raise InputError(f"replicates is {replicates}; an interval needs at least 2, better 200")
    p, y, w = columns(probabilities, labels, weight)
    rng, ends = np.random.default_rng(seed), tails(level)
    groups = None if clusters is None else np.asarray(clusters)
    check_lengths(probabilities=p, clusters=groups)
    values = np.empty(replicates)
    for index in range(replicates):
        if groups is None:
            positive, negative = rng.poisson(w * y), rng.poisson(w * (1 - y))
            drawn = (positive + negative).astype(np.float64)
            rate = np.divide(positive, drawn, out=np.zeros_like(drawn), where=drawn > 0)
        else:
            drawn, rate = w * rng.poisson(1.0, int(groups.max()) + 1)[groups], y
        values[index] = float(metric(p, rate, drawn)) if drawn.sum() > 0 else np.nan
    known = values[~np.isnan(values)]
    low, high = np.quantile(known, ends) if known.size else (np.nan, np.nan)
    return Estimate(float(metric(p, y, w)), float(low), float(high))
