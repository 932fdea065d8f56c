"""Forecasts: the belief of a tracker about the coming period, as one rising function per context."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mcnet._shared.math import sigmoid
from mcnet._shared.typing import FloatArray, IndexArray, IntArray
from mcnet.curves.compile import compile_functions, compile_lines
from mcnet.curves.curves import Curves
from mcnet.curves.family import Lines
from mcnet.curves.knots import LOGIT_EDGE
from mcnet.data.contexts import ANY, Contexts
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.experts import Expert, FamilyExpert
from mcnet.tracking.switching import BEFORE_MEMORIES

__all__ = ["Forecast", "balanced_level", "compiled_forecast"]

_EVEN_KNOTS = np.arange(-16.0, 16.5, 0.5)
"""Knots besides those of the experts, for where these are cut off: what few rows cannot tell from 0 or 1."""

_ARRAYS = ("candidates", "belief", "stack", "seasonal")


@dataclass(frozen=True, eq=False)
class Forecast:
    """Experts, candidates as coefficients over them, and the belief in each candidate.

    A coefficient vector is (one weight per expert, the weight of the raw logit, a constant). No weight is negative, so
    every candidate and every mixture of them rises with the score. An expert that is None is the raw logit: there was
    nothing yet to fit it to.
    """

    experts: tuple[Expert | None, ...]
    candidates: FloatArray
    belief: FloatArray
    stack: FloatArray
    centre: float
    seasonal: FloatArray
    """The offset that each season expects of the period that it is for, in logits."""
    position: float
    """When it was made, in periods since the first."""

    @property
    def served(self) -> FloatArray:
        """The coefficients of what is served: the mean over candidates."""
        return np.asarray(self.belief @ self.candidates)

    def features(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the experts' logits, the raw logit and a one: `[rows, experts + 2]`."""
        found: dict[int, FloatArray] = {}
        for expert in self.experts:
            if expert is not None and id(expert) not in found:
                found[id(expert)] = expert.logits(contexts, which, raw)
        columns = [raw if expert is None else found[id(expert)] for expert in self.experts]
        return np.column_stack([*columns, raw, np.ones_like(raw)])

    def of_cells(self, sketch: Sketch) -> FloatArray:
        """Return the features of the cells of a sketch."""
        return self.features(sketch.contexts, sketch.context, sketch.logit)

    def with_memory(self, place: int) -> "Forecast":
        """Return the same forecast for a tracker with one more memory, which so far is the same as everything."""
        candidates = np.insert(self.candidates, place, 0.0, axis=1)
        return replace(
            self,
            experts=(*self.experts[:place], self.experts[place], *self.experts[place:]),
            candidates=np.insert(candidates, BEFORE_MEMORIES + place, candidates[0], axis=0),
            belief=np.insert(self.belief, BEFORE_MEMORIES + place, 0.0),
            stack=np.insert(self.stack, place, 0.0),
        )

    def state(self, experts: list[Expert | None]) -> dict[str, Any]:
        """Return the forecast as JSON-able values; experts are named by their places in a list."""
        places = {id(expert): place for place, expert in enumerate(experts)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {
            "experts": [None if expert is None else places[id(expert)] for expert in self.experts],
            "centre": self.centre,
            "position": self.position,
            **{name: array.tolist() for name, array in arrays.items()},
        }

    @staticmethod
    def restored(state: dict[str, Any], experts: list[Expert]) -> "Forecast":
        """Return the forecast that `state` described."""
        candidates, belief, stack, seasonal = (np.array(state[name], float) for name in _ARRAYS)
        chosen = tuple(None if place is None else experts[place] for place in state["experts"])
        centre, position = float(state["centre"]), float(state["position"])
        return Forecast(chosen, candidates, belief, stack, centre, seasonal, position)


def compiled_forecast(forecast: Forecast, contexts: Contexts, limit: float) -> Curves:
    """Return what a forecast serves as curves: the pooled one, then one for each context.

    No calibrated logit is beyond ± limit, unless the score's own is.
    """
    pooled = np.full((1, len(contexts.names)), ANY, dtype=np.int32)
    table = np.concatenate([pooled, contexts.table]) if contexts.names else pooled
    whole = Contexts(contexts.names, contexts.values, table)
    if all(expert is None or isinstance(expert, FamilyExpert) for expert in forecast.experts):
        return compile_lines(_lines(forecast, whole, limit))[0].bounded()

    def calibrated(which: IntArray, logits: FloatArray) -> FloatArray:
        curve, raw = np.broadcast_arrays(which, logits)
        found = forecast.features(whole, curve.ravel(), raw.ravel()) @ forecast.served
        bounded = np.clip(found, np.minimum(raw.ravel(), -limit), np.maximum(raw.ravel(), limit))
        return np.asarray(bounded.reshape(curve.shape))

    return compile_functions(calibrated, len(whole)).bounded()


def _lines(forecast: Forecast, contexts: Contexts, limit: float) -> Lines:
    """Return the sum of the experts' lines in logit space: straight between the knots of all of them."""
    weights: dict[int, float] = {}
    families: dict[int, FamilyExpert] = {}
    *of_experts, of_raw, constant = forecast.served.tolist()
    for expert, weight in zip(forecast.experts, of_experts, strict=True):
        if isinstance(expert, FamilyExpert):
            families[id(expert)] = expert
            weights[id(expert)] = weights.get(id(expert), 0.0) + weight
        else:
            of_raw += weight
    knots = np.concatenate([_EVEN_KNOTS, *(expert.family.knots for expert in families.values())])
    knots = np.unique(np.clip(knots, -LOGIT_EDGE, LOGIT_EDGE))
    values = np.tile(constant + of_raw * knots, (len(contexts), 1))
    for key, expert in families.items():
        values += weights[key] * expert.family.lines(expert.codes(contexts)).at(knots)
    # Rounding may let a sum of rising lines fall by a unit in the last place.
    values = np.maximum.accumulate(values, axis=1)
    flat = np.zeros(len(values))  # there are no scores beyond the last knots
    return Lines(knots, values, flat, flat, limit)


def balanced_level(logits: FloatArray, sketch: Sketch, prior_variance: float) -> float:
    """Return the constant that, added to the logits of a sketch's cells, expects as many positives as there are.

    A normal prior with this variance keeps the constant finite where rows are few or of one class.
    """
    level = 0.0
    for _ in range(20):
        chance = sigmoid(logits + level)
        slope = float(sketch.weight @ (chance * (1.0 - chance))) + 1.0 / prior_variance
        step = (sketch.total_positives - float(sketch.weight @ chance) - level / prior_variance) / slope
        level += float(np.clip(step, -1.5, 1.5))
        if abs(step) < 1e-6:
            break
    return level
