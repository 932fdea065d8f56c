"""Folders that mcnet 0.1.0 wrote are taken into a store: a journal, a registry with its loop; and a saved tracker."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.golden.make import DAYS, SCORES, VALUES, facts, predicted, rows

import mcnet
from mcnet.operations.status import status_of
from mcnet.store.import_folders import import_folder

GOLDEN = Path(__file__).parent
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path):
    """A copy of what tests change."""
    shutil.copytree(GOLDEN / "tracker", tmp_path / "tracker")
    return tmp_path


@pytest.fixture
def store(tmp_path):
    found = mcnet.Store(tmp_path / "ads.db")
    import_folder(found, GOLDEN / "journal", "orders")
    for name in ("journal", "registry"):
        import_folder(found, GOLDEN / "loop" / name, "ctr")
    return found


@pytest.fixture
def found(store):
    return json.loads(json.dumps(facts(store, GOLDEN)))


def test_a_journal_has_its_periods_sources_ages_and_cells(found):
    assert found["journal"] == EXPECTED["journal"]
    assert found["corrected positives"] == pytest.approx(EXPECTED["corrected positives"], rel=1e-9)


def test_a_store_is_whole_after_the_import(store):
    assert store.check() == []


def test_a_journal_of_before_takes_further_periods(store):
    journal = store.journal("orders")
    before = journal.sketch().rows
    assert journal.add(rows(77), "2026-11-01T05:00", source="logs/app.parquet").periods == ("2026-11-01T05:00",)
    assert journal.sketch().rows == before + 200
    assert journal.compact() > 0
    assert journal.sketch().rows == before + 200
    assert journal.verify() == []


def test_a_registry_has_its_versions_pointer_hold_and_history(found):
    assert found["registry"] == EXPECTED["registry"]


def test_the_models_of_a_registry_predict_as_they_did(found):
    assert found["served"].keys() == EXPECTED["served"].keys()
    for name, probabilities in EXPECTED["served"].items():
        np.testing.assert_allclose(found["served"][name], probabilities, rtol=1e-9)
    np.testing.assert_allclose(found["refused"], EXPECTED["refused"], rtol=1e-9)


def test_a_loop_goes_on_from_its_checkpoint(store, folder):
    settings = {"head": "ctr", "method": "per-field", "min_periods": 2}
    again = mcnet.update(store, **settings)
    assert (again.outcome, again.learnt) == ("nothing new", ())
    rows(8, values=["NL"]).save(folder / "day.parquet")
    held = mcnet.update(store, folder / "day.parquet", period=DAYS[8], **settings)
    assert (held.outcome, held.learnt, held.version) == ("held", (DAYS[8],), "4")
    assert "NL is over-predicted" in held.reason
    store.versions("ctr").release()
    published = mcnet.update(store, **settings)
    assert (published.outcome, published.version, published.replaced) == ("published", "6", "4")


def test_the_history_and_the_status_of_a_loop_can_be_read(store):
    runs = store.state("ctr").runs()
    outcomes = ["waiting", "waiting", "published", "published", "failed", "refused", "published", "held"]
    assert [run["outcome"] for run in runs] == [*outcomes, "published", "published"]
    assert status_of(store, "ctr")["current"]["number"] == 4
    mcnet.update(store, head="ctr", method="per-field", min_periods=2)
    status = status_of(store, "ctr")
    assert (status["journal"]["periods"], status["current"]["number"]) == (8, 4)
    assert len(store.state("ctr").runs()) == len(runs) + 1


def test_a_tracker_predicts_and_believes_as_it_did(found):
    np.testing.assert_allclose(found["tracker"][0], EXPECTED["tracker"][0], rtol=1e-9)
    np.testing.assert_allclose(found["tracker"][1:], EXPECTED["tracker"][1:], rtol=1e-6)
    # Candidates that came later are there, and not believed yet.
    later = dict.fromkeys(found["belief"].keys() - EXPECTED["belief"].keys(), 0.0)
    assert found["belief"] == pytest.approx(EXPECTED["belief"] | later, rel=1e-9)


def test_a_tracker_of_before_learns_further_periods(folder):
    tracker = mcnet.Tracker.load(folder / "tracker")
    assert tracker.delay == 1
    before = predicted(tracker)
    tracker.update_sketch(rows(9, ratio=0.1, values=["NL"]), DAYS[4])
    assert (tracker.predict(SCORES, VALUES) < before).all()
    tracker.save(folder / "tracker")
    np.testing.assert_allclose(predicted(mcnet.Tracker.load(folder / "tracker")), predicted(tracker), rtol=1e-9)
