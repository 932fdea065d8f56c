"""The state of a tracker, and its update by a period: judge the forecast, learn the rows, forecast again."""

from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mcnet._shared.math import sigmoid, sums_by
from mcnet._shared.typing import FloatArray
from mcnet.bayes.fit_sketch import belief_limit
from mcnet.calibrators.fit_history import largest_contexts
from mcnet.calibrators.registry import calibrator_class
from mcnet.data.columns import check_total_weight
from mcnet.data.contexts import MOST_COMPILED_COMBINATIONS, Contexts
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.sketch.field_views import in_field_order
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.clock import Clock
from mcnet.tracking.coming_period import ComingPeriod
from mcnet.tracking.effects import EffectVariance
from mcnet.tracking.forecast import Forecast, balanced_level, compiled_forecast
from mcnet.tracking.memories import Memory, coarse
from mcnet.tracking.seasons import Seasons, season_lengths
from mcnet.tracking.stack import Stack, coefficients
from mcnet.tracking.switching import first_belief, insert_memory, learnt_belief
from mcnet.version import __version__

__all__ = ["Learner"]

SHORTEST_MEMORIES = (0.5, 2.0, 8.0, 32.0)
"""Half-lives in periods; longer ones come as the stream grows."""
MEMORY_RATIO = 4.0
"""How much longer each memory is than the one before."""
LEVEL_MEMORIES = 3
"""This many of the shortest memories are also followed by the level alone, on the curves of everything."""
LEVEL_VARIANCE = 1.0
"""The prior variance of the level alone, in squared logits: one positive and its negatives weigh as much."""
LARGEST_SURPRISE = 9.0
"""A period's squared residual counts at most this many times what was expected, lest a jump hides itself."""


@dataclass
class Judgement:
    """How the last period came out beside its forecast."""

    overdispersion: float
    losses: FloatArray
    """The mean log-loss of each candidate."""
    served_loss: float
    rows: float

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {**vars(self), "losses": self.losses.tolist()}


@dataclass
class Learner:
    """The state of a tracker; it grows with the number of field values and the logarithm of the number of periods."""

    method: str
    given_memories: tuple[float, ...] | None
    delay: int
    memories: list[Memory] = field(default_factory=list)
    stack: Stack = field(init=False)
    belief: FloatArray = field(init=False)
    seasons: Seasons = field(default_factory=Seasons.none)
    clock: Clock = field(default_factory=Clock)
    position: float = 0.0
    """The last period's place in time, in periods since the first."""
    learnt: int = 0
    """How many periods with rows there were."""
    forecasts: list[Forecast] = field(default_factory=list)
    """What was forecast and is still to be judged, the latest last."""
    previous: Forecast | None = None
    """The forecast before the latest."""
    judgement: Judgement | None = None
    level_effect: EffectVariance = field(default_factory=lambda: EffectVariance(cap=LARGEST_SURPRISE))
    """For the overdispersion of rows: how far the level of a period is from its forecast."""
    level_spread: EffectVariance = field(default_factory=EffectVariance)
    """The same, every surprise counted in full, for intervals."""
    value_spread: EffectVariance = field(default_factory=EffectVariance)
    """How far a field value is from its forecast beside the level of the period."""
    journal_digest: str | None = None
    """A digest of what was learnt from a journal, if everything was."""

    def __post_init__(self) -> None:
        """Start with empty memories, equal weights and the prior belief."""
        half_lives = SHORTEST_MEMORIES if self.given_memories is None else self.given_memories
        self.memories = self.memories or [Memory(half_life) for half_life in (*half_lives, np.inf)]
        self.stack = Stack.begun(len(self.memories) + 1)
        self.belief = self.prior_belief()

    @property
    def levels(self) -> int:
        """How many memories the level alone follows."""
        return min(LEVEL_MEMORIES, len(self.memories) - 1)

    @property
    def everything(self) -> Memory:
        """The memory that forgets nothing."""
        return self.memories[-1]

    @property
    def contexts(self) -> Contexts:
        """All contexts seen."""
        return Contexts.none() if self.everything.sketch is None else self.everything.sketch.contexts

    def prior_belief(self) -> FloatArray:
        """Return the prior belief in the candidates."""
        return first_belief(len(self.memories) - 1, self.levels)

    def copied(self) -> "Learner":
        """Return a copy that can learn without changing this one, so that a period is learnt whole or not at all."""
        other = copy(self)
        other.memories = [copy(memory) for memory in self.memories]
        other.stack, other.clock = copy(self.stack), replace(self.clock, steps=dict(self.clock.steps))
        other.forecasts = list(self.forecasts)
        for name in ("level_effect", "level_spread", "value_spread"):
            setattr(other, name, copy(getattr(self, name)))
        return other

    # -- a period -----------------------------------------------------------------------------------------------------

    def prepared(self, sketch: Sketch) -> Sketch:
        """Return the rows of a period as they are learnt; refuse those that cannot be added to the rows so far."""
        check_total_weight(sketch.weight)
        if calibrator_class(self.method).field_use == "none":
            sketch = sketch.pooled()
        known = self.everything.sketch
        if known is not None:
            sketch = in_field_order(sketch, known.contexts.names)
            for what, here, there in (
                ("fields", sketch.contexts.names, known.contexts.names),
                ("score type", sketch.score_type, known.score_type),
            ):
                if here != there:
                    raise InputError(f"the {what} of this period: {here}, of those before: {there}; make them alike")
        return coarse(sketch)

    def skip(self, period: str | None) -> None:
        """Let a period without rows pass: nothing changes but the time, and so the season of the coming period."""
        self.clock.waiting = self.clock.advance(period)
        self.journal_digest = None
        if self.forecasts:
            self._add_forecast(self.position + self.clock.waiting)

    def learn(self, sketch: Sketch, period: str | None) -> None:
        """Judge what was forecast for a period by its rows, learn from them, and forecast the next."""
        new = self.prepared(sketch)
        elapsed = self.clock.advance(period)
        self.position += elapsed if self.learnt else 0.0
        self.journal_digest = None
        self.learnt += 1
        self.seasons = self.seasons.of_lengths(season_lengths(self.clock.period_seconds))
        forecast = self._forecast_for_now()
        if forecast is not None:
            self._judge(forecast, new, elapsed)
        if self.given_memories is None and self.learnt >= self.memories[-2].half_life * MEMORY_RATIO:
            self._lengthen()
        for memory in self.memories:
            memory.learn(new, elapsed, self.method)
        if self.forecasts:
            self.previous = self.forecasts[-1]
        self._add_forecast(self.position)

    def _add_forecast(self, position: float) -> None:
        """Forecast the period after a place in time; keep those forecasts that periods to come are judged by."""
        self.forecasts.append(self._forecast(position))
        if self.delay == 0:
            del self.forecasts[:-1]
        else:
            # Half a period of slack: months, say, are not of one length.
            known = [place for place, f in enumerate(self.forecasts) if f.position < position - self.delay + 0.5]
            del self.forecasts[: max(known, default=0)]

    def _forecast_for_now(self) -> Forecast | None:
        """Return the forecast made from what was known when this period was predicted; drop those before it."""
        if self.delay == 0:
            return self.forecasts[-1] if self.forecasts else None
        # Half a period of slack: months, say, are not of one length.
        known = [place for place, f in enumerate(self.forecasts) if f.position < self.position - self.delay - 0.5]
        if not known:
            return None
        del self.forecasts[: known[-1]]
        return self.forecasts[0]

    def _judge(self, forecast: Forecast, new: Sketch, elapsed: float) -> None:
        features = forecast.of_cells(new)
        weight, positives = new.weight, np.minimum(new.positives, new.weight)
        served = features @ forecast.served
        chance = sigmoid(served)
        information, residual = weight * chance * (1.0 - chance), positives - weight * chance
        whole, effect = np.array([information.sum()]), np.array([residual.sum()])
        self.level_effect.add(effect, whole)
        self.level_spread.add(effect, whole)
        number = len(new.contexts)
        of_value, by_value = (sums_by(new.context, column, number) for column in (information, residual))
        self.value_spread.add(by_value - of_value * effect / np.maximum(whole, 1e-300), of_value)
        overdispersion = self.level_effect.overdispersion(float(whole[0]))

        logits = np.column_stack([features @ forecast.candidates.T, served])
        losses = weight @ np.logaddexp(0.0, logits) - positives @ logits
        self.judgement = Judgement(
            overdispersion, losses[:-1] / new.total_weight, float(losses[-1]) / new.total_weight, new.total_weight
        )
        self.belief = learnt_belief(
            self.belief, losses[:-1], self.prior_belief(), overdispersion=overdispersion, elapsed=elapsed
        )
        self.stack.learn(
            features[:, :-1],
            weight,
            positives,
            centre=forecast.centre,
            seasonal=forecast.seasonal,
            at=forecast.stack,
            overdispersion=overdispersion,
            elapsed=elapsed,
        )
        level = balanced_level(features[:, len(forecast.experts) - 1], new, LEVEL_VARIANCE)
        information_of_level = 1.0 / (self.level_effect.value + 1.0 / max(float(whole[0]), 1e-9))
        self.seasons = self.seasons.learnt(self.position, elapsed, level, information_of_level)

    def _lengthen(self) -> None:
        """Add a longer memory, so far the same as everything, with the same evidence."""
        last = len(self.memories) - 1
        self.memories.insert(last, self.everything.copied(self.memories[-2].half_life * MEMORY_RATIO))
        self.stack = self.stack.doubled(last)
        self.belief = insert_memory(self.belief, last)
        self.forecasts = [forecast.with_memory(last) for forecast in self.forecasts]
        if self.previous is not None:
            self.previous = self.previous.with_memory(last)

    def _forecast(self, position: float) -> Forecast:
        experts = [memory.expert for memory in self.memories]
        for place in range(len(experts) - 2, -1, -1):  # a longer memory stands in for one that has no curve yet
            experts[place] = experts[place] or experts[place + 1]
        number = len(experts)
        unit = np.eye(number + 2)
        everything = unit[number - 1]
        levels = [everything + unit[-1] * self._level(memory) for memory in self.memories[: self.levels]]
        rows = self.everything.sketch
        assert rows is not None
        rate = (rows.total_positives + 0.5) / (rows.total_weight + 1.0)
        centre = float(np.log(rate) - np.log1p(-rate))
        seasonal = self.seasons.offsets(position + 1.0 + self.delay)
        stacks = [coefficients(weights, centre, seasonal) for weights in (self.stack.weights, self.stack.careful)]
        candidates = np.vstack([everything, *stacks, unit[number], unit[: number - 1], *levels])
        return Forecast(tuple(experts), candidates, self.belief, self.stack.weights, centre, seasonal, position)

    def _level(self, memory: Memory) -> float:
        """Return the constant that balances the curves of everything on the rows of a memory."""
        sketch, expert = memory.sketch, self.everything.expert
        assert sketch is not None
        logits = sketch.logit if expert is None else expert.logits(sketch.contexts, sketch.context, sketch.logit)
        return balanced_level(logits, sketch, LEVEL_VARIANCE)

    # -- serving ------------------------------------------------------------------------------------------------------

    def model(self) -> CalibrationModel:
        """Return the latest forecast as a model of plain curves."""
        rows = self.everything.sketch
        assert rows is not None
        contexts, latest = self.contexts.completed(MOST_COMPILED_COMBINATIONS), self.forecasts[-1]
        curves = compiled_forecast(latest, contexts, belief_limit(rows.total_weight))
        effects = self.level_spread.value + self.value_spread.value
        memories = None if self.given_memories is None else list(self.given_memories)
        return CalibrationModel(
            method="tracker",
            parameters={"method": self.method, "memories": memories, "delay": self.delay},
            contexts=contexts,
            curves=curves,
            score_type=rows.score_type,
            total_weight=rows.total_weight,
            uncertainty=ComingPeriod(latest, curves, contexts, [memory.sketch for memory in self.memories], effects),
            provenance={
                "rows": rows.rows,
                "weight": rows.total_weight,
                "positives": rows.total_positives,
                "periods": self.clock.ticks,
                "last_period": self.clock.last,
                "lowest_score": float(rows.score.min()),
                "highest_score": float(rows.score.max()),
                "largest_contexts": largest_contexts(rows),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "library": f"mcnet {__version__}",
            },
        )
