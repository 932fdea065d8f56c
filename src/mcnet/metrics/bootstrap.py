"""Intervals of any metric by resampling, for your own statistics and for rows in clusters."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.probability_columns import columns

__all__ = ["poisson_bootstrap"]


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

    >>> from mcnet.metrics.scoring import brier
    >>> found = poisson_bootstrap(brier, [0.2, 0.6, 0.4], [0, 1, 1])
    >>> bool(found.low < found.value < found.high)
    True
    """
    if replicates < 2:
        raise InputError(f"replicates is {replicates}; an interval needs at least 2, better 200")
    p, y, w = columns(probabilities, labels, weight)
    rng = np.random.default_rng(seed)
    groups = None if clusters is None else np.asarray(clusters)
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
    low, high = np.quantile(known, (0.5 - level / 2, 0.5 + level / 2)) if known.size else (np.nan, np.nan)
    return Estimate(float(metric(p, y, w)), float(low), float(high))
