"""SIR, smoothed isotonic regression (Deng et al., ECML-PKDD 2020)."""

import numpy as np

from mcnet._shared.math import SCORE_FLOOR, sums_by
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.histogram import check_bins
from mcnet.curves.curves import Curves
from mcnet.sketch.equal_mass import bin_of, equal_mass_edges
from mcnet.sketch.sketch import Sketch

__all__ = ["SIR"]


def pool_bins(low: FloatArray, high: FloatArray, weight: FloatArray, positives: FloatArray) -> FloatArray:
    """Return rows (low, high, weight, positives) of bins merged until their rates strictly rise."""
    merged: list[list[float]] = []
    for entry in zip(low, high, weight, positives, strict=True):
        merged.append(list(map(float, entry)))
        while len(merged) > 1 and merged[-1][3] * merged[-2][2] <= merged[-2][3] * merged[-1][2]:
            last = merged.pop()
            merged[-1][1] = last[1]
            merged[-1][2] += last[2]
            merged[-1][3] += last[3]
    return np.array(merged)


class SIR(Calibrator):
    """Equal-mass bins, pooled until their rates strictly rise, joined by straight lines through the bins' middles.

    Left of the first middle the line starts at (0, 0); right of the last one p = min(1, s·v/m).

    Parameters
    ----------
    bins : the number of bins before pooling.

    >>> SIR(bins=2).fit([0.1, 0.2, 0.7, 0.8], [0, 1, 1, 1], resolution="exact").predict([0.15, 0.45]).round(3)
    array([0.5 , 0.75])
    """

    method = "sir"
    simplicity = 80

    def __init__(self, *, bins: int = 20) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins

    def _check_parameters(self) -> None:
        check_bins(self.bins)

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        edges = equal_mass_edges(sketch, self.bins)
        place = bin_of(sketch.score, edges)
        number = len(edges) + 1
        low, high = np.full(number, np.inf), np.full(number, -np.inf)
        np.minimum.at(low, place, sketch.score)
        np.maximum.at(high, place, sketch.score)
        weight = sums_by(place, sketch.weight, number)
        positives = sums_by(place, sketch.positives, number)
        pooled = pool_bins(low, high, weight, positives)
        middle = 0.5 * (pooled[:, 0] + pooled[:, 1])
        rate = np.clip(pooled[:, 3] / pooled[:, 2], SCORE_FLOOR, 1.0 - SCORE_FLOOR)
        full = 1.0 - SCORE_FLOOR
        slope = rate[-1] / middle[-1]
        # The last line reaches 1 at s = m/v, or the right end before that.
        knots = [0.0, *middle, max(min(full / slope, 1.0), middle[-1])]
        values = [0.0, *rate, min(slope, full)]
        return Curves.of([(np.array(knots), np.clip(values, SCORE_FLOOR, full))])
