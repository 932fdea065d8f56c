"""Forecasts of the coming period: candidates, their stack and the belief in each; one rising function per context."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, sigmoid
from mcnet.curves.compile import LOGIT_EDGE, compile_functions, compile_lines
from mcnet.curves.curves import Curves, interpolated
from mcnet.curves.family import Lines, believable
from mcnet.model.bands import CurveDeviations
from mcnet.rows.contexts import ANY, Contexts
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.memories import NUMBER_OF_SEASONS, Expert, FamilyExpert, LevelExpert, ModelExpert
from mcnet.tracking.value_changes import FOLLOWED, ValueOffsets

# The candidates, and the belief in each, learnt by tempered likelihood with a fixed share.

PRIOR_EVERYTHING, PRIOR_STACK, PRIOR_LEVEL, PRIOR_OTHERS = 0.63, 0.25, 0.05, 0.07
"""The prior belief in everything, in the stack, in the level since a change, and in all others together."""
PRIOR_APART = 0.85
"""The share of a candidate's prior belief that goes to the same one with values apart."""
SWITCH_CHANCE = 0.005
"""The chance per period that another candidate becomes the right one."""
NEW_CANDIDATE = 1e-6
"""The belief in a candidate that comes with a new memory."""
EVERYTHING, STACK = FOLLOWED
CHANGED_LEVEL = "level since a change"
"""Everything, with the level that the periods since a change of it show."""


class Candidate(NamedTuple):
    """A way to forecast the coming period."""

    name: str
    prior: float
    """The belief in it before any period."""
    offsets: int | None = None
    """Of field values that move by themselves: those beside this one of the `FOLLOWED`; None for none at all."""


def expert_names(half_lives: Sequence[float]) -> list[str]:
    """Return the names of memories with these half-lives, and after them those of everything and of the base scores."""
    return [*(f"memory {half_life:g}" for half_life in half_lives), EVERYTHING, "base scores"]


def candidates_of(half_lives: Sequence[float]) -> list[Candidate]:
    """Return all candidates: the experts, what is made of these, and last those that follow values by themselves."""
    names = expert_names(half_lives)
    priors = dict.fromkeys(names, PRIOR_OTHERS / (len(names) - 1))
    priors |= {EVERYTHING: PRIOR_EVERYTHING, STACK: PRIOR_STACK, CHANGED_LEVEL: PRIOR_LEVEL}
    twice = {EVERYTHING: 0, STACK: 1, CHANGED_LEVEL: 0}
    plain = (Candidate(name, prior * (1.0 - PRIOR_APART * (name in twice))) for name, prior in priors.items())
    return [*plain, *(Candidate(name, PRIOR_APART * priors[name], offsets) for name, offsets in twice.items())]


def learnt_belief(
    belief: FloatArray, losses: FloatArray, prior: FloatArray, *, overdispersion: float, step: float
) -> FloatArray:
    """Return the belief after a period: Bayes' rule with the evidence tempered, then a share back to the prior."""
    posterior = np.log(belief) - losses / overdispersion
    posterior = np.exp(posterior - posterior.max())
    stays = (1.0 - SWITCH_CHANCE) ** step
    return np.asarray(stays * posterior / posterior.sum() + (1.0 - stays) * prior)


# The stack: weights of experts, none negative, learnt from how well they forecast the periods so far.

EVIDENCE_HALF_LIFE = 1000.0
"""Periods over which evidence about the weights is forgotten by half."""
MORE_OF_EVERYTHING = 0.3
"""The part of the prior weights that everything has alone; the rest is equal for all."""
WEIGHT_DEVIATION = 0.3
"""The prior standard deviation of a weight around these."""
SUM_DEVIATION = 0.15
"""The prior standard deviation of the sum of the weights around 1."""
SEASON_DEVIATION = 0.5
"""The prior standard deviation of the weight of a season, around 0."""


@dataclass(frozen=True, eq=False)
class Stack:
    """A ridge regression whose evidence is one quadratic per period: weights w ≥ 0 that minimise ½ wᵀQw − bᵀw.

    The weights multiply logits measured from a centre, the logit of the rate of everything: a sum other than 1
    flattens or steepens the curves around the usual rate and does not move it. After those of the experts and the base
    scores come the weights of the seasons' offsets.
    """

    curvature: FloatArray
    pull: FloatArray
    weights: FloatArray

    @staticmethod
    def begun(size: int) -> "Stack":
        """Return the stack before any evidence, for this many experts, the base scores among them."""
        whole = size + NUMBER_OF_SEASONS
        return Stack(np.zeros((whole, whole)), np.zeros(whole), _prior_weights(whole))

    def learnt(
        self,
        features: FloatArray,
        weight: FloatArray,
        positives: FloatArray,
        *,
        centre: float,
        at: FloatArray,
        overdispersion: float,
        step: float,
    ) -> "Stack":
        """Return the stack after a period: with a Newton quadratic of its log-loss around the weights `at` in use.

        The features of its cells are the experts' logits, measured from the centre, and the seasons' offsets.
        """
        chance = sigmoid(centre + features @ at)
        curvature = (features.T * (weight * chance * (1.0 - chance))) @ features
        pull = features.T @ (positives - weight * chance) + curvature @ at
        kept = 2.0 ** (-step / EVIDENCE_HALF_LIFE)
        curvature, pull = kept * self.curvature + curvature / overdispersion, kept * self.pull + pull / overdispersion
        experts = len(pull) - NUMBER_OF_SEASONS
        precision = np.diag(np.repeat([WEIGHT_DEVIATION, SEASON_DEVIATION], [experts, NUMBER_OF_SEASONS]) ** -2.0)
        precision[:experts, :experts] += SUM_DEVIATION**-2.0
        factor, right = np.linalg.cholesky(curvature + precision), pull + precision @ _prior_weights(len(pull))
        return Stack(curvature, pull, np.asarray(nnls(factor.T, solve_triangular(factor, right, lower=True))[0]))

    def doubled(self, index: int) -> "Stack":
        """Return the stack with one expert twice, side by side: the same evidence for both, half the weight each."""
        order = np.insert(np.arange(len(self.pull)), index, index)
        shares = np.where(np.isin(np.arange(len(order)), (index, index + 1)), 0.5, 1.0)
        return Stack(self.curvature[np.ix_(order, order)], self.pull[order], self.weights[order] * shares)


def _prior_weights(size: int) -> FloatArray:
    experts = size - NUMBER_OF_SEASONS
    weights = np.full(experts, (1.0 - MORE_OF_EVERYTHING) / experts)
    weights[-2] += MORE_OF_EVERYTHING  # the last expert has the base scores
    return np.append(weights, np.zeros(NUMBER_OF_SEASONS))


# A forecast: what a tracker expects of the coming period, as one rising function per context.

_EVEN_KNOTS = np.arange(-16.0, 16.5, 0.5)
"""Knots besides those of the experts, for where these are cut off: what few rows cannot tell from 0 or 1."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Experts, candidates as coefficients over them, and the belief in each candidate.

    A coefficient vector is (one weight per expert, the weight of the raw logit, a constant, the weights of the offsets
    of field values). No weight is negative, so every candidate and every mixture of them rises with the score.
    """

    experts: tuple[Expert, ...]
    candidates: FloatArray
    """`[candidates, coefficients]`, in the order of `candidates_of`."""
    belief: FloatArray
    stack: FloatArray
    """The weights of the stack."""
    centre: float
    seasonal: FloatArray
    """The offset that each season expects of the period that it is for, in logits."""
    position: float
    """When it was made, in periods since the first."""
    offsets: ValueOffsets = field(default_factory=ValueOffsets)
    """Of field values that move by themselves."""

    @cached_property
    def served(self) -> FloatArray:
        """The coefficients of what is served: the mean over candidates."""
        return np.asarray(self.belief @ self.candidates)

    @property
    def memory_weights(self) -> FloatArray:
        """The weight of each memory in what is served, then that of the base scores."""
        return self.served[: len(self.experts) + 1]

    @property
    def offset_weights(self) -> FloatArray:
        """The weight of the offsets beside each of the `FOLLOWED` in what is served."""
        return self.served[len(self.experts) + 2 :]

    def features(self, contexts: Contexts, which: IndexArray, raw: FloatArray) -> FloatArray:
        """Return the experts' logits, the raw logit, a one and offsets of values: `[rows, experts + 2 + followed]`."""
        found = {expert: expert.logits(contexts, which, raw) for expert in set(self.experts)}
        columns = [found[expert] for expert in self.experts]
        return np.column_stack([*columns, raw, np.ones_like(raw), self.offsets.of_contexts(contexts)[0][which]])

    def of_cells(self, sketch: Sketch) -> FloatArray:
        """Return the features of the cells of a sketch."""
        return self.features(sketch.contexts, sketch.context, sketch.logit)

    def shifts(self, contexts: Contexts) -> tuple[FloatArray, FloatArray]:
        """Return by how much contexts are served apart from the common movement, in logits, and its variance."""
        mean, variance = self.offsets.of_contexts(contexts)
        return np.asarray(mean @ self.offset_weights), np.asarray(variance @ self.offset_weights)

    def with_memory(self, index: int) -> "Forecast":
        """Return the same forecast for a tracker with one more memory, which so far is the same as everything."""
        weights = np.insert(self.candidates, index, 0.0, axis=1)
        return replace(
            self,
            experts=(*self.experts[:index], *self.experts[index:][:1], *self.experts[index:]),
            candidates=np.insert(weights, index, weights[index], axis=0),
            belief=np.insert(self.belief, index, 0.0),
            stack=np.insert(self.stack, index, 0.0),
        )


def compiled_forecast(forecast: Forecast, contexts: Contexts, limit: float, of: int | None = None) -> Curves:
    """Return what a forecast serves as curves: the pooled one, then one for each context (a part `of` so many).

    No calibrated logit is beyond ± limit, unless the score's own is.
    """
    whole = _with_pooled(contexts)
    if not any(isinstance(expert, ModelExpert) for expert in forecast.experts):
        return compile_lines(_lines(forecast, whole, limit), of=None if of is None else 1 + of).bounded()

    def calibrated(which: IntArray, logits: FloatArray) -> FloatArray:
        curve, raw = np.broadcast_arrays(which, logits)
        found = forecast.features(whole, curve.ravel(), raw.ravel()) @ forecast.served
        return believable(found, raw.ravel(), limit).reshape(curve.shape)

    return compile_functions(calibrated, len(whole)).bounded()


def _with_pooled(contexts: Contexts) -> Contexts:
    """Return the context of which no value is known, for the pooled curve, and these after it."""
    pooled = np.full((1, len(contexts.names)), ANY, dtype=np.int32)
    return replace(contexts, table=np.concatenate([pooled, contexts.table]) if contexts.names else pooled)


def _lines(forecast: Forecast, contexts: Contexts, limit: float) -> Lines:
    """Return the sum of the experts' lines in logit space: straight between the knots of all of them."""
    families: dict[FamilyExpert, float] = {}
    of_experts = forecast.served[: len(forecast.experts)].tolist()
    of_raw, constant = forecast.served[len(of_experts) : len(of_experts) + 2].tolist()
    for expert, weight in zip(forecast.experts, of_experts, strict=True):
        if isinstance(expert, FamilyExpert):
            families[expert] = families.get(expert, 0.0) + weight
        elif isinstance(expert, LevelExpert):
            of_raw, constant = of_raw + weight, constant + weight * expert.level
    knots = np.concatenate([_EVEN_KNOTS, *(expert.family.knots for expert in families)])
    knots = np.unique(np.clip(knots, -LOGIT_EDGE, LOGIT_EDGE))
    values = constant + of_raw * knots + forecast.shifts(contexts)[0][:, None]
    for expert, weight in families.items():
        values += weight * expert.family.lines(expert.codes(contexts)).at(knots)
    # Rounding may let a sum of rising lines fall by a unit in the last place.
    values = np.maximum.accumulate(values, axis=1)
    flat = np.zeros(len(values))  # there are no scores beyond the last knots
    return Lines(knots, values, flat, flat, limit)


# The uncertainty of the coming period: that of the curves, and the variation between periods.

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
    the variance of what a period, and a field value within it, changes beyond the forecast. The variance of the offset
    of a value that moves by itself is added. The deviations are computed when first asked for, which takes about as
    long as an update.
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
        whole, places = _with_pooled(self.contexts), self._places()
        spread = np.zeros((len(whole), len(places)))
        for weight, expert, sketch in self._experts():
            known = expert.uncertainty(sketch)
            spread += weight * interpolated(known.places, known.deviations(expert.codes(whole)), places)
        deviations = np.sqrt(spread**2 + self.effects + self.forecast.shifts(whole)[1][:, None])
        return CurveDeviations(self.curves, self.contexts, places, deviations).rounded()

    def _places(self) -> FloatArray:
        rows = self.sketches[-1]
        assert rows is not None
        low, high = float(rows.logit.min()), float(rows.logit.max())
        number = INNER_PLACES if len(self.curves) <= CURVES_AT_EVERY_PLACE else FEWER_INNER_PLACES
        return np.unique(np.concatenate([low - BEYOND, np.linspace(low, high, number), high + BEYOND]))

    def _experts(self) -> list[tuple[float, FamilyExpert, Sketch]]:
        """Return weight, expert and rows of the experts that count and know their uncertainty."""
        weights: dict[FamilyExpert, float] = {}
        rows: dict[FamilyExpert, Sketch] = {}
        for expert, weight, sketch in zip(self.forecast.experts, self.forecast.served, self.sketches, strict=False):
            if isinstance(expert, FamilyExpert) and sketch is not None:
                weights[expert] = weights.get(expert, 0.0) + float(weight)
                rows[expert] = sketch  # of the longest memory that shares it
        return [(weight, expert, rows[expert]) for expert, weight in weights.items() if weight > SMALLEST_WEIGHT]

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the intervals, in logits, of contexts given by their field codes: `[contexts, logits]`."""
        return self.computed.band(logits, codes, level)

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers."""
        return self.computed.to_dict()
