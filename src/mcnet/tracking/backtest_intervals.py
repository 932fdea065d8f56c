"""Intervals over periods: rows of one period are not independent, and neither are neighbouring periods."""

import numpy as np

from mcnet._shared.typing import FloatArray

__all__ = ["block_bootstrap"]

REPLICATES = 1000
_CHUNK = 100


def block_bootstrap(
    sums: FloatArray, weight: FloatArray, *, level: float = 0.95, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Return percentile intervals of the ratios Σ sums / Σ weight, periods drawn in blocks of neighbours.

    The blocks of the circular block bootstrap have n^(1/3) periods. Every ratio sees the same draws, so an interval of
    differences is paired.

    Parameters
    ----------
    sums : one row per ratio, one column per period.
    weight : one entry per period.
    level : of the intervals.
    seed : of the draws.

    Returns
    -------
    low, high : one entry per ratio; NaN for fewer than two periods.

    >>> low, high = block_bootstrap(np.array([[1.0, 2.0, 3.0, 2.0]]), np.ones(4))
    >>> bool(1.0 <= low[0] < 2.0 < high[0] <= 3.0)
    True
    """
    number = len(weight)
    if number < 2:
        return np.full(len(sums), np.nan), np.full(len(sums), np.nan)
    length = max(1, round(number ** (1.0 / 3.0)))
    blocks = -(-number // length)
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(REPLICATES // _CHUNK):
        starts = rng.integers(0, number, (_CHUNK, blocks))
        drawn = ((starts[:, :, None] + np.arange(length)) % number).reshape(_CHUNK, -1)[:, :number]
        times = np.stack([np.bincount(one, minlength=number) for one in drawn]).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            values.append((times @ sums.T) / (times @ weight)[:, None])
    found = np.concatenate(values)
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(found, [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
    return low, high
