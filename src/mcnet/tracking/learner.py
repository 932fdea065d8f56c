"""The state of a tracker, and its update by a period: judge the forecast, learn the rows, forecast again."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, sigmoid
from mcnet._shared.messages import counted
from mcnet.bayes.fit import belief_limit
from mcnet.calibrators.base import largest_contexts
from mcnet.calibrators.methods import calibrator_class
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.rows.columns import check_total_weight
from mcnet.rows.contexts import MOST_COMPILED_COMBINATIONS, Contexts
from mcnet.rows.periods import HALF_A_PERIOD, is_timestamp, period_position, period_text, shown_periods, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import in_field_order
from mcnet.tracking.forecast import (
    CHANGED_LEVEL,
    NEW_CANDIDATE,
    STACK,
    Candidate,
    ComingPeriod,
    Forecast,
    Stack,
    candidates_of,
    compiled_forecast,
    expert_names,
    learnt_belief,
)
from mcnet.tracking.memories import (
    MEMORY_RATIO,
    NUMBER_OF_SEASONS,
    SHORTEST_MEMORIES,
    SMALLEST_FADING,
    Memory,
    PeriodEffects,
    Seasons,
    coarse,
    season_lengths,
)
from mcnet.tracking.suspect import Look, Measured, Suspect, measured
from mcnet.tracking.value_changes import FOLLOWED, AlikeRows, Runs, ValueChanges
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


# The state of a tracker, and what a period does to it.

LEVEL_VARIANCE = 1.0
"""The prior variance of the level of a period beside everything, in squared logits."""
LEAST_LEANING, MOST_LEANING = 4.0, 64.0
"""The information that the next longer memory counts for as the prior of a shorter one: 1 over the variance of what a
period changes, within these limits."""
WHOLE_PERIOD = 0.01
"""A period with this share of the usual rows counts as a whole one, a quiet night too; one with fewer, less."""
USUAL_HALF_LIFE, MOST_RISE = 8.0, 4.0
"""What is usual is an average over so many periods; none counts for more than this many times what was usual."""
LARGEST_GAP_VARIANCE = 1.0
"""What a gap adds to the variance of the coming period at most, in squared logits."""


class _Seen(NamedTuple):
    """A period beside the latest forecast when it came."""

    forecast: Forecast
    features: FloatArray
    """Of its cells."""
    followed: FloatArray
    """The logits of the `FOLLOWED` at its cells, without offsets `[followed, cells]`."""
    measured: Measured


@dataclass
class Judgement:
    """How the last period came out beside its forecast."""

    overdispersion: float
    losses: dict[str, float]
    """The mean log-loss of each candidate without values apart, by name."""
    served_loss: float


@dataclass
class Learner:
    """The state of a tracker; it grows with the number of field values and the logarithm of the number of periods."""

    method: str
    given_memories: tuple[float, ...] | None
    delay: int
    memories: list[Memory] = field(default_factory=list)
    """The one that forgets nothing, everything, comes last."""
    stack: Stack = field(init=False)
    belief: FloatArray = field(init=False)
    """In each of the candidates."""
    seasons: Seasons = field(default_factory=Seasons)
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
    effects: PeriodEffects = field(default_factory=PeriodEffects)
    """How far periods are from their forecasts."""
    changes: ValueChanges = field(default_factory=ValueChanges)
    """Which values move by themselves."""
    level: Runs = field(default_factory=lambda: Runs.still(1, 1))
    """Whether the level of all rows has changed, beside everything."""
    journal_digest: str | None = None
    """A digest of what was learnt from a journal, if everything was."""
    look: Look = field(default_factory=Look)
    """What is usual in the stream, and which periods were suspect."""

    def __post_init__(self) -> None:
        """Start with empty memories, equal weights and the prior belief."""
        half_lives = SHORTEST_MEMORIES if self.given_memories is None else self.given_memories
        self.memories = self.memories or [Memory(half_life) for half_life in (*half_lives, np.inf)]
        self.stack = Stack.begun(len(self.memories) + 1)
        self.belief = self.prior

    @property
    def half_lives(self) -> list[float]:
        """The half-lives of the memories that forget, in periods."""
        return [memory.half_life for memory in self.memories[:-1]]

    @property
    def candidates(self) -> list[Candidate]:
        """The ways to forecast the coming period."""
        return candidates_of(self.half_lives)

    @property
    def prior(self) -> FloatArray:
        """The prior belief in each of the candidates."""
        return np.array([candidate.prior for candidate in self.candidates])

    @property
    def everything(self) -> Memory:
        """The memory that forgets nothing."""
        return self.memories[-1]

    @property
    def contexts(self) -> Contexts:
        """All contexts seen."""
        return Contexts.none() if self.everything.sketch is None else self.everything.sketch.contexts

    @property
    def centre(self) -> float:
        """The logit of the rate of everything."""
        rows = self.everything.sketch
        assert rows is not None
        rate = (rows.total_positives + 0.5) / (rows.total_weight + 1.0)
        return float(np.log(rate) - np.log1p(-rate))

    @property
    def _followed(self) -> list[int]:
        """The indices of the `FOLLOWED` among the candidates."""
        names = [candidate.name for candidate in self.candidates]
        return [names.index(name) for name in FOLLOWED]

    @property
    def period_effect(self) -> float:
        """How much a field value differs between periods beyond its forecast: a standard deviation in logits.

        Both variances are robust: one period that is far off hardly moves them.
        """
        return float(np.sqrt(self.effects.level.value + (self.changes.effect if self.changes.names else 0.0)))

    def copied(self) -> "Learner":
        """Return a copy that can learn without changing this one, so that a period is learnt whole or not at all."""
        other = copy(self)
        other.memories, other.forecasts = list(self.memories), list(self.forecasts)
        other.clock, other.look = replace(self.clock, steps=dict(self.clock.steps)), self.look.copied()
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
        look = measured(new, features @ forecast.served, self.contexts, self.look.scores)
        return _Seen(forecast, features, forecast.candidates[self._followed] @ features.T, look)

    def _learn_rows(self, new: Sketch, seen: _Seen | None, elapsed: float) -> None:
        self.look.learn(new, seen and seen.measured, elapsed)
        self.position += elapsed if self.learnt else 0.0
        self.journal_digest = None
        self.learnt += 1
        step = self._step(new.total_weight, elapsed)
        judged = self._forecast_for(self.position)
        if seen is not None and judged is not None:
            self._follow_changes(new, seen, step, elapsed)
            self._judge(judged, seen.features if judged is seen.forecast else judged.of_cells(new), new, step)
        if self.given_memories is None and self.learnt >= self.memories[-2].half_life * MEMORY_RATIO:
            self._lengthen()
        self.memories = [memory.added(new, step).fitted(self.method) for memory in self.memories]
        if seen is not None:
            self._rebase_changes(new, seen)
        self.previous = self.forecasts[-1] if self.forecasts else None
        self._add_forecast(self.position)

    def _step(self, rows: float, elapsed: float) -> float:
        """Return how far a period lets memories fade, as a share of a usual one: less if it has few rows, not by gaps.

        What was known before a gap, or an hour with next to no rows, is still the best known.
        """
        usual = self.usual_rows or rows
        share = min(elapsed, 1.0)
        self.usual_rows = usual + (min(rows, MOST_RISE * usual) - usual) * (1.0 - 2.0 ** (-share / USUAL_HALF_LIFE))
        return share * min(1.0, rows / (WHOLE_PERIOD * usual))

    def _forecast_for(self, position: float) -> Forecast | None:
        """Return the forecast made from what was known when a period was predicted; None if there was none."""
        if self.delay == 0:
            return self.forecasts[-1] if self.forecasts else None
        # Months, say, are not of one length.
        known = [one for one in self.forecasts if one.position < position - self.delay - HALF_A_PERIOD]
        return known[-1] if known else None

    def _add_forecast(self, position: float) -> None:
        """Forecast the period after a place in time; keep those forecasts that periods to come are judged by."""
        self.forecasts.append(self._forecast(position))
        first = self._forecast_for(position + 1.0)
        if first is not None:
            del self.forecasts[: self.forecasts.index(first)]

    def _follow_changes(self, new: Sketch, seen: _Seen, step: float, elapsed: float) -> None:
        """Learn what the period shows of changes of the level, of single values, and of the seasons."""
        weight, positives = new.weight, np.minimum(new.positives, new.weight)
        if new.contexts.names:
            cells, period = (new.contexts, new.context, weight, positives), self.clock.last or str(self.clock.ticks)
            self.changes = self.changes.learnt(*cells, seen.followed, period, step, known=self.contexts)
        rows, effect = AlikeRows.together(weight, positives, sigmoid(seen.followed[0])), self.effects.level.value
        self.level = self.level.learnt(rows, np.array([True]), step, effect=max(effect, 1e-6))
        # At what was served: with that of everything, places with a high level would count too little in the usual one.
        chance = sigmoid(seen.features @ seen.forecast.served)
        information = 1.0 / (effect + 1.0 / max(float(weight @ (chance * (1.0 - chance))), 1e-9))
        seasons = self.seasons.of_lengths(season_lengths(self.clock.period_seconds))
        self.seasons = seasons.learnt(self.position, elapsed, rows.level(LEVEL_VARIANCE), information)

    def _judge(self, forecast: Forecast, features: FloatArray, new: Sketch, step: float) -> None:
        """Learn from how a forecast came out: effects of periods, belief in the candidates, weights of the stack."""
        weight, positives = new.weight, np.minimum(new.positives, new.weight)
        logits = np.vstack([forecast.candidates, forecast.served]) @ features.T
        chance = sigmoid(logits[-1])
        information = weight * chance * (1.0 - chance)
        self.effects = self.effects.learnt(positives - weight * chance, information, new.context)
        overdispersion = self.effects.overdispersion(float(information.sum()))
        losses = np.logaddexp(0.0, logits) @ weight - logits @ positives
        plain = [candidate.name for candidate in self.candidates if candidate.offsets is None]
        means = dict(zip(plain, (losses / new.total_weight).tolist(), strict=False))
        self.judgement = Judgement(overdispersion, means, float(losses[-1]) / new.total_weight)
        self.belief = learnt_belief(self.belief, losses[:-1], self.prior, overdispersion=overdispersion, step=step)
        experts = logits[: len(forecast.experts) + 1].T - forecast.centre
        self.stack = self.stack.learnt(
            np.column_stack([experts, np.tile(forecast.seasonal, (len(experts), 1))]),
            weight,
            positives,
            centre=forecast.centre,
            at=forecast.stack,
            overdispersion=overdispersion,
            step=step,
        )

    def _lengthen(self) -> None:
        """Add a longer memory, so far the same as everything, with the same evidence."""
        last = len(self.memories) - 1
        self.memories.insert(last, replace(self.everything, half_life=self.memories[-2].half_life * MEMORY_RATIO))
        self.stack = self.stack.doubled(last)
        self.belief = np.insert(self.belief, last, NEW_CANDIDATE) / (1.0 + NEW_CANDIDATE)
        self.forecasts = [forecast.with_memory(last) for forecast in self.forecasts]

    def _rebase_changes(self, new: Sketch, seen: _Seen) -> None:
        """Take off the changes what the forecasts beside them have learnt of them by now: it is not to count twice."""
        known = dict(zip(seen.forecast.experts, seen.features.T, strict=False))
        experts = [memory.expert for memory in self.memories if memory.expert is not None]
        logits = [known[one] if one in known else one.logits(new.contexts, new.context, new.logit) for one in experts]
        features = np.vstack([*logits, new.logit, np.ones_like(new.logit)])
        movement = self._coefficients(self._seasonal(self.position))[self._followed, : len(features)] @ features
        movement -= seen.followed
        self.level = self.level.rebased(np.array([[new.weight @ movement[0] / new.total_weight]]))
        self.changes = self.changes.rebased(new.contexts, new.context, new.weight, movement)

    def _forecast(self, position: float) -> Forecast:
        """Return what is expected of the period after a place in time."""
        seasonal = self._seasonal(position)
        return Forecast(
            tuple(memory.expert for memory in self.memories if memory.expert is not None),
            self._coefficients(seasonal),
            self.belief,
            self.stack.weights,
            self.centre,
            seasonal,
            position,
            self.changes.offsets(),
        )

    def _seasonal(self, position: float) -> FloatArray:
        """Return the offset that each season expects of the period that a forecast made now is for."""
        return self.seasons.offsets(position + 1.0 + self.delay)

    def _coefficients(self, seasonal: FloatArray) -> FloatArray:
        """Return the coefficients of each candidate over experts, raw logit, a one and the offsets of values."""
        number, centre = len(self.memories), self.centre
        unit = np.eye(number + 2 + len(FOLLOWED))
        experts, constant, offsets = unit[: number + 1].copy(), unit[number + 1], unit[number + 2 :]
        leaning = 1.0 / float(np.clip(self.effects.level.value, 1.0 / MOST_LEANING, 1.0 / LEAST_LEANING))
        chance = sigmoid(np.array(centre))
        for index in range(number - 2, -1, -1):  # each memory leans on the next longer one
            sketch = self.memories[index].sketch
            information = 0.0 if sketch is None else float(chance * (1.0 - chance)) * sketch.total_weight
            own = information / (information + leaning)
            experts[index] = own * unit[index] + (1.0 - own) * experts[index + 1]
        weights, of_seasons = np.split(self.stack.weights, [-NUMBER_OF_SEASONS])
        plain = dict(zip(expert_names(self.half_lives), experts, strict=True))
        plain[STACK] = weights @ experts + (centre * (1.0 - weights.sum()) + of_seasons @ seasonal) * constant
        plain[CHANGED_LEVEL] = experts[number - 1] + self.level.means()[0, 0] * constant
        return np.stack(
            [plain[name] + (0.0 if apart is None else offsets[apart]) for name, _, apart in self.candidates]
        )

    # -- suspect periods ----------------------------------------------------------------------------------------------

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
        for index, memory in enumerate(self.memories):
            fading = 2.0 ** (-behind / memory.half_life)
            if fading > SMALLEST_FADING:
                self.memories[index] = memory.added(fading * suspect.rows, 0.0).fitted(self.method)
        self._add_forecast(self.position + self.clock.waiting)

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
        effects = self.effects.level_spread.value + self.effects.value_spread.value
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
        weights = np.maximum(latest.memory_weights[:-1], 0.0)
        age = float(weights @ ages / max(float(weights.sum()), 1e-12))
        names = [candidate.name for candidate in self.candidates]
        share = sum(belief for name, belief in zip(names, latest.belief.tolist(), strict=True) if name == CHANGED_LEVEL)
        moved, run = (float(one[0, 0]) for one in self.level.moved())
        # Of everything's weight that part is younger whose level has changed since.
        return age - share * max(moved * ages[-1] - run / 2.0, 0.0), age
