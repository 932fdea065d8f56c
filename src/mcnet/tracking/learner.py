"""The state of a tracker, and its update by a period: judge the forecast, learn the rows, forecast again."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, sigmoid, sums_by
from mcnet._shared.messages import counted
from mcnet.bayes.fit import belief_limit
from mcnet.calibrators.base import largest_contexts
from mcnet.calibrators.methods import calibrator_class
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.rows.columns import check_total_weight
from mcnet.rows.contexts import MOST_COMPILED_COMBINATIONS, Contexts
from mcnet.rows.periods import is_timestamp, period_position, period_text, shown_periods, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import in_field_order
from mcnet.tracking.forecast import (
    APART,
    LEVEL_CHANGE,
    LEVEL_MEMORIES,
    ComingPeriod,
    Forecast,
    Stack,
    balanced_level,
    coefficients,
    compiled_forecast,
    expert_names,
    filter_of,
    learnt_belief,
    mean_age,
    prior_belief,
    widened_belief,
)
from mcnet.tracking.memories import (
    MEMORY_RATIO,
    SHORTEST_MEMORIES,
    SMALLEST_FADING,
    EffectVariance,
    Memory,
    Seasons,
    coarse,
    season_lengths,
)
from mcnet.tracking.suspect import Look, Measured, Suspect, measured
from mcnet.tracking.value_changes import FOLLOWED, LevelChanges, ValueChanges
from mcnet.version import __version__

# The clock of a tracker: how many periods have passed since the last one, in bounded memory.

MOST_STEPS = 16
"""Different lengths of steps from one period to the next that are counted; the rarest is forgotten."""


@dataclass
class Clock:
    """The last period, and the most frequent step from one period to the next, which is the length of a period."""

    last: str | None = None
    """The last period by name; None if periods have no names."""
    ticks: int = 0
    """How many periods there were."""
    waiting: float = 0.0
    """Periods that have passed without rows."""
    steps: dict[float, int] = field(default_factory=dict)

    def check(self, period: Any) -> str | None:
        """Return the canonical name of the coming period; refuse one that does not come after the last."""
        if period is None:
            if self.last is not None:
                raise InputError(f"no period was given, but the last one was {self.last}; name all periods or none")
            return None
        if self.ticks and self.last is None:
            raise InputError(f"the period {period} was given, but earlier ones had none; name all periods or none")
        text = period_text(period)
        if self.last is None:
            return text
        if text == self.last:
            raise InputError(
                f"the period {text} was learnt already; add late rows to a journal, and replay it with "
                "Tracker.follow(journal)"
            )
        if sorted_periods([self.last, text])[-1] != text:
            raise InputError(
                f"the period {text} comes before {self.last}, which was learnt already; add it to a journal, and "
                "replay that with Tracker.follow(journal)"
            )
        return text

    def advance(self, text: str | None) -> float:
        """Move to a period that `check` returned; return how many periods have passed since the last one with rows."""
        elapsed = 1.0
        if text is not None and self.last is not None:
            now, before = period_position(text), period_position(self.last)
            if now is not None and before is not None:
                step = now - before
                self.steps[step] = self.steps.get(step, 0) + 1
                if len(self.steps) > MOST_STEPS:
                    # The one just made may be the first of many.
                    rarest = min((s for s in self.steps if s != step), key=lambda s: (self.steps[s], -s))
                    del self.steps[rarest]
                elapsed = step / self._length()
        self.last = text
        self.ticks += 1
        elapsed += self.waiting
        self.waiting = 0.0
        return elapsed

    def _length(self) -> float:
        """Return the most frequent step, the shortest of equally frequent ones."""
        return min(self.steps, key=lambda step: (-self.steps[step], step))

    @property
    def period_seconds(self) -> float | None:
        """The length of a period in seconds; None if periods are no moments, or too few to tell."""
        return self._length() if self.steps and self.last is not None and is_timestamp(self.last) else None

    def described(self) -> str:
        """Return how many periods there were and which was the last, in words."""
        periods = counted(self.ticks, "period")
        if self.last is None:
            return periods
        (last,) = shown_periods([self.last], seconds=self.period_seconds)
        return f"{periods}: {last}" if self.ticks == 1 else f"{periods} until {last}"

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {**vars(self), "steps": [[step, number] for step, number in self.steps.items()]}

    @staticmethod
    def restored(state: Mapping[str, Any]) -> "Clock":
        """Return the clock that `state` described."""
        steps = {float(step): int(number) for step, number in state["steps"]}
        return Clock(state["last"], int(state["ticks"]), float(state["waiting"]), steps)


# The state of a tracker, and what a period does to it.

LEVEL_VARIANCE = 1.0
"""The prior variance of the level alone, in squared logits: one positive and its negatives weigh as much."""
LARGEST_SURPRISE = 9.0
"""A period's squared residual counts at most this many times what was expected, lest a jump hides itself."""
LEAST_LEANING, MOST_LEANING = 4.0, 64.0
"""The information that the next longer memory counts for as the prior of a shorter one: 1 over the variance of what a
period changes, within these limits."""
FREE_LEANING = 2.0
"""A memory whose level is this many deviations from that of the next longer one leans on it less: it has changed."""
WHOLE_PERIOD = 0.01
"""A period with this share of the usual rows counts as a whole one, a quiet night too; one with fewer, less."""
USUAL_HALF_LIFE, MOST_RISE = 8.0, 4.0
"""What is usual is an average over so many periods; none counts for more than this many times what was usual."""
LARGEST_GAP_VARIANCE = 1.0
"""What a gap adds to the variance of the coming period at most, in squared logits."""
EFFECTS = ("level_effect", "level_spread", "value_spread")
"""The variances that a learner keeps of what periods change, by the names of its attributes."""
SERVED = "served"
"""The name of what is served, among the names of candidates."""


class _Seen(NamedTuple):
    """A period beside the latest forecast when it came."""

    forecast: Forecast
    features: FloatArray
    """Of its cells."""
    measured: Measured


@dataclass
class Judgement:
    """How the last period came out beside its forecast."""

    overdispersion: float
    losses: dict[str, float]
    """The mean log-loss of each candidate."""
    served_loss: float
    rows: float


@dataclass
class Learner:
    """The state of a tracker; it grows with the number of field values and the logarithm of the number of periods."""

    method: str
    given_memories: tuple[float, ...] | None
    delay: int
    memories: list[Memory] = field(default_factory=list)
    stack: Stack = field(init=False)
    belief: dict[str, float] = field(init=False)
    """In each candidate, by its name."""
    seasons: Seasons = field(default_factory=Seasons.none)
    clock: Clock = field(default_factory=Clock)
    position: float = 0.0
    """When the last period was, in periods since the first."""
    learnt: int = 0
    """The number of periods with rows."""
    usual_rows: float = 0.0
    """The weight of the rows of a usual period."""
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
    changes: ValueChanges = field(default_factory=ValueChanges)
    """Which values move by themselves."""
    level_changes: LevelChanges = field(default_factory=LevelChanges)
    """Whether the level of all rows has changed."""
    journal_digest: str | None = None
    """A digest of what was learnt from a journal, if everything was."""
    look: Look = field(default_factory=Look)
    """What is usual in the stream, and which periods were suspect."""

    def __post_init__(self) -> None:
        """Start with empty memories, equal weights and the prior belief."""
        half_lives = SHORTEST_MEMORIES if self.given_memories is None else self.given_memories
        self.memories = self.memories or [Memory(half_life) for half_life in (*half_lives, np.inf)]
        self.stack = Stack.begun(len(self.memories) + 1)
        self.belief = self.prior_belief()

    @property
    def half_lives(self) -> list[float]:
        """The half-lives of the memories that forget, in periods."""
        return [memory.half_life for memory in self.memories[:-1]]

    @property
    def everything(self) -> Memory:
        """The memory that forgets nothing."""
        return self.memories[-1]

    @property
    def contexts(self) -> Contexts:
        """All contexts seen."""
        return Contexts.none() if self.everything.sketch is None else self.everything.sketch.contexts

    @property
    def period_effect(self) -> float:
        """How much a field value differs between periods beyond its forecast: a standard deviation in logits.

        Both variances are robust: one period that is far off hardly moves them.
        """
        return float(np.sqrt(self.level_effect.value + (self.changes.effect if self.changes.names else 0.0)))

    def prior_belief(self) -> dict[str, float]:
        """Return the candidates by name, with the prior belief in each."""
        return prior_belief(self.half_lives)

    def copied(self) -> "Learner":
        """Return a copy that can learn without changing this one, so that a period is learnt whole or not at all."""
        other = copy(self)
        other.memories = [copy(memory) for memory in self.memories]
        other.stack, other.clock = copy(self.stack), replace(self.clock, steps=dict(self.clock.steps))
        other.forecasts, other.look = list(self.forecasts), self.look.copied()
        for name in EFFECTS:
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

    def learn(self, sketch: Sketch, period: str | None, *, look: bool = True) -> Suspect | None:
        """Judge what was forecast for a period by its rows, learn from them, and forecast the next.

        A period that is suspect at a look is kept and not learnt; it is returned. Once two further ones agree with it,
        all three are learnt.
        """
        new = self.prepared(sketch)
        seen = self._seen(new)
        suspect = self.look.suspicion(seen.measured) if look and seen is not None else None
        if suspect is not None:
            return self._keep(suspect, new, period)
        self.look.settle("left out", self.look.waiting)
        self._learn_rows(new, seen, self.clock.advance(period))
        return None

    def _seen(self, new: Sketch) -> _Seen | None:
        """Return a period beside the latest forecast; None before the first one."""
        if not self.forecasts:
            return None
        forecast = self.forecasts[-1]
        features = forecast.of_cells(new)
        return _Seen(forecast, features, measured(new, features @ forecast.served, self.contexts, self.look.scores))

    def _keep(self, suspect: Suspect, new: Sketch, period: str | None) -> Suspect:
        """Keep a suspect period, and learn the last ones if they agree."""
        earlier = sum(one.step for one in self.look.waiting)
        self.skip(period)
        waited = self.clock.waiting
        suspect = replace(suspect, period=period, step=waited - earlier, position=self.position + waited, rows=new)
        agreed = self.look.keep(suspect)
        if agreed:
            self.look.past.clear()  # what is usual begins anew
            self.look.settle("left out", [one for one in self.look.waiting if one not in agreed])
            self._learn_waiting(agreed, "learnt", waited)
        return suspect

    def _learn_waiting(self, chosen: Sequence[Suspect], state: str, waited: float) -> None:
        """Learn periods that were skipped, in their order, as if they had been learnt when they came."""
        self.look.settle(state, chosen)
        self.forecasts = [f for f in self.forecasts if f.position <= self.position] or [self._forecast(self.position)]
        self.clock.waiting = waited
        for one in chosen:
            assert one.rows is not None
            elapsed = one.position - self.position
            self.clock.waiting -= elapsed
            self._learn_rows(one.rows, self._seen(one.rows), elapsed)
        if self.clock.waiting > 0.0:
            self._add_forecast(self.position + self.clock.waiting)

    def release(self, period: Any) -> None:
        """Learn a suspect period that was kept."""
        suspect = self.look.named(period)
        if suspect is None or suspect.state in ("learnt", "released"):
            known = [one.period or "the last one" for one in self.look.suspects if one.state in ("waiting", "left out")]
            raise InputError(
                f"{'this period' if period is None else period} is not kept as suspect; "
                + (f"these are: {', '.join(known)}" if known else "none is")
            )
        assert suspect.rows is not None
        self.journal_digest = None
        if suspect.state == "waiting":
            before = [one for one in self.look.waiting if one.position < suspect.position]
            self.look.settle("left out", before)
            self._learn_waiting([suspect], "released", self.clock.waiting)
            return
        # Later periods are learnt already: its rows go into the memories as old as they are now.
        self.look.settle("released", [suspect])
        behind = self.position - suspect.position
        for memory in self.memories:
            fading = 2.0 ** (-behind / memory.half_life)
            if fading > SMALLEST_FADING:
                memory.learn(fading * suspect.rows, 0.0, self.method)
        self._add_forecast(self.position + self.clock.waiting)

    def _learn_rows(self, new: Sketch, seen: _Seen | None, elapsed: float) -> None:
        self.look.learn(new, seen and seen.measured, elapsed)
        self.position += elapsed if self.learnt else 0.0
        self.journal_digest = None
        self.learnt += 1
        self.seasons = self.seasons.of_lengths(season_lengths(self.clock.period_seconds))
        forecast, step = self._forecast_for_now(), self._step(new.total_weight, elapsed)
        if forecast is not None and seen is not None:
            self._judge(forecast, new, seen, elapsed, step)
        if self.given_memories is None and self.learnt >= self.memories[-2].half_life * MEMORY_RATIO:
            self._lengthen()
        for memory in self.memories:
            memory.learn(new, step, self.method)
        if self.forecasts:
            self.previous = self.forecasts[-1]
        self._add_forecast(self.position)
        if self.previous is not None:
            latest, before = self.forecasts[-1], self.level_changes.offset
            rows, movement = self.previous.movement(latest, new)
            if self.changes.runs:
                self.changes = self.changes.rebased(new.contexts, rows, movement)
            self.level_changes = self.level_changes.rebased(float(rows @ movement[0]) / float(rows.sum()))
            self.forecasts[-1] = latest.rebased(self.changes.offsets(), self.level_changes.offset - before)

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

    def _step(self, rows: float, elapsed: float) -> float:
        """Return how far a period lets memories fade, as a share of a usual one: less if it has few rows, not by gaps.

        What was known before a gap, or an hour with next to no rows, is still the best known.
        """
        usual = self.usual_rows or rows
        share = min(elapsed, 1.0)
        self.usual_rows = usual + (min(rows, MOST_RISE * usual) - usual) * (1.0 - 2.0 ** (-share / USUAL_HALF_LIFE))
        return share * min(1.0, rows / (WHOLE_PERIOD * usual))

    def _judge(self, forecast: Forecast, new: Sketch, seen: _Seen, elapsed: float, step: float) -> None:
        latest, period = seen.forecast, self.clock.last or str(self.clock.ticks)
        features = seen.features if latest is forecast else forecast.of_cells(new)
        weight, positives = new.weight, np.minimum(new.positives, new.weight)
        served = features @ forecast.served
        chance = sigmoid(served)
        information, residual = weight * chance * (1.0 - chance), positives - weight * chance
        whole, effect, variance = np.array([information.sum()]), np.array([residual.sum()]), self.level_effect.value
        self.level_effect.add(effect, whole)
        self.level_spread.add(effect, whole)
        number = len(new.contexts)
        of_value, by_value = (sums_by(new.context, column, number) for column in (information, residual))
        self.value_spread.add(by_value - of_value * effect / np.maximum(whole, 1e-300), of_value)
        overdispersion = self.level_effect.overdispersion(float(whole[0]))

        logits = {**forecast.logits(features), SERVED: served}
        losses = {name: float(weight @ np.logaddexp(0.0, z) - positives @ z) for name, z in logits.items()}
        means = {name: loss / new.total_weight for name, loss in losses.items()}
        self.judgement = Judgement(overdispersion, means, means.pop(SERVED), new.total_weight)
        self.belief = learnt_belief(
            self.belief, losses, self.prior_belief(), overdispersion=overdispersion, elapsed=step
        )
        self.stack.learn(
            np.column_stack([logits[name] for name in expert_names(self.half_lives)]),
            weight,
            positives,
            centre=forecast.centre,
            seasonal=forecast.seasonal,
            at=forecast.stack,
            overdispersion=overdispersion,
            elapsed=step,
        )
        if latest is not forecast:  # offsets are those beside the latest curves
            logits = latest.logits(seen.features)
        self.level_changes = self.level_changes.learnt(logits["everything"], weight, positives, variance, step)
        if new.contexts.names:
            cells = new.contexts, new.context, weight, positives
            self.changes = self.changes.learnt(*cells, logits, period, step, known=self.contexts)
        level = balanced_level(features[:, len(forecast.experts) - 1], new, LEVEL_VARIANCE)
        information_of_level = 1.0 / (self.level_effect.value + 1.0 / max(float(whole[0]), 1e-9))
        self.seasons = self.seasons.learnt(self.position, elapsed, level, information_of_level)

    def _lengthen(self) -> None:
        """Add a longer memory, so far the same as everything, with the same evidence."""
        last = len(self.memories) - 1
        half_life = self.memories[-2].half_life * MEMORY_RATIO
        self.memories.insert(last, replace(self.everything, half_life=half_life))
        self.stack = self.stack.doubled(last)
        self.belief = widened_belief(self.belief, self.prior_belief())
        name = f"memory {half_life:g}"
        self.forecasts = [forecast.with_memory(last, name) for forecast in self.forecasts]
        if self.previous is not None:
            self.previous = self.previous.with_memory(last, name)

    def _forecast(self, position: float) -> Forecast:
        experts = [memory.expert for memory in self.memories]
        for index in range(len(experts) - 2, -1, -1):  # a longer memory stands in for one that has no curve yet
            experts[index] = experts[index] or experts[index + 1]
        number = len(experts)
        rows = self.everything.sketch
        assert rows is not None
        rate = (rows.total_positives + 0.5) / (rows.total_weight + 1.0)
        centre = float(np.log(rate) - np.log1p(-rate))
        seasonal = self.seasons.offsets(position + 1.0 + self.delay)
        unit = np.eye(number + 2 + len(FOLLOWED))
        leaning = 1.0 / float(np.clip(self.level_effect.value, 1.0 / MOST_LEANING, 1.0 / LEAST_LEANING))
        memories, level = unit[: number + 1].copy(), 0.0
        levels: dict[str, FloatArray] = {}
        for index in range(number - 2, -1, -1):  # each memory leans on the next longer one
            memory, variance = self.memories[index], 1.0 / leaning
            if index < LEVEL_MEMORIES:
                level, variance = self._level(memory, level, variance, longest=not levels)
                levels[f"level {memory.half_life:g}"] = memories[number - 1] + unit[number + 1] * level
            information = 0.0 if memory.sketch is None else rate * (1.0 - rate) * memory.sketch.total_weight
            own = information / (information + 1.0 / variance)
            memories[index] = own * unit[index] + (1.0 - own) * memories[index + 1]
        levels[LEVEL_CHANGE] = memories[number - 1] + unit[number + 1] * self.level_changes.offset
        candidates = {
            "everything": memories[number - 1],
            "stack": self._stacked(self.stack.weights, memories, centre, seasonal),
            "careful stack": self._stacked(self.stack.careful, memories, centre, seasonal),
            "base scores": memories[number],
            **{f"memory {half_life:g}": memories[index] for index, half_life in enumerate(self.half_lives)},
            **levels,
        }
        for name, weights in list(candidates.items()):
            which = filter_of(name)
            if which is not None:
                candidates[name + APART] = weights + unit[number + 2 + which]
        stack, offsets = self.stack.weights, self.changes.offsets()
        return Forecast(tuple(experts), candidates, self.belief, stack, centre, seasonal, position, offsets)

    def _stacked(self, weights: FloatArray, memories: FloatArray, centre: float, seasonal: FloatArray) -> FloatArray:
        """Return the coefficients of a stack of memories that lean on each other, and the base scores."""
        *of_memories, constant = coefficients(weights, centre, seasonal).tolist()
        stacked = np.asarray(of_memories) @ memories
        stacked[len(memories)] += constant
        return stacked

    def _level(self, memory: Memory, longer: float, variance: float, *, longest: bool) -> tuple[float, float]:
        """Return the constant that balances the curves of everything on the rows of a memory, around a longer one's.

        And the variance of the difference between the two, wider where they are farther apart than periods and the
        noise of labels make them. The longest of these memories has the level of everything as a weak prior.
        """
        sketch, expert = memory.sketch, self.everything.expert
        assert sketch is not None
        logits = sketch.logit if expert is None else expert.logits(sketch.contexts, sketch.context, sketch.logit)
        free = balanced_level(logits, sketch, LEVEL_VARIANCE, longer)
        if longest:
            return free, variance
        chance = sigmoid(logits + free)
        noise = 1.0 / (float(sketch.weight @ (chance * (1.0 - chance))) + 1.0 / LEVEL_VARIANCE)
        wider = variance + max((free - longer) ** 2 - FREE_LEANING**2 * (variance + noise), 0.0)
        return balanced_level(logits, sketch, wider, longer), wider

    # -- serving ------------------------------------------------------------------------------------------------------

    @property
    def served_contexts(self) -> Contexts:
        """The contexts that have a curve of their own in the model."""
        return self.contexts.completed(MOST_COMPILED_COMBINATIONS)

    def model(self, needed: NDArray[np.int32] | None = None) -> CalibrationModel:
        """Return the latest forecast as a model of plain curves, or only those of some of the served contexts."""
        rows = self.everything.sketch
        assert rows is not None
        contexts, latest = self.served_contexts, self.forecasts[-1]
        number = len(contexts)
        if needed is not None:
            contexts = contexts.subset(needed)
        curves = compiled_forecast(latest, contexts, belief_limit(rows.total_weight), number)
        effects = self.level_spread.value + self.value_spread.value
        effects += min(effects * self._gap_variance(), LARGEST_GAP_VARIANCE)
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

    def _gap_variance(self) -> float:
        """Return what the periods without rows since the last one add to the variance of a period, as a share of it.

        The level that a mean age a is best for moves by 1 / (a (a + 1)) of that variance in a period (the steady state
        of the local level model).
        """
        age = max(self.followed_ages()[0], 0.5)
        return self.clock.waiting / (age * (age + 1.0))

    def followed_ages(self) -> tuple[float, float]:
        """Return the mean age in periods of what the level follows, and of what slope and shape follow."""
        latest, ages = self.forecasts[-1], np.array([memory.age for memory in self.memories])
        of_curves, of_level = latest.memory_weights(self.half_lives)
        share = sum(latest.belief.get(LEVEL_CHANGE + end, 0.0) for end in ("", APART))
        (moved,), (run,) = self.level_changes.moved()
        younger = max(ages[-1] - run / 2.0, 0.0)  # of the part of everything's weight whose level has changed since
        return mean_age(of_level, ages) - float(share * moved * younger), mean_age(of_curves, ages)
