"""The counts that a journal had at some moment of the past, where positives arrive late: for backtests."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcnet.sketch.sketch import Sketch
from mcnet.tracking.arrival import ArrivalCurve, corrected_sketch
from mcnet.tracking.journal import Journal
from mcnet.tracking.journal_entries import Entry, counted_entries
from mcnet.tracking.journal_readers import load_sketch_of_batch

__all__ = ["KnownCounts"]

PERIODS_LEARNT_FROM = 200
"""The arrival of positives is learnt from so many of the latest periods."""


@dataclass(frozen=True)
class _Count:
    """The count of one source for a period, and when it was made, in periods since the first."""

    entry: Entry
    path: Path
    known_at: float


class KnownCounts:
    """The counts of a journal by the moment at which they were made.

    A count of age a is known a periods after the end of its period. A complete count beside counts with ages is known
    one period after the last age in the journal.
    """

    def __init__(self, journal: Journal, positions: Mapping[str, float]) -> None:
        """Sort the counts of a journal; `positions` has the place of each period in time, in periods."""
        batches = journal.batches()
        folders = {(b.serial, e.file, e.source, e.age): b.folder for b in batches for e in b.entries}
        counted = counted_entries(batches)
        ages: dict[tuple[str, str], list[float]] = defaultdict(list)
        for entry in counted.values():
            if entry.age is not None:
                ages[entry.period, entry.source].append(entry.age)
        last = max((age for found in ages.values() for age in found), default=0.0)
        self._counts: dict[str, list[_Count]] = defaultdict(list)
        for place, entry in counted.items():
            age = entry.age
            if age is None:
                age = last + 1.0 if (entry.period, entry.source) in ages else 0.0
            known_at = positions[entry.period] + age
            self._counts[entry.period].append(_Count(entry, folders[place] / entry.file, known_at))
        self._periods = sorted(self._counts, key=lambda period: positions[period])
        self._positions = positions
        self.has_ages = bool(ages)

    def arrival(self, now: float) -> ArrivalCurve | None:
        """Return the share of positives that arrives by age, learnt from the counts known at the end of a period."""
        over = [period for period in self._periods if self._positions[period] <= now][-PERIODS_LEARNT_FROM:]
        return ArrivalCurve.learn(
            count.entry for period in over for count in self._counts[period] if count.known_at <= now
        )

    def sketch(self, period: str, now: float, arrival: ArrivalCurve | None) -> Sketch | None:
        """Return the rows of a period as they were known at the end of another; None if nothing was."""
        latest: dict[tuple[str, Path | None], _Count] = {}
        for count in self._counts[period]:
            # Complete counts without ages, compacted ones say, add up; of those with ages the latest counts.
            alone = count.entry.age is None and count.known_at == self._positions[period]
            key = count.entry.source, count.path if alone else None
            if count.known_at <= now and (key not in latest or count.known_at > latest[key].known_at):
                latest[key] = count
        if not latest:
            return None
        return Sketch.merged(
            [corrected_sketch(load_sketch_of_batch(c.path), c.entry.age, arrival) for c in latest.values()]
        )
