"""Platt scaling and temperature scaling: a straight line in logit space."""

from collections.abc import Callable

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.logistic import fit_logistic
from mcnet.calibrators.smooth import SmoothCalibrator

__all__ = ["Platt", "Temperature"]


class Platt(SmoothCalibrator):
    """A line in logit space: p = σ(a·l + b) with a ≥ 0, the optimum of the log-loss.

    Parameters
    ----------
    smooth_targets : use Platt's targets (N⁺ + 1)/(N⁺ + 2) and 1/(N⁻ + 2) instead of 1 and 0.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.1, 0.9, 100_000)
    >>> labels = rng.random(100_000) < truth
    >>> inflated = 1 / (1 + (1 - truth) / truth / 2)  # odds twice too high
    >>> {name: round(value, 1) for name, value in Platt().fit(inflated, labels).coefficients_.items()}
    {'slope': 1.0, 'intercept': -0.7}
    """

    method = "platt"
    complexity = 30

    def __init__(self, *, smooth_targets: bool = False) -> None:
        """Store the parameters; they are checked in fit."""
        self.smooth_targets = smooth_targets

    def _solve(
        self, logits: FloatArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]:
        if self.smooth_targets:
            total = positives.sum()
            high = (total + 1.0) / (total + 2.0)
            low = 1.0 / (weight.sum() - total + 2.0)
            positives = positives * high + (weight - positives) * low
        design = np.column_stack([logits, np.ones_like(logits)])
        start = np.array([1.0, 0.0])
        slope, intercept = fit_logistic(design, weight, positives, lower=np.array([0.0, -np.inf]), start=start)
        return {"slope": slope, "intercept": intercept}, lambda l: slope * l + intercept, None


class Temperature(SmoothCalibrator):
    """One number: p = σ(l / T), T > 0. It sharpens or flattens, and cannot correct a wrong base rate.

    >>> round(Temperature().fit([0.2, 0.2, 0.8, 0.8], [0, 1, 0, 1]).coefficients_["inverse_temperature"], 3)
    0.0
    """

    method = "temperature"
    complexity = 40

    def _solve(
        self, logits: FloatArray, weight: FloatArray, positives: FloatArray
    ) -> tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]:
        (inverse,) = fit_logistic(logits[:, None], weight, positives, lower=np.zeros(1), start=np.ones(1))
        return {"inverse_temperature": inverse}, lambda l: inverse * l, None
