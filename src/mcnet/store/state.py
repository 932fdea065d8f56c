"""What the update job of a head keeps from run to run: runs, states of the tracker, and named documents."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from mcnet.store.schema import checkpoints, documents, runs
from mcnet.store.store import OfHead

MONITOR, FILES, REFUSED = "monitor", "files", "refused"
"""The kinds of documents: the monitor's evidence, the log files that were read, the last model that was refused."""
SUSPECT = "suspect"
"""The kind of the documents that mark periods which are suspect; the period is the name."""


class LoopState(OfHead):
    """The state of the loop of a head. Changes inside `Store.transaction` happen together with all others there.

    Parameters
    ----------
    store, head : the store, and the name of the head.
    """

    # -- runs -----------------------------------------------------------------------------------------------------

    def add_run(self, run: Mapping[str, Any]) -> None:
        """Add what a run did; a run without this has not ended, and the next one does again what it left undone.

        Parameters
        ----------
        run : its outcome and reason, and what the next runs need to know, as JSON-able values.
        """
        with self.changing(create=True) as (connection, head):
            connection.execute(runs.insert().values(head=head.id, line=_text(run)))

    def runs(self, last: int | None = None) -> list[dict[str, Any]]:
        """Return what the runs did, oldest first.

        Parameters
        ----------
        last : how many, the latest; all if None.
        """
        return self._lines(runs, last)

    # -- states of the tracker ------------------------------------------------------------------------------------

    def save_checkpoint(self, ticks: int, document: Mapping[str, Any], sketches: Mapping[str, bytes]) -> None:
        """Save a state of the tracker, and drop those that are needed no more.

        Of the older ones those are kept that are about 1, 2, 4, 8 … periods behind, so that a late row costs about as
        many periods as it is late. They are a cache: whatever is lost is learnt again from the journal.

        Parameters
        ----------
        ticks : how many periods it has learnt.
        document : its state.
        sketches : the sketch files that the state names.
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
        """Save a document in the place of the one of the same kind and name; None removes it.

        Parameters
        ----------
        kind : such as "monitor", "alarm" or "status".
        document : JSON-able values.
        name : tells documents of one kind apart.
        """
        with self.changing(create=True) as (connection, head):
            own = (documents.c.head == head.id) & (documents.c.kind == kind) & (documents.c.name == name)
            connection.execute(documents.delete().where(own))
            if document is not None:
                row = {"head": head.id, "kind": kind, "name": name, "document": _text(document)}
                connection.execute(documents.insert().values(**row))

    def get(self, kind: str, name: str = "") -> Any:
        """Return a document; None if there is none.

        Parameters
        ----------
        kind, name : as in `put`.
        """
        return self.all(kind).get(name)

    def all(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind by its name.

        Parameters
        ----------
        kind : as in `put`.
        """
        query = sa.select(documents.c.name, documents.c.document).where(documents.c.kind == kind)
        return {name: json.loads(document) for name, document in self._rows(query)}

    def replace_all(self, kind: str, wanted: Mapping[str, Any]) -> None:
        """Let these documents be all of a kind; those that are so already stay as they are.

        Parameters
        ----------
        kind : as in `put`.
        wanted : the documents by name.
        """
        there = self.all(kind)
        for name in there.keys() | wanted.keys():
            if there.get(name) != wanted.get(name):
                self.put(kind, wanted.get(name), name)


def _text(document: Any) -> str:
    return json.dumps(document, allow_nan=False)
