"""The run of a backtest: predict each period from those before it, reveal its labels, record the result."""

import json
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet._shared.files import exclusive_lock, named_if_full, whole_file, write_json
from mcnet.errors import FileFormatError, InputError
from mcnet.metrics.scores import CLIP
from mcnet.metrics.sums import GroupSums, group_sums
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import HALF_A_PERIOD, elapsed_periods
from mcnet.sketch.sketch import Sketch
from mcnet.store.arrival import ArrivalCurve, corrected_sketch
from mcnet.store.entries import Entry, past_digests
from mcnet.store.journal import Journal
from mcnet.tracking.backtest_forecasters import (
    BASE,
    TRACKER,
    Follower,
    MethodForecaster,
    RunningMemory,
    TrackerForecaster,
    parse_memories,
)

# The counts that a journal had at some moment of the past, where positives arrive late: for backtests.

PERIODS_LEARNT_FROM = 200
"""The arrival of positives is learnt from so many of the latest periods."""


@dataclass(frozen=True)
class _Count:
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


# The result of one period: sums from which log-loss, PCOC and errors by field value follow.

EPSILON = 0.01
"""What F-RCE adds to the label of every row, as everywhere in mcnet."""
MOST_VALUES_PER_PERIOD = 50
"""This many field values of a period, the largest, have their level recorded."""


def period_sums(sketch: Sketch, probabilities: Mapping[str, FloatArray], levels_of: tuple[str, ...]) -> dict[str, Any]:
    """Return the sums of a period as JSON-able values.

    Parameters
    ----------
    sketch : the rows of the period, with their labels.
    probabilities : for each forecaster, one probability per cell.
    levels_of : the forecasters whose expected positives are recorded per field value.
    """
    weight, positives = sketch.weight, np.minimum(sketch.positives, sketch.weight)
    sums = {
        name: group_sums(p, positives / weight, sketch.context, weight, count=len(sketch.contexts))
        for name, p in probabilities.items()
    }
    return {
        "rows": sketch.rows,
        "weight": float(weight.sum()),
        "positives": float(positives.sum()),
        "forecasters": {
            name: _figures(p, weight, positives, sums[name], bool(sketch.contexts.names))
            for name, p in probabilities.items()
        },
        "values": _values(sketch, [sums[name] for name in levels_of]),
    }


def _figures(
    p: FloatArray, weight: FloatArray, positives: FloatArray, sums: GroupSums, has_fields: bool
) -> list[float | None]:
    """Return the loss of all rows, the sums for PCOC and its interval, and F-RCE."""
    inside = np.clip(p, CLIP, 1.0 - CLIP)
    loss = -float(positives @ np.log(inside) + (weight - positives) @ np.log1p(-inside))
    total = sums.total()
    moments = (total.predicted, total.predicted_squared, total.predicted_positive)
    error = float(sums.weight @ (np.abs(sums.positives - sums.predicted) / (sums.positives + EPSILON * sums.weight)))
    return [loss, *(float(column[0]) for column in moments), error / float(weight.sum()) if has_fields else None]


def _values(sketch: Sketch, levels: list[GroupSums]) -> list[list[Any]]:
    """Return (field, value, weight, positives, expected positives …) of the largest field values."""
    found: list[list[Any]] = []
    for column in sketch.contexts.columns(sketch.contexts.all()):
        number = len(column.values)
        merged = [part.merged(column.codes, number) for part in levels]
        weight = merged[0].weight
        for code in np.argsort(-weight, kind="stable")[:MOST_VALUES_PER_PERIOD]:
            if weight[code] > 0.0:
                value = MISSING_LABEL if column.values[code] is None else column.values[code]
                expected = [float(part.predicted[code]) for part in merged]
                found.append([column.name, value, float(weight[code]), float(merged[0].positives[code]), *expected])
    return found


# The run of a backtest: predict each period from those before it, reveal its labels, record the result.
#
# Everything goes to a folder, so that a run which was ended at any moment continues where it stopped: `run.json` has
# the settings, `periods.jsonl` a line per judged period, `tracker-…` the tracker after this many periods. Memories are
# restored by adding up the sketches of the journal again, which takes no fits.

_FORMAT = "mcnet backtest"
_VERSION = 1
_SETTINGS, _LINES = "run.json", "periods.jsonl"
SECONDS_BETWEEN_CHECKPOINTS = 10.0
"""The state of the tracker is saved no more often than this."""


@dataclass(frozen=True)
class Plan:
    """What is compared, and how; equal plans on equal rows give equal results."""

    methods: tuple[str, ...]
    memories: tuple[str, ...]
    delay: int
    """In periods."""
    since: str | None
    """The first period that is judged; None for the first one before which labels are known."""
    once: int
    """How many periods the fits "once" are made on."""
    fields: tuple[str, ...]
    rows: str
    """Which rows: a digest of the names and sizes of the log files; empty for a journal."""
    look: bool = True
    """Whether the tracker keeps suspect periods and does not learn them."""


def run_plan(
    plan: Plan,
    journal: Journal,
    folder: Path,
    follower: Callable[[], Follower],
    restored: Callable[[Path], Follower] | None,
    progress: Callable[[int, int], Any] | None,
) -> None:
    """Judge all periods of a journal, or those that an earlier run in the same folder has left.

    Parameters
    ----------
    plan : what to compare.
    journal : the rows.
    folder : where the results go.
    follower : makes a tracker that knows nothing.
    restored : loads a tracker that was saved in a folder; None if it cannot be saved.
    progress : a function that is called with the number of periods done, and of all.
    """
    with exclusive_lock(folder / ".lock"):
        digests = past_digests(journal)
        done = _begin(folder, plan, digests)
        state = _State(plan, folder, follower, restored)
        first, periods = _first_judged(plan, digests), list(digests)
        state.restore(_known(periods, plan.delay, first + done) if done else 0)
        with (
            named_if_full(folder, "what was judged before is kept"),
            (folder / _LINES).open("a", encoding="utf-8") as lines,
        ):
            for place, period, sketch in state.revealed(journal, periods):
                if place >= first + done:
                    line = {"period": period, "digest": digests[period], **state.judged(sketch)}
                    lines.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
                    lines.flush()
                    state.checkpoint()
                if progress is not None:
                    progress(place + 1, len(periods))


def _positions(periods: Sequence[str]) -> FloatArray:
    """Return the place of each period in time, in periods since the first."""
    elapsed = elapsed_periods(periods)
    return np.asarray(elapsed[0] - elapsed)


def _known(periods: Sequence[str], delay: int, place: int) -> int:
    """Return how many periods have revealed their labels when the period at `place` is predicted."""
    positions = _positions(periods)
    if place >= len(positions):
        return len(positions)
    return int((positions < positions[place] - delay - HALF_A_PERIOD).sum())


def _first_judged(plan: Plan, digests: dict[str, str]) -> int:
    periods = list(digests)
    if plan.since is not None:
        return periods.index(plan.since)
    return next((place for place in range(len(periods)) if _known(periods, plan.delay, place)), len(periods))


class _State:
    """The forecasters, and what they have learnt from."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        follower: Callable[[], Follower],
        restored: Callable[[Path], Follower] | None,
    ) -> None:
        self.plan, self.folder, self.load = plan, folder, restored
        self.tracker = TrackerForecaster(follower())
        has_fields = bool(plan.fields)
        self.memories = (
            [RunningMemory(spec, plan.once) for spec in parse_memories(plan.memories)] if plan.methods else []
        )
        self.forecasters = [
            MethodForecaster(method, memory, has_fields) for method in plan.methods for memory in self.memories
        ]
        self.saved = time.monotonic()

    def restore(self, known: int) -> None:
        """Load the latest saved tracker that has learnt no more than `known` periods."""
        for path in sorted(self.folder.glob("tracker-*"), reverse=True):
            learnt = int(path.name.removeprefix("tracker-"))
            if self.load is not None and 0 < learnt <= known:
                try:
                    self.tracker.follower = self.load(path)
                except (FileFormatError, InputError):
                    continue  # it was being written when the run was ended; an earlier one, or none, is as good
                self.tracker.learnt = learnt
                return

    def revealed(self, journal: Journal, periods: Sequence[str]) -> Iterator[tuple[int, str, Sketch]]:
        """Yield each period after the labels that are known by then were revealed, one pass over the journal.

        Where positives arrive late, a period is revealed as it was counted by then, corrected by what was known by then
        of their arrival; it is judged by its latest count.
        """
        positions = _positions(periods)
        counts = KnownCounts(journal, dict(zip(periods, positions.tolist(), strict=True)))
        waiting: deque[tuple[int, str, Sketch]] = deque()
        released = journal.released
        for place, (period, whole) in enumerate(journal.sketches()):
            now = float(positions[place]) - 1.0
            arrival = counts.arrival(now) if counts.has_ages else None
            while waiting and positions[waiting[0][0]] < positions[place] - self.plan.delay - HALF_A_PERIOD:
                past, name, final = waiting[0]
                rows = self._chosen(counts.sketch(name, now, arrival)) if counts.has_ages else final
                if rows is None:
                    break  # not counted yet; later periods wait, too
                waiting.popleft()
                for memory in self.memories:
                    memory.learn(rows, float(positions[past]))
                if past >= self.tracker.learnt:
                    self.tracker.learn(rows, name, look=self.plan.look and name not in released)
            sketch = self._chosen(whole)
            assert sketch is not None
            yield place, period, sketch
            waiting.append((place, period, sketch))

    def _chosen(self, sketch: Sketch | None) -> Sketch | None:
        """Return a sketch with the fields of the plan."""
        if sketch is None or sketch.contexts.names == self.plan.fields:
            return sketch
        return sketch.only(*self.plan.fields)

    def judged(self, sketch: Sketch) -> dict[str, Any]:
        """Return how all forecasters did on a period."""
        probabilities = {BASE: sketch.score, TRACKER: self.tracker.probabilities(sketch)}
        probabilities |= {one.name: one.probabilities(sketch) for one in self.forecasters}
        return {
            "learnt": self.tracker.learnt,
            **period_sums(sketch, probabilities, (BASE, TRACKER)),
            "belief": self.tracker.belief(),
            "failures": {one.name: one.failures for one in self.forecasters if one.failures},
        }

    def checkpoint(self) -> None:
        """Save the tracker, if it was not saved for a while."""
        if self.load is None or not self.tracker.learnt:
            return
        if time.monotonic() - self.saved < SECONDS_BETWEEN_CHECKPOINTS:
            return
        path = self.folder / f"tracker-{self.tracker.learnt:08d}"
        self.tracker.follower.save(path)  # type: ignore[attr-defined]
        for old in self.folder.glob("tracker-*"):
            if old != path:
                shutil.rmtree(old, ignore_errors=True)
        self.saved = time.monotonic()


def _begin(folder: Path, plan: Plan, digests: dict[str, str]) -> int:
    """Write the settings, or check them against those of an earlier run; return how many periods are done."""
    path = folder / _SETTINGS
    document = {"format": _FORMAT, "version": _VERSION, "plan": json.loads(json.dumps(asdict(plan)))}
    if not path.exists():
        write_json(path, document, indent=1)
        (folder / _LINES).write_text("", encoding="utf-8")
        return 0
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise FileFormatError(f"{path} cannot be read as settings of a backtest; name another folder") from None
    if before.get("format") != _FORMAT or before.get("version") != _VERSION:
        raise FileFormatError(f"{path} is not a backtest that this mcnet can continue; name another folder")
    planned = {"look": True, **before["plan"]}  # of before the look could be switched off
    for name, now in document["plan"].items():
        if planned.get(name) != now:
            raise InputError(
                f"{folder} has a backtest with other settings ({name}: {planned.get(name)}, now {now}); "
                "continue it with the same ones, or name another folder"
            )
    kept = read_lines(folder)
    for line in kept:
        if digests.get(line["period"]) != line["digest"]:
            raise InputError(
                f"the rows of {line['period']}, or of a period before it, have changed since the backtest in {folder} "
                "began; name another folder"
            )
    # A line that was being written when the run was ended is dropped.
    with whole_file(folder / _LINES) as part:
        part.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept), encoding="utf-8")
    return len(kept)


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the judged periods of a run, without a last line that is not whole."""
    path = folder / _LINES
    found: list[dict[str, Any]] = []
    if not path.exists():
        return found
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            if text.endswith("\n"):
                found.append(json.loads(text))
        except ValueError:
            break
    return found
