"""The store: everything that lives between runs, for any number of heads, in one database."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from mcnet._shared.files import whole_file
from mcnet.errors import Advice, BusyError, InputError
from mcnet.store.database import Changes, Database
from mcnet.store.schema import METADATA, SCHEMA, documents, entries, heads, history, runs, told, versions
from mcnet.store.settings import HeadSettings

if TYPE_CHECKING:
    from mcnet.model.model import CalibrationModel
    from mcnet.store.journal import Journal
    from mcnet.store.state import LoopState
    from mcnet.store.versions import Registry


DEFAULT_HEAD = "default"
"""The name of the head of a store in which nobody has named one."""

_LONGEST_NAME = 64


@dataclass(frozen=True)
class Head:
    """One named model of a store: its settings, and what additions to its journal are compared with."""

    id: int
    name: str
    settings_text: str
    """JSON, which `settings` reads when somebody asks."""
    shape: str | None
    first_period: str | None
    heaviest: float | None
    keys_forgotten: float | None
    """Feedback for periods that began before this timestamp is refused, since their keys are forgotten."""
    pointer: str
    moves: int
    """How often the pointer to the served version has moved."""
    fence: int

    @cached_property
    def settings(self) -> HeadSettings:
        """How its logs are read, and how its loop learns, publishes and watches."""
        return HeadSettings.of(json.loads(self.settings_text))


@dataclass(frozen=True)
class Lease:
    """The right to learn for a head; it ends when another process gets a higher number."""

    head: str
    fence: int


class Store:
    """Journals, versions and the state of the loop of any number of heads, in one database.

    What belongs together is one transaction, and readers never wait for writers. Nothing is opened or made before it is
    needed: the first rows or the first version make the tables.

    Parameters
    ----------
    address : the path of an SQLite file on a local disk, or postgresql://user@host/database for many machines.

    >>> import tempfile
    >>> from mcnet.sketch.sketch import Sketch
    >>> store = Store(tempfile.mkdtemp() + "/ads.db")
    >>> store.journal("ctr").add(Sketch.from_rows([0.1, 0.4], [0, 1]), "2026-11-16", source="shop").rows
    2
    >>> store.heads
    ['ctr']
    """

    def __init__(self, address: str | PathLike[str]) -> None:
        """Name the database; nothing is read or written yet."""
        self.database = Database(address)
        self.name = self.database.name
        """How people know the store; without secrets."""
        self.shapes: dict[str, Any] = {}
        """The fields and the resolution of the rows of heads, as far as this process has seen them."""

    def __repr__(self) -> str:
        return f"Store({self.name!r})"

    def close(self) -> None:
        """End the connections to the database; whatever is done later opens new ones."""
        self.database.close()

    # -- heads ----------------------------------------------------------------------------------------------------

    @property
    def heads(self) -> list[str]:
        """Return the names of all heads, sorted; none if there is no store yet."""
        return sorted(row.name for row in self.database.rows(sa.select(heads.c.name)))

    def chosen_head(self, head: str | None = None) -> str:
        """Return the head that is meant: the one named, the only one, or the default one.

        Parameters
        ----------
        head : its name; None if there is no choice.
        """
        if head is not None:
            if not isinstance(head, str) or not head.isprintable() or not 0 < len(head) <= _LONGEST_NAME or "/" in head:
                raise InputError(f"the head is {head!r}; name it by 1 to {_LONGEST_NAME} characters without a slash")
            return head
        there = self.heads
        if len(there) < 2:
            return there[0] if there else DEFAULT_HEAD
        if DEFAULT_HEAD in there:
            return DEFAULT_HEAD
        raise InputError(f"{self.name} has the heads {', '.join(there)}; name one of them: head={there[0]!r}")

    def find_head(self, name: str) -> Head | None:
        """Return a head; None if the store, or the head, is not there.

        Parameters
        ----------
        name : of the head.
        """
        return next(iter(self.read_heads(name)), None)

    def require_head(self, name: str) -> Head:
        """Return a head; refuse one that is not there.

        Parameters
        ----------
        name : of the head.
        """
        for head in self.read_heads(name):
            return head
        with self.database.reading():  # refuses a store that is not there
            raise InputError(f"{self.name} has no head {name!r}; it has {', '.join(self.heads) or 'none'}")

    def configure(self, head: str | None = None, settings: HeadSettings | None = None, **given: Any) -> HeadSettings:
        """Change settings of a head; the first one of a store is made by it.

        Parameters
        ----------
        head : its name.
        settings : those that change.
        given : the same by name, those of `HeadSettings`; None lets a setting be as usual.

        Returns
        -------
        HeadSettings : all settings of the head.
        """
        later = HeadSettings.of(given, settings)
        with self.writing_head("journal", self.chosen_head(head)) as (connection, found):
            kept = found.settings.without(name for name, value in given.items() if value is None).changed_by(later)
            connection.execute(heads.update().where(heads.c.id == found.id).values(settings=json.dumps(kept.given)))
        return kept

    @contextmanager
    def writing_head(self, lock: str, name: str, *, create: bool = True) -> Iterator[tuple[Connection, Head]]:
        """Change something of a head in a transaction, one process at a time.

        Parameters
        ----------
        lock : what is changed: "journal" or "versions".
        name : the head.
        create : make the first head of a store if it is not there; any other one is refused.

        Yields
        ------
        tuple : the connection, and the head as it is now.
        """
        with self.database.writing("nothing was added", create=create) as connection:
            found = self.find_head(name)
            if found is None and create:
                self.database.lock(connection, "schema")
                self.refuse_unknown_head(name)
                self.add_head(name)
            found = found or self.require_head(name)
            self.database.lock(connection, lock, found.id)
            if not self.database.is_sqlite:  # it may have changed while this process was waiting
                found = self.require_head(name)
            yield connection, found

    def refuse_unknown_head(self, name: str) -> None:
        """Refuse rows and versions for a head that is not there, unless it is the first one, which they make.

        Parameters
        ----------
        name : of the head.
        """
        there = self.heads
        if there and name not in there:
            raise InputError(
                f"{self.name} has no head {name!r}; it has {', '.join(there)}",
                advice=Advice(f"store.add_head({name!r}) makes it", shell=f"--new-head {name} makes it"),
            )

    def add_head(self, name: str) -> None:
        """Make a head; one that is there stays as it is. Rows and versions make the first head of a store themselves.

        Parameters
        ----------
        name : of the head.
        """
        chosen = self.chosen_head(name)
        with self.database.writing() as connection:
            self.database.lock(connection, "schema")
            if self.find_head(chosen) is None:  # else another process has just made it
                connection.execute(heads.insert().values(name=chosen))

    # -- what a head has ------------------------------------------------------------------------------------------

    def journal(self, head: str | None = None) -> "Journal":
        """Return the journal of a head: its rows by period and source.

        Parameters
        ----------
        head : its name; the only or the default one if None.
        """
        from mcnet.store.journal import Journal

        return Journal(self, head)

    def versions(self, head: str | None = None) -> "Registry":
        """Return the versions of a head, and the pointer to the one that is served.

        Parameters
        ----------
        head : its name; the only or the default one if None.
        """
        from mcnet.store.versions import Registry

        return Registry(self, head)

    def state(self, head: str | None = None) -> "LoopState":
        """Return what the update job of a head keeps from run to run.

        Parameters
        ----------
        head : its name; the only or the default one if None.
        """
        from mcnet.store.state import LoopState

        return LoopState(self, head)

    def load(self, head: str | None = None, version: int | str = "current") -> "CalibrationModel":
        """Load the model that a head serves.

        Parameters
        ----------
        head : its name; the only or the default one if None.
        version : its number, "latest" or "current".

        Returns
        -------
        CalibrationModel : the model.
        """
        return self.versions(head).load(version)

    # -- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, lease: Lease | None = None, what: str = "nothing was written") -> Iterator[None]:
        """Let everything that this thread changes inside the block happen together, or not at all.

        Parameters
        ----------
        lease : refuse the block if another process has begun to learn for this head.
        what : what became of the work, if the disk is full.

        Yields
        ------
        None : once the transaction has begun.
        """
        with self.database.writing(what) as connection:
            if lease is not None:
                query = sa.select(heads.c.fence).where(heads.c.name == lease.head)
                if connection.scalar(query.with_for_update(read=True)) != lease.fence:
                    raise BusyError(
                        f"another process has begun to learn for {lease.head} in {self.name} while this one stood "
                        "still; nothing was published"
                    )
            yield

    @contextmanager
    def learning(self, head: str | None = None, *, wait_seconds: float = 60.0) -> Iterator[Lease]:
        """Let one process at a time learn for a head; what it publishes goes through `transaction(lease)`.

        Parameters
        ----------
        head : its name; the only or the default one if None.
        wait_seconds : how long to wait for another process that is at work.

        Yields
        ------
        Lease : the right to learn.

        Raises
        ------
        BusyError : another process is still at work after that time.
        """
        name = self.chosen_head(head)
        with self.writing_head("versions", name) as (_, found):
            number = found.id
        with self.database.learning(number, wait_seconds) as fence:
            yield Lease(name, fence)

    def read_heads(self, *names: str) -> list[Head]:
        """Return the heads of these names, all if there are none, as they are now, by name; none without a store.

        Parameters
        ----------
        names : of the heads.
        """
        chosen = heads.c.name.in_(names) if names else sa.true()
        columns = [heads.c[one.name.removesuffix("_text")] for one in fields(Head)]
        query = sa.select(*columns).where(chosen).order_by(heads.c.name)
        rows = self.database.rows(query)
        return [Head(*row) for row in rows]

    def changes(self, poll_seconds: float = 0.5) -> Changes:
        """Return what waits for pointers that have moved.

        Parameters
        ----------
        poll_seconds : how often to look where the database does not tell.
        """
        return Changes(self.database, poll_seconds)

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Read everything and find what is wrong: rows, versions and models by their digests, the rest as JSON.

        What the states of the tracker and the monitor mean is read by `mcnet store check`, too.

        Returns
        -------
        list[str] : a sentence per problem; empty if there is none.
        """
        problems = []
        if self.database.is_sqlite:
            with self.database.reading() as connection:
                found = [str(line) for line in connection.exec_driver_sql("PRAGMA integrity_check").scalars()]
            problems += [f"{self.name}: {line}; restore it from a backup" for line in found if line != "ok"]
        for head in self.heads:
            problems += self.journal(head).verify() + self.versions(head).verify()
            for table, text in (
                (documents, documents.c.document),
                (history, history.c.line),
                (runs, runs.c.line),
                (told, told.c.event),
            ):
                in_order = sa.select(text).order_by(*table.primary_key.columns)
                for place, line in enumerate(self.database.rows(of_head(in_order, head)), 1):
                    try:
                        json.loads(line[0])
                    except (ValueError, TypeError) as error:
                        what = f"line {place} of the {table.name} of {head} in {self.name} is no JSON ({error})"
                        problems.append(f"{what}; restore the store from a backup")
        return problems

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy a store in a file to another file, while others read and write it.

        A copy made by other means lacks what still lies in the file beside it (its name ends in -wal).

        Parameters
        ----------
        path : the copy; one that is there is replaced.
        """
        if self.database.path is None:
            raise InputError(f"{self.name} is backed up with the tools of PostgreSQL: pg_dump")
        if Path(path).exists() and Path(path).samefile(self.database.path):
            raise InputError(f"{path} is the store itself; name another file for its copy")
        with self.database.reading(), whole_file(path) as part:
            part.chmod(0o600)
            with closing(sqlite3.connect(self.database.path)) as source, closing(sqlite3.connect(part)) as target:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")  # one file, with everything

    def show(self) -> dict[str, Any]:
        """Return what the store has, by head, as JSON-able values."""
        described: dict[str, Any] = {}
        for name in self.heads:
            registry, journal = self.versions(name), self.journal(name)
            found, periods = journal.entries(), journal.periods
            described[name] = {
                "settings": self.require_head(name).settings.given,
                "periods": len(periods),
                "first_period": periods[0] if periods else None,
                "last_period": periods[-1] if periods else None,
                "sources": len({entry.source for entry in found}),
                "rows": sum(entry.rows for entry in found),
                "versions": len(registry.numbers),
                "current": registry.current_number,
                "held": None if registry.held is None else str(registry.held),
                "runs": self.database.rows(of_head(sa.select(sa.func.count(runs.c.id)), name))[0][0],
            }
        return {"store": self.name, "schema": SCHEMA, "heads": described}

    def forget(self, before: Any, head: str | None = None) -> dict[str, int]:
        """Delete the rows of all periods earlier than one, for good; versions stay.

        Parameters
        ----------
        before : the first period that stays.
        head : its name; the only or the default one if None.

        Returns
        -------
        dict : how many periods, rows and keys were deleted.
        """
        from mcnet.store.additions import forget_periods

        return forget_periods(self.journal(head), before)

    def remove_head(self, head: str, *, if_empty: bool = False) -> bool:
        """Delete a head with everything that belongs to it, for good.

        Parameters
        ----------
        head : its name.
        if_empty : only if it has neither rows nor versions.

        Returns
        -------
        bool : whether it was deleted.
        """
        with self.writing_head("journal", head, create=False) as (connection, found):
            for table in (entries, versions) if if_empty else ():
                if connection.scalar(sa.select(sa.func.count()).select_from(table).where(table.c.head == found.id)):
                    return False
            for table in reversed(METADATA.sorted_tables):
                if "head" in table.c:
                    connection.execute(table.delete().where(table.c.head == found.id))
            connection.execute(heads.delete().where(heads.c.id == found.id))
        return True


class OfHead:
    """Something of one head of a store: its journal, its versions, or the state of its loop.

    Parameters
    ----------
    store : the store, or its address.
    head : its name; the only or the default one if None.
    """

    lock = "versions"
    """What of the head is changed by one process at a time."""

    def __init__(self, store: Store | str | PathLike[str], head: str | None = None) -> None:
        self.store = store if isinstance(store, Store) else Store(store)
        self.head = self.store.chosen_head(head)
        self.path = self.store.name
        """How messages call it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.name!r}, {self.head!r})"

    def _rows(self, query: sa.Select[Any]) -> list[Any]:
        """Return the rows of a query of one table that belong to the head; none if the head is not there."""
        return self.store.database.rows(of_head(query, self.head))

    def _lines(self, table: sa.Table, last: int | None) -> list[dict[str, Any]]:
        """Return the last lines of a table that belong to the head, all if None, oldest first."""
        query = sa.select(table.c.line).order_by(table.c.id.desc()).limit(last)
        return [json.loads(row.line) for row in reversed(self._rows(query))]

    def changing(self, *, create: bool = False) -> AbstractContextManager[tuple[Connection, Head]]:
        """Change something of the head in one transaction, one process at a time.

        Parameters
        ----------
        create : make a head that is not there; else it is refused.

        Returns
        -------
        AbstractContextManager : gives the connection, and the head as it is now.
        """
        return self.store.writing_head(self.lock, self.head, create=create)


def of_head(query: sa.Select[Any], head: str) -> sa.Select[Any]:
    """Return a query of one table, restricted to the rows of the head of a name."""
    (table,) = query.get_final_froms()
    return query.where(table.c.head == sa.select(heads.c.id).where(heads.c.name == head).scalar_subquery())
