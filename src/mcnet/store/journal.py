"""The journal of a head: sketches by period and source, to which any number of processes may add."""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as replace_fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from mcnet.errors import InputError, McnetError
from mcnet.journal.additions import Added, entry_of
from mcnet.journal.arrival import ArrivalCurve, corrected_sketch
from mcnet.journal.entries import COMPACTED, Entry, sketch_digest
from mcnet.journal.journal import Journal as FolderJournal
from mcnet.rows.periods import cut_to_periods, is_moment, period_position, period_text, periods_between, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import sketch_of_bytes, stored_bytes
from mcnet.store.additions import FEEDBACK, commit_parts, entry_row, summarise
from mcnet.store.schema import entries, keys

if TYPE_CHECKING:
    from mcnet.store.store import Store

_DESCRIPTION = [column for column in entries.c if column.name not in ("head", "sketch")]
_RELEASED = "released"
"""The kind of the documents that name periods which were suspect, and are learnt all the same."""
_MOST_AT_ONCE = 500
"""How many entries one statement reads or deletes."""


class Journal(FolderJournal):
    """The rows of a head by period and source; any number of processes may add to it at the same time.

    Adding is atomic and idempotent: the same source twice changes nothing, so a job may be retried; rows that arrive
    late are added under a source name of their own.

    Parameters
    ----------
    store, head : the store, and the name of the head; both are made when the first rows are added.
    """

    def __init__(self, store: "Store", head: str) -> None:
        self.store = store
        self.head = head
        self.path: Any = store.name  # what messages call it

    def __repr__(self) -> str:
        return f"{self.store!r}.journal({self.head!r})"

    # -- changing -------------------------------------------------------------------------------------------------

    def _require(self) -> None:
        self.store.require_head(self.head)

    def _commit(self, parts: Callable[[], Iterable[tuple[Entry, Sketch]]], **options: Any) -> Added:
        return commit_parts(self.store, self.head, parts, **options)

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

        with self.store.writing_head("journal", self.head, create=False) as (connection, head):
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

    @contextmanager
    def _reading(self) -> Iterator[tuple[Connection, int]]:
        """Give a connection that sees one state of the journal, and the number of the head."""
        number = self.store.require_head(self.head).id
        with self.store.database.reading() as connection:
            yield connection, number

    def _counts(self) -> dict[int, tuple[Entry, int]]:
        """Return every count, also earlier ones of the same source, and of how many periods it was merged."""
        if not isinstance(self, JournalSnapshot) and self.store.find_head(self.head) is None:
            return {}
        with self._reading() as (connection, head):
            found = connection.execute(sa.select(*_DESCRIPTION).where(entries.c.head == head).order_by(entries.c.id))
            return {row.id: (_entry(row), row.merged_periods) for row in found}

    def _latest(self) -> dict[int, Entry]:
        """Return what counts: of several counts of a source and period the one of the latest age."""
        best: dict[tuple[str, str], tuple[float, int]] = {}
        counts = self._counts()
        for number, (entry, _) in counts.items():
            age = np.inf if entry.age is None else entry.age
            if age >= best.get((entry.source, entry.period), (-1.0, 0))[0]:
                best[entry.source, entry.period] = (age, number)
        return {number: counts[number][0] for number in sorted(number for _, number in best.values())}

    def entries(self) -> list[Entry]:
        """Return what counts, one entry per period and source: the count of the latest age."""
        return list(self._latest().values())

    def counts(self) -> list[tuple[Entry, Callable[[], Sketch]]]:
        """Return every count, also earlier ones of the same source, and what reads its rows."""
        return [(entry, partial(self._one, number)) for number, (entry, _) in self._counts().items()]

    def _one(self, number: int) -> Sketch:
        return self._sketches_of([number])[number]

    def snapshot(self) -> "JournalSnapshot":
        """Return the rows that the journal has now: those added later are not seen, so that several readings agree."""
        return JournalSnapshot(self)

    def counts_by_age(self) -> list[Entry]:
        """Return every count that has an age, earlier ones too: how positives arrive over time."""
        return [entry for entry, _ in self._counts().values() if entry.age is not None]

    def sources(self) -> set[str]:
        """Return every source that gave rows, also those that were merged by compacting."""
        if self.store.find_head(self.head) is None:
            return set()
        with self._reading() as (connection, head):
            return {
                source
                for table in (entries, keys)
                for source in connection.scalars(sa.select(table.c.source).where(table.c.head == head).distinct())
            }

    def merged_periods(self) -> dict[str, int]:
        """Return how many periods each period was merged of, for those that were merged of several."""
        return {entry.period: number for entry, number in self._counts().values() if number > 1}

    def arrival(self) -> ArrivalCurve | None:
        """Return the share of positives that has arrived by age; None unless a period was counted at several ages."""
        if all(entry.age is None for entry in self.entries()):
            return None
        return ArrivalCurve.learn([entry for entry, _ in self._counts().values()])

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
        latest = past._latest()
        for number, entry in latest.items():
            numbers[entry.period].append(number)
        for period in periods_between(sorted_periods(list(numbers)), since, until):
            parts = past._sketches_of(numbers[period])
            yield (
                period,
                Sketch.merged([corrected_sketch(part, latest[n].age, arrival) for n, part in parts.items()]),
            )

    def _sketches_of(self, numbers: Sequence[int]) -> dict[int, Sketch]:
        """Return the rows of entries, in their order."""
        found: dict[int, Sketch] = {}
        columns = (entries.c.id, entries.c.period, entries.c.source, entries.c.sketch)
        with self._reading() as (connection, _):
            for begin in range(0, len(numbers), _MOST_AT_ONCE):
                some = entries.c.id.in_(numbers[begin : begin + _MOST_AT_ONCE])
                for number, period, source, content in connection.execute(
                    sa.select(*columns).where(some).order_by(entries.c.id)
                ):
                    altered = not isinstance(content, bytes)  # SQLite lets anybody write a string there
                    found[number] = sketch_of_bytes(b"" if altered else content, f"{period} of {source} in {self.path}")
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
        self.store.state(self.head).put(_RELEASED, rows[name], name)

    @property
    def released(self) -> set[str]:
        """Return the periods that are learnt whatever a look finds."""
        rows = self._digests()
        found = self.store.state(self.head).all(_RELEASED)
        return {period for period, digest in found.items() if rows.get(period) == digest}

    def _digests(self) -> dict[str, str]:
        digests: dict[str, list[str]] = defaultdict(list)
        for entry in self.entries():
            digests[entry.period].append(entry.digest)
        return {period: " ".join(sorted(found)) for period, found in digests.items()}

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, before: Any = None, every: str | None = None) -> int:
        """Merge the sources of old periods into one sketch per period.

        What was compacted is still known, so a job that adds it again changes nothing; but a source that was compacted
        can no longer be replaced or removed. Counts that have an age stay as they are.

        Parameters
        ----------
        before : compact periods earlier than this one; by default all but the last.
        every : merge periods into longer ones as well, such as hours into days with "1d". Each is one period from then
            on; trackers, backtests and monitors warn of a journal with both.

        Returns
        -------
        int : how many sketches fewer there are.
        """
        return self._compact(before, every, lambda _: True)

    def compact_feedback(self, before: Any = None, now: datetime | None = None) -> int:
        """Merge the feedback of closed periods into one sketch per period, and forget keys that are too old to matter.

        Parameters
        ----------
        before : the first period that is not closed; by default the last one that has rows.
        now : the present timestamp in UTC; by the clock, if not given.

        Returns
        -------
        int : how many sketches fewer there are.
        """
        saved = self._compact(
            before, None, lambda entry: entry.source.startswith(FEEDBACK) or entry.source == COMPACTED
        )
        with self.store.writing_head("journal", self.head, create=False) as (connection, head):
            # A day more than what is refused, so that no key is forgotten while its rows are still taken.
            limit = (now or datetime.now(UTC)) - timedelta(days=head.key_days + 1.0)
            own = (keys.c.head == head.id) & keys.c.source.startswith(FEEDBACK)
            known = connection.scalars(sa.select(keys.c.period).where(own).distinct())
            old = [text for text in known if is_moment(text) and (period_position(text) or 0.0) < limit.timestamp()]
            for begin in range(0, len(old), _MOST_AT_ONCE):
                connection.execute(keys.delete().where(own, keys.c.period.in_(old[begin : begin + _MOST_AT_ONCE])))
        return saved

    def _compact(self, before: Any, every: str | None, chosen: Callable[[Entry], bool]) -> int:
        saved = 0
        while True:
            past, released = self.snapshot(), self.released
            groups, counts = _groups(past._latest(), before, every, chosen), past._counts()
            outcomes = [self._merge(past, period, group, counts) for period, group in groups.items()]
            past.close()
            for period in released.intersection(groups):  # the same rows, in other entries
                self.release(period)
            saved += sum(len(group) - 1 for group, merged in zip(groups.values(), outcomes, strict=True) if merged)
            if all(outcomes):
                break
        if saved:
            with self.store.writing_head("journal", self.head, create=False) as (connection, head):
                summarise(connection, head.id)
        return saved

    def _merge(
        self,
        past: "JournalSnapshot",
        period: str,
        group: Mapping[int, Entry],
        counts: Mapping[int, tuple[Entry, int]],
    ) -> bool:
        """Put one entry in the place of several; tell whether they were still as they had been read."""
        total = Sketch.merged(list(past._sketches_of(list(group)).values()))
        known = [entry.largest_weight for entry in group.values() if entry.largest_weight is not None]
        entry, _ = entry_of(total, period, None, None, max(known, default=None))
        periods: dict[str, int] = {}
        for number, one in group.items():
            periods[one.period] = max(counts[number][1], periods.get(one.period, 1))
        content = stored_bytes(total)
        with self.store.writing_head("journal", self.head, create=False) as (connection, head):
            numbers = [list(group)[begin : begin + _MOST_AT_ONCE] for begin in range(0, len(group), _MOST_AT_ONCE)]
            same = sum(connection.scalar(sa.select(sa.func.count()).where(entries.c.id.in_(some))) for some in numbers)
            if same < len(group):
                return False
            for some in numbers:
                connection.execute(entries.delete().where(entries.c.id.in_(some)))
            included = [
                {"head": head.id, "source": e.source, "period": e.period, "age": np.inf, "digest": e.digest}
                for e in group.values()
                if e.source != COMPACTED
            ]
            if included:
                connection.execute(keys.insert(), included)
            merged = replace_fields(entry, source=COMPACTED)
            connection.execute(entries.insert(), [entry_row(head.id, merged, content, sum(periods.values()))])
        return True

    def forget(self, before: Any) -> dict[str, int]:
        """Delete the rows of all periods earlier than one, for good.

        Parameters
        ----------
        before : the first period that stays.

        Returns
        -------
        dict : how many periods, rows and keys were deleted.
        """
        limit = period_text(before)
        with self.store.writing_head("journal", self.head, create=False) as (connection, head):
            gone: dict[str, int] = {"rows": 0, "keys": 0}
            periods: set[str] = set()
            for table, name in ((entries, "rows"), (keys, "keys")):
                known = set(connection.scalars(sa.select(table.c.period).where(table.c.head == head.id).distinct()))
                earlier = set(periods_between(sorted_periods([*known, limit]), None, limit)) - {limit}
                periods |= earlier if table is entries else set()
                for period in earlier:
                    own = (table.c.head == head.id) & (table.c.period == period)
                    number = sa.func.sum(entries.c.rows) if table is entries else sa.func.count()
                    gone[name] += int(connection.scalar(sa.select(number).select_from(table).where(own)) or 0)
                    connection.execute(table.delete().where(own))
            summarise(connection, head.id)
        return {"periods": len(periods), **gone}

    def verify(self) -> list[str]:
        """Read every sketch and find what is wrong.

        Returns
        -------
        list[str] : a sentence per problem; empty if there is none.
        """
        problems = []
        self.store.require_head(self.head)
        past = self.snapshot()
        for number, (entry, _) in past._counts().items():
            try:
                if sketch_digest(past._sketches_of([number])[number]) != entry.digest:
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
        self.close: Callable[[], Any]
        self._connection: Connection
        self._number: int
        if isinstance(journal, JournalSnapshot):
            self._number, self._connection, self.close = journal._number, journal._connection, journal.close
            self._first = journal  # whose end closes the connection
            return
        self._number = self.store.require_head(self.head).id
        self._connection, close = self.store.database.pinned()
        self.close = weakref.finalize(self, close)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Connection, int]]:
        with self.store.database.translated():
            yield self._connection, self._number


def _groups(
    latest: Mapping[int, Entry], before: Any, every: str | None, chosen: Callable[[Entry], bool]
) -> dict[str, dict[int, Entry]]:
    """Return the entries that are merged into each period, where there are several."""
    periods = sorted_periods(list({entry.period for entry in latest.values()}))
    limit = period_text(before) if before is not None else (periods[-1] if periods else None)
    old = set(periods_between(periods, None, limit)) - {limit}
    groups: dict[str, dict[int, Entry]] = defaultdict(dict)
    for number, entry in latest.items():
        if entry.period in old and entry.age is None and chosen(entry):
            groups[_longer(entry.period, every)][number] = entry
    return {period: group for period, group in groups.items() if len(group) > 1}


def _longer(period: str, every: str | None) -> str:
    """Return the longer period that a period lies in."""
    if every is None:
        return period
    import polars as pl

    return period_text(cut_to_periods(pl.Series("period", [period]), every)[0])


def _entry(row: Any) -> Entry:
    return Entry(
        row.period,
        row.source,
        row.digest,
        "",
        row.rows,
        row.weight,
        row.positives,
        None if row.age == np.inf else row.age,
        row.largest_weight,
    )
