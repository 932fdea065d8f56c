"""Identity: the base predictor's own score, for comparison."""

import numpy as np

from mcnet._shared.math import SCORE_FLOOR
from mcnet.calibrators.base import Calibrator
from mcnet.curves.curves import Curves
from mcnet.sketch.sketch import Sketch

__all__ = ["Identity"]


class Identity(Calibrator):
    """Leaves every score as it is: p = s.

    >>> Identity().fit([0.2, 0.7], [0, 1]).predict([0.3])
    array([0.3])
    """

    method = "base"
    complexity = 0

    def _nothing_to_learn(self, sketch: Sketch) -> str | None:
        return None

    def _fit_curves(self, sketch: Sketch) -> Curves:
        ends = np.array([SCORE_FLOOR, 1.0 - SCORE_FLOOR])
        return Curves.of([(ends, ends)])
