"""Folders that mcnet 0.1.0 wrote are still read: a journal, a registry with its loop, a saved tracker."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.golden.make import DAYS, SCORES, VALUES, facts, predicted, rows

import mcnet

GOLDEN = Path(__file__).parent
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path):
    """A copy, since readers and writers leave locks behind."""
    for name in ("journal", "loop", "tracker"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def found(folder):
    return json.loads(json.dumps(facts(folder)))


def test_a_journal_has_its_periods_sources_ages_and_cells(found):
    assert found["journal"] == EXPECTED["journal"]
    assert found["corrected positives"] == pytest.approx(EXPECTED["corrected positives"], rel=1e-9)


def test_every_file_of_a_journal_has_the_rows_that_its_manifest_names(folder):
    assert mcnet.Journal(folder / "journal").verify() == []


def test_a_journal_knows_what_was_compacted(folder):
    journal = mcnet.Journal(folder / "journal")
    compacted = mcnet.Sketch.load(GOLDEN / "compacted.parquet")
    assert journal.add(compacted, "2026-11-01", source="logs/app.parquet").rows == 0
    with pytest.raises(mcnet.InputError, match="compacted"):
        journal.add(rows(77), "2026-11-01", source="logs/app.parquet", replace=True)
    with pytest.raises(mcnet.InputError, match="compacted"):
        journal.remove("feedback request-1")


def test_a_journal_knows_the_keys_of_its_feedback(folder):
    journal = mcnet.Journal(folder / "journal")
    with pytest.raises(mcnet.InputError, match="other rows"):
        journal.add(rows(77), "2026-11-01T03:00", source="feedback request-3")
    assert journal.remove("feedback request-3") == 100


def test_a_journal_of_before_takes_further_periods(folder):
    journal = mcnet.Journal(folder / "journal")
    before = journal.sketch().rows
    assert journal.add(rows(77), "2026-11-01T05:00", source="logs/app.parquet").periods == ("2026-11-01T05:00",)
    assert journal.sketch().rows == before + 200
    assert journal.compact() > 0
    assert journal.sketch().rows == before + 200
    assert journal.verify() == []


def test_a_registry_has_its_versions_pointer_hold_and_history(found, folder):
    assert found["registry"] == EXPECTED["registry"]
    registry = mcnet.Registry(folder / "loop" / "registry")
    for version in registry.versions:
        assert hashlib.sha256(registry.model_file(version.number).read_bytes()).hexdigest() == version.digest


def test_the_models_of_a_registry_predict_as_they_did(found):
    assert found["served"].keys() == EXPECTED["served"].keys()
    for name, probabilities in EXPECTED["served"].items():
        np.testing.assert_allclose(found["served"][name], probabilities, rtol=1e-9)
    np.testing.assert_allclose(found["refused"], EXPECTED["refused"], rtol=1e-9)


def test_a_loop_goes_on_from_its_checkpoint(folder):
    journal, registry = folder / "loop" / "journal", mcnet.Registry(folder / "loop" / "registry")
    settings = {"method": "per-field", "min_periods": 2}
    again = mcnet.update(journal, registry, **settings)
    assert (again.outcome, again.learnt) == ("nothing new", ())
    rows(8, values=["NL"]).save(folder / "day.parquet")
    held = mcnet.update(journal, registry, folder / "day.parquet", period=DAYS[8], **settings)
    assert (held.outcome, held.learnt, held.version) == ("held", (DAYS[8],), "4")
    assert "NL is over-predicted" in held.reason
    registry.release()
    published = mcnet.update(journal, registry, **settings)
    assert (published.outcome, published.version, published.replaced) == ("published", "6", "4")


def test_the_history_and_the_status_of_a_loop_can_be_read(folder):
    loop = folder / "loop" / "registry" / "loop"
    runs = [json.loads(line) for line in (loop / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    outcomes = ["waiting", "waiting", "published", "published", "failed", "refused", "published", "held"]
    assert [run["outcome"] for run in runs] == [*outcomes, "published", "published"]
    mcnet.update(folder / "loop" / "journal", folder / "loop" / "registry", method="per-field", min_periods=2)
    status = json.loads((loop / "status.json").read_text(encoding="utf-8"))
    assert (status["journal"]["periods"], status["current"]["number"]) == (8, 4)
    told = (loop / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(told) == len(runs) + 1


def test_a_tracker_predicts_and_believes_as_it_did(found):
    np.testing.assert_allclose(found["tracker"][0], EXPECTED["tracker"][0], rtol=1e-9)
    np.testing.assert_allclose(found["tracker"][1:], EXPECTED["tracker"][1:], rtol=1e-6)
    assert found["belief"] == pytest.approx(EXPECTED["belief"], rel=1e-9)


def test_a_tracker_of_before_learns_further_periods(folder):
    tracker = mcnet.Tracker.load(folder / "tracker")
    assert tracker.delay == 1
    before = predicted(tracker)
    tracker.update_sketch(rows(9, ratio=0.1, values=["NL"]), DAYS[4])
    assert (tracker.predict(SCORES, VALUES) < before).all()
    tracker.save(folder / "tracker")
    np.testing.assert_allclose(predicted(mcnet.Tracker.load(folder / "tracker")), predicted(tracker), rtol=1e-9)
