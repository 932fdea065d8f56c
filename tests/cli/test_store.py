"""`mcnet store`: what a store has is shown, checked, copied and forgotten; heads are made and deleted."""

import sqlite3
from contextlib import closing

import polars as pl
import pytest
from tests.databases import NO_PSYCOPG
from tests.operations.conftest import day_name, day_rows

from mcnet._shared import messages
from mcnet.cli.run import run
from mcnet.store.schema import METADATA
from mcnet.store.store import Store

COLUMNS = ("--score", "pctr", "--label", "click", "--field", "country", "--time", "ts", "--every", "1d")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of eight days with a version that is held."""
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "ads.db"
    for day in range(1, 9):
        day_rows(day).write_parquet(folder / f"{day_name(day)}.parquet")
    for days in ("0[1-6]", "0[7-8]"):
        logs = str(folder / f"2026-11-{days}.parquet")
        assert run(["update", str(path), logs, *COLUMNS, "--method", "platt-field", "--force", "-q"]) == 0
    assert run(["versions", "hold", str(path)]) == 0
    assert Store(path).check() == []
    return path


@pytest.fixture
def path(whole, tmp_path):
    """A copy of the store."""
    Store(whole).backup(tmp_path / "ads.db")
    return tmp_path / "ads.db"


def test_a_whole_store_is_shown_checked_copied_and_made_smaller(mcnet, path, tmp_path):
    copy = tmp_path / "copy.db"
    rows = [len(day_rows(day)) for day in range(1, 9)]
    assert "default: held since" in mcnet("store", "show", path).out
    assert mcnet("store", "check", path).out.endswith("is whole\n")
    assert mcnet("store", "backup", path, copy).code == 0
    assert mcnet("store", "forget", path, "--before", "2026-11-05", "--json").document["rows"] == sum(rows[:4])
    head = mcnet("store", "show", copy, "--json").document["heads"]["default"]
    assert (head["periods"], head["rows"], head["current"], head["runs"]) == (8, sum(rows), 2, 2)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE versions SET model = 'x' WHERE number = 2")
        connection.commit()
    damaged = mcnet("store", "check", copy)
    assert damaged.code == 2
    assert "version 2" in damaged.out


DAMAGE = {
    "UPDATE checkpoints SET document = replace(document, '0.', '1.')": "does not match its checksum",
    "UPDATE checkpoints SET document = 'x'": "is not the state of a tracker; the next update learns it again",
    "UPDATE checkpoints SET sketches = x'80'": "is not a valid tracker",
    "UPDATE checkpoints SET sketches = 'x'": "the next update learns it again",
    "UPDATE documents SET document = replace(document, '0.', '1.') WHERE kind = 'monitor'": "its checksum does not fit",
    "UPDATE documents SET document = 'x' WHERE kind = 'monitor'": "of the documents of default in",
    "UPDATE history SET line = '{' WHERE id = 1": "line 1 of the history of default",
    "UPDATE runs SET line = 'x'": "line 2 of the runs of default",
    "UPDATE heads SET pointer = 'x'": "the pointer of default",
    "UPDATE heads SET pointer = '{\"versions\": [99]}'": "version 99 of",
    "UPDATE entries SET sketch = x'00' WHERE id = 2": "2026-11-",
    "UPDATE entries SET digest = 'x' WHERE id = 2": "has other rows than were added",
}


@pytest.mark.parametrize("statement", DAMAGE)
def test_a_check_reads_everything(mcnet, path, statement):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement).rowcount > 0
        connection.commit()
    damaged = mcnet("store", "check", path, "--json")
    assert damaged.code == 2
    assert any(DAMAGE[statement] in problem for problem in damaged.document["problems"]), damaged.out


def test_a_head_beside_others_is_made_and_deleted_by_name(mcnet, log, columns, tmp_path):
    add = ("journal", "add", tmp_path / "new.db", log, *columns, "--period", "2026-11-16")
    assert mcnet(*add, "--head", "ctr").code == 0
    for name in ("crt", "cvr"):
        refused = mcnet(*add, "--head", name)
        said = f"mcnet: {tmp_path}/new.db has no head {name!r}; it has ctr; --new-head {name} makes it\n"
        assert (refused.code, refused.err) == (2, said)
    for _ in range(2):
        assert mcnet(*add, "--new-head", "cvr").code == 0
    assert Store(tmp_path / "new.db").heads == ["ctr", "cvr"]
    assert "--head and --new-head were both given" in mcnet(*add, "--head", "ctr", "--new-head", "cvr").err
    assert "has ctr now" in mcnet("store", "remove-head", tmp_path / "new.db", "cvr").err
    assert Store(tmp_path / "new.db").heads == ["ctr"]


@pytest.mark.parametrize(
    "command",
    [
        *("store show", "store check", "store backup", "store forget --before 2026-11-05", "journal list"),
        *("journal verify", "journal compact", "versions list", "versions show", "versions history", "versions hold"),
        *("versions prune --keep 1", "fit -o m.json", "evaluate", "backtest", "monitor", "update", "serve"),
    ],
)
def test_a_head_that_does_not_exist_is_refused_where_it_is_read(mcnet, tmp_path, whole, command):
    if command == "serve":
        pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[serve]'")
    words = [*command.split(), *(["copy.db"] if "backup" in command else [])]
    at = 2 if words[0] in ("store", "journal", "versions") else 1
    done = mcnet(*words[:at], whole, *words[at:], "--head", "cvr")
    assert (done.code, done.err.count("\n")) == (2, 1), done
    assert "has no head 'cvr'; it has default" in done.err
    assert Store(whole).heads == ["default"]


def test_what_would_lose_rows_is_refused(mcnet, path, tmp_path):
    before = mcnet("store", "show", path, "--json").document["heads"]["default"]["rows"]
    Store(path).add_head("cvr")
    Store(path).journal("cvr").add(Store(path).journal("default").sketch(until="2026-11-01"), "2026-11-01")
    (tmp_path / "link.db").symlink_to(path)
    for name in ("ads.db", "link.db"):
        assert "is the store itself" in mcnet("store", "backup", path, tmp_path / name).err
    assert "cvr, default; name one with --head" in mcnet("store", "forget", path, "--before", "2026-11-05").err
    assert "of cvr" in mcnet("store", "forget", path, "--before", "2026-11-05", "--head", "cvr").out
    assert mcnet("store", "show", path, "--json").document["heads"]["default"]["rows"] == before


def test_wrong_use_is_one_line(mcnet, tmp_path):
    for words, code, said in (
        (("show", tmp_path / "typo.db"), 2, "there is no store in"),
        (("show", tmp_path), 2, "is a folder; a store is a file, or postgresql://"),
        (("show", "postgresql://me:secret@db/ads"), 2, "PGPASSWORD"),
        (("show", "host=db password=secret dbname=ads"), 2, "PGPASSWORD"),
    ):
        done = mcnet("store", *words)
        assert (done.code, said in done.err, done.err.count("\n")) == (code, True, 1), done.err
        assert "secret" not in done.err


def test_a_server_that_is_not_there_is_one_line(mcnet):
    pytest.importorskip("psycopg", reason=NO_PSYCOPG)
    done = mcnet("store", "check", "postgresql://me@127.0.0.1:1/ads")
    assert (done.code, "cannot be reached" in done.err, done.err.count("\n")) == (75, True, 1), done.err


def test_without_its_driver_postgresql_is_refused_with_what_to_install(mcnet, monkeypatch):
    monkeypatch.setattr(messages, "_is_installed", lambda name: name != "psycopg")
    done = mcnet("store", "show", "postgresql://me@127.0.0.1:1/ads")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "a store in PostgreSQL needs psycopg, which is not installed" in done.err


COMMANDS = [
    *("update", "fit", "compare", "evaluate", "backtest", "monitor", "serve"),
    *("journal list", "versions list", "store show"),
]


def with_output(command, store):
    return *command.split(), store, *(("-o", "m.json") if command == "fit" else ())


@pytest.mark.parametrize("command", [*COMMANDS, "store check", "journal compact", "versions history"])
def test_no_command_shows_a_password_of_an_address(mcnet, command):
    for address in (
        "postgresql://me:secret@db/ads",
        "Postgresql://me@db/ads?sslpassword=secret",
        "mysql://me:secret@db/ads",
    ):
        done = mcnet(*with_output(command, address))
        assert (done.code, done.err.count("\n"), "secret" in done.out + done.err) == (2, 1, False), done


def test_a_password_of_the_environment_is_nowhere(mcnet, log, columns, tmp_path, monkeypatch, postgresql_store):
    monkeypatch.setenv("PGPASSWORD", "open-sesame")
    store = postgresql_store()
    page, settings = tmp_path / "status.html", (*columns, "--time", "day", "--every", "1d")
    frame = pl.read_parquet(log).with_columns(day=pl.lit("2026-11-16"))
    frame.write_parquet(log)
    said = [mcnet("update", store, log, *settings, "--status", page, "--json")]
    assert said[0].code == 0, said[0].err
    for command in ("monitor", "journal list", "versions list", "versions history", "store show", "store check"):
        said += [mcnet(*command.split(), store), mcnet(*command.split(), store, "--wrong")]
    texts = [page.read_text(encoding="utf-8"), *(one.out + one.err for one in said)]
    with Store(store).database.reading() as connection:
        for table in METADATA.sorted_tables:
            texts += [repr(row) for row in connection.execute(table.select())]
    assert not [text for text in texts if "open-sesame" in text]
