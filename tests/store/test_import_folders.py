"""Journals and registries of mcnet 0.1 are taken into a store, whole, once, and without changing the folder."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from tests.golden.make import SCORES, VALUES, rows

import mcnet
from mcnet._shared.files import checksum
from mcnet.errors import BusyError, FileFormatError, InputError
from mcnet.operations.learning import learn_journal
from mcnet.store.entries import entry_of
from mcnet.store.import_folders import import_folder
from mcnet.store.store import Store
from mcnet.tracking.monitor import Monitor

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path):
    for name in ("journal", "loop"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path


def write_batch(folder, sketch, period, source, includes=()):
    """Add rows to a folder as mcnet 0.1 did."""
    serial = 1 + max((int(path.name[:10]) for path in folder.glob("0*")), default=0)
    batch = folder / f"{serial:010d}-abcdef01"
    batch.mkdir(parents=True)
    entry, rows = entry_of(sketch, period, source, None)
    rows.save(batch / "part.parquet")
    document = {"format": "mcnet journal batch", "version": 1, "includes": list(includes)}
    document["entries"] = [{**asdict(entry), "file": "part.parquet"}]
    document["checksum"] = checksum(document)
    (batch / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "journal.json").write_text('{"format": "mcnet journal", "version": 1}', encoding="utf-8")
    return entry


def content(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_a_journal_has_its_periods_sources_ages_and_cells(store_address, folder):
    before = content(folder / "journal")
    store = Store(store_address)
    done = import_folder(store, folder / "journal", "orders")
    assert (done.sources, done.rows, done.merged) == (16, 3100, 4)
    journal = store.journal("orders")
    assert json.loads(json.dumps(journal.table().to_dicts())) == EXPECTED["journal"]["table"]
    assert sorted(e.digest for e in journal.entries()) == EXPECTED["journal"]["digests"]
    found = {period: sketch.total_positives for period, sketch in journal.sketches()}
    assert found == pytest.approx(EXPECTED["corrected positives"], rel=1e-9)
    assert journal.verify() == []
    assert content(folder / "journal") == before, "the folder is not changed"


def test_a_journal_knows_what_was_compacted_and_the_keys_of_its_feedback(store_address, folder):
    store = Store(store_address)
    import_folder(store, folder / "journal", "orders")
    journal = store.journal("orders")
    compacted = mcnet.Sketch.load(GOLDEN / "compacted.parquet")
    assert journal.add(compacted, "2026-11-01", source="logs/app.parquet").rows == 0
    with pytest.raises(InputError, match="compacted"):
        journal.add(rows(77), "2026-11-01", source="logs/app.parquet", replace=True)
    with pytest.raises(InputError, match="compacted"):
        journal.remove("feedback request-1")
    with pytest.raises(InputError, match="other rows"):
        journal.add(rows(77), "2026-11-01T03:00", source="feedback request-3")
    assert journal.add(rows(77), "2026-11-01T05:00", source="logs/app.parquet").rows == 200


def test_a_registry_has_its_versions_pointer_hold_history_and_loop(store_address, folder):
    before = content(folder / "loop")
    store = Store(store_address)
    done = import_folder(store, folder / "loop" / "registry", "ctr")
    assert (done.versions, done.runs, done.left_out) == (2, 10, ())
    ours = store.versions("ctr")
    found = json.loads(json.dumps([asdict(version) for version in ours.versions]))
    assert found == EXPECTED["registry"]["versions"]
    assert (ours.current_number, asdict(ours.held)) == (EXPECTED["registry"]["current"], EXPECTED["registry"]["held"])
    for version in ours.versions:
        file = GOLDEN / "loop" / "registry" / "versions" / f"{version.number:06d}" / "model.json"
        assert ours.content(version.number) == file.read_bytes()
        found = ours.load(version.number).predict(SCORES, VALUES)
        np.testing.assert_allclose(found, EXPECTED["served"][version.name], rtol=1e-9)
    runs = (GOLDEN / "loop" / "registry" / "loop" / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert store.state("ctr").runs() == [json.loads(run) for run in runs]
    assert store.state("ctr").get("monitor")["format"]
    ticks = [ticks for ticks, *_ in store.state("ctr").checkpoints()]
    assert ticks == sorted(ticks, reverse=True)
    assert ticks[0] == 8
    import_folder(store, folder / "loop" / "journal", "ctr")
    learnt = learn_journal(store.journal("ctr"), store.state("ctr"), method="per-field", delay=0)
    assert learnt.new == [], "the tracker goes on where it was"
    assert Monitor.of_document(store.state("ctr").get("monitor"), "the monitor").last_period
    assert ours.release("looked at")
    assert content(folder / "loop") == before


def test_importing_again_changes_nothing_and_takes_what_is_new(store_address, folder):
    store = Store(store_address)
    for name in ("journal", "registry"):
        import_folder(store, folder / "loop" / name)
    shown, table = store.show(), store.journal().table()
    for name in ("journal", "registry"):
        done = import_folder(store, folder / "loop" / name)
        assert (done.sources, done.rows, done.versions, done.runs, done.checkpoints) == (0, 0, 0, 0, 0)
    assert store.show() == shown
    assert store.journal().table().equals(table)
    write_batch(folder / "loop" / "journal", rows(77), "2026-11-09", "late")
    with (folder / "loop" / "registry" / "history.jsonl").open("a") as file:
        file.write('{"time": "2026-11-18T05:00:00+00:00", "event": "released", "version": 4}\n')
    store.versions().hold("in the store")
    done = import_folder(store, folder / "loop" / "journal")
    assert (done.sources, done.rows) == (1, 200)
    import_folder(store, folder / "loop" / "registry")
    assert store.versions().held is not None, "the pointer of the store is its own from then on"
    assert store.versions().history()[-1]["event"] == "released"
    store.journal().compact()
    assert import_folder(store, folder / "loop" / "journal").rows == 0, "what was merged since is known"


def test_what_does_not_go_together_is_refused_and_nothing_is_imported(store_address, folder):
    store = Store(store_address)
    import_folder(store, folder / "loop" / "journal", "ctr")
    rows_before = store.journal("ctr").sketch().rows
    other = mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], field={"site": ["a", "b"]})
    write_batch(folder / "other", other, "2026-11-01", "logs")
    with pytest.raises(InputError, match=r"rows of \('site',\).*import it into a head of its own"):
        import_folder(store, folder / "other", "ctr")
    source = store.journal("ctr").entries()[0]
    write_batch(folder / "loop" / "journal", rows(78), source.period, source.source)
    with pytest.raises(InputError, match="has other rows of"):
        import_folder(store, folder / "loop" / "journal", "ctr")
    assert store.journal("ctr").sketch().rows == rows_before
    with pytest.raises(InputError, match="is neither a journal nor a registry"):
        import_folder(store, folder, "ctr")


def test_a_folder_that_was_compacted_since_is_refused(store_address, folder):
    store = Store(store_address)
    entry = write_batch(folder / "loop" / "journal", rows(79), "2026-11-01", "more")
    import_folder(store, folder / "loop" / "journal", "ctr")
    merged = [("more", "2026-11-01", entry.digest, None)]
    write_batch(folder / "loop" / "journal", rows(79), "2026-11-01", None, merged)
    with pytest.raises(InputError, match="was compacted since it was imported"):
        import_folder(store, folder / "loop" / "journal", "ctr")


def test_a_damaged_part_of_a_journal_is_named_and_nothing_is_imported(store_address, folder):
    path = sorted((folder / "journal").glob("*/*.parquet"))[-1]
    path.write_bytes(path.read_bytes()[:-9] + b"damaged!x")
    store = Store(store_address)
    with pytest.raises(FileFormatError, match=path.name):
        import_folder(store, folder / "journal")
    assert store.heads == []


def test_a_damaged_version_is_left_out_and_told(store_address, folder):
    path = sorted((folder / "loop" / "registry" / "versions").iterdir())[0] / "model.json"
    path.write_text(path.read_text(encoding="utf-8").replace("0.1", "0.2", 1), encoding="utf-8")
    done = import_folder(Store(store_address), folder / "loop" / "registry")
    assert done.versions == 1
    assert "is left out: it was altered after it was added" in done.left_out[0]


HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("name", "lock"), [("journal", ".lock"), ("registry", ".lock"), ("registry", "loop/.lock")])
def test_a_folder_in_use_is_refused(tmp_path, folder, name, lock):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder / "loop" / name / lock)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(BusyError, match="another process is using"):
            import_folder(Store(tmp_path / "ads.db"), folder / "loop" / name)
    finally:
        holder.kill()
        holder.communicate()
    assert import_folder(Store(tmp_path / "ads.db"), folder / "loop" / name).left_out == ()


def test_a_folder_that_cannot_be_written_is_imported(tmp_path, folder):
    for path in [folder / "journal", *(folder / "journal").rglob("*")]:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    try:
        assert import_folder(Store(tmp_path / "ads.db"), folder / "journal").rows == 3100
    finally:
        for path in [folder / "journal", *(folder / "journal").rglob("*")]:
            os.chmod(path, 0o755)
