"""The run of a backtest: predict each period from those before it, judge that, then reveal its labels."""

import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from mcnet._shared.arrays import FloatArray, sigmoid
from mcnet.calibrators.methods import calibrator_class
from mcnet.errors import Advice, InputError, McnetError
from mcnet.metrics.evaluation import predict_cells
from mcnet.metrics.scores import CLIP
from mcnet.metrics.sums import GroupSums, group_sums
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import HALF_A_PERIOD, elapsed_periods
from mcnet.sketch.sketch import Sketch
from mcnet.store.arrival import ArrivalCurve, corrected_sketch
from mcnet.store.entries import Entry
from mcnet.store.journal import Journal
from mcnet.tracking.memories import Memory, coarse

# Forecasters: whatever predicts a period from the periods before it.

BASE, TRACKER = "base scores", "tracker"
BELIEF_PARTS = ("memory", "weight", "belief", "period effects")
"""The parts of a tracker's explanation that a backtest keeps for each period."""


class Follower(Protocol):
    """What can stand in the place of the tracker: it predicts a period, and learns from it afterwards."""

    def predict(self, scores: Any, field: Any = None) -> FloatArray:
        """Return the probability of each row of the coming period."""

    def update_sketch(self, sketch: Sketch, period: Any = None) -> Any:
        """Learn from the rows of a period."""


def half_life(given: Any) -> float:
    """Return the half-life of a memory that was given, in periods.

    >>> half_life(4), half_life("0.5"), half_life("everything")
    (4.0, 0.5, inf)
    """
    try:
        length = np.inf if given == "everything" else float(given)
    except (TypeError, ValueError):
        length = np.nan
    if not length > 0.0 or isinstance(given, bool):
        raise InputError(
            f"{given!r} is not a memory; write a half-life in periods (4), everything, or once for a fit on the first "
            "periods alone"
        )
    return length


class MemoryForecaster:
    """A method on one memory of the tracker's kind, which fits it again as its rows are replaced."""

    def __init__(self, method: str, memory: Any, has_fields: bool, once: int) -> None:
        """Take a half-life, "everything", or "once": the first `once` periods; check that the method can be fitted."""
        found = calibrator_class(method)
        if found.needs_features:
            raise InputError(
                f"{method} needs features of each row, which sketches of periods do not have; leave it out"
            )
        if found.field_use == "required" and not has_fields:
            advice = Advice("pass {field} or leave the method out", field=None)
            raise InputError(f"{method} needs a field, and there is none", advice=advice)
        self.memory = Memory(half_life("everything" if memory == "once" else memory))
        kind = str(memory) if memory in ("once", "everything") else f"half-life {self.memory.half_life:g}"
        self.name = f"{method}, {kind}"
        self.failures = 0
        """How many fits have failed; the fit before, or the base scores, stood in."""
        self._method, self._pools, self._position = method, found.field_use == "none", 0.0
        self._left = once if memory == "once" else np.inf

    def learn(self, sketch: Sketch, position: float) -> None:
        """Reveal the labels of a period; `position` is its place in time, in periods."""
        if self._left <= 0:
            return
        self._left -= 1
        elapsed, self._position = position - self._position, position
        try:
            with warnings.catch_warnings(action="ignore"):
                self.memory = self.memory.added(sketch.pooled() if self._pools else sketch, elapsed)
                self.memory = self.memory.fitted(self._method)
        except McnetError:
            self.failures += 1

    def probabilities(self, sketch: Sketch) -> FloatArray:
        """Return the probability of each cell of the coming period."""
        expert = self.memory.expert
        if expert is None:
            return np.asarray(sketch.score)
        return np.asarray(sigmoid(expert.logits(sketch.contexts, sketch.context, sketch.logit)))


class TrackerForecaster:
    """The tracker, or what stands in its place."""

    def __init__(self, follower: Follower) -> None:
        """Take a tracker that has learnt nothing yet."""
        self.follower = follower
        self.learnt = 0

    def learn(self, sketch: Sketch, period: str, *, look: bool = True) -> None:
        """Reveal the labels of a period; without a look it is learnt even if it is suspect."""
        with warnings.catch_warnings(action="ignore"):
            self.follower.update_sketch(sketch, period, **({} if look else {"look": False}))
        self.learnt += 1

    def probabilities(self, sketch: Sketch) -> FloatArray:
        """Return the probability of each cell of the coming period; the score itself before any label."""
        if not self.learnt:
            return np.asarray(sketch.score)
        with warnings.catch_warnings(action="ignore"):
            if hasattr(self.follower, "model_"):
                return predict_cells(self.follower, sketch)  # type: ignore[arg-type]
            columns = {column.name: column for column in sketch.contexts.columns(sketch.context)}
            return np.asarray(self.follower.predict(sketch.score, list(columns.values()) or None))

    def belief(self) -> list[dict[str, Any]]:
        """Return what the tracker believes: part, name and value; nothing if it does not tell."""
        explained = self.follower.explain() if self.learnt and hasattr(self.follower, "explain") else None
        table = getattr(explained, "table", None)
        if table is None:
            return []
        kept: list[dict[str, Any]] = table.filter(table["part"].is_in(list(BELIEF_PARTS))).to_dicts()
        return [{name: row[name] for name in ("part", "name", "value")} for row in kept]


# The counts that a journal had at some moment of the past, where positives arrive late: for backtests.

PERIODS_LEARNT_FROM = 200
"""The arrival of positives is learnt from so many of the latest periods."""


class _Count(NamedTuple):
    """The count of one source for a period, and when it was made, in periods since the first."""

    entry: Entry
    load: Callable[[], Sketch]
    known_at: float


class KnownCounts:
    """The counts of a journal by the moment at which they were made.

    A count of age a is known a periods after the end of its period. A complete count beside counts with ages is known
    one period after the last age in the journal.
    """

    def __init__(self, journal: Journal, positions: Mapping[str, float]) -> None:
        """Sort the counts of a journal; `positions` has the place of each period in time, in periods."""
        counted = journal.counts()
        aged = {(entry.period, entry.source) for entry, _ in counted if entry.age is not None}
        last = max((entry.age for entry, _ in counted if entry.age is not None), default=0.0)
        self._counts: dict[str, list[_Count]] = defaultdict(list)
        for entry, load in counted:
            age = entry.age
            if age is None:
                age = last + 1.0 if (entry.period, entry.source) in aged else 0.0
            known_at = positions[entry.period] + age
            self._counts[entry.period].append(_Count(entry, load, known_at))
        self._periods = sorted(self._counts, key=lambda period: positions[period])
        self._positions = positions
        self.has_ages = bool(aged)

    def arrival(self, now: float) -> ArrivalCurve | None:
        """Return the share of positives that arrives by age, learnt from the counts known at the end of a period."""
        over = [period for period in self._periods if self._positions[period] <= now][-PERIODS_LEARNT_FROM:]
        return ArrivalCurve.learn(
            count.entry for period in over for count in self._counts[period] if count.known_at <= now
        )

    def sketch(self, period: str, now: float, arrival: ArrivalCurve | None) -> Sketch | None:
        """Return the rows of a period as they were known at the end of another; None if nothing was."""
        latest: dict[tuple[str, Any], _Count] = {}
        for count in self._counts[period]:
            # Complete counts without ages, compacted ones say, add up; of those with ages the latest counts.
            alone = count.entry.age is None and count.known_at == self._positions[period]
            key = count.entry.source, count.load if alone else None
            if count.known_at <= now and (key not in latest or count.known_at > latest[key].known_at):
                latest[key] = count
        if not latest:
            return None
        return Sketch.merged([corrected_sketch(c.load(), c.entry.age, arrival) for c in latest.values()])


# What a run records: rows of tables, from which log-loss, PCOC and errors by field value follow.

EPSILON = 0.01
"""What F-RCE adds to the label of every row, as everywhere in mcnet."""
MOST_VALUES_PER_PERIOD = 50
"""This many field values of a period, the largest, have their level recorded."""

Rows = list[dict[str, Any]]


@dataclass
class Record:
    """The rows of the tables of a run: of each period and forecaster, field value, and part of the belief."""

    figures: Rows = field(default_factory=list)
    values: Rows = field(default_factory=list)
    beliefs: Rows = field(default_factory=list)

    def add(self, period: str, sketch: Sketch, probabilities: Mapping[str, FloatArray]) -> None:
        """Record the sums of a period, by the probabilities of each forecaster."""
        weight, positives = sketch.weight, np.minimum(sketch.positives, sketch.weight)
        sums = {
            name: group_sums(p, positives / weight, sketch.context, weight, count=len(sketch.contexts))
            for name, p in probabilities.items()
        }
        for name, p in probabilities.items():
            self.figures.append({"period": period, "forecaster": name, **_figures(p, sketch, positives, sums[name])})
        for column in sketch.contexts.columns(sketch.contexts.all()):
            base, tracker = (sums[name].merged(column.codes, len(column.values)) for name in (BASE, TRACKER))
            for code in np.argsort(-base.weight, kind="stable")[:MOST_VALUES_PER_PERIOD]:
                if base.weight[code] > 0.0:
                    value = MISSING_LABEL if column.values[code] is None else column.values[code]
                    sizes = {"weight": base.weight[code], "positives": base.positives[code]}
                    levels = {"base_expected": base.predicted[code], "tracker_expected": tracker.predicted[code]}
                    self.values.append({"period": period, "field": column.name, "value": value, **sizes, **levels})


def _figures(p: FloatArray, sketch: Sketch, positives: FloatArray, sums: GroupSums) -> dict[str, Any]:
    """Return the log-loss of all rows, the sums for PCOC and its interval, and F-RCE."""
    weight, total, inside = sketch.weight, sums.total(), np.clip(p, CLIP, 1.0 - CLIP)
    loss = -float(positives @ np.log(inside) + (weight - positives) @ np.log1p(-inside))
    error = float(sums.weight @ (np.abs(sums.positives - sums.predicted) / (sums.positives + EPSILON * sums.weight)))
    rows = float(weight.sum())
    return {
        "rows": sketch.rows,
        "weight": rows,
        "positives": float(positives.sum()),
        "expected": float(total.predicted[0]),
        "expected_squared": float(total.predicted_squared[0]),
        "expected_positive": float(total.predicted_positive[0]),
        "log_loss": loss / rows,
        "f_rce": error / rows if sketch.contexts.names else None,
    }


# The run.


def judged_periods(
    journal: Journal,
    tracker: TrackerForecaster,
    others: Sequence[MemoryForecaster],
    *,
    fields: tuple[str, ...],
    delay: int,
    since: str | None,
    look: bool,
    progress: Callable[[int, int], Any] | None,
) -> Record:
    """Return what is recorded of each judged period: from `since` on, or the first one before which labels are known.

    Where positives arrive late, a period is revealed as it was counted by then, corrected by what was known by then of
    their arrival; it is judged by its latest count.
    """
    periods, released = journal.periods, journal.released
    elapsed = elapsed_periods(periods)
    positions = elapsed[0] - elapsed  # the place of each in time, in periods since the first
    counts = KnownCounts(journal, dict(zip(periods, positions.tolist(), strict=True)))
    waiting: deque[tuple[float, str, Sketch]] = deque()
    record = Record()
    begun = since is None
    for place, (period, whole) in enumerate(journal.sketches()):
        known_until = positions[place] - delay - HALF_A_PERIOD
        while waiting and waiting[0][0] < known_until:
            position, name, final = waiting[0]
            now = float(positions[place]) - 1.0
            rows = _chosen(counts.sketch(name, now, counts.arrival(now)), fields) if counts.has_ages else final
            if rows is None:
                break  # not counted yet; later periods wait, too
            waiting.popleft()
            for one in others:
                one.learn(coarse(rows), position)
            tracker.learn(rows, name, look=look and name not in released)
        sketch = _chosen(whole, fields)
        assert sketch is not None
        begun |= period == since
        if begun and (record.figures or since is not None or tracker.learnt):
            probabilities = {BASE: sketch.score, TRACKER: tracker.probabilities(sketch)}
            probabilities |= {one.name: one.probabilities(sketch) for one in others}
            record.add(period, sketch, probabilities)
            record.beliefs += [{"period": period, **row} for row in tracker.belief()]
        waiting.append((float(positions[place]), period, sketch))
        if progress is not None:
            progress(place + 1, len(periods))
    return record


def _chosen(sketch: Sketch | None, fields: tuple[str, ...]) -> Sketch | None:
    """Return a sketch with these fields alone."""
    return sketch if sketch is None or sketch.contexts.names == fields else sketch.only(*fields)
