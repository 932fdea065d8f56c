"""Compaction: the sources of old periods merged into one file per period, or per longer period."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcnet.data.periods import cut_to_periods
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.journal_entries import COMPACTED, Entry, EntryBatch, counted_entries, counted_files, sketch_digest
from mcnet.tracking.journal_files import commit_batch, file_name
from mcnet.tracking.journal_readers import retire_batch
from mcnet.tracking.period import period_text, periods_between, sorted_periods

__all__ = ["compact"]


def compact(root: Path, batches: Sequence[EntryBatch], before: Any, every: str | None) -> int:
    """Merge the sources of periods earlier than `before`; return how many files that saves.

    The merged batch names what it includes and is committed first; only then are the batches it replaces removed. A
    process killed in between leaves both, and readers let the merged one alone count.
    """
    files = counted_files(batches)
    periods = sorted_periods(list({entry.period for entry in files.values()}))
    limit = period_text(before) if before is not None else (periods[-1] if periods else None)
    old = set(periods_between(periods, None, limit)) - {limit}
    groups: dict[str, list[tuple[Path, Entry]]] = defaultdict(list)
    for path, entry in files.items():
        if entry.period in old and entry.age is None:
            groups[_longer(entry.period, every)].append((path, entry))
    groups = {period: group for period, group in groups.items() if len(group) > 1}
    if not groups:
        return 0
    by_folder = {batch.folder: batch for batch in batches}
    includes = []
    for period, group in groups.items():
        for path, entry in group:
            inner = by_folder[path.parent].includes if entry.source == COMPACTED else ()
            includes += [item for item in inner if _longer(item[1], every) == period]
            includes.append((entry.source, entry.period, entry.digest, entry.age))
    parts = (_merged(period, dict(group)) for period, group in groups.items())
    made = commit_batch(root, 1 + max(batch.serial for batch in batches), parts, includes)
    counting = {place[0] for place in counted_entries([*batches, made])}
    for batch in batches:
        if batch.serial not in counting:
            retire_batch(batch)
    return sum(len(group) for group in groups.values()) - len(groups)


def _merged(period: str, files: dict[Path, Entry]) -> tuple[Entry, Sketch]:
    total = Sketch.merged([Sketch.load(path) for path in files])
    sums = (total.rows, total.total_weight, total.total_positives)
    known = [entry.largest_weight for entry in files.values() if entry.largest_weight is not None]
    entry = Entry(period, COMPACTED, sketch_digest(total), file_name(period), *sums)
    return replace(entry, largest_weight=max(known, default=None)), total


def _longer(period: str, every: str | None) -> str:
    """Return the longer period that a period lies in."""
    if every is None:
        return period
    import polars as pl

    return period_text(cut_to_periods(pl.Series("period", [period]), every)[0])
