"""Additions to the journal of a store: which rows are new, known or refused; feedback of many requests at once."""

import json
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from mcnet._shared.arrays import ScoreType
from mcnet.errors import Advice, InputError, McnetError
from mcnet.rows.contexts import refuse_other_edges
from mcnet.rows.fields import Edges
from mcnet.rows.periods import is_timestamp, period_position, period_text, same_length, sorted_periods
from mcnet.sketch.build import looks_swapped, swapped_columns
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import stored_bytes
from mcnet.sketch.views import in_field_order
from mcnet.store.entries import (
    Added,
    Entry,
    EntryKey,
    OtherRowsError,
    Spool,
    check_first_period,
    check_periods,
    check_weights,
    checked_guards,
    entry_key,
    entry_of,
    sketch_digest,
)
from mcnet.store.schema import entries, heads, keys

if TYPE_CHECKING:
    from mcnet.store.store import Head, Store


_T = TypeVar("_T")

FEEDBACK = "feedback "
"""What the source of feedback begins with; its key follows."""

_SCORES: dict[ScoreType, str] = {"probability": "probabilities", "logit": "logits"}

_MOST_AT_ONCE = 500
"""How many values one statement names."""

Shape = tuple[tuple[str, ...], Any, dict[str, Edges], ScoreType]
"""The fields of a journal in their order, its resolution, the edges of fields that are numbers, the type of its scores."""


def shape_of(head: "Head | None") -> Shape | None:
    """Return what new rows must have in common with those of a head; None while it has none."""
    if head is None or head.shape is None:
        return None
    names, resolution, edges, score_type = json.loads(head.shape)
    return tuple(names), resolution, {name: tuple(cuts) for name, cuts in edges.items()}, score_type


def shape_text(shape: Shape) -> str:
    """Return a shape as `shape_of` reads it."""
    return json.dumps(shape)


def sketch_shape(sketch: Sketch) -> Shape:
    """Return what rows must have in common with those of a sketch."""
    return sketch.contexts.names, sketch.resolution, dict(sketch.contexts.edges), sketch.score_type


@dataclass(frozen=True)
class _Given:
    """Rows that are ready to be written: their description, and how to get their bytes."""

    entry: Entry
    content: Callable[[], bytes]
    shape: Shape


def _ready(entry: Entry, sketch: Sketch, shape: Shape | None) -> tuple[Entry, bytes, Shape]:
    """Put the fields into the order of the journal, so that equal rows have equal digests; refuse other fields."""
    for what, text in (("source", entry.source), ("period", entry.period)):
        if "\x00" in text or text.encode(errors="replace").decode() != text:  # a database has no place for these
            raise InputError(f"the {what} {text!r} has characters that no string in UTF-8 has; name it otherwise")
    if sketch.weight_squares is not None:
        raise InputError(
            "these rows are weighted by inverse propensity, and those of a journal are not; sketch them without a "
            "propensity"
        )
    if looks_swapped(sketch) and (sketch.weight == np.floor(sketch.weight)).all():
        raise InputError(
            f"{swapped_columns(sketch)}: the columns of scores and labels look swapped; swap them back",
            column=sketch.columns.get("score", "score"),
        )
    if shape is not None:
        ordered = in_field_order(sketch, shape[0])
        if ordered is not sketch:
            sketch, digest = ordered, sketch_digest(ordered)
            entry = replace(entry, source=digest if entry.source == entry.digest else entry.source, digest=digest)
        own = sketch_shape(sketch)
        for what, here, there in zip(("fields", "resolution"), own, shape, strict=False):
            if here != there:
                raise InputError(f"the {what} of these rows: {here}; of the journal: {there}; make both alike")
        if shape[3] != own[3]:
            raise InputError(
                f"the scores of these rows are {_SCORES[own[3]]}, those of the journal {_SCORES[shape[3]]}",
                advice=Advice("read them as such: pass {score_type}", score_type=shape[3])
                | Advice("add the rows to a head of their own"),
            )
        for name, edges in own[2].items():
            refuse_other_edges(name, edges, shape[2].get(name))
    return entry, stored_bytes(sketch), sketch_shape(sketch)


# What the journal knows of the sources that are added now.


def _given_before(table: sa.Table, *more: Any) -> sa.Select[Any]:
    columns = (table.c.source, table.c.period, table.c.age, table.c.digest)
    of_sources = table.c.source.in_(sa.bindparam("sources", expanding=True))
    return sa.select(*columns, *more).where(table.c.head == sa.bindparam("head"), of_sources)


_GIVEN_BEFORE = sa.union_all(
    _given_before(entries, entries.c.id, entries.c.rows),
    _given_before(keys, sa.cast(sa.null(), sa.BigInteger), sa.cast(sa.null(), sa.BigInteger)),
)


@dataclass
class _Known:
    """What was given before: by key, and which source gave the same rows for a period."""

    there: dict[EntryKey, tuple[int, str, int]]
    """Of what counts by itself: its number, digest and rows."""
    merged: dict[EntryKey, str]
    """The digests of what was merged."""

    @staticmethod
    def read(connection: Connection, head: int, sources: Collection[str]) -> "_Known":
        found = _Known({}, {})
        for some in chunks(sources):
            for source, period, age, digest, number, rows in connection.execute(
                _GIVEN_BEFORE, {"head": head, "sources": some}
            ):
                if number is None:
                    found.merged[source, period, age] = digest
                else:
                    found.there[source, period, age] = (number, digest, rows)
        return found

    def is_new(self, entry: Entry, *, replace: bool) -> bool:
        """Tell whether rows are new; refuse other rows of the same source, period and age."""
        key = entry_key(entry)
        number_digest_rows = self.there.get(key)
        before = number_digest_rows[1] if number_digest_rows else self.merged.get(key)
        if before == entry.digest:
            return False
        if key in self.merged:
            raise OtherRowsError(
                f"{entry.source} gave other rows for {entry.period} before, and they are compacted, so they "
                "cannot be replaced; add the rows under another source, or rebuild the journal"
            )
        if number_digest_rows is not None and not replace:
            advice = Advice("pass {replace} to replace them, or give late rows another source", replace=True)
            problem = f"{entry.source} gave {number_digest_rows[2]:,} other rows for {entry.period} before"
            raise OtherRowsError(problem, advice=advice, file=entry.source)
        return True


def _copies(connection: Connection, head: int, fresh: Sequence[Entry]) -> tuple[tuple[str, str, str], ...]:
    """Return (source, other source, period) of rows that another source gave for the same period."""
    found: dict[tuple[str, str], str] = {}
    for some in chunks(fresh):
        digests, periods = {entry.digest for entry in some}, {entry.period for entry in some}
        for table in (entries, keys):
            same = sa.select(table.c.period, table.c.digest, table.c.source).where(
                table.c.head == head, table.c.digest.in_(digests), table.c.period.in_(periods)
            )
            found |= {(period, digest): source for period, digest, source in connection.execute(same)}
    pairs = ((entry, found.get((entry.period, entry.digest), entry.source)) for entry in fresh)
    return tuple((entry.source, other, entry.period) for entry, other in pairs if other != entry.source)


def chunks(values: Collection[_T]) -> Iterator[list[_T]]:
    """Yield the values in lists that are short enough for one statement."""
    listed = list(values)
    for begin in range(0, len(listed), _MOST_AT_ONCE):
        yield listed[begin : begin + _MOST_AT_ONCE]


# One addition.


def commit_parts(
    store: "Store",
    name: str,
    parts: Callable[[], Iterable[tuple[Entry, Sketch]]],
    *,
    replace: bool,
    every: str | None = None,
    allow: str | Collection[str] = (),
) -> Added:
    """Commit what is not there yet in one transaction.

    Parameters
    ----------
    store, name : the store, and the name of the head.
    parts : gives the entries with their rows, one in memory at a time; called again if another process has begun the
        journal meanwhile.
    replace, every, allow : as in `Journal.add`.
    """
    allowed = checked_guards(allow)
    shape = shape_of(store.find_head(name))
    while True:
        with Spool() as spool:
            given, own = [], shape
            for described in parts():  # outside of the transaction
                entry, content, own = _ready(*described, own)
                given.append(_Given(entry, spool.put(content), own))
            with store.writing_head("journal", name) as (connection, head):
                now = shape_of(head)
                if now == shape:
                    return _commit(connection, head, given, replace=replace, every=every, allowed=allowed)
                shape = now


def _commit(
    connection: Connection,
    head: "Head",
    given: Sequence[_Given],
    *,
    replace: bool,
    every: str | None,
    allowed: Collection[str],
) -> Added:
    if not given:
        return Added((), 0)
    _first_of([one.entry.period for one in given], head)  # refuses periods of another kind
    own = head.settings.every
    if every is not None and own is not None and head.first_period is not None and not same_length(every, own):
        raise InputError(
            f"the periods of these rows are {every} long, those of the head {own}",
            advice=Advice("cut them alike: pass {every}", every=own) | Advice("add the rows to a head of their own"),
        )
    known = _Known.read(connection, head.id, {one.entry.source for one in given})
    fresh = [one for one in given if known.is_new(one.entry, replace=replace)]
    described = [one.entry for one in fresh]
    if fresh:
        if "weight" not in allowed:
            check_weights(described, head.heaviest)
        if "period" not in allowed:
            check_periods([e.period for e in described], _periods_to_compare(connection, head, every), every)
        copies = _copies(connection, head.id, described)
        replaced = [known.there[entry_key(e)][0] for e in described if entry_key(e) in known.there]
        for some in chunks(replaced):
            connection.execute(entries.delete().where(entries.c.id.in_(some)))
        for one in fresh:  # one at a time in memory
            connection.execute(entries.insert(), [entry_row(head.id, one.entry, one.content())])
        _note(connection, head, described, given[0].shape)
    new = {one.entry for one in fresh}
    return Added(
        tuple(entry.period for entry in described),
        sum(entry.rows for entry in described),
        tuple(one.entry.period for one in given if one.entry not in new),
        copies if fresh else (),
    )


def _periods_to_compare(connection: Connection, head: "Head", every: str | None) -> list[str]:
    """Return the periods that tell the first one, and the length of a period where it is not given."""
    if head.first_period is None or every is not None:
        return [] if head.first_period is None else [head.first_period]
    return list(connection.scalars(sa.select(entries.c.period).where(entries.c.head == head.id).distinct()))


def entry_row(head: int, entry: Entry, content: bytes) -> dict[str, Any]:
    """Return an entry as a row of its table.

    Parameters
    ----------
    head, entry, content : the number of the head, what is known of the rows, and their sketch file.
    """
    return {"head": head, **vars(entry), "sketch": content}


def _first_of(periods: Sequence[str], head: "Head") -> str:
    """Return the first of new periods and those of a head; refuse a mixture of timestamps, numbers and labels."""
    return sorted_periods([*{*periods}, *([] if head.first_period is None else [head.first_period])])[0]


def _note(connection: Connection, head: "Head", added: Sequence[Entry], shape: Shape) -> None:
    """Keep in the head what the next addition is compared with."""
    first = _first_of([entry.period for entry in added], head)
    heaviest = max([entry.heaviest for entry in added] + ([] if head.heaviest is None else [head.heaviest]))
    values = {"shape": shape_text(shape_of(head) or shape), "first_period": first, "heaviest": heaviest}
    if values != {name: getattr(head, name) for name in values}:
        connection.execute(heads.update().where(heads.c.id == head.id).values(**values))


def summarise(connection: Connection, head: int) -> None:
    """Find out again what additions are compared with, after entries were removed."""
    columns = (entries.c.period, entries.c.rows, entries.c.weight, entries.c.largest_weight)
    found = connection.execute(sa.select(*columns).where(entries.c.head == head)).all()
    values: dict[str, Any] = {"shape": None, "first_period": None, "heaviest": None}
    if found:
        del values["shape"]
        values["first_period"] = sorted_periods(list({one.period for one in found}))[0]
        values["heaviest"] = max(max(one.largest_weight or 0.0, one.weight / one.rows) for one in found)
    connection.execute(heads.update().where(heads.c.id == head).values(**values))


# Feedback: many small requests in one transaction, each with its own outcome.


@dataclass(frozen=True)
class FeedbackRows:
    """The labelled rows of one request.

    Attributes
    ----------
    head, period, key : where the rows belong, and the name under which a request that is sent again is known.
    sketch : the rows.
    every : the length of a period.
    age, largest_weight, allow : as in `Journal.add`.
    """

    head: str
    period: str
    key: str
    sketch: Sketch
    every: str | None = None
    age: float | None = None
    largest_weight: float | None = None
    allow: Collection[str] = ()
    _made: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def ready(self, shape: Shape | None) -> "_Given | McnetError":
        """Return what is written to a journal of a shape, or why that cannot be; it is made once."""
        if not self._made or self._made[0] != shape:
            self._made[:] = shape, self._ready(shape)
        made: _Given | McnetError = self._made[1]
        return made

    def _ready(self, shape: Shape | None) -> "_Given | McnetError":
        try:
            checked_guards(self.allow)
            period = period_text(self.period)
            described = entry_of(self.sketch, period, FEEDBACK + self.key, self.age, self.largest_weight)
            entry, content, own = _ready(*described, shape)
            return _Given(entry, partial(bytes, content), own)
        except McnetError as error:
            return error


def add_feedback(
    store: "Store", requests: Sequence[FeedbackRows], executed: Callable[[], None] = lambda: None
) -> list[Added | McnetError]:
    """Commit many requests in one transaction, and return what each has changed, or why it was refused.

    A key that came before with the same rows, whatever their period, changes nothing. Rows of a period that is older
    than the keys that are kept are refused, since it cannot be told whether they came before.

    Parameters
    ----------
    store, requests : where to, and what.
    executed : called after the last statement, before the rows are made durable.

    Raises
    ------
    StoreUnavailableError, BusyError, OSError : nothing was added; all of them may be sent again.
    """
    outcomes: dict[int, Added | McnetError] = {}
    by_head: dict[str, list[int]] = defaultdict(list)
    for place, request in enumerate(requests):
        by_head[request.head].append(place)
    with store.transaction(what="nothing was added"):
        for name, left in sorted(by_head.items()):
            while left:
                try:
                    with store.writing_head("journal", name, create=False) as (connection, head):
                        shape = store.shapes[name] = shape_of(head)
                        now = left if shape is not None else left[:1]  # the first rows of a head decide on its shape
                        ready = {place: requests[place].ready(shape) for place in now}
                        outcomes |= _take(connection, head, ready, requests)
                        left = left[len(now) :]
                except InputError as error:  # there is no such head
                    outcomes |= dict.fromkeys(left, error)
                    left = []
        executed()
    return [outcomes[place] for place in range(len(requests))]


def _take(
    connection: Connection, head: "Head", given: Mapping[int, _Given | McnetError], requests: Sequence[FeedbackRows]
) -> dict[int, Added | McnetError]:
    """Write the requests of one head that are new and plausible; return the outcome of each."""
    before: dict[tuple[str, float | None], dict[str, str]] = defaultdict(dict)  # the digest of each period
    sources = {one.entry.source for one in given.values() if isinstance(one, _Given)}
    known = _Known.read(connection, head.id, sources)
    for (source, period, age), digest in [*((k, v[1]) for k, v in known.there.items()), *known.merged.items()]:
        before[source, age][period] = digest
    outcomes: dict[int, Added | McnetError] = {}
    fresh: list[_Given] = []
    fine: set[Any] = set()  # periods that were checked, since most requests have the same one
    for place, one in given.items():
        try:
            if not isinstance(one, _Given):
                raise one
            entry = one.entry
            came = before[entry.source, entry.age]
            same = next((period for period, digest in came.items() if digest == entry.digest), None)
            if same is not None:
                outcomes[place] = Added((), 0, (same,))
                continue
            if came:
                key, period = requests[place].key, next(iter(came))
                raise OtherRowsError(f"the key {key!r} came with other rows for {period} before; use another key")
            if "weight" not in requests[place].allow:
                check_weights([entry], head.heaviest)
            if (about := (entry.period, requests[place].every, "period" in requests[place].allow)) not in fine:
                _check_period(head, *about)
                fine.add(about)
        except McnetError as error:
            outcomes[place] = error
            continue
        came[entry.period] = entry.digest
        fresh.append(one)
        outcomes[place] = Added((entry.period,), entry.rows)
    if fresh:
        connection.execute(entries.insert(), [entry_row(head.id, one.entry, one.content()) for one in fresh])
        _note(connection, head, [one.entry for one in fresh], fresh[0].shape)
    return outcomes


def _check_period(head: "Head", period: str, every: str | None, is_allowed: bool) -> None:
    """Refuse the period of feedback if it is implausible, or too old to tell whether the rows came before."""
    begin = period_position(period)
    if begin is not None and is_timestamp(period):
        days = (datetime.now(UTC).timestamp() - begin) / 86_400.0
        why = ""
        if days > head.settings.key_days:
            why = f"are kept for {head.settings.key_days:g} days"
        elif begin < (head.keys_forgotten or -np.inf):
            why = "of that time are forgotten, since they were kept for fewer days before"
        if why:
            raise InputError(
                f"the period {period} began {days:,.0f} days ago, and the keys of feedback {why}, so rows that came "
                "before would count twice; add them as a log: `mcnet journal add`"
            )
    _first_of([period], head)  # refuses a period of another kind
    if not is_allowed:
        if head.first_period is None:
            check_first_period(period, every)
        check_periods([period], [] if head.first_period is None else [head.first_period], every)


class FeedbackWriter:
    """Commits requests that arrive while an earlier group is being written as one group.

    Parameters
    ----------
    store : where to.
    most : how many requests a group has at most.
    executed, committed : called after the statements of each group, and when it is durable.
    """

    def __init__(
        self,
        store: "Store",
        most: int = 256,
        executed: Callable[[], None] = lambda: None,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_executing = False
        """Whether statements are being executed that compute in this process; not while a disk or a server works."""
        self._store = store
        self._executed, self._committed = executed, committed
        self._most = most
        self._waiting: queue.SimpleQueue[tuple[FeedbackRows, Future[Added]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mcnet-feedback", daemon=True)
        self._thread.start()

    def submit(self, request: FeedbackRows) -> "Future[Added]":
        """Take a request; its result is there when its rows are durable, or why they were refused."""
        result: Future[Added] = Future()
        result.set_running_or_notify_cancel()  # a client that leaves does not take its rows back
        self._waiting.put((request, result))
        return result

    def close(self) -> None:
        """Write what was taken, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            group: list[tuple[FeedbackRows, Future[Added]]] = []
            one = self._waiting.get()
            while one is not None:
                group.append(one)
                if len(group) == self._most:
                    break
                try:
                    one = self._waiting.get_nowait()
                except queue.Empty:
                    break
            ended = one is None
            if group:
                self._commit(group)

    def _commit(self, group: list[tuple[FeedbackRows, "Future[Added]"]]) -> None:
        self.is_executing = self._store.database.is_sqlite
        try:
            outcomes = add_feedback(self._store, [request for request, _ in group], self._end_statements)
        except BaseException as error:  # of the whole group, such as a database that cannot be reached
            self._end_statements()
            for _, result in group:
                result.set_exception(error)
            return
        self._committed()
        for (_, result), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Added):
                result.set_result(outcome)
            else:
                result.set_exception(outcome)

    def _end_statements(self) -> None:
        self.is_executing = False
        self._executed()
