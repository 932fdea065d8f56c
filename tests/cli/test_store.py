"""`mcnet store`: folders are taken in, and what a store has is shown, checked, copied and forgotten."""

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from tests.databases import NO_PSYCOPG

from mcnet._shared import messages
from mcnet.store.import_folders import import_folder
from mcnet.store.schema import METADATA
from mcnet.store.store import Store

GOLDEN = Path(__file__).parent.parent / "golden"
LOOP = GOLDEN / "loop"


def test_folders_are_taken_in_and_shown(mcnet, tmp_path):
    path = tmp_path / "ads.db"
    done = mcnet("store", "import", path, LOOP / "journal", LOOP / "registry", "--head", "ctr", "--json")
    assert done.code == 0, done.err
    journal, registry = done.document["imported"]
    assert (journal["rows"], registry["versions"], registry["runs"]) == (1600, 2, 10)
    assert "1,600" not in mcnet("store", "import", path, LOOP / "journal").out, "nothing is new"
    shown = mcnet("store", "show", path)
    assert "ctr" in shown.out
    assert "ctr: held since" in shown.out
    head = mcnet("store", "show", path, "--json").document["heads"]["ctr"]
    assert (head["periods"], head["rows"], head["current"]) == (8, 1600, 4)


def test_a_whole_store_is_checked_copied_and_made_smaller(mcnet, tmp_path):
    path, copy = tmp_path / "ads.db", tmp_path / "copy.db"
    mcnet("store", "import", path, LOOP / "journal", LOOP / "registry")
    assert mcnet("store", "check", path).out.endswith("is whole\n")
    assert mcnet("store", "backup", path, copy).code == 0
    assert mcnet("store", "forget", path, "--before", "2026-11-05", "--json").document["rows"] == 800
    assert mcnet("store", "show", copy, "--json").document["heads"]["default"]["rows"] == 1600
    assert mcnet("store", "migrate", path).code == 0
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE versions SET model = 'x' WHERE number = 4")
        connection.commit()
    damaged = mcnet("store", "check", copy)
    assert damaged.code == 2
    assert "version 4" in damaged.out


DAMAGE = {
    "UPDATE checkpoints SET document = replace(document, '0.', '1.')": "does not match its checksum",
    "UPDATE checkpoints SET document = 'x'": "is not the state of a tracker; the next update learns it again",
    "UPDATE checkpoints SET sketches = x'80'": "is not a valid tracker",
    "UPDATE checkpoints SET sketches = 'x'": "the next update learns it again",
    "UPDATE documents SET document = replace(document, '0.', '1.') WHERE kind = 'monitor'": "its checksum does not fit",
    "UPDATE documents SET document = 'x' WHERE kind = 'monitor'": "of the documents of default in",
    "UPDATE history SET line = '{' WHERE id = 1": "line 1 of the history of default",
    "UPDATE runs SET line = 'x'": "line 10 of the runs of default",
    "UPDATE heads SET pointer = 'x'": "the pointer of default",
    "UPDATE heads SET pointer = '{\"versions\": [99]}'": "version 99 of",
    "UPDATE entries SET sketch = x'00' WHERE id = 2": "2026-11-",
    "UPDATE entries SET digest = 'x' WHERE id = 2": "has other rows than were added",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "ads.db"
    for folder in (LOOP / "journal", LOOP / "registry"):
        import_folder(Store(path), folder)
    assert Store(path).check() == []
    return path


@pytest.mark.parametrize("statement", DAMAGE)
def test_a_check_reads_everything(mcnet, tmp_path, whole, statement):
    copy = tmp_path / "ads.db"
    Store(whole).backup(copy)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute(statement).rowcount > 0
        connection.commit()
    damaged = mcnet("store", "check", copy, "--json")
    assert damaged.code == 2
    assert any(DAMAGE[statement] in problem for problem in damaged.document["problems"]), damaged.out


def test_a_head_that_is_new_is_told_and_one_mistyped_refused(mcnet, tmp_path):
    path, folder = tmp_path / "ads.db", LOOP / "journal"
    assert "new head" not in mcnet("store", "import", path, folder, "--head", "ctr").err
    assert "new head 'cvr' beside ctr\n" in mcnet("store", "import", path, folder, "--head", "cvr").err
    for typo in ("crt", "CTR", "ctrr"):
        done = mcnet("store", "import", path, folder, "--head", typo)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert (
            f"no head '{typo}', but 'ctr'; give --head ctr, or make the new one first: mcnet store add-head" in done.err
        )
    assert Store(path).heads == ["ctr", "cvr"]
    assert mcnet("store", "add-head", path, "crt").code == 0
    assert mcnet("store", "import", path, folder, "--head", "crt").code == 0
    assert "has ctr, cvr now" in mcnet("store", "remove-head", path, "crt").err
    assert Store(path).heads == ["ctr", "cvr"]


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
        pytest.importorskip("granian", reason="granian is not installed: pip install '.[serve]'")
    words = [*command.split(), *(["copy.db"] if "backup" in command else [])]
    at = 2 if words[0] in ("store", "journal", "versions") else 1
    done = mcnet(*words[:at], whole, *words[at:], "--head", "cvr")
    assert (done.code, done.err.count("\n")) == (2, 1), done
    assert "has no head 'cvr'; it has default" in done.err
    assert Store(whole).heads == ["default"]


def test_what_would_lose_rows_is_refused(mcnet, tmp_path):
    path = tmp_path / "ads.db"
    for head in ("ctr", "cvr"):
        mcnet("store", "import", path, LOOP / "journal", "--head", head)
    (tmp_path / "link.db").symlink_to(path)
    for name in ("ads.db", "link.db"):
        assert "is the store itself" in mcnet("store", "backup", path, tmp_path / name).err
    assert "ctr, cvr; name one with --head" in mcnet("store", "forget", path, "--before", "2026-11-05").err
    assert "of cvr" in mcnet("store", "forget", path, "--before", "2026-11-05", "--head", "cvr").out
    assert mcnet("store", "show", path, "--json").document["heads"]["ctr"]["rows"] == 1600


def test_wrong_use_is_one_line(mcnet, tmp_path):
    for words, code, said in (
        (("show", tmp_path / "typo.db"), 2, "there is no store in"),
        (("show", LOOP / "journal"), 2, "mcnet store import ads.db"),
        (("import", tmp_path / "ads.db", tmp_path), 2, "neither a journal nor a registry"),
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


@pytest.mark.parametrize("command", [*COMMANDS, "store check", "store migrate", "journal compact", "versions history"])
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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_mcnet_0_1_is_refused_with_the_command_that_takes_it_in(mcnet, command):
    if command == "serve":
        pytest.importorskip("granian")
    folder = Path(__file__).parents[1] / "golden" / "journal"
    done = mcnet(*with_output(command, folder))
    said = f"mcnet: {folder} is a journal of mcnet 0.1; take it into a store: mcnet store import ads.db {folder}\n"
    assert (done.code, done.err) == (2, said)
