"""Gaussian and gamma scaling (Kweon et al., AAAI 2022): curves from two class-conditional densities."""

from collections.abc import Callable

import numpy as np

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.logistic import fit_logistic
from mcnet.calibrators.smooth import SmoothCalibrator
from mcnet.errors import InputError

__all__ = ["GammaScaling", "GaussianScaling"]

_Solution = tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]


def _fit_ends(basis: FloatArray, weight: FloatArray, positives: FloatArray) -> FloatArray:
    """Return the slopes at the two ends of the range, held at 0 or above, and the offset."""
    lower, start = np.array([0.0, 0.0, -np.inf]), np.array([1.0, 1.0, 0.0])
    return fit_logistic(basis, weight, positives, lower=lower, start=start)


class GaussianScaling(SmoothCalibrator):
    """A parabola in logit space: p = σ(a·l² + b·l + c), rising over the fitted range, clipped beyond it.

    The slope at the two ends of the range, u and v, are the coefficients bounded by 0: between them the slope is
    linear, so u, v ≥ 0 is exactly what monotone means.

    >>> fitted = GaussianScaling().fit([0.1, 0.4, 0.6, 0.9], [0, 0, 1, 0], resolution="exact")
    >>> bool(fitted.predict([0.05])[0] == fitted.predict([0.1])[0] < fitted.predict([0.9])[0])
    True
    """

    method = "gaussian"
    complexity = 60

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        lowest, highest = float(logits.min()), float(logits.max())
        width = highest - lowest

        def basis(l: FloatArray) -> FloatArray:
            x = np.clip(l, lowest, highest)
            # l² and l written through the end slopes: a = (v − u)/2Δ, b = (u·l_max − v·l_min)/Δ.
            rising = (0.5 * x * x - lowest * x) / width
            falling = (highest * x - 0.5 * x * x) / width
            return np.column_stack([falling, rising, np.ones_like(x)])

        theta = u, v, c = _fit_ends(basis(logits), weight, positives)
        named = {"a": (v - u) / (2.0 * width), "b": (u * highest - v * lowest) / width, "c": c}
        return named, lambda l: basis(l) @ theta, sigmoid(np.array([lowest, highest]))


class GammaScaling(SmoothCalibrator):
    """A logarithm plus a line: p = σ(a·log t + b·t + c), t = l − l_min + δ, rising over the fitted range.

    Parameters
    ----------
    shift : δ > 0, which keeps t above 0.

    >>> fitted = GammaScaling().fit([0.1, 0.4, 0.6, 0.9], [0, 1, 0, 1])
    >>> bool(fitted.predict([0.1])[0] < fitted.predict([0.9])[0])
    True
    """

    method = "gamma"
    complexity = 70

    def __init__(self, *, shift: float = 1.0) -> None:
        """Store the parameters; they are checked in fit."""
        self.shift = shift

    def _check_parameters(self) -> None:
        if not 0.0 < self.shift < np.inf:
            raise InputError(f"shift is {self.shift!r}; it must be a number above 0")

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        lowest = float(logits.min())
        first, last = self.shift, float(logits.max()) - lowest + self.shift
        spread = 1.0 / first - 1.0 / last

        def basis(l: FloatArray) -> FloatArray:
            t = np.clip(l - lowest + self.shift, first, last)
            # a·log t + b·t with a = (u − v)/D, b = (v/t₁ − u/t₂)/D: u and v are the slopes at the two ends.
            by_u = (np.log(t) - t / last) / spread
            by_v = (t / first - np.log(t)) / spread
            return np.column_stack([by_u, by_v, np.ones_like(t)])

        theta = u, v, c = _fit_ends(basis(logits), weight, positives)
        named = {"a": (u - v) / spread, "b": (v / first - u / last) / spread, "c": c}
        ends = sigmoid(np.array([lowest, last - first + lowest]))
        return named, lambda l: basis(l) @ theta, ends
