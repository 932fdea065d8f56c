"""The store: heads, transactions, who may learn, who is told, upkeep, and the state of the loop."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
import sqlalchemy as sa
from tests.store.conftest import model, rows

from mcnet.errors import BusyError, InputError
from mcnet.operations.learning import learn_journal
from mcnet.sketch.sketch import Sketch
from mcnet.store.settings import HeadSettings
from mcnet.store.state import Served
from mcnet.store.store import Store

# -- heads ---------------------------------------------------------------------------------------------------------


def test_heads_have_their_own_rows_versions_and_runs(store):
    for head in ("ctr", "cvr"):
        store.add_head(head)
        store.journal(head).add(rows(len(head) + ord(head[1])), 1, source="a")
        store.versions(head).add(model(ord(head[1])))
        store.state(head).add_run({"outcome": "published", "head": head})
    assert store.heads == ["ctr", "cvr"]
    assert store.journal("ctr").sketch() != store.journal("cvr").sketch()
    assert store.versions("ctr").current.digest != store.versions("cvr").current.digest
    assert [run["head"] for run in store.state("cvr").runs()] == ["cvr"]
    probe = np.linspace(0.1, 0.9, 9)
    assert np.array_equal(store.load("cvr").predict(probe), model(ord("v")).predict(probe))
    store.remove_head("ctr")
    assert store.heads == ["cvr"]
    assert store.check() == []


def test_the_only_head_need_not_be_named_and_one_of_several_must_be(store):
    store.journal().add(rows(1), 1)
    assert store.heads == ["default"]
    assert store.journal().head == "default"
    store.add_head("cvr")
    assert store.journal().head == "default"
    store.remove_head("default")
    assert store.journal().head == "cvr"
    store.add_head("ctr")
    with pytest.raises(InputError, match="has the heads ctr, cvr; name one of them"):
        store.journal()


def test_a_head_that_is_not_there_is_named_with_those_that_are(store):
    for use in (store.load, lambda head: store.versions(head).hold(), store.remove_head):
        with pytest.raises(InputError, match="there is no store in"):
            use("ctr")
    assert not store.database.exists(), "a change that is refused makes no store"
    store.journal("ctr").add(rows(1), 1)
    uses = (lambda: store.load("cvr"), lambda: store.journal("cvr").sketch(), lambda: store.versions("cvr").hold())
    for use in (*uses, lambda: store.journal("cvr").add(rows(1), 1), lambda: store.configure("cvr", score="p")):
        with pytest.raises(InputError, match="has no head 'cvr'; it has ctr"):
            use()
    store.remove_head("ctr")
    with pytest.raises(InputError, match="has no head 'ctr'; it has none"):
        store.load("ctr")
    for wrong in ("", "a/b", "a\nb", "x" * 65):
        with pytest.raises(InputError, match="the head is"):
            store.journal(wrong)


def test_the_settings_of_a_head_stay_until_they_are_taken_away(store):
    assert store.configure("ctr", score="pctr", every="1h") == HeadSettings(score="pctr", every="1h")
    assert store.configure("ctr", score=None, key_days=7).given == {"every": "1h", "key_days": 7.0}
    assert store.require_head("ctr").settings == HeadSettings(every="1h", key_days=7)
    assert store.configure("ctr", HeadSettings(alpha=0.1), every="2h").given["alpha"] == 0.1
    with pytest.raises(InputError, match="no setting 'scores'"):
        store.configure("ctr", scores="pctr")


def test_rows_that_are_refused_make_no_head(store):
    with pytest.raises(InputError, match="lies more than 400 periods after now"):
        store.journal("ctr").add(rows(1), "2099-01-01", source="a")
    assert store.heads == []


def test_another_head_is_made_by_name_only(store):
    store.journal("ctr").add(rows(1), 1)
    with pytest.raises(InputError, match=r"has no head 'cvr'; it has ctr; store.add_head\('cvr'\) makes it"):
        store.versions("cvr").add(model(1))
    for _ in range(2):  # one that is there stays as it is
        store.add_head("cvr")
        store.versions("cvr").add(model(1))
    assert (store.heads, store.versions("cvr").numbers) == (["ctr", "cvr"], [1])


# -- transactions --------------------------------------------------------------------------------------------------


def test_what_happens_in_one_transaction_happens_together_or_not_at_all(store):
    registry, state = store.versions("ctr"), store.state("ctr")
    registry.add(model(1))
    moves = store.require_head("ctr").moves

    def publish():
        registry.promote(registry.add(model(2)).number)
        state.add_run({"outcome": "published"})
        state.put("monitor", {"level": 1})
        store.journal("ctr").add(rows(1), 1, source="a")

    with suppress(RuntimeError), store.transaction():
        publish()
        raise RuntimeError
    assert (registry.numbers, registry.current.number, state.runs(), state.get("monitor")) == ([1], 1, [], None)
    assert store.journal("ctr").periods == []
    assert store.require_head("ctr").moves == moves
    with store.transaction():
        publish()
    assert (registry.current.number, len(state.runs()), state.get("monitor")) == (2, 1, {"level": 1})
    assert store.require_head("ctr").moves == moves + 1


def test_readers_do_not_wait_for_a_writer_and_see_nothing_unfinished(store):
    store.journal("ctr").add(rows(1), 1, source="a")
    other = Store(store.database.given)
    with store.transaction():
        store.journal("ctr").add(rows(2), 2, source="a")
        found = []
        reader = threading.Thread(target=lambda: found.append(other.journal("ctr").periods))
        reader.start()
        reader.join(20)
        assert found == [["1"]]
    assert other.journal("ctr").periods == ["1", "2"]


# -- learning ------------------------------------------------------------------------------------------------------


def test_one_process_at_a_time_learns(store):
    for head in ("ctr", "cvr"):
        store.add_head(head)
    with store.learning("ctr") as lease:
        assert lease.fence == 1
        with (
            pytest.raises(BusyError, match="another process is"),
            Store(store.database.given).learning("ctr", wait_seconds=0.1),
        ):
            pass
        with store.learning("cvr", wait_seconds=0.1):
            pass
    with store.learning("ctr") as later:
        assert later.fence == 2


HOLDER = """
import sys, time
from mcnet.store.store import Store
with Store(sys.argv[1]).learning("ctr") as lease:
    print(lease.fence, flush=True)
    time.sleep(600)
"""


def test_the_right_to_learn_is_handed_on_when_its_holder_dies(store):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, store.database.given], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(BusyError), store.learning("ctr", wait_seconds=0.1):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        with store.learning("ctr", wait_seconds=60.0) as lease:
            assert lease.fence == 2
    finally:
        holder.kill()
        holder.communicate()


def test_a_holder_that_stalled_cannot_publish(store):
    registry = store.versions("ctr")
    registry.add(model(1))
    with store.learning("ctr") as stalled:
        store.database._next_fence(store.require_head("ctr").id)  # as if its session had ended, and another one learnt
        with pytest.raises(BusyError, match="nothing was published"), store.transaction(stalled):
            registry.promote(registry.add(model(2)).number)
    assert registry.numbers == [1]
    with store.learning("ctr") as lease, store.transaction(lease):
        registry.promote(registry.add(model(2)).number)
    assert registry.current.number == 2


def test_postgresql_takes_the_lock_from_a_holder_that_shows_no_sign_of_life(postgresql_store, monkeypatch):
    monkeypatch.setattr("mcnet.store.database._STALLED_SECONDS", 1)
    store = Store(postgresql_store())
    store.versions("ctr").add(model(1))
    with store.learning("ctr") as stalled:  # which shows only every 15 seconds that it is at work
        with Store(store.database.given).learning("ctr", wait_seconds=30.0) as lease:
            assert lease.fence == stalled.fence + 1
        with pytest.raises(BusyError, match="nothing was published"), store.transaction(stalled):
            store.versions("ctr").add(model(2))
    assert store.versions("ctr").numbers == [1]


# -- who is told ---------------------------------------------------------------------------------------------------


def test_a_pointer_that_moves_is_told_to_other_processes(store):
    registry = store.versions("ctr")
    registry.add(model(1))
    changes = Store(store.database.given).changes(poll_seconds=0.05)
    assert changes.wait(5.0), "whatever moved before is looked at first"
    assert not changes.wait(0.2)
    mover = threading.Timer(0.3, lambda: registry.promote(registry.add(model(2)).number))
    mover.start()
    begin = time.monotonic()
    assert changes.wait(30.0)
    assert time.monotonic() - begin < 25.0, "it did not wait for the time given"
    mover.join()
    changes.close()


def test_a_follower_looks_by_itself_while_postgresql_does_not_tell(postgresql_store):
    store = Store(postgresql_store())
    store.versions("ctr").add(model(1))
    changes = store.changes(poll_seconds=0.05)
    assert changes.wait(5.0)
    with store.database.writing() as connection:
        connection.execute(
            sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
                    "application_name = 'mcnet' AND query LIKE 'LISTEN%'")
        )  # fmt: skip
    assert changes.wait(5.0), "the connection is gone: looking tells"
    assert changes.wait(5.0), "the new one looks first"
    assert not changes.wait(0.1)
    changes.close()


def test_a_snapshot_ends_quietly_where_its_connection_was_lost(postgresql_store):
    store = Store(postgresql_store())
    store.journal().add(rows(1), 1)
    snapshot = store.journal().snapshot()
    with store.database.writing() as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
        connection.execute(sa.text(ended + "application_name = 'mcnet'"))
    snapshot.close()
    assert store.journal().sketch() == rows(1)


# -- upkeep --------------------------------------------------------------------------------------------------------


def test_a_backup_has_what_still_lies_beside_the_file(tmp_path):
    store = Store(tmp_path / "ads.db")
    store.journal().add(rows(1), 1)
    store.versions().add(model(1))
    assert (tmp_path / "ads.db-wal").stat().st_size > 0
    store.backup(tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    copy = Store(tmp_path / "copy.db")
    assert copy.journal().sketch() == rows(1)
    assert (copy.check(), copy.load().method) == ([], "platt")


def test_a_file_that_was_deleted_or_replaced_takes_no_rows_unseen(tmp_path):
    path, copy = tmp_path / "ads.db", tmp_path / "copy.db"
    store = Store(path)
    store.configure("ctr", score="p")
    store.backup(copy)
    store.add_head("cvr")
    assert store.heads == ["ctr", "cvr"]
    for file in tmp_path.glob("ads.db*"):
        file.unlink()
    assert store.heads == []
    copy.rename(path)
    assert store.heads == ["ctr"]


def test_postgresql_is_backed_up_by_its_own_tools(postgresql_store, tmp_path):
    with pytest.raises(InputError, match="pg_dump"):
        Store(postgresql_store()).backup(tmp_path / "copy.db")


def test_what_was_altered_is_found(store):
    store.journal("ctr").add(rows(1), 1, source="a")
    store.journal("ctr").add(rows(2), 2, source="a")
    assert store.check() == []
    with store.database.writing() as connection:
        for number, content in ((1, "(SELECT sketch FROM entries WHERE period = '2')"), (2, "'x'")):
            kind = "" if store.database.is_sqlite or number == 1 else "::bytea"
            connection.exec_driver_sql(f"UPDATE entries SET sketch = {content}{kind} WHERE period = '{number}'")
    first, second = store.check()
    assert "1 of a in" in first
    assert "has other rows than were added" in first
    assert "2 of a in" in second


def test_old_periods_can_be_forgotten(store):
    journal = store.journal("ctr")
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        for source in "ab":
            journal.add(rows(ord(source)), day, source=source)
    journal.compact(before="2026-11-02")
    assert store.forget("2026-11-03", "ctr") == {"periods": 2, "rows": 200, "keys": 2}
    assert journal.periods == ["2026-11-03"]
    assert store.require_head("ctr").first_period == "2026-11-03"
    assert store.show()["heads"]["ctr"]["rows"] == 100
    assert store.forget("2026-11-03", "ctr") == {"periods": 0, "rows": 0, "keys": 0}


# -- the state of the loop -----------------------------------------------------------------------------------------


def test_older_states_of_the_tracker_are_kept_at_growing_distances(store):
    state = store.state("ctr")
    for ticks in range(1, 33):
        state.save_checkpoint(ticks, {"ticks": ticks}, {"memory": bytes([ticks])})
    kept = [ticks for ticks, _, _ in state.checkpoints()]
    assert kept[0] == 32
    assert len(kept) <= 7
    assert all(
        document == {"ticks": t} and sketches == {"memory": bytes([t])} for t, document, sketches in state.checkpoints()
    )
    state.save_checkpoint(20, {"ticks": 20}, {})  # late rows: everything from there is learnt again
    assert next(state.checkpoints())[0] == 20


def test_documents_of_one_kind_have_names_and_are_replaced_as_a_whole(store):
    state = store.state("ctr")
    for name, document in (("2026-11-16T13:00", "a"), ("2026-11-16T05:00", "b"), ("2026-11-16T13:00", None)):
        state.put("released", document, name)
    assert state.all("released") == {"2026-11-16T05:00": "b"}
    assert (state.get("released", "2026-11-16T05:00"), state.get("released")) == ("b", None)


def test_a_period_that_is_served_again_is_told_by_the_latest(store):
    state = store.state("ctr")
    state.add_run({"outcome": "published"})
    state.add_served([Served("1", 1, None, 1.0, 0.9, 1.1), Served("2", 1, 0.5, None, None, None)])
    state.add_served([Served("1", 2, 0.25, 1.0, 0.9, 1.1)])
    assert [(one.period, one.version) for one in state.served(9).values()] == [("2", 1), ("1", 2)]
    assert list(state.served(1)) == ["1"]


def test_a_tracker_goes_on_from_its_checkpoint_and_late_rows_cost_what_they_are_late(store):
    journal, saved = store.journal("ctr"), store.state("ctr")
    for day in range(1, 9):
        journal.add(rows(day, 400), f"2026-11-{day:02}", source="a")
    settings = {"method": "platt-field", "delay": 0}
    first = learn_journal(journal.snapshot(), saved, **settings)
    assert len(first.new) == 8
    assert learn_journal(journal.snapshot(), saved, **settings).new == []
    journal.add(rows(9, 400), "2026-11-09", source="a")
    second = learn_journal(journal.snapshot(), saved, **settings)
    assert second.new == ["2026-11-09"]
    assert len(second.judged) == len(first.judged) + 1
    journal.add(rows(80, 400), "2026-11-08", source="late")
    third = learn_journal(journal.snapshot(), saved, **settings)
    assert "2026-11-08" in third.new
    assert "2026-11-01" not in third.new
    store.add_head("other")
    fresh = learn_journal(journal.snapshot(), store.state("other"), **settings)
    probe = np.linspace(0.1, 0.9, 9)
    found, expected = (one.learner.model().predict(probe, ["NL"] * 9) for one in (third, fresh))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_released_period_stays_released_until_it_has_other_rows(store):
    journal = store.journal("ctr")
    for source in "ab":
        for period in (1, 2):
            journal.add(rows(ord(source) + period), period, source=source)
    journal.release(1)
    assert journal.released == {"1"}
    journal.compact()
    assert journal.released == {"1"}, "the same rows in another entry"
    journal.add(rows(3), 1, source="late")
    assert journal.released == set()
    with pytest.raises(InputError, match="has no period 9"):
        journal.release(9)


def test_the_values_of_rows_are_kept(store):
    valued = Sketch.from_rows([0.1, 0.4, 0.2], [0, 1, 0], value=[1.0, 2.5, 0.5])
    store.journal().add(valued, 1, source="a")
    assert store.journal().sketch().values.sum() == valued.values.sum() > 0.0


def test_a_journal_refuses_rows_that_are_weighted_by_propensity(tmp_path):
    rows = [0.1, 0.2, 0.3], [0, 1, 0]
    journal = Store(tmp_path / "ads.db").journal("ctr")
    journal.add(Sketch.from_rows(*rows), "2026-11-17T10:00", source="a")
    with pytest.raises(InputError, match="sketch them without a propensity"):
        journal.add(Sketch.from_rows(*rows, propensity=[0.5, 0.5, 0.5]), "2026-11-17T11:00", source="b")
    assert [entry.source for entry in journal.snapshot().entries()] == ["a"]
