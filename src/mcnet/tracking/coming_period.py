"""The uncertainty of the coming period: that of the curves, and the variation between periods."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray
from mcnet.curves.curves import Curves
from mcnet.curves.uncertainty import interpolated
from mcnet.data.contexts import ANY, Contexts
from mcnet.model.curve_deviations import CurveDeviations
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.experts import FamilyExpert
from mcnet.tracking.forecast import Forecast

__all__ = ["ComingPeriod"]

SMALLEST_WEIGHT = 1e-3
"""Experts of a smaller weight add nothing to the uncertainty that could be seen."""
INNER_PLACES = 33
"""Places inside the range of the scores at which deviations are kept …"""
FEWER_INNER_PLACES = 9
"""… and with more curves than this:"""
CURVES_AT_EVERY_PLACE = 1_000
BEYOND = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
"""How far beyond the range of the scores, in logits, further places lie."""


@dataclass(frozen=True, eq=False)
class ComingPeriod:
    """A normal distribution of the coming period's logit: mean the served one, variance sd² + effects.

    sd is the weighted sum of the experts' posterior standard deviations, as if their errors went together; `effects` is
    the variance of what a period, and a field value within it, changes beyond the forecast. The deviations are computed
    when first asked for, which takes about as long as an update.
    """

    forecast: Forecast
    curves: Curves
    """What is served."""
    contexts: Contexts
    """The contexts of the curves."""
    sketches: Sequence[Sketch | None]
    """The rows of the memory of each expert of the forecast; the last has everything."""
    effects: float

    @cached_property
    def computed(self) -> CurveDeviations:
        """The deviations at a few places of every curve."""
        names = self.contexts.names
        pooled = np.full((1, len(names)), ANY, dtype=np.int32)
        table = np.concatenate([pooled, self.contexts.table]) if names else pooled
        whole = Contexts(names, self.contexts.values, table)
        places = self._places()
        spread = np.zeros((len(table), len(places)))
        for weight, expert, sketch in self._experts():
            known = expert.uncertainty(sketch)
            spread += weight * interpolated(known.places, known.deviations(expert.codes(whole)), places)
        deviations = np.sqrt(spread**2 + self.effects)
        return CurveDeviations(self.curves, self.contexts, places, deviations).rounded()

    def _places(self) -> FloatArray:
        rows = self.sketches[-1]
        assert rows is not None
        low, high = float(rows.logit.min()), float(rows.logit.max())
        number = INNER_PLACES if len(self.curves) <= CURVES_AT_EVERY_PLACE else FEWER_INNER_PLACES
        return np.unique(np.concatenate([low - BEYOND, np.linspace(low, high, number), high + BEYOND]))

    def _experts(self) -> list[tuple[float, FamilyExpert, Sketch]]:
        """Return weight, expert and rows of the experts that count and know their uncertainty."""
        weights: dict[int, float] = {}
        rows: dict[int, tuple[FamilyExpert, Sketch]] = {}
        for expert, weight, sketch in zip(self.forecast.experts, self.forecast.served, self.sketches, strict=False):
            if isinstance(expert, FamilyExpert) and sketch is not None:
                weights[id(expert)] = weights.get(id(expert), 0.0) + float(weight)
                rows[id(expert)] = expert, sketch  # the longest memory that shares it
        return [(weights[key], *rows[key]) for key in rows if weights[key] > SMALLEST_WEIGHT]

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the interval, in logits, of rows given by their logits and field codes `[rows, fields]`."""
        return self.computed.band(logits, codes, level)

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers."""
        return self.computed.to_dict()
