"""Entries of a journal: the rules by which they count, and their ages."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from mcnet.errors import Advice, InputError
from mcnet.rows.periods import parse_every, period_position, period_text
from mcnet.sketch.sketch import Sketch

# Entries of a journal, and the rules by which they count.

COMPACTED = "(compacted)"
"""The source of what compacting has merged."""

EntryKey = tuple[str, str, float | None]


@dataclass(frozen=True)
class Entry:
    """The count of one source for one period, made at one age."""

    period: str
    source: str
    digest: str
    """Of the cells: the same rows have the same digest."""
    file: str
    rows: int
    weight: float
    positives: float
    age: float | None = None
    """How long after the end of the period it was counted, in periods; None if the labels were complete."""
    largest_weight: float | None = None
    """The largest weight of a row; None if it is not known, or no larger than the mean."""

    @property
    def heaviest(self) -> float:
        """The largest weight of a row, as far as it is known: at least the mean of all."""
        return max(self.largest_weight or 0.0, self.weight / self.rows if self.rows else 0.0)


@dataclass(frozen=True)
class EntryBatch:
    """A committed folder of entries; `includes` names what a compacted batch has merged into them."""

    folder: Path
    serial: int
    entries: tuple[Entry, ...]
    includes: tuple[tuple[str, str, str, float | None], ...] = ()
    """(source, period, digest, age) of what was merged, so that adding it again is known to change nothing."""

    @property
    def compacted(self) -> bool:
        """Whether the batch is a sum over sources."""
        return bool(self.includes)


def sketch_digest(sketch: Sketch) -> str:
    """Return a digest of the cells: equal sketches have equal digests."""
    found = hashlib.sha256()
    cells = sketch.cells
    for part in (sketch.contexts.names, sketch.contexts.values, sketch.resolution):
        found.update(repr(part).encode())
    for array in (sketch.contexts.table, cells.context, cells.key, cells.sums):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def entry_key(entry: Entry) -> EntryKey:
    """Return what must be unique: the same source says one thing of a period at an age."""
    return entry.source, entry.period, entry.age


def counted_entries(batches: Sequence[EntryBatch]) -> dict[tuple[int, str, str, float | None], Entry]:
    """Return the entries that count by (serial, file, source, age): the newest of each, unless compacted later."""
    newest: dict[EntryKey, tuple[int, Entry]] = {}
    compacted: list[tuple[int, Entry]] = []
    merged: dict[EntryKey, int] = {}
    for batch in sorted(batches, key=lambda batch: batch.serial):
        for entry in batch.entries:
            if batch.compacted:
                compacted.append((batch.serial, entry))
            else:
                newest[entry_key(entry)] = (batch.serial, entry)
        for source, period, _, age in batch.includes:
            merged[source, period, age] = batch.serial
    counting = [*newest.values(), *compacted]
    return {
        (serial, entry.file, entry.source, entry.age): entry
        for serial, entry in counting
        if merged.get(entry_key(entry), -1) <= serial
    }


def latest_entries(counted: Mapping[Any, Entry]) -> dict[Any, Entry]:
    """Keep, of several counts of a source and period, the one of the latest age."""
    best: dict[tuple[Any, ...], Any] = {}
    for place, entry in counted.items():
        # Compacted files of one period, made at different times, add up.
        key = (entry.source, entry.period, place[0] if entry.source == COMPACTED else 0)
        age = np.inf if entry.age is None else entry.age
        if key not in best or age > best[key][0]:
            best[key] = (age, place)
    return {place: counted[place] for _, place in best.values()}


def counted_files(batches: Sequence[EntryBatch]) -> dict[Path, Entry]:
    """Return the file of each entry that counts, earlier counts of a period left out."""
    folders = {(batch.serial, e.file, e.source, e.age): batch.folder for batch in batches for e in batch.entries}
    latest = latest_entries(counted_entries(batches))
    return {folders[place] / entry.file: entry for place, entry in latest.items()}


# The age of a count: how many periods after the end of a period its positives were counted.


@dataclass(frozen=True)
class Addition:
    """How rows are added to a journal: see `Journal.add_files` for what its parts mean."""

    source: str | None = None
    age: float | None = None
    counted: Any = None
    replace: bool = False
    allow: str | Collection[str] = ()

    def check(self, files: int = 1) -> None:
        """Refuse an age without the name of a source, and one source for several files.

        Counts of one source at several ages replace one another.
        """
        if self.age is not None and self.counted is not None:
            raise InputError("age and counted both give the time of counting; give one of them")
        if (self.age is not None or self.counted is not None) and self.source is None:
            raise InputError(
                f"{'age' if self.counted is None else 'counted'} was given without a source; a count of a later age "
                "replaces the earlier ones of the same source",
                advice=Advice(
                    "name the source alike for every count ({source}), or all counts add up", source="orders"
                ),
            )
        if self.source is not None and files > 1:
            raise InputError(f"source names one file, but {files} were given; leave it out, or add one at a time")


def age_when_counted(period: str, every: str, counted: Any) -> float:
    """Return how many periods after the end of a period lies the moment at which its positives were counted.

    Parameters
    ----------
    period : the canonical period, by its beginning.
    every : the length of a period, such as "1d"; a plain number where periods are numbers.
    counted : a moment, or a number where periods are numbers.

    >>> age_when_counted("2026-11-14", "1d", "2026-11-16T12:00"), age_when_counted("7", "1", 10)
    (1.5, 2.0)
    """
    moment = counted.replace(microsecond=0) if isinstance(counted, datetime) else counted
    text = period_text(moment)
    begin, now = period_position(period), period_position(text)
    step = parse_every(every)
    if begin is None or now is None or (step.unit is None) != text.lstrip("-").isdigit():
        raise InputError(f"counted is {counted!r}, and a period is {period}; give a moment on the same line of time")
    end = begin + step.number if step.unit is None else _end(period, every)
    if now < end:
        raise InputError(
            f"counted is {text}, but the period {period} ends after that; leave its rows out until it is over"
        )
    return (now - end) / (end - begin)


def _end(period: str, every: str) -> float:
    import polars as pl

    end = pl.Series([datetime.fromisoformat(period)]).dt.offset_by(every)[0]
    found = period_position(period_text(end))
    assert found is not None
    return found
