"""The journal of a head: sketches by period and source, to which any number of processes may add."""

import dataclasses
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError
from mcnet.rows.fields import Edges
from mcnet.rows.logs import FilePaths
from mcnet.rows.periods import period_text, periods_between, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import sketch_of_bytes
from mcnet.store.additions import SourceRows, add_rows, chunks, compact, forget_keys, shape_of, summarise
from mcnet.store.arrival import ArrivalCurve, corrected_sketch
from mcnet.store.entries import COMPACTED, FEEDBACK, Added, Entry, entry_of, period_factors, sketch_digest, weighted_sum
from mcnet.store.files import Addition, NewFiles, Spool, change_of
from mcnet.store.schema import entries, heads, keys
from mcnet.store.settings import HeadSettings
from mcnet.store.store import OfHead, of_head

if TYPE_CHECKING:
    from datetime import datetime

    import polars as pl

_DESCRIPTION = [entries.c[part.name] for part in dataclasses.fields(Entry)]
RELEASED = "released"
"""The kind of the documents that name periods which were suspect, and are learnt all the same."""


class Journal(OfHead):
    """The rows of a head by period and source; any number of processes may add to it at the same time.

    Adding is atomic and idempotent: the same source twice changes nothing, so a job may be retried; rows that arrive
    late are added under a source name of their own. A process killed at any time leaves a whole journal.

    Parameters
    ----------
    store : the store, or its address; it is made when the first rows are added.
    head : its name; the only or the default one if None.

    >>> import tempfile
    >>> journal = Journal(tempfile.mkdtemp() + "/ads.db")
    >>> monday = Sketch.from_rows([0.1, 0.4], [0, 1])
    >>> journal.add(monday, "2026-11-16", source="shop").rows
    2
    >>> journal.add(monday, "2026-11-16", source="shop").rows  # a job that runs again
    0
    >>> journal.periods
    ['2026-11-16']
    """

    lock = "journal"

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
        Addition(source, age).check()
        described = entry_of(sketch, period_text(period), source, age, largest_weight)
        return add_rows(self.store, self.head, SourceRows(lambda: [described], every, allow, replace=replace))

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
        described = lambda: (entry_of(part, period_text(p), source, None) for p, part in parts.items())  # noqa: E731
        with Spool() as spool:
            rows = SourceRows(described, allow=allow, replace=replace, keep=spool.put)
            return add_rows(self.store, self.head, rows)

    def add_files(
        self,
        files: FilePaths,
        settings: HeadSettings | None = None,
        *,
        period: Any = None,
        source: str | None = None,
        age: float | None = None,
        counted: Any = None,
        replace: bool = False,
        allow: str | Collection[str] = (),
        progress: Callable[[int], Any] | None = None,
        **named: Any,
    ) -> Added:
        """Add log files whose rows lie in many periods, in one pass; each file is a source and is added as a whole.

        Memory is bounded: cells of very many periods wait on disk until they are added up. A file that changes while it
        is read, has other rows than when it was added, or cannot be used is left out with a warning, and the others are
        added; if none can be, that is an error. A file without rows is noted.

        Parameters
        ----------
        files : Parquet, CSV, JSONL or Arrow files, globs or folders; or saved sketches, of one period.
        settings : how the logs are read; the head keeps them, and what is not given is as it has them.
        period : the one period of all rows, if there is no column of time.
        source : what to call the source; by default the path of each file as it was given.
        age, replace, allow : as in `add`; the age is that of every period.
        counted : the moment at which the positives were counted, from which the age of each period follows.
        progress : a function that is called with the number of rows of each batch that was read.
        named : settings by their names, as in `HeadSettings`: score, label, field, time, every …

        Returns
        -------
        Added : what changed, over all files.
        """
        how = Addition(source, age, counted, replace, allow)
        how.check()
        asked, known = HeadSettings.of(named, settings), self.store.find_head(self.head)
        used = asked if known is None else known.settings.changed_by(asked)
        outcomes = NewFiles.of(files, used, how, period=period, named=asked).add_to(self, progress).values()
        errors = [outcome for outcome in outcomes if isinstance(outcome, McnetError)]
        if errors and len(errors) == len(outcomes):
            raise errors[0]
        added = change_of(outcomes)
        if asked.given:
            self.store.configure(self.head, asked)
        return added

    def edges(self) -> dict[str, Edges]:
        """Return where fields that are numbers are cut into bins; nothing while the journal has no rows.

        Returns
        -------
        dict : the edges by the name of the field.
        """
        shape = shape_of(self.store.find_head(self.head))
        return {} if shape is None else dict(shape.edges)

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
        wanted = None if period is None else period_text(period)

        def chosen(table: sa.Table) -> Any:
            own = (table.c.head == head.id) & (table.c.source == source)
            return own if wanted is None else own & (table.c.period == wanted)

        with self.changing() as (connection, head):
            merged = sorted_periods(list(connection.scalars(sa.select(keys.c.period).where(chosen(keys)).distinct())))
            if merged:
                which = merged[0] if len(merged) == 1 else f"{len(merged):,} periods, {merged[0]} to {merged[-1]},"
                raise InputError(
                    f"what {source} gave for {which} is compacted and can no longer be removed; nothing was removed: "
                    "name one period that is not compacted, or rebuild the journal"
                )
            removed = int(connection.scalar(sa.select(sa.func.sum(entries.c.rows)).where(chosen(entries))) or 0)
            if removed == 0:
                raise InputError(f"the journal has nothing from {source!r}; `mcnet journal list` names its sources")
            connection.execute(entries.delete().where(chosen(entries)))
            summarise(connection, head.id)
        return removed

    # -- reading --------------------------------------------------------------------------------------------------

    def all_counts(self) -> dict[int, Entry]:
        """Return every count, also earlier ones of the same source, by age and then as they were added."""
        in_order = self._rows(sa.select(entries.c.id, *_DESCRIPTION).order_by(entries.c.age, entries.c.id))
        return {number: Entry(*described) for number, *described in in_order}

    def latest(self) -> dict[int, Entry]:
        """Return what counts: of several counts of a source and period the one of the latest age."""
        counts = self.all_counts()
        latest = {(entry.source, entry.period): number for number, entry in counts.items()}
        return {number: counts[number] for number in sorted(latest.values())}

    def entries(self) -> list[Entry]:
        """Return what counts, one entry per period and source: the count of the latest age."""
        return list(self.latest().values())

    def counts(self) -> list[tuple[Entry, Callable[[], Sketch]]]:
        """Return every count, also earlier ones of the same source, and what reads its rows."""
        read = lambda number: self.sketches_of([number])[number]  # noqa: E731
        return [(entry, partial(read, number)) for number, entry in self.all_counts().items()]

    def snapshot(self) -> "JournalSnapshot":
        """Return the rows that the journal has now: those added later are not seen, so that several readings agree."""
        return JournalSnapshot(self)

    def sources(self) -> set[str]:
        """Return every source that gave rows, also those that were merged by compacting."""
        named = (self._rows(sa.select(table.c.source).distinct()) for table in (entries, keys))
        return {row.source for rows in named for row in rows}

    def arrival(self) -> ArrivalCurve | None:
        """Return the share of positives that has arrived by age; None unless a period was counted at several ages."""
        counts = self.all_counts().values()
        return None if all(entry.age is None for entry in counts) else ArrivalCurve.learn(counts)

    @property
    def periods(self) -> list[str]:
        """Return the periods that have rows, in their order."""
        return sorted_periods(list({entry.period for entry in self.entries()}))

    def table(self) -> "pl.DataFrame":
        """Return a tidy table: period, source, age, rows, weight, positives."""
        import polars as pl

        order = {period: index for index, period in enumerate(self.periods)}
        entries = sorted(self.entries(), key=lambda entry: (order[entry.period], entry.source))
        columns = ("period", "source", "age", "rows", "weight", "positives")
        types = dict(zip(columns, (pl.String, pl.String, pl.Float64, pl.Int64, pl.Float64, pl.Float64), strict=True))
        return pl.DataFrame([[getattr(e, c) for c in columns] for e in entries], schema=types, orient="row")

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
        past = self.snapshot()
        arrival = past.arrival() if corrected else None
        numbers: dict[str, list[int]] = defaultdict(list)
        latest = past.latest()
        for number, entry in latest.items():
            numbers[entry.period].append(number)
        for period in periods_between(sorted_periods(list(numbers)), since, until):
            parts = past.sketches_of(numbers[period])
            if arrival is not None:
                parts = {n: corrected_sketch(part, latest[n].age, arrival) for n, part in parts.items()}
            yield period, Sketch.merged(list(parts.values()))

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

    def sketches_of(self, numbers: Sequence[int]) -> dict[int, Sketch]:
        """Return the rows of entries, in their order.

        Parameters
        ----------
        numbers : of the entries, as `latest` has them.
        """
        found: dict[int, Sketch] = {}
        columns = (entries.c.id, entries.c.period, entries.c.source, entries.c.sketch)
        for some in map(entries.c.id.in_, chunks(numbers)):
            for number, period, source, content in self._rows(sa.select(*columns).where(some).order_by(entries.c.id)):
                altered = not isinstance(content, bytes)  # SQLite lets anybody write a string there
                found[number] = sketch_of_bytes(b"" if altered else content, f"{period} of {source} in {self.path}")
        if len(found) < len(set(numbers)):  # merged, replaced or removed since `latest` was asked
            raise BusyError(f"the journal {self.path} was changed by another process while it was read; try again")
        return found

    # -- suspect periods ------------------------------------------------------------------------------------------

    def release(self, period: Any) -> None:
        """Let trackers learn a period that is suspect; they learn all periods from it on anew.

        Parameters
        ----------
        period : its name. If other rows take the place of its rows later, these are looked at again.
        """
        name, rows = period_text(period), self._digests()
        if name not in rows:
            raise InputError(f"the journal {self.path} has no period {name}; `mcnet journal list` shows them")
        self.store.state(self.head).put(RELEASED, rows[name], name)

    @property
    def released(self) -> set[str]:
        """Return the periods that are learnt whatever a look finds."""
        rows = self._digests()
        found = self.store.state(self.head).all(RELEASED)
        return {period for period, digest in found.items() if rows.get(period) == digest}

    def _digests(self) -> dict[str, str]:
        digests: dict[str, list[str]] = defaultdict(list)
        for entry in self.entries():
            digests[entry.period].append(entry.digest)
        return {period: " ".join(sorted(found)) for period, found in digests.items()}

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, before: Any = None) -> int:
        """Merge the sources of old periods into one sketch per period.

        What was compacted is still known, so a job that adds it again changes nothing; but a source that was compacted
        can no longer be replaced or removed. What was counted at several ages stays as it is.

        Parameters
        ----------
        before : compact periods earlier than this one; by default all but the last.

        Returns
        -------
        int : how many sketches fewer there are.
        """
        periods = self.periods
        earlier = periods[:-1] if before is None else periods_between(periods, None, before)
        limit = None if before is None else period_text(before)
        return compact(self, set(earlier) - {limit}, lambda _: True)

    def compact_feedback(self, until: Any = None, now: "datetime | None" = None) -> int:
        """Merge the feedback of closed periods into one sketch per period, and forget keys that are too old to matter.

        Parameters
        ----------
        until : the last period that is closed; by default the last but one that has rows.
        now : the present timestamp in UTC; by the clock, if not given.

        Returns
        -------
        int : how many sketches fewer there are.
        """
        periods = self.periods
        closed = periods[:-1] if until is None else periods_between(periods, None, until)
        own = lambda entry: entry.source.startswith(FEEDBACK) or entry.source == COMPACTED  # noqa: E731
        saved = compact(self, set(closed), own)
        forget_keys(self, now)
        return saved

    def verify(self) -> list[str]:
        """Read every sketch and find what is wrong.

        Returns
        -------
        list[str] : a sentence per problem; empty if there is none.
        """
        problems = []
        self.store.require_head(self.head)
        for entry, read in self.snapshot().counts():
            try:
                if sketch_digest(read()) != entry.digest:
                    problems.append(
                        f"{entry.period} of {entry.source} in {self.path} has other rows than were added; remove it, "
                        "and add it again"
                    )
            except McnetError as error:
                problems.append(str(error))
        return problems


class JournalSnapshot(Journal):
    """The rows that a journal has now: those added later are not seen, so that several readings agree."""

    def __init__(self, journal: Journal) -> None:
        """Begin to read; what is read stays as it is until `close`, or until this object ends."""
        super().__init__(journal.store, journal.head)
        self.store.require_head(self.head)
        block = ExitStack()
        block.enter_context(suppress(StoreUnavailableError))  # of what is only read, the end may be lost
        self._connection = block.enter_context(self.store.database.reading())
        self._connection.execute(sa.select(sa.func.count(heads.c.id)))  # the first statement decides what is seen
        self.close: Callable[[], Any] = weakref.finalize(self, block.close)
        self._counts: dict[int, Entry] | None = None

    def snapshot(self) -> "JournalSnapshot":
        """Return itself: it stays as it is."""
        return self

    def all_counts(self) -> dict[int, Entry]:
        """Return every count, as `Journal.all_counts` does, read once."""
        if self._counts is None:
            self._counts = super().all_counts()
        return self._counts

    def _rows(self, query: sa.Select[Any]) -> list[Any]:
        with self.store.database.translated():
            return list(self._connection.execute(of_head(query, self.head)))
