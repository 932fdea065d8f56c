"""Curves evaluated one after the other, by a search among all knots: the oracle of the fast ways."""

import numpy as np

from mcnet._shared.arrays import clip_scores


def evaluate_plainly(curves, scores, which):
    """Return the value of curve `which[i]` at `scores[i]`."""
    result = np.empty(len(scores))
    for curve in np.unique(which).tolist():
        rows = np.flatnonzero(np.asarray(which) == curve)
        x, knots, values = clip_scores(scores[rows]), curves.grid(curve), curves.values(curve)
        slopes = curves.slopes[curves.value_start[curve] : curves.value_start[curve + 1]]
        # A falling line (histogram binning) has no end to be kept below.
        most = np.where(values[1:] >= values[:-1], values[1:], np.inf)
        starts, begins = np.concatenate([[0.0], knots]), np.concatenate([values[:1], values])
        slopes, most = np.concatenate([[0.0], slopes]), np.concatenate([[np.inf], most, [np.inf]])
        line = np.searchsorted(knots, x, side="right")
        result[rows] = np.minimum((x - starts[line]) * slopes[line] + begins[line], most[line])
    return result
