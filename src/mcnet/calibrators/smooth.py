"""Smooth one-curve calibrators p = σ(θ·h(l)): the shared way from coefficients to a curve."""

from collections.abc import Callable

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.fitted import Fitted
from mcnet.curves.compile import compile_functions
from mcnet.sketch.sketch import Sketch

__all__ = ["SmoothCalibrator"]


class SmoothCalibrator(Calibrator):
    """A calibrator with a few coefficients, the convex optimum of a (bounded) logistic regression."""

    coefficients_: dict[str, float]

    def _fit(self, sketch: Sketch) -> Fitted:
        sketch = sketch.unfolded()
        coefficients, function, breaks = self._solve(sketch.logit, sketch.weight, sketch.positives)
        self.coefficients_ = {name: float(value) for name, value in coefficients.items()}
        curves = compile_functions(lambda which, logits: function(logits)[None, :], 1, breaks=breaks)
        return Fitted(curves, history={"coefficients": self.coefficients_})

    def _solve(
        self, logits: FloatArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]:
        """Return the coefficients by name, the function of the logit, and where it has kinks (as scores)."""
        raise NotImplementedError
