"""Histogram binning (Zadrozny & Elkan 2001)."""

import numpy as np

from mcnet._shared.math import SCORE_FLOOR, sums_by
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.parameter_checks import check_bins
from mcnet.curves.curves import Curves
from mcnet.errors import InputError
from mcnet.sketch.equal_mass import bin_of, equal_mass_edges
from mcnet.sketch.sketch import Sketch

__all__ = ["Histogram", "step_curve"]


def step_curve(edges: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (knots, probabilities) of a step function: `values[k]` on [edges[k-1], edges[k])."""
    if len(edges) == 0:
        return np.array([0.5]), values
    return np.repeat(edges, 2), np.concatenate([[values[0]], np.repeat(values[1:-1], 2), [values[-1]]])


class Histogram(Calibrator):
    """The positive rate of each of K equal-mass bins: p = (Σy + m·ȳ) / (n + m) inside a bin.

    Not monotone by nature (a bin may have a lower rate than the one before), and never projected: it is kept as it was
    published, for comparison.

    Parameters
    ----------
    bins : the number of bins; fewer if there are fewer distinct scores.
    prior : m, how many rows of the overall rate each bin starts with.

    >>> Histogram(bins=2).fit([0.1, 0.2, 0.7, 0.8], [0, 1, 1, 1], resolution="exact").predict([0.15, 0.75]).round(3)
    array([0.5, 1. ])
    """

    method = "histogram"
    complexity = 10
    monotone = False

    def __init__(self, *, bins: int = 20, prior: float = 0.0) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.prior = prior

    def _check_parameters(self) -> None:
        check_bins(self.bins)
        if not 0.0 <= self.prior < np.inf:
            raise InputError(f"prior is {self.prior!r}; it must be a number of rows ≥ 0")

    def _fit_curves(self, sketch: Sketch) -> Curves:
        edges = equal_mass_edges(sketch, self.bins)
        place = bin_of(sketch.score, edges)
        weight = sums_by(place, sketch.weight, len(edges) + 1)
        positives = sums_by(place, sketch.positives, len(edges) + 1)
        rate = sketch.total_positives / sketch.total_weight
        values = (positives + self.prior * rate) / (weight + self.prior)
        return Curves.of([step_curve(edges, np.clip(values, SCORE_FLOOR, 1.0 - SCORE_FLOOR))])
