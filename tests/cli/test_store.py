"""`mcnet store`: folders are taken in, and what a store has is shown, checked, copied and forgotten."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.databases import NO_PSYCOPG

from mcnet._shared import messages

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


def test_wrong_use_is_one_line(mcnet, tmp_path):
    for words, code, said in (
        (("show", tmp_path / "typo.db"), 2, "there is no store in"),
        (("show", LOOP / "journal"), 2, "mcnet store import ads.db"),
        (("import", tmp_path / "ads.db", tmp_path), 2, "neither a journal nor a registry"),
        (("show", "postgresql://me:secret@db/ads"), 2, "PGPASSWORD"),
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


@pytest.mark.parametrize(
    "command",
    [
        "update",
        "fit",
        "compare",
        "evaluate",
        "backtest",
        "monitor",
        "serve",
        "journal list",
        "versions list",
        "store show",
    ],
)
def test_a_folder_of_mcnet_0_1_is_refused_with_the_command_that_takes_it_in(mcnet, command):
    folder = Path(__file__).parents[1] / "golden" / "journal"
    done = mcnet(*command.split(), folder, *(("-o", "m.json") if command == "fit" else ()))
    said = f"mcnet: {folder} is a journal of mcnet 0.1; take it into a store: mcnet store import ads.db {folder}\n"
    assert (done.code, done.err) == (2, said)
