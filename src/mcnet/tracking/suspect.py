"""A look at a period before it is learnt: are its labels, scores and rows plausible beside the forecast?

A suspect period is kept and not learnt. Two further periods that agree with it show that the world has changed: all
three are learnt. Each quantity is compared with its own usual deviations, in the periods that were learnt, and with
the largest change that is learnt at once, as the world may have changed (`LEAST`).
"""

from collections.abc import Collection
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from mcnet._shared.arrays import FloatArray, sigmoid, sums_by
from mcnet.rows.contexts import Contexts
from mcnet.rows.periods import period_text, shown_periods
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.monitor import Alarm

LEAST = {"rows": 4.0, "level": 1.6, "value": 1.6, "slope": 0.5, "scores": 0.1, "missing": 0.5, "unseen": 0.5}
"""A quantity must deviate by more than this to be suspect: the rows by so many times the usual ones, the level of all
rows or of a field value by so many logits, the slope by this share of the usual one, the stability index of the scores,
the share of rows without a value or with one never seen …"""
FARTHER = 2.0
"""… and by more than so many times what all but one in twenty of the usual periods deviate by."""
ERRORS = 3.0
"""What rows make uncertain must deviate so even if it is this many standard errors off (`errors_of` many)."""
LEAST_EXPECTED = 12.0
"""Rows can tell of which so many positives, and as many negatives, are expected."""
LEAST_PERIODS, USUAL_PERIODS = 5, 60
"""So many periods must have been learnt before any is suspect; so many, the latest, tell what is usual."""
SUSPECT_IN_A_ROW, AGREEMENT = 3, 0.7
"""So many suspect periods in a row are an alarm; they are learnt if their levels agree to so many logits and errors."""
MOST_KEPT = 8
"""The rows of this many suspect periods are kept, the latest."""
SCORE_EDGES, SCORE_HALF_LIFE, SMALLEST_SHARE = np.arange(-12.0, 12.5, 0.5), 8.0, 5e-5
"""The histogram of scores: edges in logits, half-life in periods, and the share that an empty bin counts as."""


def errors_of(number: int) -> float:
    """Return how many standard errors one of so many quantities needs for all to be suspect as rarely as one alone.

    >>> [round(errors_of(number), 1) for number in (1, 12, 100)]
    [3.0, 3.7, 4.2]
    """
    return float(-ndtri(ndtr(-ERRORS) / number))


@dataclass(frozen=True)
class Counts:
    """Rows, positives and expected positives of all rows or of a field value."""

    rows: float
    positives: float
    expected: float

    @property
    def level(self) -> float:
        """By how many logits the positives differ from the forecast."""
        return self._above_forecast(self.positives)

    def change(self, looked_at: int = 1) -> float:
        """Return the part of the level that the noise of labels does not explain, of the farthest of so many counts."""
        if not self.can_tell:
            return 0.0
        noise = np.sqrt(self.positives * max(self.rows - self.positives, 0.0) / self.rows + 1.0)
        low, high = (self.positives + sign * errors_of(looked_at) * noise for sign in (-1.0, 1.0))
        ends = self._above_forecast(max(low, 0.0)), self._above_forecast(min(high, self.rows))
        return max(ends[0], 0.0) + min(ends[1], 0.0)

    @property
    def can_tell(self) -> bool:
        """Whether enough of both classes are expected."""
        return min(self.expected, self.rows - self.expected) >= LEAST_EXPECTED

    def beside(self, whole: "Counts") -> "Counts":
        """Return the same counts with the positives expected that the level of all other rows makes likely."""
        others = Counts(*(there - here for here, there in zip(astuple(self), astuple(whole), strict=True)))
        if not others.can_tell:
            return self
        odds = self.expected / max(self.rows - self.expected, 1e-300) * np.exp(others.level)
        return replace(self, expected=float(self.rows * odds / (1.0 + odds)))

    @property
    def times(self) -> str:
        """How many times more or fewer positives there are than expected, in words."""
        times = (self.positives + 0.5) / (self.expected + 0.5)
        if self.positives <= 0.0:
            return f"are 0 where {self.expected:,.0f} were expected"
        if self.positives >= self.rows:
            return f"are all {self.rows:,.0f} rows where {self.expected:,.0f} were expected"
        return f"{'rose' if times > 1.0 else 'fell'} {max(times, 1.0 / times):.2g}×"

    def _above_forecast(self, positives: float) -> float:
        odds = [(part + 0.5) / (self.rows - part + 0.5) for part in (positives, self.expected)]
        return float(np.log(max(odds[0], 1e-12) / max(odds[1], 1e-12)))


@dataclass(frozen=True)
class Measured:
    """What the look reads of a period."""

    whole: Counts
    slope: float | None
    """Of the labels on the forecast: 1 where that is right, whatever the level; None where rows cannot tell."""
    slope_error: float
    scores: float
    """The population stability index of the scores beside those of the periods before."""
    missing: float
    """The share of rows without a value in a field …"""
    unseen: float
    """… and with one that no earlier period had."""
    values: tuple[tuple[str, Counts, float], ...] = ()
    """The field values that can tell, the largest first, and the change of each beside the other rows, in logits."""

    def usual(self) -> dict[str, float | None]:
        """Return the numbers that later periods are compared with."""
        return {
            "rows": self.whole.rows,
            "rate": self.whole.positives / self.whole.rows,
            "level": self.whole.change(),
            "miss": abs(self.whole.change()),
            "value": max((change for *_, change in self.values), key=abs, default=0.0),
            **{name: getattr(self, name) for name in ("slope", "scores", "missing", "unseen")},
            "slope_error": None if self.slope is None else self.slope_error,
        }


def measured(sketch: Sketch, forecast_logit: FloatArray, known: Contexts, scores: FloatArray) -> Measured:
    """Read a period beside the forecast of its cells, the contexts of earlier periods, and the histogram of scores."""
    weight, positives, chance = sketch.weight, np.minimum(sketch.positives, sketch.weight), sigmoid(forecast_logit)
    parts, total = (weight, positives, weight * chance), sketch.total_weight
    whole = Counts(*(float(part.sum()) for part in parts))
    missing = unseen = np.zeros(len(sketch), dtype=bool)
    values: list[tuple[str, Counts]] = []
    for column, before in zip(sketch.contexts.columns(sketch.context), known.values, strict=True):
        seen = set(before)
        missing = missing | np.array([value is None for value in column.values])[column.codes]
        unseen = unseen | np.array([value not in seen for value in column.values])[column.codes]
        sums = (sums_by(column.codes, part, len(column.values)).tolist() for part in parts)
        names = (f"{column.name}={'(missing)' if value is None else value}" for value in column.values)
        values += [(name, Counts(*counts)) for name, *counts in zip(names, *sums, strict=True)]
    able = sorted((one for one in values if one[1].can_tell), key=lambda one: -one[1].expected)
    changes = tuple((name, counts, counts.beside(whole).change(len(able))) for name, counts in able)
    slope = slope_of(chance, weight, positives, whole) if whole.can_tell else (None, np.inf)
    shares = float(weight @ missing) / total, float(weight @ unseen) / total
    return Measured(whole, *slope, _stability(score_histogram(sketch), scores), *shares, changes)


def slope_of(
    chance: FloatArray, weight: FloatArray, positives: FloatArray, whole: Counts
) -> tuple[float | None, float]:
    """Return the slope of least squares of labels on forecasts, freed of the level, and its standard error."""
    away = chance - whole.expected / whole.rows
    spread, rate, rated = float(weight @ away**2), whole.positives / whole.rows, whole.expected / whole.rows
    if not (0.0 < rate < 1.0 and spread > 0.0):
        return None, np.inf
    slope = float(positives @ away) / spread
    fitted = np.clip(rate + slope * away, 0.0, 1.0)
    squares = (positives * (1.0 - fitted) ** 2 + (weight - positives) * fitted**2) @ away**2
    scale = rated * (1.0 - rated) / (rate * (1.0 - rate))
    return slope * scale, float(np.sqrt(squares)) / spread * scale


def score_histogram(sketch: Sketch) -> FloatArray:
    """Return the weight of rows by the logit of their score."""
    return sums_by(np.searchsorted(SCORE_EDGES, sketch.logit), sketch.weight, len(SCORE_EDGES) + 1)


def _stability(now: FloatArray, before: FloatArray) -> float:
    """Return the population stability index, Σ (p − q) log(p / q)."""
    if not before.sum() > 0.0:
        return 0.0
    here, there = (np.maximum(counts / counts.sum(), SMALLEST_SHARE) for counts in (now, before))
    return float(np.sum((here - there) * np.log(here / there)))


@dataclass(frozen=True)
class Suspect:
    """A period that was not learnt when it came, and why."""

    period: str | None
    kind: str
    """ "level", "slope", "rows", "value", "scores" or "fields"."""
    cause: str
    """What was seen and what it is likely to be, in one line."""
    counts: Counts
    """Of what is suspect: of all rows, or of a field value."""
    can_be_real: bool
    """Whether a real change may look like this, so that further periods can confirm it."""
    step: float = 1.0
    """Periods since the one before it."""
    position: float = 0.0
    """Its timestamp, in periods since the first."""
    state: str = "waiting"
    """ "waiting" for what the next periods say; "left out", as they disagreed; "learnt", as they agreed; "released"."""
    rows: Sketch | None = field(default=None, compare=False)
    """Its rows, as long as they are kept."""
    values: tuple[str, ...] = ()
    """The field values that the cause names."""

    def agrees(self, other: "Suspect") -> bool:
        """Tell whether two periods are suspect in the same way, one that a real change may have."""
        noise = sum(abs(one.counts.level - one.counts.change()) for one in (self, other))
        near = abs(self.counts.level - other.counts.level) < AGREEMENT + noise
        return self.kind == other.kind and self.can_be_real and other.can_be_real and near

    @property
    def named(self) -> str:
        """The period, in words."""
        return "this period" if self.period is None else f"the period {shown_periods([self.period])[0]}"

    def __str__(self) -> str:
        return f"{self.named} is suspect and was not learnt: {self.cause}"


@dataclass
class Look:
    """What is usual in a stream, and which periods were suspect."""

    past: list[dict[str, float | None]] = field(default_factory=list)
    """What `Measured.usual` told of the latest periods that were learnt."""
    scores: FloatArray = field(default_factory=lambda: np.zeros(len(SCORE_EDGES) + 1))
    """A histogram of scores, forgotten slowly."""
    suspects: list[Suspect] = field(default_factory=list)
    """The latest suspect periods."""

    def copied(self) -> "Look":
        """Return a copy that can change without this one."""
        return Look(list(self.past), self.scores, list(self.suspects))

    @property
    def waiting(self) -> list[Suspect]:
        """The suspect periods since the last one that was learnt."""
        return [one for one in self.suspects if one.state == "waiting"]

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that nothing is being learnt, after several suspect periods in a row."""
        waiting = self.waiting
        if len(waiting) < SUSPECT_IN_A_ROW:
            return None
        rows, positives, expected = np.sum([astuple(one.counts) for one in waiting], axis=0).tolist()
        pcoc = expected / positives if positives else np.inf
        raised, since = str(waiting[SUSPECT_IN_A_ROW - 1].period), str(waiting[0].period)
        return Alarm("learning", raised, since, pcoc, 0.0, np.inf, expected - positives, rows, 0.0)

    def _compared(self, found: Measured) -> tuple[set[str], dict[str, float]]:
        """Return the quantities that deviate beyond a change and farther than they usually do, and what is usual."""
        far, usual, now = set(), {}, found.usual()
        del now["slope_error"]
        if found.slope is not None:
            now["slope"] = found.slope + ERRORS * found.slope_error
        for name, value in now.items():
            known = np.array([one[name] for one in self.past if one[name] is not None])
            centre = 0.0 if name in ("level", "value") or not len(known) else float(np.median(known))
            usual[name] = centre
            if value is not None and len(known):
                away = centre - value if name == "slope" else abs(value) if centre == 0.0 else value - centre
                least = LEAST.get(name, 0.0) * (centre if name in ("rows", "slope") else 1.0)
                deviations = np.abs(known - centre)
                if name == "slope":  # as of the level, the part that the noise of labels does not explain
                    errors = np.array([one["slope_error"] for one in self.past if one["slope"] is not None])
                    deviations = np.maximum(deviations - ERRORS * errors, 0.0)
                if away > max(least, FARTHER * float(np.quantile(deviations, 0.95))):
                    far.add(name)
        return far, usual

    def suspicion(self, found: Measured) -> Suspect | None:
        """Return what is suspect in a period; None if nothing is."""
        if len(self.past) < LEAST_PERIODS:
            return None
        (far, usual), whole = self._compared(found), found.whole
        falls = found.slope is not None and found.slope + ERRORS * found.slope_error < 0.0
        lost = "slope" in far and usual["slope"] > 0.0
        scores = "scores moved too" if "scores" in far else "scores unchanged"

        def suspect(kind: str, cause: str, counts: Counts = whole, values: tuple[str, ...] = ()) -> Suspect:
            one_class = counts.can_tell and not 0.0 < counts.positives < counts.rows
            return Suspect(None, kind, cause, counts, can_be_real=not (falls or one_class), values=values)

        if "rows" in far:
            return suspect("rows", f"{whole.rows / usual['rows']:.3g} times the usual rows: sent more than once?")
        if falls and lost:
            return suspect("slope", f"labels fall as scores rise, positives {whole.times}, {scores}: labels flipped?")
        if "level" in far:
            often = "labels missing?" if whole.level < 0.0 else "labels flipped, or negatives lost?"
            changes = [counts.change(len(found.values)) * whole.level > 0.0 for _, counts, _ in found.values]
            together = " in all values at once" if len(changes) > 1 and all(changes) else ""
            return suspect("level", f"positives {whole.times}{together}, {scores}: {often}")
        if lost:
            seen = f"slope {found.slope:.2f} ± {found.slope_error:.2f}, usually {usual['slope']:.2f}"
            return suspect("slope", f"labels no longer follow the scores ({seen}): joined to the wrong rows?")
        if "value" in far:
            moved = sorted((one for one in found.values if abs(one[2]) > LEAST["value"]), key=lambda one: -abs(one[2]))
            names, counts = tuple(name for name, *_ in moved[:3]), moved[0][1]
            also = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
            why = "labels of this value missing?" if counts.level < 0.0 else "labels of this value wrong?"
            cause = f"positives of {', '.join(names)}{also} {counts.times}, other values as usual: {why}"
            return suspect("value", cause, counts, names)
        rise = float(np.log(max(whole.expected / whole.rows, 1e-12) / max(usual["rate"], 1e-12)))  # that is forecast
        if {"scores", "miss"} <= far and abs(whole.level + rise) < 0.5 * abs(rise):
            return suspect("scores", f"scores moved, labels did not (positives {whole.times}): a new base model?")
        for name, seen in (("missing", "no value"), ("unseen", "a value never seen before")):
            if name in far:
                what = f"{getattr(found, name):.0%} of the rows have {seen} in a field, usually {usual[name]:.0%}"
                return suspect("fields", f"{what}: a column lost or renamed?")
        return None

    def keep(self, suspect: Suspect) -> list[Suspect]:
        """Keep a suspect period; return those that can be learnt, if the last ones agree."""
        self.suspects.append(suspect)
        for index, one in enumerate(self.suspects[:-MOST_KEPT]):
            self.suspects[index] = replace(one, rows=None)
        del self.suspects[: -2 * MOST_KEPT]
        last = self.waiting[-SUSPECT_IN_A_ROW:]
        agree = len(last) == SUSPECT_IN_A_ROW and all(suspect.agrees(one) and one.rows is not None for one in last)
        return last if agree else []

    def told(self, suspect: Suspect) -> str:
        """Return what became of a suspect period that has just come, in one line."""
        in_a_row = len(self.waiting)
        if not in_a_row:
            why = f"the last {SUSPECT_IN_A_ROW} periods were suspect in the same way and are learnt now, as a change"
            return f"{why}: {suspect.cause}"
        alarm = f"; {in_a_row} suspect periods in a row: nothing is being learnt"
        return f"{suspect}{alarm if in_a_row >= SUSPECT_IN_A_ROW else ''}"

    def settle(self, state: str, chosen: Collection[Suspect]) -> None:
        """Set the state of suspect periods."""
        self.suspects = [replace(one, state=state) if one in chosen else one for one in self.suspects]

    def learn(self, sketch: Sketch, found: Measured | None, elapsed: float) -> None:
        """Take in a period that is learnt."""
        self.scores = 2.0 ** (-elapsed / SCORE_HALF_LIFE) * self.scores + score_histogram(sketch)
        if found is not None:
            self.past = [*self.past, found.usual()][-USUAL_PERIODS:]

    def named(self, period: Any) -> Suspect | None:
        """Return the suspect period of a name, if its rows are kept."""
        text = None if period is None else period_text(period)
        return next((one for one in self.suspects[::-1] if one.period == text and one.rows is not None), None)
