"""The journal: the past as a folder of sketches, one per period and source."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import disk_path
from mcnet.errors import InputError
from mcnet.journal.additions import (
    MOST_CELLS_IN_MEMORY,
    Added,
    add_apart,
    commit_parts,
    entry_of,
    period_parts,
    remove_source,
)
from mcnet.journal.entries import (
    COMPACTED,
    Addition,
    Entry,
    EntryBatch,
    age_when_counted,
    counted_entries,
    latest_entries,
)
from mcnet.journal.storage import (
    ReaderLock,
    batch_folders,
    compact,
    journal_problems,
    load_sketch_of_batch,
    locked,
    period_factors,
    period_sketches,
    read_batch,
    release_period,
    released_periods,
    remove_leftovers,
    require_journal,
    weighted_sum,
)
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.locations import Location, Locations
from mcnet.rows.logs import FilePaths, expand_paths
from mcnet.rows.periods import period_text, periods_between, sorted_periods
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution, RowSpec, field_names
from mcnet.sketch.build import LargestWeight
from mcnet.sketch.scan import scan_in_parts, sketch_files
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

    from mcnet.journal.arrival import ArrivalCurve


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
        self.path = disk_path(path, "a journal")
        self._read: dict[Path, EntryBatch] = {}

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
        largest_weight: float | None = None,
        every: str | None = None,
        allow: str | Collection[str] = (),
    ) -> Added:
        """Add the rows of one period from one source.

        Parameters
        ----------
        sketch : the rows.
        period : a moment, a date, a whole number, or a label that sorts.
        source : where the rows come from, such as the name of a log file; by default a digest of the rows, so that the
            same rows are never added twice.
        age : how many periods after the end of `period` its positives were counted, where positives arrive late;
            None if they are complete. A count of a later age takes the place of earlier ones of the same source, so
            `source` is needed.
        replace : let these rows take the place of other rows that the same source gave for this period.
        largest_weight : the largest weight of a row; by default the mean, since a sketch does not tell.
        every : the length of a period, such as "1h"; by default the most frequent step between periods.
        allow : what is added although it is implausible: "weight" (a row weighs more than 1,000 times the largest so
            far, or more than 1e6 in an empty journal), "period" (more than 400 periods before the first or after now).

        Returns
        -------
        Added : what changed; nothing, if these rows were there already.

        Raises
        ------
        InputError : the rows cannot be used, do not fit the journal, or are implausible; nothing was added.
        """
        if not isinstance(sketch, Sketch):
            raise InputError(f"add was given {type(sketch).__name__}; make a Sketch with mcnet.scan first")
        if len(sketch) == 0:
            raise InputError("the sketch has no rows; at least one row is needed")
        Addition(source, age).check()
        described = entry_of(sketch, period_text(period), source, age, largest_weight)
        return self._commit(lambda: [described], replace=replace, every=every, allow=allow)

    def add_parts(
        self, parts: Mapping[Any, Sketch], *, source: str, replace: bool = False, allow: str | Collection[str] = ()
    ) -> Added:
        """Add the rows of many periods from one source as a whole.

        Parameters
        ----------
        parts : a sketch per period, as `mcnet.sketch.views.sketches_by` makes them.
        source, replace, allow : as in `add`.

        Returns
        -------
        Added : what changed.
        """
        return self._commit(
            lambda: (entry_of(part, period_text(period), source, None) for period, part in parts.items()),
            replace=replace,
            allow=allow,
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
        counted: Any = None,
        replace: bool = False,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
        resolution: Resolution = DEFAULT_RESOLUTION,
        allow: str | Collection[str] = (),
        progress: Callable[[int], Any] | None = None,
    ) -> Added:
        """Add log files whose rows lie in many periods, in one pass; each file is a source and is added as a whole.

        Memory is bounded: cells of very many periods wait on disk until they are added up. A file that changes while it
        is read, or that has other rows than when it was added, is left out with a warning, and the others are added; if
        none can be, that is an error.

        Parameters
        ----------
        files : Parquet, CSV, JSONL or Arrow files, globs or folders.
        score, label, field, weight, score_type, negatives_kept, resolution, progress : as in `mcnet.scan`.
        time : the column of moments.
        every : the length of a period, such as "1h" or "1d".
        source : what to call the source; by default the path of each file as it was given.
        age, replace, allow : as in `add`; the age is that of every period.
        counted : the moment at which the positives were counted, from which the age of each period follows.

        Returns
        -------
        Added : what changed, over all files.
        """
        how = Addition(source, age, counted, replace, allow)
        how.check()
        spec = RowSpec(
            score,
            label,
            field_names(field),
            weight,
            resolution=resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
        ).with_time(time, every)
        return self.add_paths(expand_paths(files), spec, how, progress)

    def add_paths(
        self,
        paths: Locations,
        spec: RowSpec,
        how: Addition,
        progress: Callable[[int], Any] | None = None,
        *,
        period: str | None = None,
    ) -> Added:
        """Add files whose names were expanded before.

        Parameters
        ----------
        paths : log files, or saved sketches if `period` is given.
        spec : how their rows are read; its column of time divides them into periods.
        how, progress : as in `add_files`.
        period : the one period of all rows; None if there is a column of time.

        Returns
        -------
        Added : what changed, over all files.
        """
        how.check(len(paths))

        def add(path: Location) -> Added:
            if period is None:
                return self._add_log(path, spec, how, progress)
            sketch = sketch_files(Locations([path]), spec, progress=progress)
            source = how.source or fspath(path)
            return self.add(sketch, period, source=source, age=how.age, replace=how.replace, allow=how.allow)

        return add_apart(paths, add)

    def _add_log(self, path: Location, spec: RowSpec, how: Addition, progress: Callable[[int], Any] | None) -> Added:
        time, largest = str(spec.time), LargestWeight()
        every = str(spec.every[time])
        read = scan_in_parts(
            Locations([path]), spec, most_cells=MOST_CELLS_IN_MEMORY, largest_weight=largest, progress=progress
        )
        with period_parts(read, time) as parts:
            if MISSING_LABEL in parts.cells:
                raise InputError(f"{path} has rows without a timestamp in {time}; drop them, or give them one")

            def described() -> Iterator[tuple[Entry, Sketch]]:
                for written, sketch in parts.sketches():
                    period = period_text(written)
                    age = how.age if how.counted is None else age_when_counted(period, every, how.counted)
                    yield entry_of(sketch, period, how.source or fspath(path), age, largest.value)

            return self._commit(described, replace=how.replace, every=every, allow=how.allow)

    def _require(self) -> None:
        """Refuse a folder that is no journal."""
        require_journal(self.path, create=False)

    def _commit(self, parts: Callable[[], Iterable[tuple[Entry, Sketch]]], **options: Any) -> Added:
        require_journal(self.path, create=True)
        with locked(self.path):
            remove_leftovers(self.path)
            return commit_parts(self.path, self.batches(), parts, **options)

    def remove(self, source: str, period: Any = None) -> int:
        """Remove what a source gave.

        Parameters
        ----------
        source : the name of the source, as `table` shows it.
        period : the one period to remove; None for all.

        Returns
        -------
        int : how many rows were removed.
        """
        self._require()
        with locked(self.path):
            return remove_source(self.path, self.batches(), source, None if period is None else period_text(period))

    def release(self, period: Any) -> None:
        """Let trackers learn a period that is suspect; they learn all periods from it on anew.

        Parameters
        ----------
        period : its name. If other rows take the place of its rows later, these are looked at again.
        """
        self._require()
        with locked(self.path):
            release_period(self.path, period_text(period), self.entries())

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def released(self) -> set[str]:
        """Return the periods that are learnt whatever a look finds."""
        return released_periods(self.path, self.entries())

    @property
    def periods(self) -> list[str]:
        """Return the periods that have rows, in their order."""
        return sorted_periods(list({entry.period for entry in self.entries()}))

    def entries(self) -> list[Entry]:
        """Return what counts, one entry per period and source: the count of the latest age."""
        if not self.path.exists():
            return []
        self._require()
        return list(latest_entries(counted_entries(self.batches())).values())

    def counts_by_age(self) -> list[Entry]:
        """Return every count that has an age, earlier ones too: how positives arrive over time."""
        if not self.path.exists():
            return []
        return [entry for entry in counted_entries(self.batches()).values() if entry.age is not None]

    def snapshot(self) -> "Journal":
        """Return the rows that the journal has now: those added later are not seen, so that several readings agree."""
        return JournalSnapshot(self)

    def counts(self) -> list[tuple[Entry, Callable[[], Sketch]]]:
        """Return every count, also earlier ones of the same source, and what reads its rows."""
        batches = self.batches()
        folders = {(b.serial, e.file, e.source, e.age): b.folder for b in batches for e in b.entries}
        return [
            (entry, partial(load_sketch_of_batch, folders[key] / entry.file))
            for key, entry in counted_entries(batches).items()
        ]

    def sources(self) -> set[str]:
        """Return every source that gave rows, also those that were merged by compacting."""
        batches = self.batches() if self.path.is_dir() else []
        merged = {source for batch in batches for source, *_ in batch.includes}
        return merged | {entry.source for entry in counted_entries(batches).values()}

    def merged_periods(self) -> dict[str, int]:
        """Return how many periods each period was merged of, for those that were merged of several."""
        found: dict[str, set[str]] = defaultdict(set)
        for batch in self.batches():
            longer = sorted_periods([entry.period for entry in batch.entries if batch.compacted])
            short = sorted_periods(list({period for source, period, *_ in batch.includes if source != COMPACTED}))
            order = {period: index for index, period in enumerate(sorted_periods(list({*longer, *short})))}
            begins = [order[period] for period in longer]
            for period in short:
                found[longer[bisect_right(begins, order[period]) - 1]].add(period)
        there = set(self.periods)
        return {period: len(parts) for period, parts in found.items() if len(parts) > 1 and period in there}

    def table(self) -> "pl.DataFrame":
        """Return a tidy table: period, source, age, rows, weight, positives."""
        import polars as pl

        order = {period: index for index, period in enumerate(self.periods)}
        entries = sorted(self.entries(), key=lambda entry: (order[entry.period], entry.source))
        columns = ("period", "source", "age", "rows", "weight", "positives")
        types = dict(zip(columns, (pl.String, pl.String, pl.Float64, pl.Int64, pl.Float64, pl.Float64), strict=True))
        return pl.DataFrame([[getattr(e, c) for c in columns] for e in entries], schema=types, orient="row")

    def arrival(self) -> "ArrivalCurve | None":
        """Return the share of positives that has arrived by age; None unless a period was counted at several ages."""
        if not any(entry.age is not None for entry in self.entries()):
            return None
        from mcnet.journal.arrival import ArrivalCurve

        return ArrivalCurve.learn(counted_entries(self.batches()).values())

    def sketches(self, since: Any = None, until: Any = None, *, corrected: bool = True) -> Iterator[tuple[str, Sketch]]:
        """Yield (period, sketch) in order, from `since` to `until` inclusive, one period in memory at a time.

        Parameters
        ----------
        since, until : the first and the last period, both included; None for no limit.
        corrected : correct a period that was counted at an age at which positives are still missing, by what older
            periods tell of their arrival; False yields it as it was counted.

        Yields
        ------
        tuple[str, Sketch] : the period and its rows.
        """
        self._require()
        with ReaderLock(self.path):
            yield from period_sketches(self.batches(), since, until, self.arrival() if corrected else None)

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

        Returns
        -------
        Sketch : the rows of all these periods.
        """
        past = self.snapshot()
        periods = past.periods
        chosen = periods_between(periods, since, until)
        if not chosen:
            known = f"{periods[0]} to {periods[-1]}" if periods else "none at all"
            raise InputError(f"the journal {self.path} has no period in this range; it has {known}")
        factors = period_factors(chosen, half_life, weights or {}, periods)
        return weighted_sum(past.sketches(chosen[0], chosen[-1], corrected=corrected), factors)

    def batches(self) -> list[EntryBatch]:
        """Return the committed batches, oldest first."""
        # Batches never change, so each is read once. A listing during which one vanished may lack what replaced it.
        folders: list[Path] = []
        while folders != (folders := batch_folders(self.path)):
            read = {folder: self._read.get(folder) or read_batch(folder) for folder in folders}
            self._read = {folder: batch for folder, batch in read.items() if batch is not None}
        return list(self._read.values()) if folders else []

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, before: Any = None, every: str | None = None) -> int:
        """Merge the sources of old periods into one file per period.

        What was compacted is still known, so a job that adds it again changes nothing; but a source that was compacted
        can no longer be replaced or removed. Counts that have an age stay as they are.

        Parameters
        ----------
        before : compact periods earlier than this one; by default all but the last.
        every : merge periods into longer ones as well, such as hours into days with "1d". Each is one period from then
            on; trackers, backtests and monitors warn of a journal with both.

        Returns
        -------
        int : how many files fewer there are.
        """
        self._require()
        with locked(self.path):
            remove_leftovers(self.path)
            released = self.released
            saved = compact(self.path, self.batches(), before, every)
            for period in released.intersection(self.periods):  # the same rows, in other files
                release_period(self.path, period, self.entries())
            return saved

    def verify(self) -> list[str]:
        """Read every file and find what is wrong.

        Returns
        -------
        list[str] : a sentence per problem; empty if there is none.
        """
        self._require()
        return journal_problems(self.path)


# A journal as it was at one time, while other processes add to it.


class JournalSnapshot(Journal):
    """The rows that a journal has now: those added later are not seen, so that several readings agree."""

    def __init__(self, journal: Journal) -> None:
        """List what is there; batches never change, so their files are read when they are needed, and kept so long."""
        super().__init__(journal.path)
        super()._require()
        self._lock = ReaderLock(self.path)
        self._batches = journal.batches()
        self._entries = super().entries()

    def batches(self) -> list[EntryBatch]:
        """Return the batches of that moment, oldest first."""
        return list(self._batches)

    def entries(self) -> list[Entry]:
        """Return what counts, one entry per period and source."""
        return list(self._entries)

    def _require(self) -> None:
        """Refuse nothing: the folder was a journal when it was listed."""
