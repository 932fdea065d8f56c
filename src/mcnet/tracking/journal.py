"""The journal: the past as a folder of sketches, one per period and source."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.typing import ScoreType
from mcnet.data.fields import MISSING_LABEL
from mcnet.data.files import FilePaths, expand_paths
from mcnet.errors import FileFormatError, InputError, McnetError
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.scan import scan
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.split import sketches_by
from mcnet.tracking.journal_entries import (
    COMPACTED,
    Batch,
    Entry,
    counted_entries,
    counted_files,
    entry_key,
    latest_entries,
    sketch_digest,
)
from mcnet.tracking.journal_files import (
    batch_folders,
    commit_batch,
    file_name,
    locked,
    read_batch,
    remove_batch,
    remove_leftovers,
    require_journal,
)
from mcnet.tracking.period import elapsed_periods, period_text, periods_between, sorted_periods

if TYPE_CHECKING:
    import polars as pl

    from mcnet.tracking.arrival import ArrivalCurve

__all__ = ["Added", "Journal"]


@dataclass(frozen=True)
class Added:
    """What an addition changed: the periods that got rows, how many rows, and the periods that had them already."""

    periods: tuple[str, ...]
    rows: int
    known: tuple[str, ...] = ()


class Journal:
    """A folder of sketches by period, to which any number of processes may add at the same time.

    Adding is atomic and idempotent: the same source twice changes nothing, so a job may be retried; rows that arrive
    late are added under a source name of their own. A process killed at any moment leaves a journal that opens.

    Parameters
    ----------
    path : the folder; it is made when the first rows are added.

    >>> import tempfile
    >>> journal = Journal(tempfile.mkdtemp())
    >>> monday = Sketch.from_rows([0.1, 0.4], [0, 1])
    >>> journal.add(monday, "2026-11-16", source="shop").rows
    2
    >>> journal.add(monday, "2026-11-16", source="shop").rows  # a job that runs again
    0
    >>> journal.periods
    ['2026-11-16']
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Name the folder; nothing is read or written yet."""
        self.path = Path(path)
        self._read: dict[Path, Batch] = {}

    def __repr__(self) -> str:
        return f"Journal({fspath(self.path)!r})"

    # -- adding ---------------------------------------------------------------------------------------------------

    def add(
        self,
        sketch: Sketch,
        period: Any,
        *,
        source: str | None = None,
        age: float | None = None,
        replace: bool = False,
    ) -> Added:
        """Add the rows of one period from one source.

        Parameters
        ----------
        sketch : the rows.
        period : a moment, a date, a whole number, or a label that sorts.
        source : where the rows come from, such as the name of a log file; by default a digest of the rows, so that the
            same rows are never added twice.
        age : how many periods after the end of `period` its positives were counted, where positives arrive late;
            None if they are complete. A count of a later age takes the place of earlier ones.
        replace : let these rows take the place of other rows that the same source gave for this period.

        Returns
        -------
        Added : what changed; nothing, if these rows were there already.
        """
        if not isinstance(sketch, Sketch):
            raise InputError(f"add was given {type(sketch).__name__}; make a Sketch with mcnet.scan first")
        if len(sketch) == 0:
            raise InputError("the sketch has no rows; at least one row is needed")
        return self._commit([self._entry(sketch, period_text(period), source, age)], replace=replace)

    def add_parts(self, parts: Mapping[Any, Sketch], *, source: str, replace: bool = False) -> Added:
        """Add the rows of many periods from one source as a whole; `sketches_by` makes a sketch per period."""
        return self._commit(
            [self._entry(part, period_text(period), source, None) for period, part in parts.items()], replace=replace
        )

    def add_files(
        self,
        files: FilePaths,
        *,
        score: str,
        label: str,
        time: str,
        every: str,
        field: str | Sequence[str] | None = None,
        weight: str | None = None,
        source: str | None = None,
        age: float | None = None,
        replace: bool = False,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
        resolution: Resolution = DEFAULT_RESOLUTION,
        progress: Callable[[int], Any] | None = None,
    ) -> Added:
        """Add log files whose rows lie in many periods, in one pass; each file is a source and is added as a whole.

        Parameters
        ----------
        files : Parquet, CSV or Arrow files, globs or folders.
        score, label, field, weight, score_type, negatives_kept, resolution, progress : as in `mcnet.scan`.
        time : the column of moments.
        every : the length of a period, such as "1h" or "1d".
        source : what to call the source; by default the path of each file as it was given.
        age, replace : as in `add`.
        """
        fields = [] if field is None else [field] if isinstance(field, str) else list(field)
        paths = expand_paths(files)
        if source is not None and len(paths) > 1:
            raise InputError(f"source names one file, but {len(paths)} were given; leave it out, or add one at a time")
        periods: list[str] = []
        known: list[str] = []
        rows = 0
        for path in paths:
            read = scan(
                [path],
                score=score,
                label=label,
                field=[*fields, time],
                weight=weight,
                score_type=score_type,
                negatives_kept=negatives_kept,
                resolution=resolution,
                every={time: every},
                progress=progress,
            )
            parts = sketches_by(read, time)
            if MISSING_LABEL in parts:
                raise InputError(f"{path} has rows without a moment in {time}; drop these rows, or give them one")
            entries = [
                self._entry(part, period_text(text), source or fspath(path), age) for text, part in parts.items()
            ]
            added = self._commit(entries, replace=replace)
            periods += added.periods
            known += added.known
            rows += added.rows
        return Added(tuple(sorted_periods(list(set(periods)))), rows, tuple(sorted_periods(list(set(known)))))

    def _entry(self, sketch: Sketch, period: str, source: str | None, age: float | None) -> tuple[Entry, Sketch]:
        if age is not None and not (isinstance(age, int | float | np.number) and 0.0 <= float(age) < np.inf):
            raise InputError(f"age is {age!r}; it is a number of periods, 0 or more, or None for complete labels")
        if source is not None and (not isinstance(source, str) or not source or source == COMPACTED):
            raise InputError(f"source is {source!r}; it is a text that names where the rows come from")
        sketch = sketch.unfolded()
        digest = sketch_digest(sketch)
        entry = Entry(
            period,
            source or digest,
            digest,
            file_name(period),
            sketch.rows,
            sketch.total_weight,
            sketch.total_positives,
            None if age is None else float(age),
        )
        return entry, sketch

    def _commit(self, parts: list[tuple[Entry, Sketch]], *, replace: bool) -> Added:
        require_journal(self.path, create=True)
        with locked(self.path):
            remove_leftovers(self.path)
            batches = self.batches()
            there = {entry_key(entry): entry for entry in counted_entries(batches).values()}
            merged = {(source, period, age): digest for b in batches for source, period, digest, age in b.includes}
            self._check_alike(parts[0][1], batches)
            sorted_periods(list({entry.period for entry, _ in parts} | {entry.period for entry in there.values()}))
            fresh, known = [], []
            for entry, sketch in parts:
                key = entry_key(entry)
                before = there[key].digest if key in there else merged.get(key)
                if before == entry.digest:
                    known.append(entry.period)
                    continue
                if before is not None and key in merged:
                    raise InputError(
                        f"{entry.source} gave other rows for {entry.period} before, and they are compacted, so they "
                        "cannot be replaced; add the rows under another source, or build the journal anew"
                    )
                if before is not None and not replace:
                    raise InputError(
                        f"{entry.source} gave {there[key].rows:,} other rows for {entry.period} before; pass "
                        "replace=True (--replace) to put these in their place, or give late rows a source of their own"
                    )
                fresh.append((entry, sketch))
            if fresh:
                commit_batch(self.path, 1 + max((batch.serial for batch in batches), default=0), fresh)
        return Added(tuple(entry.period for entry, _ in fresh), sum(entry.rows for entry, _ in fresh), tuple(known))

    def _check_alike(self, sketch: Sketch, batches: Sequence[Batch]) -> None:
        """Refuse rows that do not add up with those that are there: other fields, another resolution."""
        if not batches or not batches[-1].entries:
            return
        other = Sketch.load(batches[-1].folder / batches[-1].entries[0].file)
        for what, here, there in (
            ("fields", sketch.contexts.names, other.contexts.names),
            ("resolution", sketch.resolution, other.resolution),
        ):
            if here != there:
                raise InputError(f"the {what} of these rows are {here}, those of the journal {there}; make both alike")

    def remove(self, source: str, period: Any = None) -> int:
        """Remove what a source gave, for one period or for all; return how many rows that were."""
        require_journal(self.path, create=False)
        wanted = None if period is None else period_text(period)
        removed = 0
        with locked(self.path):
            batches = self.batches()
            counted = set(counted_entries(batches))
            for batch in batches:
                gone = [e for e in batch.entries if e.source == source and wanted in (None, e.period)]
                if not gone:
                    continue
                kept = [(e, Sketch.load(batch.folder / e.file)) for e in batch.entries if e not in gone]
                removed += sum(e.rows for e in gone if (batch.serial, e.file, e.source, e.age) in counted)
                if kept:
                    # The new batch takes the serial of the old one, which is removed next; were both to stay, equal
                    # entries count once.
                    commit_batch(self.path, batch.serial, kept)
                remove_batch(batch)
            if any(source == name and wanted in (None, when) for b in batches for name, when, *_ in b.includes):
                raise InputError(f"what {source} gave is compacted and cannot be taken out any more")
        if removed == 0:
            raise InputError(f"the journal has nothing from {source!r}; `mcnet journal list` names its sources")
        return removed

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def periods(self) -> list[str]:
        """Return the periods that have rows, in their order."""
        return sorted_periods(list({entry.period for entry in self.entries()}))

    def entries(self) -> list[Entry]:
        """Return what counts, one entry per period and source: the count of the latest age."""
        if not self.path.exists():
            return []
        require_journal(self.path, create=False)
        return list(latest_entries(counted_entries(self.batches())).values())

    def counts_by_age(self) -> list[Entry]:
        """Return every count that has an age, earlier ones too: how positives arrive over time."""
        if not self.path.exists():
            return []
        return [entry for entry in counted_entries(self.batches()).values() if entry.age is not None]

    def table(self) -> "pl.DataFrame":
        """Return a tidy table: period, source, age, rows, weight, positives."""
        import polars as pl

        order = {period: place for place, period in enumerate(self.periods)}
        entries = sorted(self.entries(), key=lambda entry: (order[entry.period], entry.source))
        columns = ("period", "source", "age", "rows", "weight", "positives")
        types = dict(zip(columns, (pl.String, pl.String, pl.Float64, pl.Int64, pl.Float64, pl.Float64), strict=True))
        return pl.DataFrame([[getattr(e, c) for c in columns] for e in entries], schema=types, orient="row")

    def arrival(self) -> "ArrivalCurve | None":
        """Return the share of positives that has arrived by age; None unless a period was counted at several ages."""
        if not any(entry.age is not None for entry in self.entries()):
            return None
        from mcnet.tracking.arrival import ArrivalCurve

        return ArrivalCurve.learn(counted_entries(self.batches()).values())

    def sketches(self, since: Any = None, until: Any = None, *, corrected: bool = True) -> Iterator[tuple[str, Sketch]]:
        """Yield (period, sketch) in order, from `since` to `until` inclusive, one period in memory at a time.

        A period that was counted at an age at which positives are still missing is corrected for them, by what older
        periods tell of their arrival; `corrected=False` yields it as it was counted.
        """
        files: dict[str, list[tuple[Path, float | None]]] = defaultdict(list)
        for path, entry in counted_files(self.batches()).items():
            files[entry.period].append((path, entry.age))
        arrival = self.arrival() if corrected else None
        for period in periods_between(sorted_periods(list(files)), since, until):
            yield period, Sketch.merged([_counted(path, age, arrival) for path, age in files[period]])

    def sketch(
        self,
        since: Any = None,
        until: Any = None,
        *,
        half_life: float | None = None,
        weights: Mapping[Any, float] | None = None,
        corrected: bool = True,
    ) -> Sketch:
        """Return one sketch of many periods.

        Parameters
        ----------
        since, until : the first and the last period, both included; None for no limit.
        half_life : the number of periods after which a row counts half, seen from the last period.
        weights : a factor per period; a period without one counts as it is, one of factor 0 is left out.
        corrected : correct periods that were counted before all their positives had arrived; see `sketches`.
        """
        if half_life is not None and not (isinstance(half_life, int | float | np.number) and half_life > 0.0):
            raise InputError(f"half_life is {half_life!r}; it is a number of periods above 0")
        given = {period_text(period): float(factor) for period, factor in (weights or {}).items()}
        chosen = periods_between(self.periods, since, until)
        if not chosen:
            raise InputError(f"the journal {self.path} has no period in this range; it has {self._range()}")
        decay = np.ones(len(chosen)) if half_life is None else 0.5 ** (elapsed_periods(chosen) / half_life)
        factors = {period: given.get(period, 1.0) * factor for period, factor in zip(chosen, decay, strict=True)}
        total: Sketch | None = None
        for period, sketch in self.sketches(chosen[0], chosen[-1], corrected=corrected):
            factor = float(factors[period])
            if factor > 0.0:
                part = sketch if factor == 1.0 else factor * sketch
                total = part if total is None else total + part
        if total is None:
            raise InputError("every period has weight 0; leave at least one in")
        return total

    def _range(self) -> str:
        periods = self.periods
        return f"{periods[0]} to {periods[-1]}" if periods else "none at all"

    def batches(self) -> list[Batch]:
        """Return the committed batches, oldest first."""
        # Batches never change, so each is read once.
        found = {folder: self._read.get(folder) or read_batch(folder) for folder in batch_folders(self.path)}
        self._read = {folder: batch for folder, batch in found.items() if batch is not None}
        return list(self._read.values())

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, before: Any = None, every: str | None = None) -> int:
        """Merge the sources of old periods into one file per period; return how many files were saved.

        Parameters
        ----------
        before : compact periods earlier than this one; by default all but the last.
        every : merge periods into longer ones as well, such as hours into days with "1d".

        What was compacted is still known, so a job that adds it again changes nothing; but a source that was compacted
        can no longer be replaced or removed. Counts that have an age stay as they are.
        """
        from mcnet.tracking.compaction import compact

        require_journal(self.path, create=False)
        with locked(self.path):
            remove_leftovers(self.path)
            return compact(self.path, self.batches(), before, every)

    def verify(self) -> list[str]:
        """Read every file and return what is wrong, in sentences; an empty list if nothing is."""
        require_journal(self.path, create=False)
        problems = []
        for folder in batch_folders(self.path):
            try:
                batch = read_batch(folder)
            except FileFormatError as error:
                problems.append(str(error))
                continue
            for entry in batch.entries if batch is not None else ():
                try:
                    if sketch_digest(Sketch.load(folder / entry.file)) != entry.digest:
                        problems.append(
                            f"{folder / entry.file} holds other rows than were added; add {entry.source} anew"
                        )
                except McnetError as error:
                    problems.append(str(error))
        return problems


def _counted(path: Path, age: float | None, arrival: "ArrivalCurve | None") -> Sketch:
    sketch = Sketch.load(path)
    if arrival is None or age is None:
        return sketch
    from mcnet.tracking.arrival import corrected_sketch

    return corrected_sketch(sketch, age, arrival)
