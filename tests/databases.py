"""Databases on this machine: a PostgreSQL server of the tests' own, started once; empty stores on both databases."""

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NO_POSTGRESQL = "PostgreSQL is not installed: apt-get install postgresql"
NO_PSYCOPG = "psycopg is not installed: pip install 'psycopg[binary]'"


def _program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL; Debian keeps the server's out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Server:
    """A PostgreSQL server with an empty database, which may be stopped and started again.

    It has no fsync, which takes seconds per start: tests kill processes, not the machine, and what they wrote stays.
    """

    def __init__(self) -> None:
        initdb, server = _program("initdb"), _program("pg_ctl")
        # The server refuses to run as root, as tests in a container often do.
        as_other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if initdb is None or server is None or (as_other and shutil.which("runuser") is None):
            pytest.skip(NO_POSTGRESQL)
        self.folder, self.port = Path(tempfile.mkdtemp(prefix="mcnet-postgresql-")), 0
        if as_other:
            shutil.chown(self.folder, "postgres")
        data = str(self.folder / "data")
        made = [initdb, "-D", data, "-U", "mcnet", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._command = [*as_other, server, "-D", data, "-w"]
        self._run(*as_other, *made)
        for last in (False, False, False, True):  # another process may take a free port before the server does
            self.port = _free_port()
            if self.start(check=last) == 0:
                break

    def _run(self, *words: str, check: bool = True) -> int:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(words, check=check, cwd=self.folder, **quiet).returncode

    @property
    def address(self) -> str:
        return f"postgresql://mcnet@127.0.0.1:{self.port}/postgres"

    def start(self, *, check: bool = True) -> int:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c jit=off -c fsync=off"
        return self._run(*self._command, "-l", str(self.folder / "log"), "-o", options, "start", check=check)

    def crash(self) -> None:
        """End all processes at once; the next start recovers from the log."""
        self._run(*self._command, "-m", "immediate", "stop", check=False)

    def remove(self) -> None:
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Start a server with an empty database; give the address of it."""
    server = Server()
    try:
        yield server.address
    finally:
        server.remove()


@pytest.fixture
def postgresql_store(postgresql: str) -> Iterator[Callable[[], str]]:
    """Return a function that gives the address of a new, empty schema of the server."""
    psycopg = pytest.importorskip("psycopg", reason=NO_PSYCOPG)
    made: list[str] = []

    def address() -> str:
        made.append(f"store_{uuid.uuid4().hex[:12]}")
        with psycopg.connect(postgresql, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {made[-1]}")
        return f"{postgresql}?options=-csearch_path%3D{made[-1]}"

    yield address
    with psycopg.connect(postgresql, autocommit=True) as connection:
        for name in made:
            # Connections that a killed process has left may still have locks.
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcnet'"
            connection.execute(ended)
            connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def store_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of a store that is not there yet, on either database."""
    if request.param == "sqlite":
        return str(tmp_path / "ads.db")
    return str(request.getfixturevalue("postgresql_store")())
