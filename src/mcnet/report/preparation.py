"""What the figures show of a sketch, computed as plain numbers."""

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray
from mcnet.metrics.binned import Reliability, equal_mass_bins, reliability
from mcnet.metrics.group_sums import group_sums
from mcnet.metrics.intervals import wilson
from mcnet.plots.curves import Points
from mcnet.sketch.sketch import Sketch

__all__ = ["prepare_points", "prepare_reliability", "score_span"]

_WEIGHT_OUTSIDE = 0.0005


def prepare_reliability(
    probabilities: FloatArray, sketch: Sketch, cells: NDArray[np.intp] | None = None, *, bins: int = 20
) -> Reliability:
    """Return the reliability table of one probability per cell, over all cells or those given.

    Bins have equal mass; where positives are few there are fewer bins, so that each has some.
    """
    chosen = np.arange(len(sketch)) if cells is None else cells
    positives, weight = sketch.positives[chosen], sketch.weight[chosen]
    return reliability(probabilities[chosen], positives / weight, weight, bins=min(bins, _enough(positives)))


def prepare_points(sketch: Sketch, cells: NDArray[np.intp] | None = None, *, groups: int = 40) -> Points:
    """Return the observed rate, with Wilson's interval, of neighbouring cells in groups of equal mass."""
    chosen = np.arange(len(sketch)) if cells is None else cells
    score, positives, weight = sketch.score[chosen], sketch.positives[chosen], sketch.weight[chosen]
    group = equal_mass_bins(score, weight, min(groups, _enough(positives)))
    sums = group_sums(score, positives / weight, group, weight)
    low, high = wilson(sums.positives, sums.weight)
    return Points(sums.predicted / sums.weight, sums.positives / sums.weight, low, high, sums.weight)


def _enough(positives: FloatArray) -> int:
    """Return a number of groups such that each has about as many positives as there are groups; at least three."""
    return max(3, int(np.sqrt(float(positives.sum()))))


def score_span(score: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the scores between which all but a thousandth of the weight is."""
    order = np.argsort(score)
    mass = np.cumsum(weight[order])
    first, last = np.searchsorted(mass, mass[-1] * np.array([_WEIGHT_OUTSIDE, 1.0 - _WEIGHT_OUTSIDE]))
    return float(score[order[first]]), float(score[order[min(last, len(order) - 1)]])
