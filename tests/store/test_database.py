"""The database of a store: files and servers, what is refused, the schema, and rights."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.databases import NO_PSYCOPG
from tests.store.conftest import model, rows

from mcnet.errors import FileFormatError, InputError, StoreUnavailableError
from mcnet.store.feedback import FeedbackRows, add_feedback
from mcnet.store.schema import METADATA, SCHEMA, schema
from mcnet.store.store import Store

# -- the file, the server, and what is refused ---------------------------------------------------------------------


def test_a_file_is_readable_by_its_owner_alone_and_every_commit_is_on_disk(tmp_path):
    store = Store(tmp_path / "ads.db")
    store.journal().add(rows(1), 1)
    with store.learning():
        pass
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    with store.database.reading() as connection:
        pragmas = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]


def test_reading_makes_no_file(tmp_path):
    store = Store(tmp_path / "typo.db")
    assert (store.heads, store.journal().periods, store.versions().numbers) == ([], [], [])
    with pytest.raises(InputError, match=r"there is no store in .*typo.db"):
        store.journal().sketch()
    with pytest.raises(InputError, match="does not exist"):
        Store(tmp_path / "no" / "ads.db").journal().add(rows(1), 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_sqlite_on_a_network_file_system_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("mcnet.store.database._file_system", lambda _: kind)
    with pytest.raises(InputError, match=rf"network file system \({kind}\).*postgresql"):
        Store(tmp_path / "ads.db").journal().add(rows(1), 1)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder; a store is a file"):
        Store(tmp_path).heads  # noqa: B018


def test_other_files_and_databases_are_refused(tmp_path, postgresql_store):
    (tmp_path / "notes.txt").write_text("mine, and long enough to be taken for the head of a database file" * 30)
    with pytest.raises(FileFormatError, match="is not a store, or damaged"):
        Store(tmp_path / "notes.txt").heads  # noqa: B018
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(InputError, match="SQLite database of something else"):
        Store(tmp_path / "other.db").journal().add(rows(1), 1)
    other = Store(postgresql_store())
    with other.database.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE entries (x int)"))
    with pytest.raises(InputError, match="has a table 'entries' that is not of a store"):
        other.journal().add(rows(1), 1)


def test_a_role_without_rights_is_told_so(postgresql_store, postgresql):
    store = Store(postgresql_store())
    store.journal().add(rows(1), 1)
    schema = store.database.given.rpartition("%3D")[2]
    with store.database.engine.begin() as connection:
        connection.execute(sa.text("DROP ROLE IF EXISTS reader"))
        connection.execute(sa.text("CREATE ROLE reader LOGIN"))
        connection.execute(sa.text(f"GRANT USAGE ON SCHEMA {schema} TO reader"))
        connection.execute(sa.text(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader"))
    reader = Store(store.database.given.replace("mcnet@", "reader@"))
    assert reader.journal().periods == ["1"]
    with pytest.raises(InputError, match=r"permission denied for table .*check the rights"):
        reader.journal().add(rows(2), 2)
    with store.database.engine.begin() as connection:
        connection.execute(sa.text("DROP OWNED BY reader"))
        connection.execute(sa.text("DROP ROLE reader"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://me:secret@db/ads", "PGPASSWORD"),
        ("POSTGRES://me:secret@db/ads", "PGPASSWORD"),
        ("postgresql://me@db/ads?password=secret", "PGPASSWORD"),
        ("postgresql://me@db/ads?sslpassword=secret", "PGPASSWORD"),
        ("postgresql:/me:secret@db/ads", "postgresql://user@host:port/database"),
        ("postgresql://me:secret@db:port/ads", "postgresql://user@host:port/database"),
        ("mysql+pymysql://me:secret@db/ads", "postgresql://user@host:port/database"),
    ],
)
def test_a_password_in_the_address_is_refused_and_not_shown(address, said):
    with pytest.raises(InputError, match=said) as caught:
        Store(address)
    assert "secret" not in str(caught.value)


def test_a_server_that_cannot_be_reached_is_said_to_be():
    pytest.importorskip("psycopg", reason=NO_PSYCOPG)
    store = Store("postgresql://me@127.0.0.1:1/ads")
    with pytest.raises(StoreUnavailableError, match=r"postgresql.*me@127.0.0.1:1/ads cannot be reached"):
        store.heads  # noqa: B018


def test_a_full_disk_is_told_with_the_name_of_the_store(tmp_path):
    store = Store(tmp_path / "ads.db")
    store.journal().add(rows(1), 1, source="a")
    with store.database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    sa.event.listen(store.database.engine, "begin", lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}"))
    many = {period: rows(period) for period in range(2, 200)}
    with pytest.raises(OSError, match="no space left on the disk, nothing was added") as caught:
        store.journal().add_parts(many, source="a")
    assert caught.value.filename == str(tmp_path / "ads.db")
    again = Store(tmp_path / "ads.db")
    assert (again.journal().periods, again.check()) == (["1"], [])


def test_a_store_can_be_used_after_a_fork(tmp_path):
    store = Store(tmp_path / "ads.db")
    store.journal().add(rows(1), 1, source="a")
    child = os.fork()
    if child == 0:
        try:
            store.journal().add(rows(2), 2, source="a")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    store.journal().add(rows(3), 3, source="a")
    assert store.journal().periods == ["1", "2", "3"]


# -- the schema ----------------------------------------------------------------------------------------------------


def test_a_store_of_another_schema_is_refused_with_what_to_do(store):
    store.journal().add(rows(1), 1)
    with store.database.writing() as connection:
        connection.execute(schema.update().values(number=SCHEMA + 1))
    said = (
        rf"has tables of schema {SCHEMA + 1}, and this mcnet reads schema {SCHEMA}; use the mcnet that made it, or add"
    )
    with pytest.raises(FileFormatError, match=said):
        Store(store.database.given).heads  # noqa: B018


@pytest.mark.parametrize("fails", [False, True])
def test_the_tables_are_made_as_a_whole_or_not_at_all(store, monkeypatch, fails):
    if fails:
        with monkeypatch.context() as patched:
            patched.setattr("mcnet.store.database.SCHEMA", "one")  # the last statement is refused
            with pytest.raises(StoreUnavailableError):
                store.journal().add(rows(1), 1)
        assert not Store(store.database.given).database.exists()
    store.journal().add(rows(1), 1)
    with store.database.reading() as connection:
        looking = sa.inspect(connection)
        there = {name: {one["name"] for one in looking.get_columns(name)} for name in looking.get_table_names()}
        assert there == {name: set(table.columns.keys()) for name, table in METADATA.tables.items()}
        assert connection.scalar(sa.select(schema.c.number)) == SCHEMA


def test_a_database_without_an_encoding_has_a_store_as_any_other(postgresql):
    psycopg = pytest.importorskip("psycopg", reason=NO_PSYCOPG)
    with psycopg.connect(postgresql, autocommit=True) as admin:
        admin.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    store = Store(postgresql.replace("/postgres", "/plain"))
    store.journal("größe").add(rows(1), 1, source="東京")
    assert (store.heads, store.journal().sources(), store.check()) == (["größe"], {"東京"}, [])
    store.close()


@pytest.mark.parametrize(
    ("change", "cure"),
    [
        (("/postgres", "/none"), "make the database first"),
        (("mcnet@", "stranger@"), "check the user, and its password"),
    ],
)
def test_a_server_that_refuses_says_what_to_do(postgresql, change, cure):
    pytest.importorskip("psycopg", reason=NO_PSYCOPG)
    with pytest.raises(StoreUnavailableError, match=cure):
        Store(postgresql.replace(*change)).heads  # noqa: B018


def test_the_roles_of_the_page_have_the_rights_they_need_and_no_others(postgresql_store):
    store = Store(postgresql_store())
    store.journal("ctr").add(rows(1), "2026-11-16", source="log")
    store.versions("ctr").add(model(1))
    script = (Path(__file__).parents[2] / "deploy" / "roles.sql").read_text(encoding="utf-8")
    logins = {"service": "mcnet_serve", "nightly": "mcnet_learn"}
    with store.database.engine.begin() as connection:
        for _ in range(2):  # it may be run again
            connection.exec_driver_sql(script.replace("%", "%%"))
        for login, role in logins.items():
            connection.execute(sa.text(f"CREATE ROLE {login} LOGIN IN ROLE {role}"))
    service, nightly = (Store(store.database.given.replace("mcnet@", f"{login}@")) for login in logins)
    try:
        for role, rights in (("mcnet_serve", {"SELECT"}), ("mcnet_learn", {"SELECT", "INSERT", "UPDATE", "DELETE"})):
            for table in set(METADATA.tables) - {schema.name}:
                assert rights <= _rights(store, role, table), f"{role} on {table}"
            assert _rights(store, role, schema.name) == {"SELECT"}
        (added,) = add_feedback(
            service, [FeedbackRows("ctr", "2026-11-17", "a-1", rows(2), every="1d", allow=["period"])]
        )
        assert added.rows == 50
        assert service.load("ctr").method == "platt"
        service.versions("ctr").hold("by a request with the token")
        with pytest.raises(InputError, match=r"permission denied for table versions.*check the rights"):
            service.versions("ctr").add(model(2))
        with nightly.learning("ctr") as lease, nightly.transaction(lease):
            nightly.versions("ctr").add(model(2))
            nightly.state("ctr").add_run({"outcome": "published"})
        nightly.journal("ctr").compact_feedback()
        nightly.add_head("cvr")
        change = sa.text("ALTER TABLE heads ADD COLUMN more TEXT")
        with pytest.raises(InputError, match="must be owner of table heads"), nightly.database.writing() as connection:
            connection.execute(change)
    finally:
        for one in (service, nightly):
            one.close()
        with store.database.engine.begin() as connection:
            for role in (*logins, *logins.values()):
                connection.execute(sa.text(f"DROP OWNED BY {role}"))
                connection.execute(sa.text(f"DROP ROLE {role}"))


def _rights(store, role, table):
    with store.database.reading() as connection:
        kinds = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
        return {kind for kind in kinds if connection.scalar(sa.func.has_table_privilege(role, table, kind))}
