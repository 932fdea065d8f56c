"""The uncertainty of the coming period: that of the curves, and what a period may change."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray
from mcnet.curves.uncertainty import CurveUncertainty
from mcnet.data.contexts import Contexts
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.experts import Expert, FamilyExpert
from mcnet.tracking.forecast import Forecast

__all__ = ["ComingPeriod", "expert_uncertainties"]

SMALLEST_WEIGHT = 1e-3
"""Experts of a smaller weight add nothing to the uncertainty that could be seen."""


def expert_uncertainties(
    forecast: Forecast, sketches: Sequence[Sketch | None]
) -> list[tuple[float, FamilyExpert, CurveUncertainty]]:
    """Return weight, expert and variances of the experts that count; `sketches` are the rows of each one's memory."""
    weights: dict[int, float] = {}
    rows: dict[int, tuple[Expert, Sketch]] = {}
    for expert, weight, sketch in zip(forecast.experts, forecast.served, sketches, strict=False):
        if isinstance(expert, FamilyExpert) and sketch is not None:
            weights[id(expert)] = weights.get(id(expert), 0.0) + float(weight)
            rows[id(expert)] = expert, sketch  # the longest memory that shares it
    return [
        (weights[key], expert, expert.uncertainty(sketch))
        for key, (expert, sketch) in rows.items()
        if weights[key] > SMALLEST_WEIGHT and isinstance(expert, FamilyExpert)
    ]


@dataclass(frozen=True, eq=False)
class ComingPeriod:
    """A normal distribution of the coming period's logit: mean the forecast, variance sd² + effects.

    sd is the weighted sum of the experts' posterior standard deviations, as if their errors went together; `effects` is
    the variance of what a period, and a field value within it, changes beyond the forecast.
    """

    forecast: Forecast
    contexts: Contexts
    experts: Sequence[tuple[float, FamilyExpert, CurveUncertainty]]
    effects: float

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the interval, in logits, of rows given by their logits and field codes `[rows, fields]`."""
        distinct, which = codes[:1], np.zeros(len(codes), dtype=np.int64)
        if codes.shape[1]:
            distinct, which = np.unique(codes, axis=0, return_inverse=True)
            which = which.reshape(-1)
        contexts = Contexts(self.contexts.names, self.contexts.values, distinct.astype(np.int32))
        middle = self.forecast.features(contexts, which, logits) @ self.forecast.served
        spread = np.zeros(len(logits))
        for weight, expert, uncertainty in self.experts:
            deviations = uncertainty.deviations(expert.codes(contexts))
            spread += weight * _between(uncertainty.places, deviations, which, logits)
        reach = NormalDist().inv_cdf(0.5 + 0.5 * level) * np.sqrt(spread**2 + self.effects)
        return middle - reach, middle + reach

    def to_dict(self) -> dict[str, Any]:
        """Refuse: the interval is a part of the tracker's state, not of the model's."""
        raise NotImplementedError


def _between(places: FloatArray, values: FloatArray, which: NDArray[Any], logits: FloatArray) -> FloatArray:
    """Return each row's value on its own line through the places; constant beyond them."""
    left = np.clip(np.searchsorted(places, logits, side="right") - 1, 0, len(places) - 2)
    share = np.clip((logits - places[left]) / (places[left + 1] - places[left]), 0.0, 1.0)
    result: FloatArray = values[which, left] * (1.0 - share) + values[which, left + 1] * share
    return result
