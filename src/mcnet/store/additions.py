"""The one way into a journal: which rows are new, known or refused, and the transactions that write and merge them."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from mcnet._shared.arrays import ScoreType
from mcnet.errors import Advice, InputError, McnetError
from mcnet.rows.contexts import refuse_other_edges
from mcnet.rows.fields import Edges
from mcnet.rows.periods import (
    is_timestamp,
    period_position,
    period_text,
    periods_between,
    same_length,
    sorted_periods,
)
from mcnet.sketch.build import looks_swapped, swapped_columns
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import stored_bytes
from mcnet.sketch.views import in_field_order
from mcnet.store.entries import (
    COMPACTED,
    FEEDBACK,
    GUARDS,
    Added,
    Entry,
    OtherRowsError,
    check_periods,
    check_weights,
    entry_of,
    sketch_digest,
)
from mcnet.store.schema import entries, heads, keys

if TYPE_CHECKING:
    from mcnet.store.journal import Journal, JournalSnapshot
    from mcnet.store.store import Head, Store


_T = TypeVar("_T")

_SCORES: dict[ScoreType, str] = {"probability": "probabilities", "logit": "logits"}

_KEY = ("source", "period", "age", "digest")
"""What tells whether rows came before."""
_MOST_AT_ONCE, _MOST_BYTES_AT_ONCE = 500, 1 << 20
"""How many values one statement names, and about how many bytes of sketches it writes."""


class Shape(NamedTuple):
    """What all rows of a journal have in common."""

    fields: tuple[str, ...]
    resolution: Any
    edges: Mapping[str, Edges]
    """Where fields that are numbers are cut."""
    score_type: ScoreType


def shape_of(head: "Head | None") -> Shape | None:
    """Return what new rows must have in common with those of a head; None while it has none."""
    if head is None or head.shape is None:
        return None
    fields, resolution, edges, score_type = json.loads(head.shape)
    return Shape(tuple(fields), resolution, {name: tuple(cuts) for name, cuts in edges.items()}, score_type)


class Part(NamedTuple):
    """Rows that are ready to be written: their description, what reads their bytes, and their shape."""

    entry: Entry
    content: Callable[[], bytes]
    shape: Shape


class SourceRows:
    """Rows of one source that are added as a whole or not at all.

    `parts` gives the entries with their rows, one in memory at a time, again if the journal has another shape than was
    known; `keep` keeps the bytes of each until they are written, and returns what reads them.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[tuple[Entry, Sketch]]],
        every: str | None = None,
        allow: str | Collection[str] = (),
        *,
        replace: bool = False,
        keep: Callable[[bytes], Callable[[], bytes]] = lambda content: partial(bytes, content),
    ) -> None:
        self.every, self.allow = every, {allow} if isinstance(allow, str) else set(allow)
        self._parts, self._replace, self._keep = parts, replace, keep
        self._made: tuple[Shape | None, list[Part] | McnetError] | None = None

    def ready(self, shape: Shape | None) -> list[Part] | McnetError:
        """Return what is written to a journal of a shape, or why that cannot be; it is made once."""
        if self._made is not None and self._made[0] == shape:
            return self._made[1]
        made: list[Part] = []
        try:
            if not self.allow <= set(GUARDS):
                unknown = sorted(self.allow - set(GUARDS))[0]
                raise InputError(f"allow is {unknown!r}; there are {' and '.join(GUARDS)}")
            for entry, sketch in self._parts():
                entry, sketch = _fitting(entry, sketch, made[0].shape if made and shape is None else shape)
                made.append(Part(entry, self._keep(stored_bytes(sketch)), _shape(sketch)))
            self._made = shape, made
        except McnetError as error:
            self._made = shape, error
        return self._made[1]

    def known_for(self, entry: Entry, before: Mapping[str, "Before"]) -> str | None:
        """Return the period for which the same rows came before, None if they are new; refuse other rows.

        What the same source gave at the same age `before` is given by period.
        """
        known = before.get(entry.period)
        if known is None or known.digest == entry.digest:
            return None if known is None else entry.period
        if known.number is None:
            raise OtherRowsError(
                f"{entry.source} gave other rows for {entry.period} before, and they are compacted, so they "
                "cannot be replaced; add the rows under another source, or rebuild the journal"
            )
        if not self._replace:
            advice = Advice("pass {replace} to replace them, or give late rows another source", replace=True)
            problem = f"{entry.source} gave {known.rows:,} other rows for {entry.period} before"
            raise OtherRowsError(problem, advice=advice, file=entry.source)
        return None

    def check_periods(self, connection: Connection, head: "Head", periods: Sequence[str]) -> None:
        """Refuse periods of another length than those of the head, and implausible ones."""
        own, first = head.settings.every, head.first_period
        if self.every and own and first is not None and not same_length(self.every, own):
            raise InputError(
                f"the periods of these rows are {self.every} long, those of the head {own}",
                advice=Advice("cut them alike: pass {every}", every=own)
                | Advice("add the rows to a head of their own"),
            )
        there = [] if first is None else [first]
        if there and self.every is None:  # all periods tell their length
            there = list(connection.scalars(sa.select(entries.c.period).where(entries.c.head == head.id).distinct()))
        if "period" not in self.allow:
            check_periods(periods, there, self.every)

    def copies(self, connection: Connection, head: int, fresh: Collection[Entry]) -> tuple[tuple[str, str, str], ...]:
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


def _shape(sketch: Sketch) -> Shape:
    return Shape(sketch.contexts.names, sketch.resolution, dict(sketch.contexts.edges), sketch.score_type)


def _fitting(entry: Entry, sketch: Sketch, shape: Shape | None) -> tuple[Entry, Sketch]:
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
    if shape is None:
        return entry, sketch
    ordered = in_field_order(sketch, shape.fields)
    if ordered is not sketch:
        digest = sketch_digest(ordered)
        entry = replace(entry, source=digest if entry.source == entry.digest else entry.source, digest=digest)
    own = _shape(ordered)
    for what, here, there in zip(("fields", "resolution"), own, shape, strict=False):
        if here != there:
            raise InputError(f"the {what} of these rows: {here}; of the journal: {there}; make both alike")
    if own.score_type != shape.score_type:
        raise InputError(
            f"the scores of these rows are {_SCORES[own.score_type]}, those of the journal {_SCORES[shape.score_type]}",
            advice=Advice("read them as such: pass {score_type}", score_type=shape.score_type)
            | Advice("add the rows to a head of their own"),
        )
    for name, edges in own.edges.items():
        refuse_other_edges(name, edges, shape.edges.get(name))
    return entry, ordered


# The commit.


class Before(NamedTuple):
    """What a source gave for a period before; what was merged has no entry of its own."""

    digest: str
    number: int | None
    rows: int | None


def _given_before(table: sa.Table, number: Any, rows: Any) -> sa.Select[Any]:
    columns = (table.c.source, table.c.age, table.c.period, table.c.digest, number, rows)
    of_sources = table.c.source.in_(sa.bindparam("sources", expanding=True))
    return sa.select(*columns).where(table.c.head == sa.bindparam("head"), of_sources)


_NOTHING = sa.cast(sa.null(), sa.BigInteger)
_GIVEN_BEFORE = sa.union_all(
    _given_before(entries, entries.c.id, entries.c.rows), _given_before(keys, _NOTHING, _NOTHING)
)


def add_rows(store: "Store", name: str, rows: SourceRows) -> Added:
    """Add rows to the journal of a head, which is made if it is the first one of the store."""
    rows.ready(shape_of(store.find_head(name)))  # while others may write
    with store.writing_head("journal", name) as (connection, head):
        (outcome,) = take(connection, head, [rows])
        if isinstance(outcome, McnetError):
            raise outcome
    return outcome


def take(connection: Connection, head: "Head", given: Sequence[SourceRows]) -> list[Added | McnetError]:
    """Write what is new and plausible of several additions; return the outcome of each."""
    shape = shape_of(head)
    ready = [rows.ready(shape) for rows in given]
    sources = {part.entry.source for parts in ready if not isinstance(parts, McnetError) for part in parts}
    before = _known(connection, head.id, sources)
    outcomes: list[Added | McnetError] = []
    fresh: list[Part] = []
    replaced: list[int | None] = []
    plausible: set[Any] = set()  # most requests have the same period
    for rows, parts in zip(given, ready, strict=True):
        new: list[Part] = []
        known: list[str] = []
        try:
            if isinstance(parts, McnetError):
                raise parts
            for part in parts:
                came = before[part.entry.source, part.entry.age]
                complete = before[part.entry.source, None].get(part.entry.period)
                if complete is not None and complete.number is None:  # merged: earlier counts have no place any more
                    came.setdefault(part.entry.period, complete)
                period = rows.known_for(part.entry, came)
                if period is None:
                    new.append(part)
                else:
                    known.append(period)
            added = [part.entry for part in new]
            periods = tuple(entry.period for entry in added)
            if "weight" not in rows.allow:
                check_weights(added, head.heaviest)
            if new and (about := (periods, rows.every, *rows.allow)) not in plausible:
                _first_of(periods, head)  # refuses periods of another kind
                rows.check_periods(connection, head, periods)
                plausible.add(about)
        except McnetError as error:
            outcomes.append(error)
            continue
        copies = rows.copies(connection, head.id, added)
        outcomes.append(Added(periods, sum(entry.rows for entry in added), tuple(known), copies))
        for entry in added:
            there = before[entry.source, entry.age]
            replaced += [there[entry.period].number] if entry.period in there else []
            there[entry.period] = Before(entry.digest, None, None)
        fresh += new
    if fresh:
        write(connection, head.id, ((part.entry, part.content()) for part in fresh), gone=replaced)
        _note(connection, head, fresh)
    return outcomes


def _known(
    connection: Connection, head: int, sources: Collection[str]
) -> dict[tuple[str, float | None], dict[str, Before]]:
    """Return what sources gave before: by source and age, then by period."""
    before: dict[tuple[str, float | None], dict[str, Before]] = defaultdict(dict)
    for some in chunks(sources):
        for source, age, period, *found in connection.execute(_GIVEN_BEFORE, {"head": head, "sources": some}):
            before[source, age][period] = Before(*found)
    return before


def write(
    connection: Connection,
    head: int,
    fresh: Iterable[tuple[Entry, bytes]],
    gone: Collection[int | None] = (),
    merged: Iterable[Entry] = (),
) -> None:
    """Put new entries in the place of those that are gone; what was merged into them is known from now on."""
    for some in chunks(gone):
        connection.execute(entries.delete().where(entries.c.id.in_(some)))
    known = [{"head": head, **{name: getattr(e, name) for name in _KEY}} for e in merged]
    if known:
        connection.execute(keys.insert(), known)
    waiting: list[dict[str, Any]] = []
    size = 0
    for entry, content in fresh:
        waiting.append({"head": head, **vars(entry), "sketch": content})
        size += len(content)
        if size > _MOST_BYTES_AT_ONCE:
            connection.execute(entries.insert(), waiting)
            waiting, size = [], 0
    if waiting:
        connection.execute(entries.insert(), waiting)


def chunks(values: Collection[_T]) -> Iterator[list[_T]]:
    """Yield the values in lists that are short enough for one statement."""
    listed = list(values)
    for begin in range(0, len(listed), _MOST_AT_ONCE):
        yield listed[begin : begin + _MOST_AT_ONCE]


# What the next addition is compared with.


def _first_of(periods: Iterable[str], head: "Head") -> str:
    """Return the first of new periods and those of a head; refuse a mixture of timestamps, numbers and labels."""
    return sorted_periods([*{*periods}, *([] if head.first_period is None else [head.first_period])])[0]


def _note(connection: Connection, head: "Head", added: Sequence[Part]) -> None:
    """Keep in the head what the next addition is compared with."""
    first = _first_of([part.entry.period for part in added], head)
    heaviest = max(part.entry.heaviest for part in added)
    values = {
        "shape": head.shape or json.dumps(added[0].shape),
        "first_period": first,
        "heaviest": heaviest if head.heaviest is None else max(heaviest, head.heaviest),
    }
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


# Make the journal smaller: merge the sources of old periods, forget old periods and keys.


def compact(journal: "Journal", periods: Collection[str], chosen: Callable[[Entry], bool]) -> int:
    """Merge the chosen entries of each of some periods into one; return how many entries fewer there are."""
    saved = 0
    while True:
        past, released = journal.snapshot(), journal.released
        counts = past.all_counts()
        times = Counter((entry.source, entry.period) for entry in counts.values())
        groups: dict[str, dict[int, Entry]] = defaultdict(dict)
        for number, entry in counts.items():  # the ages of a source tell how late positives arrive
            alone = entry.age is None and times[entry.source, entry.period] == 1
            if entry.period in periods and alone and chosen(entry):
                groups[entry.period][number] = entry
        several = {period: group for period, group in groups.items() if len(group) > 1}
        outcomes = [_merge(past, period, group) for period, group in several.items()]
        past.close()
        for period in released.intersection(several):  # the same rows, in other entries
            journal.release(period)
        saved += sum(len(group) - 1 for group, merged in zip(several.values(), outcomes, strict=True) if merged)
        if all(outcomes):
            return saved


def _merge(past: "JournalSnapshot", period: str, group: Mapping[int, Entry]) -> bool:
    """Put one entry in the place of several; tell whether they were still as they had been read."""
    total = Sketch.merged(list(past.sketches_of(list(group)).values()))
    entry, _ = entry_of(total, period, None, None, max(entry.heaviest for entry in group.values()))
    content = stored_bytes(total)
    with past.changing() as (connection, head):
        counted = sa.select(sa.func.count())
        if sum(connection.scalar(counted.where(entries.c.id.in_(some))) or 0 for some in chunks(group)) < len(group):
            return False
        merged = [one for one in group.values() if one.source != COMPACTED]
        write(connection, head.id, [(replace(entry, source=COMPACTED), content)], gone=group, merged=merged)
    return True


def forget_keys(journal: "Journal", now: datetime | None) -> None:
    """Forget the keys of feedback whose periods are so old that it is refused, and refuse them from now on."""
    with journal.changing() as (connection, head):
        # A day more than what is refused, so that no key is forgotten while its rows are still taken.
        limit = (now or datetime.now(UTC)) - timedelta(days=head.settings.key_days + 1.0)
        own = (keys.c.head == head.id) & keys.c.source.startswith(FEEDBACK)
        known = connection.scalars(sa.select(keys.c.period).where(own).distinct())
        old = [text for text in known if is_timestamp(text) and (period_position(text) or 0.0) < limit.timestamp()]
        for some in chunks(old):
            connection.execute(keys.delete().where(own, keys.c.period.in_(some)))
        if old:  # a longer key_days does not bring them back
            until = max(limit.timestamp(), head.keys_forgotten or 0.0)
            connection.execute(heads.update().where(heads.c.id == head.id).values(keys_forgotten=until))


def forget_periods(journal: "Journal", before: Any) -> dict[str, int]:
    """Delete the rows and keys of all periods earlier than one; return how many periods, rows and keys."""
    limit = period_text(before)
    gone: dict[str, int] = {"periods": 0, "rows": 0, "keys": 0}
    with journal.changing() as (connection, head):
        for table, name, number in ((entries, "rows", sa.func.sum(entries.c.rows)), (keys, "keys", sa.func.count())):
            own = table.c.head == head.id
            known = set(connection.scalars(sa.select(table.c.period).where(own).distinct()))
            earlier = set(periods_between(sorted_periods([*known, limit]), None, limit)) - {limit}
            gone["periods"] += len(earlier) if table is entries else 0
            for some in map(table.c.period.in_, chunks(earlier)):
                gone[name] += int(connection.scalar(sa.select(number).select_from(table).where(own, some)) or 0)
                connection.execute(table.delete().where(own, some))
        summarise(connection, head.id)
    return gone
