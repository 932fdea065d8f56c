"""Forecasts: belief in each candidate, learnt by tempered likelihood, as one rising function per context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from mcnet._shared.arrays import FloatArray, IndexArray, IntArray, sigmoid, sums_by
from mcnet.curves.compile import LOGIT_EDGE, compile_functions, compile_lines
from mcnet.curves.curves import Curves, interpolated
from mcnet.curves.family import Lines, believable
from mcnet.model.bands import CurveDeviations
from mcnet.rows.contexts import ANY, Contexts
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.memories import NUMBER_OF_SEASONS, Expert, FamilyExpert
from mcnet.tracking.value_changes import FOLLOWED, ValueOffsets

# The stack: weights of experts, none negative, learnt from how well they forecast the periods so far.

EVIDENCE_HALF_LIFE = 1000.0
"""Periods over which evidence about the weights is forgotten by half."""
WEIGHT_DEVIATION = 0.2
"""The prior standard deviation of a weight around equal weights."""
CAREFUL_DEVIATION = 0.3
"""The same of a careful weight, around 1 for everything and 0 for the others."""
SUM_DEVIATION = 0.15
"""The prior standard deviation of the sum of the weights around 1."""
SEASON_DEVIATION = 0.25
"""The prior standard deviation of the weight of a season, around 0."""


@dataclass
class Stack:
    """A ridge regression whose evidence is one quadratic per period: weights w ≥ 0 that minimise ½ wᵀQw − bᵀw.

    The weights multiply logits measured from a centre, the logit of the rate of everything: a sum other than 1
    flattens or steepens the curves around the usual rate and does not move it. After those of the experts and the base
    scores come the weights of the seasons' offsets.

    There are two sets of weights from the same evidence: one begins with equal weights, the careful one with
    everything alone.
    """

    curvature: FloatArray
    pull: FloatArray
    weights: FloatArray
    careful: FloatArray

    @staticmethod
    def begun(size: int) -> "Stack":
        """Return the stack before any evidence, for this many experts, the base scores among them."""
        whole = size + NUMBER_OF_SEASONS
        return Stack(np.zeros((whole, whole)), np.zeros(whole), _equal(whole), _everything(whole))

    def learn(
        self,
        logits: FloatArray,
        weight: FloatArray,
        positives: FloatArray,
        *,
        centre: float,
        seasonal: FloatArray,
        at: FloatArray,
        overdispersion: float,
        elapsed: float,
    ) -> None:
        """Take in one period: a Newton quadratic of its log-loss around the weights `at` that were in use.

        Parameters
        ----------
        logits : the experts' logits at the cells of the period `[cells, experts]`.
        weight, positives : of the cells.
        centre : what the logits are measured from.
        seasonal : the offset that each season expected.
        at : the weights that were in use.
        overdispersion : rows per independent row, by which the evidence is divided.
        elapsed : periods since the last one.
        """
        features = np.column_stack([logits - centre, np.tile(seasonal, (len(logits), 1))])
        chance = sigmoid(centre + features @ at)
        curvature = (features.T * (weight * chance * (1.0 - chance))) @ features
        pull = features.T @ (positives - weight * chance) + curvature @ at
        kept = 2.0 ** (-elapsed / EVIDENCE_HALF_LIFE)
        self.curvature = kept * self.curvature + curvature / overdispersion
        self.pull = kept * self.pull + pull / overdispersion
        self.weights = self._solve(_equal(len(pull)), WEIGHT_DEVIATION)
        self.careful = self._solve(_everything(len(pull)), CAREFUL_DEVIATION)

    def _solve(self, mean: FloatArray, deviation: float) -> FloatArray:
        experts = len(mean) - NUMBER_OF_SEASONS
        precision = np.diag(np.repeat([deviation**-2.0, SEASON_DEVIATION**-2.0], [experts, NUMBER_OF_SEASONS]))
        precision[:experts, :experts] += SUM_DEVIATION**-2.0
        factor = np.linalg.cholesky(self.curvature + precision)
        return np.asarray(nnls(factor.T, solve_triangular(factor, self.pull + precision @ mean, lower=True))[0])

    def doubled(self, place: int) -> "Stack":
        """Return the stack with one expert twice, side by side: the same evidence for both, half the weight each."""
        order = np.insert(np.arange(len(self.pull)), place, place)
        shares = np.where(np.isin(np.arange(len(order)), (place, place + 1)), 0.5, 1.0)
        weights, careful = (found[order] * shares for found in (self.weights, self.careful))
        return Stack(self.curvature[np.ix_(order, order)], self.pull[order], weights, careful)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {name: array.tolist() for name, array in vars(self).items()}

    @staticmethod
    def restored(state: dict[str, Any]) -> "Stack":
        """Return the stack that `state` described."""
        names = ("curvature", "pull", "weights", "careful")
        return Stack(*(np.array(state[name], dtype=np.float64) for name in names))


def coefficients(weights: FloatArray, centre: float, seasonal: FloatArray) -> FloatArray:
    """Return weights as coefficients of the experts' logits, the raw logit and a one."""
    experts, seasons = np.split(weights, [len(weights) - NUMBER_OF_SEASONS])
    return np.append(experts, centre * (1.0 - experts.sum()) + seasons @ seasonal)


def _equal(size: int) -> FloatArray:
    experts = size - NUMBER_OF_SEASONS
    return np.append(np.full(experts, 1.0 / experts), np.zeros(NUMBER_OF_SEASONS))


def _everything(size: int) -> FloatArray:
    """Return the weight 1 for everything, which is the last expert before the base scores."""
    found = np.zeros(size)
    found[size - NUMBER_OF_SEASONS - 2] = 1.0
    return found


# Switching: belief in each candidate forecast, learnt by tempered likelihood with a fixed share.

SWITCH_CHANCE = 0.005
"""The chance per period that another candidate becomes the right one."""
PRIOR_EVERYTHING, PRIOR_STACK, PRIOR_CAREFUL, PRIOR_OTHERS = 0.65, 0.10, 0.15, 0.10
"""The prior belief in everything, in the stack, in the careful stack, and in all other candidates together."""
APART = ", values apart"
"""Ends the name of a candidate that follows values which leave the common movement by themselves."""
LEVEL_CHANGE = "level since a change"
"""Everything, with the level that the periods since a change of it show."""
PRIOR_APART = 0.85
"""The share of a candidate's prior belief that goes to the same one with values apart."""
LEVEL_MEMORIES = 3
"""This many of the shortest memories are also followed by the level alone, on the curves of everything."""
NEW_CANDIDATE = 1e-6
"""The belief in a candidate that comes with a new memory."""


def expert_names(half_lives: Sequence[float]) -> list[str]:
    """Return the names of memories with these half-lives, and after them those of everything and of the base scores."""
    return [*(f"memory {half_life:g}" for half_life in half_lives), "everything", "base scores"]


def prior_belief(half_lives: Sequence[float]) -> dict[str, float]:
    """Return the table of candidates: their names, in the order in which they are shown, and the prior belief in each.

    Parameters
    ----------
    half_lives : of the memories that forget.
    """
    others = [
        "base scores",
        *(f"memory {half_life:g}" for half_life in half_lives),
        *(f"level {half_life:g}" for half_life in half_lives[:LEVEL_MEMORIES]),
        LEVEL_CHANGE,
    ]
    first = {"everything": PRIOR_EVERYTHING, "stack": PRIOR_STACK, "careful stack": PRIOR_CAREFUL}
    return divided_belief(first | dict.fromkeys(others, PRIOR_OTHERS / len(others)))


def divided_belief(belief: Mapping[str, float]) -> dict[str, float]:
    """Return a belief in plain candidates, each divided between itself and the same one with values apart."""
    twice = {name: share for name, share in belief.items() if filter_of(name) is not None}
    return {
        **{name: share * (1.0 - PRIOR_APART) if name in twice else share for name, share in belief.items()},
        **{name + APART: share * PRIOR_APART for name, share in twice.items()},
    }


def filter_of(candidate: str) -> int | None:
    """Return the filter of values that a candidate uses, as an index of `FOLLOWED`; None if it stands only once."""
    base = "everything" if candidate.startswith("level ") and not candidate.endswith(APART) else candidate
    return FOLLOWED.index(base) if base in FOLLOWED else None


def learnt_belief(
    belief: Mapping[str, float],
    losses: Mapping[str, float],
    prior: Mapping[str, float],
    *,
    overdispersion: float,
    elapsed: float,
) -> dict[str, float]:
    """Return the belief after a period: Bayes' rule with the evidence tempered, then a share back to the prior.

    Parameters
    ----------
    belief : before the period.
    losses : the log-loss of each candidate, summed over the rows of the period.
    prior : what the share of belief that is given up each period goes back to.
    overdispersion : rows per independent row, by which the losses are divided.
    elapsed : periods since the last one.
    """
    posterior = np.array([np.log(belief[name]) - losses[name] / overdispersion for name in prior])
    posterior = np.exp(posterior - posterior.max())
    stays = (1.0 - SWITCH_CHANCE) ** elapsed
    learnt = stays * posterior / posterior.sum() + (1.0 - stays) * np.array(list(prior.values()))
    return dict(zip(prior, learnt.tolist(), strict=True))


def widened_belief(belief: Mapping[str, float], prior: Mapping[str, float]) -> dict[str, float]:
    """Return the belief for a longer table: new candidates hardly count; the share brings them to their prior."""
    longer = {name: belief.get(name, NEW_CANDIDATE) for name in prior}
    whole = sum(longer.values())
    return {name: share / whole for name, share in longer.items()}


# Forecasts: what a tracker expects of the coming period, as one rising function per context.

_EVEN_KNOTS = np.arange(-16.0, 16.5, 0.5)
"""Knots besides those of the experts, for where these are cut off: what few rows cannot tell from 0 or 1."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Experts, candidates as coefficients over them, and the belief in each candidate.

    A coefficient vector is (one weight per expert, the weight of the raw logit, a constant, the weights of the offsets
    of field values). No weight is negative, so every candidate and every mixture of them rises with the score. An
    expert that is None is the raw logit: there was nothing yet to fit it to.
    """

    experts: tuple[Expert | None, ...]
    candidates: Mapping[str, FloatArray]
    belief: Mapping[str, float]
    stack: FloatArray
    centre: float
    seasonal: FloatArray
    """The offset that each season expects of the period that it is for, in logits."""
    position: float
    """When it was made, in periods since the first."""
    offsets: ValueOffsets = field(default_factory=ValueOffsets)
    """Of field values that move by themselves."""

    @property
    def served(self) -> FloatArray:
        """The coefficients of what is served: the mean over candidates."""
        belief = np.array([self.belief[name] for name in self.candidates])
        return np.asarray(belief @ np.vstack(list(self.candidates.values())))

    def features(
        self, contexts: Contexts, which: IndexArray, raw: FloatArray, found: dict[Expert, FloatArray] | None = None
    ) -> FloatArray:
        """Return the experts' logits, the raw logit, a one and offsets of values: `[rows, experts + 2 + filters]`.

        The logits of experts that another forecast shares are taken from `found`.
        """
        found = {} if found is None else found
        for expert in self.experts:
            if expert is not None and expert not in found:
                found[expert] = expert.logits(contexts, which, raw)
        columns = [raw if expert is None else found[expert] for expert in self.experts]
        return np.column_stack([*columns, raw, np.ones_like(raw), self.offsets.of_contexts(contexts)[0][which]])

    def of_cells(self, sketch: Sketch) -> FloatArray:
        """Return the features of the cells of a sketch."""
        return self.features(sketch.contexts, sketch.context, sketch.logit)

    def logits(self, features: FloatArray) -> dict[str, FloatArray]:
        """Return the logit that each candidate gives to rows, given their features."""
        every = features @ np.vstack(list(self.candidates.values())).T
        return dict(zip(self.candidates, every.T, strict=True))

    def movement(self, later: "Forecast", new: Sketch) -> tuple[FloatArray, FloatArray]:
        """Return by how much the `FOLLOWED` candidates have moved since `[followed, contexts]`, after the rows of each.

        It is that at the mean raw logit of each context of a sketch.
        """
        contexts = new.contexts
        rows, sums = (sums_by(new.context, part, len(contexts)) for part in (new.weight, new.weight * new.logit))
        raw, found = sums / np.maximum(rows, 1e-300), dict[Expert, FloatArray]()
        before, after = (
            one.features(contexts, contexts.all(), raw, found)
            @ np.column_stack([one.candidates[name] for name in FOLLOWED])
            for one in (self, later)
        )
        return rows, np.asarray((after - before).T)

    def shifts(self, contexts: Contexts) -> tuple[FloatArray, FloatArray]:
        """Return by how much contexts are served apart from the common movement, in logits, and its variance."""
        mean, variance = self.offsets.of_contexts(contexts)
        weight = self.served[len(self.experts) + 2 :]
        return np.asarray(mean @ weight), np.asarray(variance @ weight)

    def memory_weights(self, half_lives: Sequence[float]) -> tuple[FloatArray, FloatArray]:
        """Return the weight of each memory, then of the base scores: in the curves, and in the level."""
        curves = self.served[: len(self.experts) + 1]
        level = curves.copy()
        for index, half_life in enumerate(half_lives):
            name = f"level {half_life:g}"
            moved = self.belief.get(name, 0.0) + self.belief.get(name + APART, 0.0)
            level[len(half_lives)] -= moved
            level[index] += moved
        return curves, level

    def with_memory(self, index: int, name: str) -> "Forecast":
        """Return the same forecast for a tracker with one more memory, which so far is the same as everything."""
        wider = {other: np.insert(weights, index, 0.0) for other, weights in self.candidates.items()}
        return replace(
            self,
            experts=(*self.experts[:index], self.experts[index], *self.experts[index:]),
            candidates={**wider, name: wider["everything"]},
            belief={**self.belief, name: 0.0},
            stack=np.insert(self.stack, index, 0.0),
        )

    def rebased(self, offsets: ValueOffsets, movement: float) -> "Forecast":
        """Return the same forecast with other offsets of values, and the level since a change moved."""
        candidates = {
            name: weights + movement * (np.arange(len(weights)) == len(self.experts) + 1)
            if name.startswith(LEVEL_CHANGE)
            else weights
            for name, weights in self.candidates.items()
        }
        return replace(self, offsets=offsets, candidates=candidates)

    def state(self, places: Mapping[Expert, int]) -> dict[str, Any]:
        """Return the forecast as JSON-able values; experts are named by their places in a list."""
        return {
            "experts": [None if expert is None else places[expert] for expert in self.experts],
            "centre": self.centre,
            "position": self.position,
            "candidates": {name: weights.tolist() for name, weights in self.candidates.items()},
            "belief": dict(self.belief),
            "offsets": self.offsets.state(),
            "stack": self.stack.tolist(),
            "seasonal": self.seasonal.tolist(),
        }

    @staticmethod
    def restored(state: Mapping[str, Any], experts: list[Expert], offsets: ValueOffsets) -> "Forecast":
        """Return the forecast that `state` described, with the offsets of values that were saved beside it."""
        stack, seasonal = (np.array(state[name], float) for name in ("stack", "seasonal"))
        chosen = tuple(None if place is None else experts[place] for place in state["experts"])
        size = len(chosen) + 2 + len(FOLLOWED)
        candidates = {name: np.zeros(size) for name in state["candidates"]}
        for name, weights in state["candidates"].items():
            candidates[name][: len(weights)] = weights
        # Files of before have no offsets of values, and no candidates that use them, or the level since a change.
        candidates.setdefault(LEVEL_CHANGE, candidates["everything"])
        for name in [name for name in candidates if filter_of(name) is not None]:
            candidates.setdefault(name + APART, candidates[name])
        belief = {**dict.fromkeys(candidates, 0.0), **state["belief"]}
        centre, position = float(state["centre"]), float(state["position"])
        return Forecast(chosen, candidates, belief, stack, centre, seasonal, position, offsets)


def compiled_forecast(forecast: Forecast, contexts: Contexts, limit: float, of: int | None = None) -> Curves:
    """Return what a forecast serves as curves: the pooled one, then one for each context (a part `of` so many).

    No calibrated logit is beyond ± limit, unless the score's own is.
    """
    whole = _with_pooled(contexts)
    if all(expert is None or isinstance(expert, FamilyExpert) for expert in forecast.experts):
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
        else:
            of_raw += weight
    knots = np.concatenate([_EVEN_KNOTS, *(expert.family.knots for expert in families)])
    knots = np.unique(np.clip(knots, -LOGIT_EDGE, LOGIT_EDGE))
    values = constant + of_raw * knots + forecast.shifts(contexts)[0][:, None]
    for expert, weight in families.items():
        values += weight * expert.family.lines(expert.codes(contexts)).at(knots)
    # Rounding may let a sum of rising lines fall by a unit in the last place.
    values = np.maximum.accumulate(values, axis=1)
    flat = np.zeros(len(values))  # there are no scores beyond the last knots
    return Lines(knots, values, flat, flat, limit)


def mean_age(weights: FloatArray, ages: FloatArray) -> float:
    """Return the mean age of the rows that weights of memories follow; the base scores, which come last, have none."""
    of_memories = np.maximum(weights[:-1], 0.0)
    return float(of_memories @ ages / max(float(of_memories.sum()), 1e-12))


def balanced_level(logits: FloatArray, sketch: Sketch, prior_variance: float, prior_mean: float = 0.0) -> float:
    """Return the constant that, added to the logits of a sketch's cells, expects as many positives as there are.

    A normal prior keeps the constant finite where rows are few or of one class.
    """
    level = prior_mean
    for _ in range(20):
        chance = sigmoid(logits + level)
        slope = float(sketch.weight @ (chance * (1.0 - chance))) + 1.0 / prior_variance
        step = (sketch.total_positives - float(sketch.weight @ chance) - (level - prior_mean) / prior_variance) / slope
        level += float(np.clip(step, -1.5, 1.5))
        if abs(step) < 1e-6:
            break
    return level


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
