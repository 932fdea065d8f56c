"""The run of a backtest: predict each period from those before it, reveal its labels, record the result.

Everything goes to a folder, so that a run which was ended at any moment continues where it stopped: `run.json` has the
settings, `periods.jsonl` a line per judged period, `tracker-…` the tracker after this many periods. Memories are
restored by adding up the sketches of the journal again, which takes no fits.
"""

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.json_files import write_json
from mcnet._shared.typing import FloatArray
from mcnet.errors import FileFormatError, InputError
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.backtest_forecasters import BASE, TRACKER, Follower, MethodForecaster, TrackerForecaster
from mcnet.tracking.backtest_judge import period_sums
from mcnet.tracking.backtest_memories import RunningMemory, parse_memories
from mcnet.tracking.journal import Journal
from mcnet.tracking.journal_files import locked
from mcnet.tracking.known_counts import KnownCounts
from mcnet.tracking.period import elapsed_periods
from mcnet.tracking.replay import past_digests

__all__ = ["Plan", "read_lines", "run_plan"]

_FORMAT = "mcnet backtest"
_VERSION = 1
_SETTINGS, _LINES = "run.json", "periods.jsonl"
SECONDS_BETWEEN_CHECKPOINTS = 10.0
"""The state of the tracker is saved no more often than this."""
HALF_A_PERIOD = 0.5
"""Slack for periods that are not all of one length, such as months."""


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
    with locked(folder):
        digests = past_digests(journal)
        done = _begin(folder, plan, digests)
        state = _State(plan, folder, follower, restored)
        first, periods = _first_judged(plan, digests), list(digests)
        state.restore(_known(periods, plan.delay, first + done) if done else 0)
        with (folder / _LINES).open("a", encoding="utf-8") as lines:
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
                    self.tracker.learn(rows, name)
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
    for name, now in document["plan"].items():
        if before["plan"].get(name) != now:
            raise InputError(
                f"{folder} has a backtest with other settings ({name}: {before['plan'].get(name)}, now {now}); "
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
