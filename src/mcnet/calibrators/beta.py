"""Beta calibration (Kull et al. 2017)."""

from collections.abc import Callable

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.logistic import fit_logistic
from mcnet.calibrators.smooth import SmoothCalibrator

__all__ = ["Beta"]


def _features(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ln s and −ln(1 − s) of scores given as logits."""
    return -np.logaddexp(0.0, -logits), np.logaddexp(0.0, logits)


class Beta(SmoothCalibrator):
    """Three numbers from the ratio of two beta densities: p = σ(a·ln s − b·ln(1 − s) + c), a, b ≥ 0.

    Contains the identity (1, 1, 0), and bends the two ends separately.

    >>> fitted = Beta().fit([0.2, 0.2, 0.8, 0.8], [0, 1, 1, 1])
    >>> bool(fitted.predict([0.1])[0] <= fitted.predict([0.9])[0])
    True
    """

    method = "beta"
    complexity = 50

    def _solve(
        self, logits: FloatArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]:
        low, high = _features(logits)
        design = np.column_stack([low, high, np.ones_like(low)])
        bounds, start = np.array([0.0, 0.0, -np.inf]), np.array([1.0, 1.0, 0.0])
        a, b, c = fit_logistic(design, weight, positives, lower=bounds, start=start)

        def function(l: FloatArray) -> FloatArray:
            low, high = _features(l)
            bent: FloatArray = a * low + b * high + c
            return bent

        return {"a": a, "b": b, "c": c}, function, None
