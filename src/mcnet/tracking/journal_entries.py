"""Entries of a journal, and the rules by which they count."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcnet.sketch.sketch import Sketch

__all__ = [
    "COMPACTED",
    "Entry",
    "EntryBatch",
    "counted_entries",
    "counted_files",
    "entry_key",
    "latest_entries",
    "sketch_digest",
]

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
