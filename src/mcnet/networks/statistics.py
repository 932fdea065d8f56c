"""What AdaCalib observes at its knots: where they lie, how many rows and positives are around them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray
from mcnet.networks.training_points import TrainingCells

__all__ = ["NodeStatistics", "node_statistics"]


# Knots closer than this, in logits, would make the function a cliff.
LEAST_GAP = 0.02


@dataclass(frozen=True)
class NodeStatistics:
    """Knots and discretised statistics `[C, nodes]`, candidates side by side, and facts about contexts.

    `allowed` says which candidates a context has the data for, `mass` is its standardised log-weight, `keys`
    identify contexts by their field codes, and `pooled` is the one that stands in for combinations never
    seen.
    """

    knots: FloatArray
    rate: NDArray[np.int64]
    count: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    mass: NDArray[np.float32]
    keys: NDArray[np.int64]
    pooled: NDArray[np.int64]


def _quantiles(points: FloatArray, weight: FloatArray, bins: int) -> FloatArray:
    """Return knots at the ends and at equal-mass quantiles between, at least `LEAST_GAP` apart."""
    through = np.cumsum(weight) - weight / 2.0
    inner = np.interp(np.arange(1, bins) / bins * weight.sum(), through, points)
    knots = np.concatenate([points[:1], inner, points[-1:]])
    ladder = LEAST_GAP * np.arange(bins + 1)
    return np.asarray(np.maximum.accumulate(knots - ladder) + ladder)


def _around(values: FloatArray) -> FloatArray:
    """Return totals of bins → totals at knots: an end belongs to its bin, a knot between to both neighbours."""
    return np.concatenate([values[:1], values[:-1] + values[1:], values[-1:]])


def _levels(values: FloatArray, levels: int) -> NDArray[np.int64]:
    cuts = np.quantile(values, np.arange(1, levels) / levels)
    return np.searchsorted(cuts, values, side="right").astype(np.int64)


def node_statistics(
    cells: TrainingCells, candidates: tuple[int, ...], levels: int, keys: NDArray[np.int64], pooled: int
) -> NodeStatistics:
    """Return knots and statistics of every context for every candidate number of bins."""
    contexts, nodes = len(cells.codes), sum(n + 1 for n in candidates)
    knots, odds, size = (np.zeros((contexts, nodes)) for _ in range(3))
    allowed = np.zeros((contexts, len(candidates)), dtype=bool)
    mass = np.bincount(cells.context, weights=cells.weight, minlength=contexts)
    order = np.lexsort((cells.logit, cells.context))
    starts = np.searchsorted(cells.context[order], np.arange(contexts + 1))
    everything = np.argsort(cells.logit, kind="stable")
    for c in range(contexts):
        # A context without rows borrows the knots of all.
        index = order[starts[c] : starts[c + 1]] if mass[c] > 0 else everything
        points, weight, positives = cells.logit[index], cells.weight[index], cells.positives[index]
        rarer = min(positives.sum(), (weight - positives).sum())
        at = 0
        for i, n in enumerate(candidates):
            part = slice(at, at + n + 1)
            knots[c, part] = _quantiles(points, weight, n)
            where = np.searchsorted(knots[c, at + 1 : at + n], points, side="right")
            total = _around(np.bincount(where, weights=weight, minlength=n).astype(np.float64))
            hits = _around(np.bincount(where, weights=positives, minlength=n).astype(np.float64))
            odds[c, part] = np.log((hits + 0.5) / (total - hits + 0.5))
            size[c, part] = np.log1p(total)
            allowed[c, i] = n == min(candidates) or rarer >= n
            at += n + 1
    log_mass = np.log1p(mass)
    spread = log_mass.std()
    return NodeStatistics(
        knots=knots,
        rate=_levels(odds, levels),
        count=_levels(size, levels),
        allowed=allowed,
        mass=((log_mass - log_mass.mean()) / (spread if spread > 0 else 1.0)).astype(np.float32),
        keys=keys,
        pooled=np.asarray(pooled, dtype=np.int64),
    )
