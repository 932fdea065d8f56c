"""A look at a period before it is learnt: are its labels, scores and rows plausible beside the forecast?

A suspect period is kept and not learnt. Two further periods that agree with it show that the world has changed: all
three are learnt. A change of level below `LARGEST_CHANGE` is never suspect by itself, of all rows or of one field
value: the tracker learns it as a change.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from mcnet._shared.arrays import FloatArray, logit, sigmoid, sums_by
from mcnet.rows.contexts import Contexts
from mcnet.rows.periods import period_text, shown_periods
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.monitor import Alarm

# Thresholds, chosen so that on clean streams few periods are suspect: 6 of the 3,594 of eight streams made of real
# flights (1 in 599), of which 4 are among 723 periods of six hours and 2 among 2,146 hours; none by days.

LEAST_PERIODS = 5
"""So many periods must have been learnt before any is suspect."""
USUAL_PERIODS = 60
"""What is usual is told by this many periods, the latest that were learnt."""
ERRORS = 3.0
"""A quantity that rows make uncertain is suspect if it is so even by this many standard errors (`errors_of` many)."""
LARGEST_CHANGE = 1.2
"""A change of the level by less logits than this is never suspect by itself."""
SUSPECT_RATIO = 5.0
"""Positives, of all rows or of a field value, this many times above or below the forecast are suspect …"""
SUSPECT_NEGATIVES = 20.0
"""… and so many times fewer negatives (rates of one half in a storm are real, nothing but positives is not) …"""
LEAST_NEGATIVES = 30.0
"""… of which this many are expected (an hour in which all of some forty flights are late is real) …"""
LEAST_EXPECTED = 12.0
"""… where this many positives, and as many negatives, are expected."""
UNUSUAL = 2.0
"""… and where noise leaves this many times what it leaves in all but one in twenty of the usual periods."""
SUSPECT_SLOPE = 0.25
"""The labels follow the forecast's logit with less than this share of the usual slope: discrimination is lost …"""
LOST_SLOPE = 6.0
"""… or the slope may be 0 and is this many errors, or usual deviations if those are larger, below the usual one."""
SUSPECT_ROWS = 5.0
"""So many times the usual rows are suspect; usual is the upper quartile, since nights have fewer rows than days."""
SUSPECT_SCORE_CHANGE = 2.0
"""The scores have moved if their stability index is this many times the largest usual one …"""
SUSPECT_MISS = 0.2
"""… and it is suspect if the positives then miss the forecast by more than this, in logits, and by more than usual."""
SUSPECT_SHARE = 0.5
"""Missing or unseen values are suspect in this share of the rows that usually have none."""
SUSPECT_IN_A_ROW = 3
"""After so many suspect periods in a row nothing is being learnt: that is an alarm. As many that agree are learnt."""
AGREEMENT = 0.7
"""Suspect periods agree if their levels differ by less than this, in logits, beyond their errors."""
MOST_KEPT = 8
"""The rows of this many suspect periods are kept, the latest."""

# What is read of a period.

BINS = 256
"""Cells of nearly the same forecast are taken together for the slope."""
SCORE_EDGES = np.arange(-12.0, 12.5, 0.5)
"""Edges, in logits, of the histogram of scores."""
SMALLEST_SHARE = 5e-5
"""An empty bin of a histogram counts as this share of the rows."""
SCORE_HALF_LIFE = 8.0
"""Periods after which a score of the histogram counts half."""


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
    looked_at: int = 1
    """How many counts of the period are judged: chance moves the farthest of many farther than one."""

    @property
    def level(self) -> float:
        """By how many logits the positives differ from the forecast."""
        return self._above_forecast(self.positives)

    @property
    def error(self) -> float:
        """The standard error of the number of positives, at least one."""
        return float(np.sqrt(self.positives * max(self.rows - self.positives, 0.0) / max(self.rows, 1e-300) + 1.0))

    @property
    def certain_change(self) -> float:
        """The part of the level that the noise of labels does not explain; 0 if all of it may be noise."""
        reach = errors_of(self.looked_at) * self.error
        low, high = self.positives - reach, self.positives + reach
        least = self._above_forecast(max(low, 0.0)), self._above_forecast(min(high, self.rows))
        return max(least[0], 0.0) + min(least[1], 0.0)

    @property
    def is_suspect(self) -> bool:
        """Whether the positives are far from the forecast, beyond any change that is learnt at once."""
        times = (self.positives + 0.5) / (self.expected + 0.5)
        negatives = (self.rows - self.positives + 0.5) / (self.rows - self.expected + 0.5)
        lost = negatives < 1.0 / SUSPECT_NEGATIVES and self.rows - self.expected >= LEAST_NEGATIVES
        far = max(times, 1.0 / times) > SUSPECT_RATIO or lost
        return self.can_tell and far and abs(self.certain_change) > LARGEST_CHANGE

    @property
    def can_tell(self) -> bool:
        """Whether enough of both classes are expected."""
        return min(self.expected, self.rows - self.expected) >= LEAST_EXPECTED

    def beside(self, whole: "Counts") -> "Counts":
        """Return the same counts with the positives expected that the level of all other rows makes likely."""
        others = Counts(*(there - here for here, there in zip(astuple(self)[:3], astuple(whole)[:3], strict=True)))
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
    """Of the labels on the forecast's logit: 1 where the forecast is right; None where it cannot be told."""
    slope_error: float
    score_change: float
    """The population stability index of the scores beside those of the periods before."""
    missing: float
    """The share of rows without a value in a field."""
    unseen: float
    """The share of rows with a value that no earlier period had."""
    values: tuple[tuple[str, Counts], ...]
    """The field values that are suspect by themselves, the largest first."""
    number_of_values: int
    """How many could have been."""
    largest_change: float
    """The largest change of a value that noise does not explain, in logits."""

    def usual(self) -> list[float]:
        """Return the numbers that later periods are compared with."""
        slope = np.nan if self.slope is None else self.slope
        rate = self.whole.positives / max(self.whole.rows, 1e-300)
        changes = abs(self.whole.certain_change), self.largest_change
        return [self.whole.rows, slope, self.score_change, self.missing, self.unseen, *changes, rate]


def measured(sketch: Sketch, forecast_logit: FloatArray, known: Contexts, scores: FloatArray) -> Measured:
    """Read a period.

    Parameters
    ----------
    sketch : its rows.
    forecast_logit : of each cell.
    known : the contexts of earlier periods.
    scores : the histogram of earlier scores.
    """
    weight, positives = sketch.weight, np.minimum(sketch.positives, sketch.weight)
    expected = weight * sigmoid(forecast_logit)
    missing = unseen = np.zeros(len(sketch), dtype=bool)
    counted: list[tuple[str, Counts]] = []
    for column, before in zip(sketch.contexts.columns(sketch.context), known.values, strict=True):
        absent = np.array([value is None for value in column.values], dtype=bool)
        new = ~np.isin(np.arange(len(absent)), [v for v, value in enumerate(column.values) if value in set(before)])
        missing, unseen = missing | absent[column.codes], unseen | new[column.codes]
        sums = [sums_by(column.codes, part, len(absent)) for part in (weight, positives, expected)]
        for value, *parts in zip(column.values, *(part.tolist() for part in sums), strict=True):
            if (counts := Counts(*parts)).can_tell:
                counted.append((f"{column.name}={'(missing)' if value is None else value}", counts))
    able = [(name, replace(counts, looked_at=len(counted))) for name, counts in counted]
    total = sketch.total_weight
    return Measured(
        Counts(total, float(positives.sum()), float(expected.sum())),
        *_slope(forecast_logit, weight, positives),
        _stability(score_histogram(sketch), scores),
        float(weight @ missing) / total,
        float(weight @ unseen) / total,
        tuple(sorted((one for one in able if one[1].is_suspect), key=lambda one: -one[1].expected)),
        len(able),
        max((abs(counts.certain_change) for _, counts in able), default=0.0),
    )


def score_histogram(sketch: Sketch) -> FloatArray:
    """Return the weight of rows by the logit of their score."""
    return sums_by(np.searchsorted(SCORE_EDGES, sketch.logit), sketch.weight, len(SCORE_EDGES) + 1)


def _stability(now: FloatArray, before: FloatArray) -> float:
    """Return the population stability index, Σ (p − q) log(p / q)."""
    if not before.sum() > 0.0:
        return 0.0
    here, there = (np.maximum(counts / counts.sum(), SMALLEST_SHARE) for counts in (now, before))
    return float(np.sum((here - there) * np.log(here / there)))


def _slope(at: FloatArray, weight: FloatArray, positives: FloatArray) -> tuple[float | None, float]:
    """Return the slope of a logistic regression of labels on logits, and its standard error."""
    total, width = float(weight.sum()), float(np.ptp(at)) / BINS
    if not (0.0 < float(positives.sum()) < total and width > 0.0):
        return None, np.inf
    codes = np.minimum(((at - at.min()) / width).astype(np.int64), BINS - 1)
    w, y, x = (sums_by(codes, part, BINS) for part in (weight, positives, weight * at))
    x, y, w = x[w > 0.0] / w[w > 0.0], y[w > 0.0], w[w > 0.0]
    design = np.column_stack([np.ones_like(x), x - x @ w / total])
    found = np.array([float(logit(np.array([y.sum() / total]))[0]), 0.0])
    for _ in range(30):
        chance = sigmoid(design @ found)
        information = (design.T * (w * chance * (1.0 - chance))) @ design
        if not np.linalg.det(information) > 1e-9 * information[0, 0] ** 2:
            return None, np.inf
        step = np.clip(np.linalg.solve(information, design.T @ (y - w * chance)), -1.0, 1.0)
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    return float(found[1]), float(np.sqrt(np.linalg.inv(information)[1, 1]))


# What becomes of a period.


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
        noise = sum(abs(one.counts.level - one.counts.certain_change) for one in (self, other))
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

    past: list[list[float]] = field(default_factory=list)
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
        parts = [[one.counts.expected, one.counts.positives, one.counts.rows] for one in waiting]
        expected, positives, rows = np.sum(parts, axis=0).tolist()
        pcoc = expected / positives if positives else np.inf
        raised, since = str(waiting[SUSPECT_IN_A_ROW - 1].period), str(waiting[0].period)
        return Alarm("learning", raised, since, pcoc, 0.0, np.inf, expected - positives, rows, 0.0)

    def suspicion(self, found: Measured) -> Suspect | None:
        """Return what is suspect in a period; None if nothing is."""
        if len(self.past) < LEAST_PERIODS:
            return None
        rows, slope, score_change, missing, unseen, miss, of_values, rate = np.array(self.past).T
        limits = [UNUSUAL * float(np.quantile(changes, 0.95)) for changes in (miss, of_values)]
        whole, falls = found.whole, found.slope is not None and found.slope + ERRORS * found.slope_error < 0.0
        values = [
            one
            for one in found.values
            if abs(one[1].certain_change) > limits[1] and one[1].beside(whole).is_suspect  # values share the day
        ]
        slope = slope[np.isfinite(slope)]
        usual_slope = float(np.median(slope)) if len(slope) else 0.0
        lost = usual_slope > 0.0 and _is_lost(found, usual_slope, 1.4826 * float(np.median(abs(slope - usual_slope))))
        moved = found.score_change > SUSPECT_SCORE_CHANGE * float(score_change.max())
        scores = "scores moved too" if moved else "scores unchanged"

        def suspect(kind: str, cause: str, counts: Counts = whole) -> Suspect:
            one_class = counts.expected >= LEAST_EXPECTED and not 0.0 < counts.positives < counts.rows
            return Suspect(None, kind, cause, counts, can_be_real=not falls and not one_class)

        if whole.rows > SUSPECT_ROWS * (usual_rows := float(np.quantile(rows, 0.75))):
            return suspect("rows", f"{whole.rows / usual_rows:.3g} times the usual rows: sent more than once?")
        if falls and lost:
            return suspect("slope", f"labels fall as scores rise, positives {whole.times}, {scores}: labels flipped?")
        if whole.is_suspect and abs(whole.certain_change) > limits[0]:
            often = "labels missing?" if whole.level < 0.0 else "labels flipped, or negatives lost?"
            together = " in all values at once" if 1 < found.number_of_values == len(found.values) else ""
            return suspect("level", f"positives {whole.times}{together}, {scores}: {often}")
        if lost:
            seen = f"slope {found.slope:.2f} ± {found.slope_error:.2f}, usually {usual_slope:.2f}"
            return suspect("slope", f"labels no longer follow the scores ({seen}): joined to the wrong rows?")
        if values:
            names = tuple(name for name, _ in values[:3])
            counts, more = values[0][1], len(values) - 3
            also = f" and {more} more" if more > 0 else ""
            why = "labels of this value missing?" if counts.level < 0.0 else "labels of this value wrong?"
            cause = f"positives of {', '.join(names)}{also} {counts.times}, other values as usual: {why}"
            return replace(suspect("value", cause, counts), values=names)
        expected_change = np.log(max(whole.expected / whole.rows, 1e-12) / max(float(np.median(rate)), 1e-12))
        if (
            moved
            and abs(whole.certain_change) > max(SUSPECT_MISS, float(miss.max()))
            and abs(whole.level + expected_change) < 0.5 * abs(expected_change)
        ):
            return suspect("scores", f"scores moved, labels did not (positives {whole.times}): a new base model?")
        for name, share, usual in (
            ("no value", found.missing, missing),
            ("a value never seen before", found.unseen, unseen),
        ):
            if share > usual.max() + SUSPECT_SHARE * (1.0 - usual.max()):
                what = f"{share:.0%} of the rows have {name} in a field, usually at most {usual.max():.0%}"
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

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values; the rows of suspect periods are kept apart."""
        suspects = [asdict(replace(one, rows=None)) for one in self.suspects]
        past = [[None if np.isnan(number) else number for number in numbers] for numbers in self.past]
        return {"past": past, "scores": self.scores.tolist(), "suspects": suspects}

    @staticmethod
    def restored(state: Mapping[str, Any], rows: list[Sketch | None]) -> "Look":
        """Return the look that `state` described, with the rows of its suspect periods."""
        past = [[np.nan if number is None else float(number) for number in numbers] for numbers in state["past"]]
        suspects = [
            Suspect(**{**one, "counts": Counts(**one["counts"]), "rows": kept, "values": tuple(one.get("values", ()))})
            for one, kept in zip(state["suspects"], rows, strict=True)
        ]
        return Look(past, np.array(state["scores"], dtype=np.float64), suspects)


def _is_lost(found: Measured, usual: float, deviation: float) -> bool:
    """Tell whether the labels no longer follow the forecast."""
    if found.slope is None:
        return False
    low, high = (found.slope + sign * ERRORS * found.slope_error for sign in (-1.0, 1.0))
    far = usual - found.slope > LOST_SLOPE * max(found.slope_error, deviation)
    return high < SUSPECT_SLOPE * usual or (low < 0.0 and far)
