"""A version that somebody went back to stays: the job learns and judges on, and publishes nothing until it may."""

import json
import shutil

import pytest
from tests.loop.conftest import day_name

import mcnet
from mcnet.loop.folder import LoopFolder
from mcnet.loop.gate import Gate

METHOD = {"method": "platt-field"}


@pytest.fixture
def registry(tmp_path, add_days):
    """Two versions, of five days and of six."""
    path = tmp_path / "registry"
    for last in (5, 6):
        mcnet.update(add_days(1 if last == 5 else last, last), path, **METHOD)
    found = mcnet.Registry(path)
    assert found.current.name == "2"
    return found


def test_a_rollback_is_not_undone_by_the_next_run(add_days, registry):
    registry.rollback("NL is too high")
    done = mcnet.update(add_days(7, 7), registry, **METHOD)
    assert (done.outcome, done.version, done.learnt) == ("held", "1", (day_name(7),))
    assert "version 1 is held since" in done.reason
    assert "rolled back from version 2 (NL is too high)" in done.reason
    assert f"`mcnet versions release {registry.path}`" in done.reason
    assert done.verdict is not None, "it is judged all the same"
    again = mcnet.update(add_days(8, 7), registry, **METHOD)
    assert (again.outcome, again.version) == ("nothing new", "1")
    assert "rolled back from version 2" in again.held
    status = json.loads(LoopFolder(registry.path).status_file.read_text())
    assert "rolled back from version 2" in status["held"]
    page = LoopFolder(registry.path).status_page.read_text()
    assert "Nothing new: version 1 is served. It is held since" in page
    assert len(registry.versions) == 2


def test_after_the_release_the_rows_that_waited_are_published(add_days, registry):
    registry.rollback()
    journal = add_days(7, 7)
    assert mcnet.update(journal, registry, **METHOD).outcome == "held"
    registry.release("looked at")
    done = mcnet.update(journal, registry, **METHOD)
    assert (done.outcome, done.version, done.replaced, done.held) == ("published", "3", "1", None)
    assert LoopFolder(registry.path).runs()[-1]["outcome"] == "published"


@pytest.mark.parametrize("lost", [False, True])
def test_a_version_that_was_rolled_back_from_comes_back_by_force_alone(add_days, registry, lost):
    registry.rollback()
    registry.release()
    if lost:  # the history of runs does not tell that these rows were decided upon
        shutil.rmtree(registry.path / "loop")
    journal = add_days(9, 8)
    done = mcnet.update(journal, registry, **METHOD)
    assert (done.outcome, done.version) == ("held" if lost else "nothing new", "1")
    assert ("version 2, which was rolled back from, is made of these very rows" in done.reason) == lost
    forced = mcnet.update(journal, registry, **METHOD, force=True)
    assert (forced.outcome, forced.version, len(registry.versions)) == ("published", "2", 2)
    assert registry.withdrawn == ()


def test_force_publishes_over_a_hold_and_tells(add_days, registry):
    registry.hold("no changes before the sale")
    done = mcnet.update(add_days(7, 7), registry, **METHOD, force=True)
    assert (done.outcome, done.version, done.forced, done.held) == ("published", "3", True, None)
    assert "forced, although: version 2 is held since" in done.reason
    assert "no changes before the sale" in registry.history()[-1]["note"]


def test_an_older_version_that_was_promoted_stays(add_days, registry):
    registry.promote(1, "as it was")
    assert mcnet.update(add_days(7, 7), registry, **METHOD).outcome == "held"
    registry.promote("latest")
    done = mcnet.update(add_days(8, 8), registry, **METHOD)
    assert (done.outcome, done.replaced) == ("published", "2")


@pytest.mark.parametrize("move", ["rollback", "promote"])
def test_a_change_while_a_run_is_at_work_stays(add_days, registry, monkeypatch, move):
    judge = Gate.judge

    def slow(gate, *given, **named):
        found = judge(gate, *given, **named)
        registry.rollback("now") if move == "rollback" else registry.promote(registry.add(other).number)
        return found

    other = registry.load(1)
    monkeypatch.setattr(Gate, "judge", slow)
    done = mcnet.update(add_days(7, 7), registry, **METHOD)
    monkeypatch.undo()
    assert done.outcome == "held"
    assert done.version == registry.current.name == ("1" if move == "rollback" else "3")
    if move == "promote":
        assert done.reason == "version 3 was promoted while this run was at work"
        next_one = mcnet.update(add_days(8, 7), registry, **METHOD)
        assert next_one.outcome == "published", "nobody holds it: the next run decides anew"


def test_rows_that_the_held_version_was_made_of_publish_nothing(add_days, registry):
    registry.rollback()
    journal = add_days(9, 8)
    journal.remove("day 6 {}")
    done = mcnet.update(journal, registry, **METHOD)
    assert (done.outcome, done.reason) == ("nothing new", "version 1 is made of these very rows")
