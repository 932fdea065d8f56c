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
from mcnet.store.additions import FeedbackRows, add_feedback
from mcnet.store.schema import METADATA, SCHEMA, heads, schema_version
from mcnet.store.store import Store

FIRST_SCHEMA = Path(__file__).parent.parent / "golden" / "store-0001.sql"


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


def test_a_folder_of_before_is_refused_with_the_command_that_takes_it_in(tmp_path):
    for name, kind in (("journal.json", "a journal"), ("registry.json", "a registry")):
        folder = tmp_path / name[:4]
        folder.mkdir()
        (folder / name).write_text("{}")
        with pytest.raises(InputError, match=rf"is {kind} of mcnet 0\.1.*mcnet store import ads.db {folder}"):
            Store(folder).journal().add(rows(1), 1)
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


def test_a_store_of_a_newer_schema_is_refused(store):
    store.journal().add(rows(1), 1)
    with store.database.writing() as connection:
        connection.execute(schema_version.update().values(version_num="9999"))
    with pytest.raises(FileFormatError, match=r"has schema 9999, and this mcnet reads .*: upgrade mcnet"):
        Store(store.database.given).heads  # noqa: B018


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


def test_the_tables_are_those_of_the_schema(store):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    store.journal().add(rows(1), 1)
    store.database.migrate()  # nothing to do
    with store.database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema_version.name})
        assert compare_metadata(context, METADATA) == []


def test_a_store_of_the_first_schema_is_brought_up_to_date(tmp_path):
    """The tables of the first release, as they were: whatever the schema is now, such a store opens."""
    path = tmp_path / "ads.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST_SCHEMA.read_text(encoding="utf-8"))
    store = Store(path)
    assert store.heads == ["ctr"]
    store.journal("ctr").add(rows(1), 1)
    with store.database.reading() as connection:
        assert connection.scalar(sa.select(schema_version.c.version_num)) == SCHEMA


REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"


def upgrade():
    with op.batch_alter_table("heads") as heads:
        heads.add_column(sa.Column("colour", sa.Text))
    if {fails}:
        raise RuntimeError("half-way")
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_change_of_the_schema_is_whole_or_not_at_all(store, tmp_path, monkeypatch, fails):
    store.journal("ctr").add(rows(1), 1)
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "0003_colour.py").write_text(REVISION.format(fails=fails))
    monkeypatch.setattr("mcnet.store.database.SCHEMA", "0003")
    monkeypatch.setattr("mcnet.store.database._more_revisions", [str(tmp_path / "versions")])
    again = Store(store.database.given)
    if fails:
        with pytest.raises(RuntimeError, match="half-way"):
            again.database.migrate()
    elif store.database.is_sqlite:
        assert again.heads == ["ctr"]
    else:
        with pytest.raises(InputError, match="run `mcnet store migrate` once"):
            again.heads  # noqa: B018
        again.database.migrate()
        assert again.heads == ["ctr"]
    with store.database.engine.connect() as connection:
        columns = [column["name"] for column in sa.inspect(connection).get_columns(heads.name)]
        found = connection.scalar(sa.select(schema_version.c.version_num))
    assert ("colour" in columns, found) == ((False, "0002") if fails else (True, "0003"))


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
    logins = {"service": "mcnet_serve", "nightly": "mcnet_learn", "release": "mcnet_migrate"}
    with store.database.engine.begin() as connection:
        for _ in range(2):  # it may be run again
            connection.exec_driver_sql(script.replace("%", "%%"))
        for login, role in logins.items():
            connection.execute(sa.text(f"CREATE ROLE {login} LOGIN IN ROLE {role}"))
    service, nightly, release = (Store(store.database.given.replace("mcnet@", f"{login}@")) for login in logins)
    try:
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
        release.database.migrate()
        change = sa.text("ALTER TABLE heads ADD COLUMN more TEXT")
        with pytest.raises(InputError, match="must be owner of table heads"), nightly.database.writing() as connection:
            connection.execute(change)
    finally:
        for one in (service, nightly, release):
            one.close()
        with store.database.engine.begin() as connection:
            for role in (*logins, *logins.values()):
                connection.execute(sa.text(f"REASSIGN OWNED BY {role} TO mcnet"))
                connection.execute(sa.text(f"DROP OWNED BY {role}"))
                connection.execute(sa.text(f"DROP ROLE {role}"))
