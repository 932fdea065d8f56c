"""What the update job of a head keeps: runs, what was served and told, states of the tracker, named documents."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec
import sqlalchemy as sa

from mcnet.store.schema import checkpoints, documents, runs, told
from mcnet.store.schema import served as served_table
from mcnet.store.store import OfHead
from mcnet.store.versions import now

MONITOR, FILES, REFUSED, DECIDED, STATUS = "monitor", "files", "refused", "decided", "status"
"""The kinds of documents: the monitor's evidence, the log files that were read, the last model that was refused, about
which rows the gate has decided last, and what the status shows of the last run."""
MOST_TOLD = 200
"""So many events of a head are kept, and those that stand."""


@dataclass(frozen=True)
class Served:
    """Which version served a period, and its PCOC there with the interval; None for what is not finite."""

    period: str
    version: int
    kept_loss: float | None
    """The log-loss of its rows, had the version that served the period before it stayed; None if there was none."""
    pcoc: float | None
    low: float | None
    high: float | None


class LoopState(OfHead):
    """The state of the loop of a head. Changes inside `Store.transaction` happen together with all others there.

    Parameters
    ----------
    store, head : the store, and the name of the head.
    """

    # -- runs -----------------------------------------------------------------------------------------------------

    def add_run(self, run: Mapping[str, Any]) -> None:
        """Add what a run did; a run without this has not ended, and the next one does again what it left undone."""
        with self.changing(create=True) as (connection, head):
            connection.execute(runs.insert().values(head=head.id, line=_text(run)))

    def runs(self, last: int | None = None) -> list[dict[str, Any]]:
        """Return what the runs did, oldest first."""
        return self._lines(runs, last)

    # -- what was served, and what was told -----------------------------------------------------------------------

    def add_served(self, served: Sequence[Served]) -> None:
        """Add which versions served periods; a period that is there is replaced."""
        with self.changing() as (connection, head):
            for one in served:
                own = (served_table.c.head == head.id) & (served_table.c.period == one.period)
                connection.execute(served_table.delete().where(own))
                connection.execute(served_table.insert().values(head=head.id, **asdict(one)))

    def served(self, last: int) -> dict[str, Served]:
        """Return which versions served the last periods, by period."""
        columns = [served_table.c[one.name] for one in fields(Served)]
        found = self._rows(sa.select(*columns).order_by(served_table.c.id.desc()).limit(last))
        return {row.period: Served(*row) for row in reversed(found)}

    def let_stand(self, source: str, events: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Let these events be all that stand of a source; return those that did not stand before."""
        with self.changing(create=True) as (connection, head):
            own = (told.c.head == head.id) & (told.c.source == source) & told.c.standing
            before = set(connection.scalars(sa.select(told.c.key).where(own)))
            if gone := before - events.keys():
                connection.execute(told.update().where(own, told.c.key.in_(gone)).values(standing=False))
            new = [key for key in events if key not in before]
            for key in new:
                row = {"head": head.id, "source": source, "key": key, "event": _text(events[key]), "time": now()}
                connection.execute(told.insert().values(standing=True, **row))
            if new:
                ids = sa.select(told.c.id).where(told.c.head == head.id).order_by(told.c.id.desc())
                old = told.c.id < ids.limit(1).offset(MOST_TOLD).scalar_subquery()
                connection.execute(told.delete().where(told.c.head == head.id, old, sa.not_(told.c.standing)))
        return new

    def told(self, last: int) -> list[dict[str, Any]]:
        """Return the last events, the latest first: what each is, whether it stands, and when it was taken."""
        columns = (told.c.source, told.c.standing, told.c.event, told.c.time, told.c.sent, told.c.problem)
        found = self._rows(sa.select(*columns).order_by(told.c.id.desc()).limit(last))
        return [{**row._mapping, **json.loads(row.event)} for row in found]

    def unsent(self, oldest: str) -> list[tuple[int, dict[str, Any]]]:
        """Return the events since a timestamp that no webhook has taken, with their numbers, oldest first."""
        waiting = sa.select(told.c.id, told.c.event, told.c.time).where(told.c.sent.is_(None), told.c.time >= oldest)
        found = self._rows(waiting.order_by(told.c.id))
        return [(row.id, {**json.loads(row.event), "time": row.time}) for row in found]

    def mark_sent(self, number: int, problem: str = "") -> None:
        """Mark an event as taken by the webhook, or say why it was not."""
        with self.changing() as (connection, head):
            changed = {"problem": problem} if problem else {"sent": now(), "problem": None}
            connection.execute(told.update().where(told.c.head == head.id, told.c.id == number).values(**changed))

    # -- states of the tracker ------------------------------------------------------------------------------------

    def save_checkpoint(self, ticks: int, document: Mapping[str, Any], sketches: Mapping[str, bytes]) -> None:
        """Save a state of the tracker, and drop those that are needed no more.

        Of the older ones those are kept that are about 1, 2, 4, 8 … periods behind, so that a late row costs about as
        many periods as it is late. They are a cache: whatever is lost is learnt again from the journal.
        """
        with self.changing(create=True) as (connection, head):
            own = checkpoints.c.head == head.id
            kept: set[int] = set()
            for other in sorted(connection.scalars(sa.select(checkpoints.c.ticks).where(own))):  # oldest first
                behind = ticks - other
                if behind <= 0 or behind.bit_length() in kept:
                    connection.execute(checkpoints.delete().where(own, checkpoints.c.ticks == other))
                kept.add(behind.bit_length())
            content = msgspec.msgpack.encode(dict(sketches))
            row = {"head": head.id, "ticks": ticks, "document": _text(document), "sketches": content}
            connection.execute(checkpoints.insert().values(**row))

    def checkpoints(self) -> Iterator[tuple[int, dict[str, Any], dict[str, bytes]]]:
        """Yield the saved states, the latest first: periods learnt, state, and its sketch files.

        One that is damaged has an empty state and no sketches.
        """
        known = self._rows(sa.select(checkpoints.c.ticks).order_by(checkpoints.c.ticks.desc()))
        for (ticks,) in known:
            # One that was dropped meanwhile is not found any more.
            for found in self._rows(sa.select(checkpoints).where(checkpoints.c.ticks == ticks)):
                try:
                    sketches = msgspec.msgpack.decode(found.sketches, type=dict[str, bytes])
                    yield ticks, json.loads(found.document), sketches
                except (ValueError, TypeError, msgspec.MsgspecError):
                    yield ticks, {}, {}

    # -- documents ------------------------------------------------------------------------------------------------

    def put(self, kind: str, document: Any, name: str = "") -> None:
        """Save a document in the place of the one of the same kind and name; None removes it."""
        with self.changing(create=True) as (connection, head):
            own = (documents.c.head == head.id) & (documents.c.kind == kind) & (documents.c.name == name)
            connection.execute(documents.delete().where(own))
            if document is not None:
                row = {"head": head.id, "kind": kind, "name": name, "document": _text(document)}
                connection.execute(documents.insert().values(**row))

    def get(self, kind: str, name: str = "") -> Any:
        """Return a document; None if there is none."""
        return self.all(kind).get(name)

    def all(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind by its name."""
        query = sa.select(documents.c.name, documents.c.document).where(documents.c.kind == kind)
        return {name: json.loads(document) for name, document in self._rows(query)}


def _text(document: Any) -> str:
    return json.dumps(document, allow_nan=False)
