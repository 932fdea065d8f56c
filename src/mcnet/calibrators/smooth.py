"""Smooth one-curve calibrators p = σ(θ·h(l)): the shared way from coefficients to a curve."""

from collections.abc import Callable
from typing import Any

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.curves.compile import compile_functions
from mcnet.curves.curves import Curves
from mcnet.sketch.sketch import Sketch

__all__ = ["SmoothCalibrator"]


class SmoothCalibrator(Calibrator):
    """A calibrator with a few coefficients, the convex optimum of a (bounded) logistic regression."""

    coefficients_: dict[str, float]

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        coefficients, function, breaks = self._solve(sketch.logit, sketch.weight, sketch.positives)
        self.coefficients_ = {name: float(value) for name, value in coefficients.items()}
        return compile_functions(lambda which, logits: function(logits)[None, :], 1, breaks=breaks)

    def _provenance(self, sketch: Sketch) -> dict[str, Any]:
        fitted = getattr(self, "coefficients_", None)
        return super()._provenance(sketch) | ({"coefficients": fitted} if fitted else {})

    def _solve(
        self, logits: FloatArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]:
        """Return the coefficients by name, the function of the logit, and where it has kinks (as scores)."""
        raise NotImplementedError
