"""The database of a store: SQLite or PostgreSQL, its transactions, locks, schema and errors in our words."""

import errno
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, Engine, make_url

from mcnet._shared.files import disk_path, exclusive_lock
from mcnet._shared.messages import first_line, need_extra
from mcnet.errors import BusyError, FileFormatError, InputError, StoreUnavailableError
from mcnet.rows.locations import DATABASE_URL
from mcnet.store.schema import METADATA, SCHEMA, heads, schema

WAIT_SECONDS = 30.0
"""How long a writer waits for another one."""

_NETWORK_FILE_SYSTEM = re.compile(
    r"nfs4?|cifs|smb3|smbfs|afs|ceph|lustre|glusterfs|beegfs|gpfs|"
    r"fuse\.(ceph|glusterfs|sshfs|s3fs|gcsfuse|blobfuse2|rclone)"
)

_UNWRITTEN = ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHM", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_FSYNC")
"""How SQLite calls files that cannot grow."""

_CURES = {
    'database ".*" does not exist': "make the database first (createdb), or name another",
    'authentication failed|no password supplied|role ".*" does not exist|no pg_hba.conf entry': (
        "check the user, and its password in PGPASSWORD, PGPASSFILE or ~/.pgpass"
    ),
}
"""What to do where PostgreSQL refuses a connection, by what it says."""

_CHANNEL = "mcnet"
"""Where PostgreSQL tells of pointers that have moved."""
_LOCKS = {"schema": 0x6D63_0000, "journal": 0x6D63_0001, "versions": 0x6D63_0002, "learning": 0x6D63_0003}
"""The first number of an advisory lock; the second is that of the head."""

_PING_SECONDS, _STALLED_SECONDS = 15.0, 60
"""A process that learns shows so often that it is at work; without this, PostgreSQL gives its lock to another one."""


class Database:
    """One SQLite file or postgresql://…, opened at its first use; threads may share it, and a fork may inherit it."""

    def __init__(self, address: str | PathLike[str]) -> None:
        text = fspath(address) if isinstance(address, str | PathLike) else ""
        self.given = text
        self.path: Path | None = None
        if DATABASE_URL.match(text):
            self.url = _postgresql_url(text)
        elif re.search(r"\bpassword\s*=", text):
            raise InputError("a store is a path or postgresql://…; passwords belong in the environment (PGPASSWORD)")
        else:
            self.path = disk_path(address, "a store in a file")
            self.url = URL.create("sqlite", database=str(self.path.absolute()))
        self.is_sqlite = self.path is not None
        """Whether it is a file on this machine."""
        self.name = str(self.path or self.url.set(drivername="postgresql").render_as_string(hide_password=True))
        """How people know the database; without secrets."""
        self._engine: tuple[int, Engine] | None = None
        self._joined = threading.local()
        self._is_current = False
        self._file: tuple[int, int] | None = None

    # -- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one state of the database, whatever is written meanwhile; it never waits."""
        joined = getattr(self._joined, "connection", None)
        if joined is not None:
            yield joined
            return
        with self.translated():
            self._open(create=False)
            with self._begin(write=False) as connection:
                yield connection

    def rows(self, query: sa.Select[Any]) -> list[Any]:
        """Return the rows of a query; none if there is no store."""
        joined = getattr(self._joined, "connection", None)
        if joined is not None:
            return list(joined.execute(query))
        if not self.exists():
            return []
        with self.translated(), self._begin(write=False) as connection:
            return list(connection.execute(query))

    @contextmanager
    def writing(self, what: str = "nothing was written", *, create: bool = True) -> Iterator[Connection]:
        """Give a connection whose changes happen together or not at all; a block inside another one joins it.

        An error says `what` became of the work. A store that is not there is refused, unless it may be created.
        """
        joined = getattr(self._joined, "connection", None)
        if joined is not None:
            yield joined
            return
        with self.translated(what):
            self._open(create=create)
            with self._begin(write=True) as connection:
                self._joined.connection = connection
                try:
                    yield connection
                finally:
                    self._joined.connection = None

    @contextmanager
    def _begin(self, *, write: bool) -> Iterator[Connection]:
        options: dict[str, Any] = {"mcnet_write": write}
        if not self.is_sqlite:
            options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
            options["postgresql_readonly"] = not write
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def lock(self, connection: Connection, what: str, head_id: int = 0) -> None:
        """Let one process at a time change something of a head until the transaction ends; SQLite has one writer."""
        if not self.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCKS[what], head_id)))

    # -- opening --------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The pool of connections of this process."""
        if self._engine is None or self._engine[0] != os.getpid():
            self._engine = (os.getpid(), self._new_engine())
            weakref.finalize(self, _dispose, *self._engine)
        return self._engine[1]

    def close(self) -> None:
        """End the connections that nobody uses now; whatever is done later opens new ones."""
        if self._engine is not None:
            _dispose(*self._engine)

    def _new_engine(self) -> Engine:
        if self.is_sqlite:
            engine = sa.create_engine(self.url, connect_args={"timeout": WAIT_SECONDS}, max_overflow=-1)
            sa.event.listen(engine, "connect", _set_up_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
            return engine
        # The encoding is named, since psycopg returns bytes for the strings of a database that has none (SQL_ASCII).
        defaults: dict[str, Any] = {"client_encoding": "utf8", "application_name": "mcnet", "tcp_user_timeout": 30_000}
        defaults |= {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
        given = {name: value for name, value in defaults.items() if name not in self.url.query}
        need_extra("postgresql", "a store in PostgreSQL")
        engine = sa.create_engine(self.url, connect_args=given, pool_pre_ping=True, max_overflow=-1)
        sa.event.listen(engine, "connect", _set_up_postgresql)
        return engine

    def exists(self) -> bool:
        """Tell whether there is a store; refuse one of another schema, and what is none."""
        file = None  # what tells the file at the path from another one that takes its place
        with suppress(FileNotFoundError):
            found = None if self.path is None else os.stat(self.path)
            file = None if found is None else (found.st_dev, found.st_ino)
        if self._is_current and (self.path is None or (file is not None and file == self._file)):
            return True
        if self._is_current:  # the file was deleted or replaced: what is open is no longer what the path names
            self.close()
            self._engine, self._is_current = None, False
        if self.path is not None:
            self._refuse_other_things()
            if file is None:
                return False
        with self.translated(), self._begin(write=False) as connection:
            number = self._schema(connection)
        if number not in (None, str(SCHEMA)):
            raise FileFormatError(
                f"{self.name} has tables of schema {number}, and this mcnet reads schema {SCHEMA}; use the mcnet that "
                "made it, or add the logs to a new store"
            )
        self._is_current, self._file = number is not None, file
        return self._is_current

    def _open(self, *, create: bool) -> None:
        """Make the tables of a store that is not there."""
        if self.exists():
            return
        if not create:
            raise InputError(f"there is no store in {self.name}; adding rows or a version to it makes one")
        self._create()
        self.exists()

    def _refuse_other_things(self) -> None:
        assert self.path is not None
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder; a store is a file, or postgresql://…")
        if not self.path.parent.is_dir():
            raise InputError(f"the folder {self.path.parent} does not exist; make it first")
        kind = _file_system(self.path)
        if _NETWORK_FILE_SYSTEM.fullmatch(kind or ""):
            raise InputError(
                f"{self.path} is on a network file system ({kind}), where SQLite may lose rows; name a path on a "
                "local disk, or use postgresql://…"
            )

    def _create(self) -> None:
        if self.path is not None:
            with suppress(FileExistsError):  # SQLite gives its other files the same mode
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with self._begin(write=True) as connection:
            self.lock(connection, "schema")
            if self._schema(connection) is None:  # else another process has just made them
                METADATA.create_all(connection, checkfirst=False)
                connection.execute(schema.insert().values(number=SCHEMA))

    def _schema(self, connection: Connection) -> str | None:
        """Return the number of the schema of the tables, as it is written there; None if there are none."""
        there = sa.inspect(connection).get_table_names()
        if schema.name in there:
            return str(connection.scalar(sa.select(sa.text("*")).select_from(schema)))
        if self.is_sqlite and there:
            raise InputError(f"{self.name} is an SQLite database of something else; name another file")
        taken = sorted({table.name for table in METADATA.sorted_tables} & set(there))
        if taken:
            raise InputError(
                f"{self.name} has a table {taken[0]!r} that is not of a store; use a database of its own, or a schema "
                "of its own with ?options=-csearch_path%3Dmcnet"
            )
        return None

    # -- learning, and following ----------------------------------------------------------------------------------

    @contextmanager
    def learning(self, head_id: int, wait_seconds: float) -> Iterator[int]:
        """Let one process at a time learn for a head, and give its fencing number.

        The lock is handed on when its holder ends, or shows no sign of life for a minute.
        """
        what = f"learning in {self.name}"
        if self.path is not None:
            with exclusive_lock(self.path.with_name(f"{self.path.name}-learning-{head_id}"), wait_seconds, what):
                yield self._next_fence(head_id)
            return
        until = time.monotonic() + wait_seconds
        with self.translated(), self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text(f"SET idle_session_timeout = '{_STALLED_SECONDS}s'"))
            try_lock = sa.select(sa.func.pg_try_advisory_lock(_LOCKS["learning"], head_id))
            while not connection.scalar(try_lock):
                if time.monotonic() >= until:
                    raise BusyError(
                        f"another process is {what} and has not ended after {wait_seconds:g} s; "
                        "try again later, or wait longer"
                    )
                time.sleep(0.05)
            ended = threading.Event()
            ping = threading.Thread(target=_ping, args=(connection, ended), name="mcnet-learning", daemon=True)
            ping.start()
            try:
                yield self._next_fence(head_id)
            finally:
                ended.set()
                ping.join()
                connection.invalidate()  # the session ends, and the lock with it

    def _next_fence(self, head_id: int) -> int:
        with self.writing() as connection:
            one = heads.c.id == head_id
            connection.execute(heads.update().where(one).values(fence=heads.c.fence + 1))
            return int(connection.scalar(sa.select(heads.c.fence).where(one)) or 0)

    def tell(self, connection: Connection, head: str) -> None:
        """Tell all processes, once the transaction is committed, that the pointer of a head has moved."""
        if not self.is_sqlite:
            connection.execute(sa.select(sa.func.pg_notify(_CHANNEL, head)))

    # -- errors ---------------------------------------------------------------------------------------------------

    @contextmanager
    def translated(self, what: str = "nothing was written") -> Iterator[None]:
        """Raise errors of the database as ours."""
        try:
            yield
        except exc.DBAPIError as error:
            raise self._error(error, what) from None
        except exc.TimeoutError as error:
            raise StoreUnavailableError(f"{self.name} has no free connection ({error}); try again") from None

    def _error(self, error: exc.DBAPIError, what: str) -> Exception:
        reason = first_line(error.orig or error)
        code = getattr(error.orig, "sqlstate", None) or ""
        unwritten = str(getattr(error.orig, "sqlite_errorname", "")).startswith(_UNWRITTEN)  # a quota, for one
        if unwritten or re.search("database or disk is full|No space left", reason) or code == "53100":
            return OSError(errno.ENOSPC, f"no space left on the disk, {what}", self.name)
        if "disk I/O error" in reason:
            why = "the disk is full, over its quota, or failing"
            return StoreUnavailableError(f"{self.name} cannot be written ({reason}: {why}); {what}, try again later")
        if re.search("database (table )?is locked", reason) or code in ("55P03", "40P01"):
            return BusyError(f"another process is writing to {self.name} ({reason}); try again later")
        if re.search("readonly|unable to open", reason) or code == "42501":
            return InputError(f"{self.name} cannot be used ({reason}); check the rights of this user on it")
        if re.search("not a database|malformed", reason):
            return FileFormatError(f"{self.name} is not a store, or damaged ({reason}); restore it from a backup")
        if isinstance(error, exc.OperationalError | exc.InterfaceError) or error.connection_invalidated:
            cure = next((cure for sign, cure in _CURES.items() if re.search(sign, reason)), "try again later")
            return StoreUnavailableError(f"{self.name} cannot be reached ({reason}); {what}, {cure}")
        return StoreUnavailableError(f"{self.name} refused a statement ({reason}); {what}")


class Changes:
    """Waits for pointers that have moved: PostgreSQL tells, and of a file SQLite's counter of commits is read."""

    def __init__(self, database: Database, poll_seconds: float = 0.5) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._connection: Any = None
        self._commits: int | None = None

    def wait(self, seconds: float) -> bool:
        """Return True as soon as a pointer may have moved, False if none has after so many seconds.

        While the database cannot be reached, True is returned after the interval of polling: looking tells.
        """
        until = time.monotonic() + seconds
        try:
            if not self._database.is_sqlite:
                return self._told(seconds)
            while True:
                commits = self._sqlite_commits()
                if commits != self._commits:
                    self._commits = commits
                    return True
                left = until - time.monotonic()
                if left <= 0.0:
                    return False
                time.sleep(min(self._poll_seconds, left))
        except Exception:
            self.close()
            time.sleep(max(min(self._poll_seconds, until - time.monotonic()), 0.0))
            return True

    def _told(self, seconds: float) -> bool:
        if self._connection is None:
            connection = self._connected()
            connection.autocommit = True
            connection.execute(f"LISTEN {_CHANNEL}")
            return True  # whatever moved before
        return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))

    def _sqlite_commits(self) -> int:
        return int((self._connection or self._connected()).execute("PRAGMA data_version").fetchone()[0])

    def _connected(self) -> Any:
        pooled = self._database.engine.raw_connection()
        self._connection = pooled.dbapi_connection
        pooled.detach()  # it is kept, and never one of the pool again
        return self._connection

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def _postgresql_url(text: str) -> URL:
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):
        url = URL.create("none")
    if not url.drivername.lower().startswith("postgres"):  # the address may have a password, and is not shown
        raise InputError(
            "a store is a file on this machine, named by its path, or postgresql://user@host:port/database"
        )
    if url.password is not None or any("password" in name for name in url.query):
        raise InputError(
            f"{url.set(password='***', query={}).render_as_string()} has a password, which lists of processes and logs "
            "would show; leave it out, and set PGPASSWORD, PGPASSFILE or ~/.pgpass, or use ?service= of libpq"
        )
    return url.set(drivername="postgresql+psycopg")


def _dispose(process: int, engine: Engine) -> None:
    engine.dispose(close=process == os.getpid())  # after a fork they belong to the other process


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A writer waits here for its turn; one that began as a reader could not.
    write = connection.get_execution_options().get("mcnet_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _set_up_postgresql(connection: Any, _: Any) -> None:
    autocommit, connection.autocommit = connection.autocommit, True
    durable = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    connection.execute(durable)  # an answer means that the rows are on disk
    connection.execute(f"SET lock_timeout = '{WAIT_SECONDS:g}s'")
    connection.autocommit = autocommit


def _ping(connection: Connection, ended: threading.Event) -> None:
    while not ended.wait(_PING_SECONDS):
        with suppress(exc.SQLAlchemyError):
            connection.execute(sa.text("SELECT 1"))


def _file_system(path: Path) -> str | None:
    """Return the type of the file system that a path lies on, where Linux tells."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        real = path.resolve()
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = Path(left.split(" ")[4].encode().decode("unicode_escape"))
        if len(mount.parts) >= best and (real == mount or mount in real.parents):
            best, kind = len(mount.parts), right.split(" ")[0]
    return kind
