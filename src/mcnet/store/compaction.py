"""Make the journal of a store smaller: merge the sources of old periods, forget old periods and keys."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from mcnet.rows.periods import is_timestamp, period_position, period_text, periods_between, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import stored_bytes
from mcnet.store.additions import chunks, summarise, write
from mcnet.store.entries import COMPACTED, Entry, entry_of
from mcnet.store.feedback import FEEDBACK
from mcnet.store.schema import entries, heads, keys

if TYPE_CHECKING:
    from mcnet.store.journal import Journal, JournalSnapshot


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
