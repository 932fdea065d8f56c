"""A version that somebody went back to stays: the job learns and judges on, and publishes nothing until it may."""

import pytest
from tests.operations.conftest import day_name
from tests.operations.test_job import lose_the_loop

import mcnet
from mcnet.operations.gate import Gate
from mcnet.operations.status import status_of as loop_status
from mcnet.report.status_page import write_status_page

METHOD = {"method": "platt-field"}


@pytest.fixture
def registry(tmp_path, add_days):
    """Two versions, of five days and of six."""
    for last in (5, 6):
        mcnet.update(add_days(1 if last == 5 else last, last).store, **METHOD)
    found = mcnet.Registry(tmp_path / "ads.db")
    assert found.current.name == "2"
    return found


def test_a_rollback_is_not_undone_by_the_next_run(add_days, registry):
    registry.rollback("NL is too high")
    done = mcnet.update(add_days(7, 7).store, **METHOD)
    assert (done.outcome, done.version, done.learnt) == ("held", "1", (day_name(7),))
    assert "version 1 is held since" in done.reason
    assert "rolled back from version 2 (NL is too high)" in done.reason
    assert f"`mcnet versions release {registry.path}`" in done.reason
    assert done.verdict is not None, "it is judged all the same"
    again = mcnet.update(add_days(8, 7).store, **METHOD)
    assert (again.outcome, again.version) == ("nothing new", "1")
    assert "rolled back from version 2" in again.held
    status, page = status_of(registry)
    assert "rolled back from version 2" in status["held"]
    assert "Nothing new: version 1 is served. It is held since" in page
    assert len(registry.versions) == 2


def test_after_the_release_the_rows_that_waited_are_published(add_days, registry):
    registry.rollback()
    journal = add_days(7, 7)
    assert mcnet.update(journal.store, **METHOD).outcome == "held"
    registry.release("looked at")
    done = mcnet.update(journal.store, **METHOD)
    assert (done.outcome, done.version, done.replaced, done.held) == ("published", "3", "1", None)
    assert registry.store.state().runs()[-1]["outcome"] == "published"


@pytest.mark.parametrize("lost", [False, True])
def test_a_version_that_was_rolled_back_from_comes_back_by_force_alone(add_days, registry, lost):
    registry.rollback()
    registry.release()
    if lost:  # the history of runs does not tell that these rows were decided upon
        lose_the_loop(registry.store)
    journal = add_days(9, 8)
    done = mcnet.update(journal.store, **METHOD)
    assert (done.outcome, done.version) == ("held" if lost else "nothing new", "1")
    assert ("version 2, which was rolled back from, is made of these very rows" in done.reason) == lost
    forced = mcnet.update(journal.store, **METHOD, force=True)
    assert (forced.outcome, forced.version, len(registry.versions)) == ("published", "2", 2)
    assert registry.withdrawn == ()


def test_force_publishes_over_a_hold_and_tells(add_days, registry):
    registry.hold("no changes before the sale")
    done = mcnet.update(add_days(7, 7).store, **METHOD, force=True)
    assert (done.outcome, done.version, done.forced, done.held) == ("published", "3", True, None)
    assert "forced, although: version 2 is held since" in done.reason
    assert "no changes before the sale" in registry.history()[-1]["note"]


def test_an_older_version_that_was_promoted_stays(add_days, registry):
    registry.promote(1, "as it was")
    assert mcnet.update(add_days(7, 7).store, **METHOD).outcome == "held"
    registry.promote("latest")
    done = mcnet.update(add_days(8, 8).store, **METHOD)
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
    done = mcnet.update(add_days(7, 7).store, **METHOD)
    monkeypatch.undo()
    assert done.outcome == "held"
    assert done.version == registry.current.name == ("1" if move == "rollback" else "3")
    if move == "promote":
        assert done.reason == "version 3 was promoted while this run was at work"
        next_one = mcnet.update(add_days(8, 7).store, **METHOD)
        assert next_one.outcome == "published", "nobody holds it: the next run decides anew"


def test_rows_that_the_held_version_was_made_of_publish_nothing(add_days, registry):
    registry.rollback()
    journal = add_days(9, 8)
    journal.remove("day 6 {}")
    done = mcnet.update(journal.store, **METHOD)
    assert (done.outcome, done.reason) == ("nothing new", "version 1 is made of these very rows")


def status_of(registry):
    status = loop_status(registry.store)
    return status, write_status_page(registry.store.database.path.with_name("status.html"), status).read_text()


def test_the_status_follows_what_people_do_with_the_versions(add_days, registry):
    add_days(7, 7)
    registry.rollback("NL is too high")
    status, page = status_of(registry)
    assert status["current"]["number"] == 1
    assert "rolled back from version 2 (NL is too high)" in status["held"]
    assert "Version 2 was published. Since then version 1 was made the current one. It is held since" in page
    assert "until <code>mcnet versions release" in page
    registry.release("looked at")
    status, page = status_of(registry)
    assert status["held"] is None
    assert "held" not in page.partition('id="versions"')[0]
    registry.hold("no changes before the sale")
    assert "no changes before the sale" in status_of(registry)[1]
    registry.promote("latest")
    status, page = status_of(registry)
    assert (status["current"]["number"], status["held"]) == (2, None)
    assert "Since then" not in page
    registry.add(registry.load(1))
    assert [version["number"] for version in status_of(registry)[0]["versions"]] == [3, 2, 1]
    registry.promote(3)
    assert registry.prune(1) == [1]
    assert [version["number"] for version in status_of(registry)[0]["versions"]] == [3, 2]


def test_a_hold_that_the_last_run_met_is_shown_as_released(add_days, registry):
    registry.hold()
    assert mcnet.update(add_days(7, 7).store, **METHOD).outcome == "held"
    assert "Nothing was published: version 2 stays. It is held since" in status_of(registry)[1]
    registry.release()
    page = status_of(registry)[1]
    assert "version 2 stays. The hold was released since then: the next run may publish." in page
    assert "Nothing is published until" not in page


def test_a_failed_run_after_a_rollback_tells_of_the_version_that_is_current(add_days, registry):
    registry.rollback()
    with pytest.raises(mcnet.InputError, match="there is no file"):
        mcnet.update(add_days(7, 7).store, "nowhere.csv", period="2026-11-08", **METHOD)
    page = status_of(registry)[1]
    assert "The last run failed, and version 1 stays" in page
    assert "Since then" not in page
