"""What perfect calibration looks like: expected errors when the probabilities are true."""

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, xlogy

from mcnet._shared.typing import FloatArray
from mcnet.metrics.group_sums import GroupSums

__all__ = ["NORMAL_FROM", "expected_absolute", "expected_relative"]

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
