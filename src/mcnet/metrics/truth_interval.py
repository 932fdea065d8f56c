"""Possible truths behind the counts of groups, and the interval of an error that follows from them."""

from collections.abc import Callable

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.metrics.group_sums import GroupSums
from mcnet.metrics.intervals import noise_aware_interval
from mcnet.metrics.noise_floor import NORMAL_FROM

__all__ = ["error_interval"]

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
