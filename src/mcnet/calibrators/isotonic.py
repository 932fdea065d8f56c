"""Isotonic regression (Zadrozny & Elkan 2002)."""

import numpy as np
from scipy.optimize import isotonic_regression

from mcnet._shared.math import SCORE_FLOOR
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.curves.curves import Curves
from mcnet.sketch.sketch import Sketch

__all__ = ["Isotonic", "isotonic_blocks", "isotonic_curve"]


def isotonic_blocks(rates: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the non-decreasing values closest to the rates in weighted least squares (pool adjacent violators)."""
    fitted: FloatArray = isotonic_regression(rates, weights=weights).x
    # The blocks' means are rounded one by one; the running maximum only ever corrects the last bit.
    return np.maximum.accumulate(fitted)


def isotonic_curve(scores: FloatArray, rates: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the knots and probabilities of the isotonic fit to rates at rising scores."""
    values = np.clip(isotonic_blocks(rates, weights), SCORE_FLOOR, 1.0 - SCORE_FLOOR)
    # Inside a block only the two ends are needed.
    inner = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    ends = np.concatenate([[True], ~inner, [True]])[: len(values)]
    return scores[ends], values[ends]


class Isotonic(Calibrator):
    """The non-decreasing function closest to the labels: min Σ w (y − m(s))², m non-decreasing.

    Straight lines join the blocks, as in scikit-learn. Where a block has no positives (or only positives) the value is
    kept just inside (0, 1).

    >>> Isotonic().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], resolution="exact").predict([0.25]).round(3)
    array([0.5])
    """

    method = "isotonic"
    complexity = 20

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        return Curves.of([isotonic_curve(sketch.score, sketch.rate, sketch.weight)])
