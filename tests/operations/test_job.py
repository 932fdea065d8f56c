"""The job: what it publishes, refuses and tells, and that running it again changes nothing."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.operations.conftest import day_name, day_rows

import mcnet
from mcnet.calibrators.per_field import PlattField
from mcnet.errors import BusyError, InputError
from mcnet.metrics.evaluation import predict_cells
from mcnet.operations.gate import Gate
from mcnet.operations.learning import sketch_log_loss
from mcnet.operations.status import status_of
from mcnet.operations.update import record_failed_run
from mcnet.report.status_page import write_status_page
from mcnet.sketch.sketch import Sketch
from mcnet.store.schema import checkpoints, documents, heads, runs, served, told, versions
from mcnet.store.state import LoopState


def lose_the_loop(store):
    """Delete what the loop keeps between runs."""
    with store.database.writing() as connection:
        for table in (checkpoints, documents, runs, served, told):
            connection.execute(table.delete())


def monitor_of(registry):
    return mcnet.Monitor.of_document(mcnet.Store(registry).state().get("monitor"), "the monitor")


def last_run(registry):
    return mcnet.Store(registry).state().runs()[-1]


@pytest.fixture
def registry(tmp_path):
    return tmp_path / "ads.db"


def test_a_version_is_published_after_enough_periods_and_then_after_each(add_days, registry):
    outcomes = []
    for day in range(1, 7):
        done = mcnet.update(add_days(day, day).store)
        outcomes.append((done.outcome, done.version, done.replaced))
    assert outcomes[:3] == [("waiting", None, None)] * 3
    assert outcomes[3:] == [("published", "1", None), ("published", "2", "1"), ("published", "3", "2")]
    opened = mcnet.Registry(registry)
    assert opened.current.fitted_until == day_name(6)
    rows = day_rows(9)
    probability = opened.load().predict(rows["pctr"], field={"country": rows["country"]})
    assert probability.sum() / rows["click"].sum() == pytest.approx(1.0, abs=0.12)
    assert [run["outcome"] for run in mcnet.Store(registry).state().runs()] == [one[0] for one in outcomes]


def test_running_again_changes_nothing(add_days, registry):
    journal = add_days(1, 5)
    first = mcnet.update(journal.store)
    again = mcnet.update(journal.store)
    assert (first.outcome, again.outcome) == ("published", "nothing new")
    assert len(mcnet.Registry(registry).versions) == 1
    assert again.learnt == ()
    assert len(mcnet.Store(registry).state().runs()) == 2


def test_the_loop_learns_what_the_tracker_learns(add_days, registry):
    mcnet.update(add_days(1, 5).store)
    journal = add_days(6, 6)
    mcnet.update(journal.store)
    rows = day_rows(7)
    field = {"country": rows["country"]}
    expected = mcnet.Tracker.from_journal(journal).predict(rows["pctr"], field=field)
    found = mcnet.Registry(registry).load().predict(rows["pctr"], field=field)
    assert found == pytest.approx(expected, rel=1e-3)


def test_late_rows_of_an_old_period_are_learnt_from_a_state_before_it(add_days, registry):
    mcnet.update(add_days(1, 8).store)
    journal = add_days(7, 7, ratio=0.5)  # more rows of a day that was learnt
    done = mcnet.update(journal.store)
    assert done.learnt[-2:] == (day_name(7), day_name(8))
    assert len(done.learnt) <= 4, "not everything is learnt again"
    other = mcnet.Store(registry.with_name("other.db"))
    for entry, sketch in journal.counts():
        other.journal().add(sketch(), entry.period, source=entry.source)
    fresh = mcnet.update(other)
    assert len(fresh.learnt) == 8
    rows = day_rows(9)
    one, other = (
        mcnet.Registry(path).load().predict(rows["pctr"], field={"country": rows["country"]})
        for path in (registry, registry.with_name("other.db"))
    )
    assert one == pytest.approx(other, rel=1e-3)


def test_what_is_lost_is_learnt_again(add_days, registry):
    mcnet.update(add_days(1, 5).store)
    lose_the_loop(mcnet.Store(registry))
    done = mcnet.update(add_days(6, 6).store)
    assert len(done.learnt) == 6
    assert done.outcome == "published"


def test_a_jump_is_refused_by_max_shift_and_published_by_force(add_days, registry):
    mcnet.update(add_days(1, 6).store)
    journal = add_days(7, 7, ratio=0.25, rows=20_000)  # as if many labels were lost on their way
    done = mcnet.update(journal.store, max_shift=0.2)
    assert (done.outcome, done.version) == ("refused", "1")
    assert "; allowed is -16.7% to +20.0% (--max-shift)" in done.reason
    assert mcnet.Registry(registry).history()[-1]["event"] == "refused"
    assert json.loads(mcnet.Registry(registry).content("refused"))["format"]
    assert mcnet.update(journal.store, max_shift=0.2).outcome == "nothing new", "the same is not judged twice"
    assert mcnet.update(journal.store, max_shift=0.19).outcome == "refused"
    told = [event["type"] for event in mcnet.Store(registry).state().told(9)]
    assert told.count("refusal") == 1, "refusals in a row are one event"
    assert mcnet.update(journal.store, max_shift=0.18).outcome == "refused"
    folded = [(run["outcome"], run["times"]) for run in status_of(mcnet.Store(registry))["runs"]]
    assert folded == [("refused", 2), ("nothing new", 1), ("refused", 1), ("published", 1)]
    forced = mcnet.update(journal.store, max_shift=0.2, force=True, note="checked by hand")
    assert (forced.outcome, forced.forced, forced.version) == ("published", True, "2")
    assert "forced, although" in mcnet.Registry(registry).history()[-1]["note"]
    assert (last_run(registry)["forced"], last_run(registry)["note"]) == (True, "checked by hand")
    assert mcnet.update(journal.store, force=True).outcome == "nothing new", "it is published already"


def test_the_state_says_what_each_version_changed_and_since_when_it_is_served(add_days, registry):
    store = mcnet.Store(registry)
    assert status_of(store)["last_run"] is None
    for day in range(1, 7):
        mcnet.update(add_days(day, day, ratio=0.7 if day < 6 else 0.8).store, method="platt-field")
    mcnet.Registry(registry).add(store.load(version=1), "by hand")
    mcnet.Registry(registry).promote(4, "<b>checked</b>")
    found = status_of(store)
    assert found["heads"] == [{"head": "default", "version": 4}]
    assert (found["current"]["number"], found["current"]["since"]) == (4, found["events"][0]["time"])
    newest, by_hand_before, *_, first = found["versions"]
    assert re.fullmatch(r"((NL|FR|US) [+−]\d+\xa0%(, )?)+", newest["changed"]), "no run compared it: the models were"
    assert newest["reason"] == "by hand"
    assert re.search(r"(NL|FR|US) \+\d+\xa0%", by_hand_before["changed"])
    assert by_hand_before["reason"].startswith(("as good as", "better than"))
    assert "mean probability" not in by_hand_before["reason"], "that is told already"
    assert (first["number"], first["changed"]) == (1, "")
    assert [(one["event"], one["version"]) for one in found["events"]][:1] == [("promoted", 4)]
    assert not [one for one in found["events"] if one["version"] in (2, 3)], "what runs published is among the runs"


def test_other_limits_judge_the_same_rows_again(add_days, registry):
    mcnet.update(add_days(1, 6).store)
    journal = add_days(7, 7, ratio=0.35, rows=20_000)
    assert mcnet.update(journal.store, max_shift=0.01).outcome == "refused"
    assert mcnet.update(journal.store, max_shift=3.0).outcome == "published"


def test_a_version_of_ones_own_is_judged_on_the_periods_after_its_fit(add_days, registry):
    rows = day_rows(1)
    own = PlattField().fit(rows["pctr"], rows["click"], field={"country": rows["country"]}).model_
    told = {**own.provenance, "fitted_periods": {"first": day_name(1), "last": day_name(1), "number": 1}}
    mcnet.Registry(registry).add(replace(own, provenance=told))
    done = mcnet.update(add_days(1, 6).store)
    assert done.verdict.comparison.other == "version 1"
    assert (done.verdict.comparison.first, done.verdict.comparison.periods) == (day_name(2), 5)


def test_a_model_of_other_fields_is_never_replaced(add_days, registry):
    score = np.linspace(0.05, 0.4, 500)
    model = PlattField().fit(score, score > 0.2, field={"site": np.repeat(["a", "b"], 250)}).model_
    mcnet.Registry(registry).add(model)
    journal = add_days(1, 5)
    done = mcnet.update(journal.store)
    assert done.outcome == "refused"
    assert "lacks the field 'site' of the current model" in done.reason


def test_a_drift_raises_an_alarm_once(add_days, registry):
    """Nothing may be published, so that the served model cannot follow; the monitor must see it."""
    mcnet.update(add_days(1, 6).store)
    mcnet.Registry(registry).hold("a sale")
    alarms = []
    for days in ((7, 10), (11, 11)):
        done = mcnet.update(add_days(*days, ratio=0.3, rows=20_000).store, status=registry.with_name("status.html"))
        assert done.outcome == "held"
        alarms += [alarm.what for alarm in done.alarms]
    assert alarms.count("level") == 1, "told once"
    assert "but publishes nothing: version 1 is held" in str(mcnet.Store(registry).state().runs())
    status = status_of(mcnet.Store(registry))
    assert any(alarm["what"] == "level" for alarm in status["alarms"])
    assert status["current"]["number"] == 1
    assert "over-predicted" in done.status.read_text()


def test_the_watch_begins_again_after_a_newer_version(add_days, registry):
    mcnet.update(add_days(1, 6).store)
    mcnet.update(add_days(7, 10, ratio=0.3, rows=20_000).store, max_shift=0.001)
    assert monitor_of(registry).alarms
    assert mcnet.update(add_days(11, 11, ratio=0.3, rows=20_000).store, max_shift=9.0).outcome == "published"
    mcnet.update(add_days(12, 12, ratio=0.3, rows=20_000).store, max_shift=9.0)
    monitor = monitor_of(registry)
    assert not monitor.alarms
    assert monitor.last_period == day_name(12)


def test_a_period_that_has_not_ended_is_left_out(add_days, registry):
    journal = add_days(1, 6)
    done = mcnet.update(journal.store, until=day_name(5))
    assert done.until == mcnet.Registry(registry).current.fitted_until == day_name(5)


def test_with_a_delay_each_period_is_judged_by_what_was_known(add_days, registry):
    journal = add_days(1, 8)
    done = mcnet.update(journal.store, delay="2d")
    assert done.verdict.comparison.periods == 5, "the first three days were predicted from nothing"
    assert mcnet.Registry(registry).load().parameters["delay"] == 2


def test_log_files_are_read_once(tmp_path, registry):
    (tmp_path / "logs").mkdir()
    columns = {"score": "pctr", "label": "click", "field": "country", "time": "ts", "every": "1d"}
    for day in range(1, 5):
        day_rows(day, rows=500).write_parquet(tmp_path / "logs" / f"{day_name(day)}.parquet")
        done = mcnet.update(registry, tmp_path / "logs" / "*.parquet", **columns)
        assert (done.added.rows, done.added.files, done.added.unchanged) == (500, 1, day - 1)
    assert sum(entry.rows for entry in mcnet.Journal(registry).entries()) == 2000
    mcnet.Journal(registry).remove(str(tmp_path / "logs" / f"{day_name(2)}.parquet"))
    again = mcnet.update(registry, tmp_path / "logs" / "*.parquet", **columns)
    assert again.added.rows == 500, "what was removed from the journal is read again"


def test_two_runs_at_once_do_not_mix(add_days, registry):
    journal = add_days(1, 1)
    mcnet.update(journal.store)
    with journal.store.learning(), pytest.raises(BusyError, match="another process is"):
        mcnet.update(journal.store, wait_seconds=0.1)


def test_wrong_input_is_refused_before_anything_changes(add_days, registry, tmp_path):
    with pytest.raises(InputError, match="there is no store"):
        mcnet.update(tmp_path / "nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(InputError, match="max_shift"):
        mcnet.update(add_days(1, 1).store, max_shift=-1.0)
    day_rows(1).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(InputError, match="name the column of time"):
        mcnet.update(registry, tmp_path / "log.parquet", score="pctr", label="click")
    with pytest.raises(InputError, match="no column"):
        mcnet.update(registry, tmp_path / "log.parquet", score="x", label="click", time="ts", every="1d")
    assert not mcnet.Registry(registry).versions
    assert [(run["outcome"], "no column" in run["reason"]) for run in mcnet.Store(registry).state().runs()] == [
        ("failed", True)
    ]


@pytest.mark.parametrize("moment", ["before the pointer moved", "before the line was written"])
def test_a_run_that_was_cut_off_is_completed_by_the_next(add_days, registry, monkeypatch, moment):
    mcnet.update(add_days(1, 5).store)
    journal = add_days(6, 6)

    def cut(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((mcnet.Registry, "publish", cut) if "pointer" in moment else (LoopState, "add_run", cut)))
        with pytest.raises(KeyboardInterrupt):
            mcnet.update(journal.store)
    assert len(mcnet.Registry(registry).versions) == 1, "a version, the pointer and the line of the run come together"
    done = mcnet.update(journal.store)
    assert (done.outcome, done.version, done.replaced) == ("published", "2", "1")
    assert len(mcnet.Registry(registry).versions) == 2
    assert mcnet.update(journal.store).outcome == "nothing new"


def test_a_day_of_wrong_labels_makes_the_candidate_worse_and_the_gate_says_so(add_days, registry):
    mcnet.update(add_days(1, 6).store, method="platt-field")
    wrong = day_rows(7)
    label = np.random.default_rng(1).permutation(wrong["click"].to_numpy())  # as many clicks, on other rows
    sketch = Sketch.from_rows(wrong["pctr"], label, field={"country": wrong["country"]}, resolution=64)
    journal = add_days(8, 7)
    journal.add(sketch, day_name(7), source="wrong")
    journal.release(day_name(7))  # a look would have kept the tracker from learning it
    # No run came before the labels were right again: what the tracker forecast for these days was spoilt by day 7.
    done = mcnet.update(add_days(8, 14).store, method="platt-field")
    assert (done.outcome, done.version) == ("refused", "1")
    found = done.verdict.comparison
    assert (found.other, found.first, found.last, found.periods) == ("version 1", day_name(8), day_name(14), 7)
    assert 0.0 < found.low < found.difference < found.high
    assert done.reason.startswith("worse than version 1 on 7 unseen periods: log-loss +")
    assert mcnet.Registry(registry).history()[-1]["reason"] == done.reason
    assert mcnet.update(add_days(9, 8).store, method="platt-field", tolerance=0.01).version == "2"


def test_a_run_that_fails_is_told_in_the_status(add_days, registry, monkeypatch):
    mcnet.update(add_days(1, 4).store)
    before = status_of(mcnet.Store(registry))
    assert before["last_ended"] == before["last_run"]["time"]

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    journal = add_days(5, 5)
    with monkeypatch.context() as patch:
        patch.setattr("mcnet.operations.update.learn_journal", full)
        with pytest.raises(OSError, match="No space"):
            mcnet.update(journal.store)
    after = status_of(mcnet.Store(registry))
    assert (after["last_run"]["outcome"], after["last_ended"]) == ("failed", before["last_ended"])
    assert "No space left on device" in after["last_run"]["reason"]
    assert after["monitor"] == before["monitor"]
    record_failed_run(registry, "the update was ended by signal 9")
    assert [run["outcome"] for run in status_of(mcnet.Store(registry))["runs"]][:2] == ["failed", "failed"]
    done = mcnet.update(journal.store)
    assert (done.outcome, done.learnt) == ("published", (day_name(5),))
    assert status_of(mcnet.Store(registry))["last_run"]["outcome"] == "published"


def test_what_was_served_is_kept_with_what_the_version_before_would_have_lost(add_days, registry):
    for day in range(4, 8):
        mcnet.update(add_days(1 if day == 4 else day, day).store)
    opened, recorded = mcnet.Registry(registry), mcnet.Store(registry).state().served(9)
    assert [(one.period, one.version) for one in recorded.values()] == [(day_name(day), day - 4) for day in (5, 6, 7)]
    assert recorded[day_name(5)].kept_loss is None, "no version served before it"
    rows = dict(opened.store.journal().sketches())[day_name(7)]
    assert recorded[day_name(7)].kept_loss == pytest.approx(sketch_log_loss(rows, predict_cells(opened.load(2), rows)))
    mcnet.Registry(registry).rollback()
    mcnet.update(add_days(8, 8).store)
    held = mcnet.Store(registry).state().served(1)[day_name(8)]
    assert held.version == 3, "the one that served when the day began to be predicted"


def test_a_damaged_version_of_the_past_does_not_stop_the_loop(add_days, registry):
    mcnet.update(add_days(1, 4).store)
    mcnet.update(add_days(5, 5).store)
    with mcnet.Store(registry).database.writing() as connection:
        connection.execute(versions.update().where(versions.c.number == 1).values(model=b"{"))
    done = mcnet.update(add_days(6, 6).store)
    assert (done.outcome, done.version) == ("published", "3")


def test_a_model_of_fewer_periods_does_not_take_the_place_of_a_newer_one(add_days, registry):
    journal = add_days(1, 6)
    mcnet.update(journal.store)
    older = mcnet.update(journal.store, until=day_name(5))
    assert (older.outcome, older.version) == ("nothing new", "1")
    assert f"fitted until {day_name(6)}, later than {day_name(5)}" in older.reason
    forced = mcnet.update(journal.store, until=day_name(5), force=True)
    assert (forced.outcome, forced.version) == ("published", "2")


def test_a_run_without_its_files_has_its_line(add_days, registry, tmp_path):
    journal = add_days(1, 4)
    mcnet.update(journal.store)
    with pytest.raises(InputError, match="nowhere"):
        mcnet.update(journal.store, tmp_path / "nowhere.parquet", score="pctr", label="click", time="ts", every="1d")
    assert last_run(registry)["outcome"] == "failed"


def test_a_suspect_period_is_told_once_and_learnt_after_its_rows_were_replaced(add_days, registry):
    mcnet.update(add_days(1, 7).store)
    before = mcnet.Registry(registry).load()
    rows = day_rows(8)

    def day(labels):
        return Sketch.from_rows(rows["pctr"], labels, field={"country": rows["country"]}, resolution=64)

    journal = add_days(9, 8)
    journal.add(day(np.zeros(len(rows))), day_name(8), source="join")
    done = mcnet.update(journal.store)
    assert done.learnt == ()
    (line,) = done.suspect
    assert "2026-11-08 is suspect and was not learnt: positives are 0 where" in line
    assert "(rows all from join)" in line
    assert f"`mcnet journal release {journal.path} 2026-11-08`" in line
    score, field = rows["pctr"].to_numpy(), {"country": rows["country"]}
    after = mcnet.Registry(registry).load().predict(score, field=field)
    assert after == pytest.approx(before.predict(score, field=field), rel=0.03)
    status = status_of(mcnet.Store(registry))
    assert [one["period"] for one in status["suspects"]] == [day_name(8)]
    assert status["suspects"][0]["state"] == "waiting"
    assert status["following"]["others"] == 3
    assert status["following"]["level_age"] > 0.0
    assert status["monitor"]["table"][0]["served"]["since"] == day_name(8)
    values = status["monitor"]["values"]
    assert {one["what"] for one in values} == {"country=NL", "country=FR", "country=US"}
    assert [abs(one["excess"]) for one in values] == sorted([abs(one["excess"]) for one in values], reverse=True)
    assert sum(one["rows"] for one in values) == len(rows)
    (alert,) = mcnet.Store(registry).state().told(9)
    assert (alert["type"], alert["data"]["period"], alert["sent"]) == ("suspect", day_name(8), None)
    assert "`mcnet journal release" in alert["data"]["text"]
    assert "kept and not learnt" in write_status_page(registry.with_name("status.html"), status).read_text()
    journal.add(day(rows["click"]), day_name(8), source="join", replace=True)
    again = mcnet.update(journal.store)
    assert (again.suspect, again.learnt) == ((), (day_name(8),))


def test_nothing_is_learnt_from_three_suspect_periods_in_a_row_and_an_alarm_says_so(add_days, registry):
    mcnet.update(add_days(1, 7).store)
    told = []
    for day in (8, 9, 10, 11):
        rows = day_rows(day)
        sketch = Sketch.from_rows(rows["pctr"], 1 - rows["click"], field={"country": rows["country"]}, resolution=64)
        journal = add_days(12, 11)
        journal.add(sketch, day_name(day), source="flipped")
        told.append([alarm.advice() for alarm in mcnet.update(journal.store).alarms if alarm.what == "learning"])
    assert [len(lines) for lines in told] == [0, 0, 1, 0]
    assert "all periods since 2026-11-08 are suspect and nothing is being learnt" in told[2][0]


def add_day(journal, day, ratio):
    rows = day_rows(day, ratio)
    sketch = Sketch.from_rows(rows["pctr"], rows["click"], field={"country": rows["country"]}, resolution=64)
    journal.add(sketch, day_name(day), source="log")


def test_heads_of_one_store_learn_apart_on_both_databases(store_address):
    store = mcnet.Store(store_address)
    for head, ratio in (("ctr", 0.7), ("cvr", 0.3)):
        store.add_head(head)
        for day in range(1, 6):
            add_day(store.journal(head), day, ratio)
    with pytest.raises(InputError, match="has the heads ctr, cvr; name one"):
        mcnet.update(store)
    for head in ("ctr", "cvr"):
        done = mcnet.update(store, head=head, method="platt-field")
        assert (done.outcome, done.version) == ("published", "1")
        assert mcnet.update(store, head=head, method="platt-field").outcome == "nothing new"
    one, other = (store.load(head).predict([0.2], field={"country": ["NL"]})[0] for head in ("ctr", "cvr"))
    assert one == pytest.approx(other * 7 / 3, rel=0.2)
    store.versions("cvr").hold()
    add_day(store.journal("cvr"), 6, 0.3)
    held = mcnet.update(store, head="cvr", method="platt-field")
    assert f"`mcnet versions release {store.name} --head cvr`" in held.reason


def test_a_run_that_stood_still_while_another_one_began_publishes_nothing(add_days, registry, monkeypatch):
    judge = Gate.judge

    def stalled(gate, *given, **named):
        with mcnet.Store(registry).database.writing() as connection:  # as another process does when it gets the turn
            connection.execute(heads.update().values(fence=heads.c.fence + 1))
        return judge(gate, *given, **named)

    monkeypatch.setattr(Gate, "judge", stalled)
    with pytest.raises(BusyError, match="another process has begun to learn"):
        mcnet.update(add_days(1, 5).store)
    monkeypatch.undo()
    assert (mcnet.Registry(registry).versions, monitor_kept(registry)) == ([], None)
    assert mcnet.update(mcnet.Store(registry)).outcome == "published"


def monitor_kept(registry):
    return mcnet.Store(registry).state().get("monitor")


def test_feedback_of_closed_periods_is_merged_before_it_is_learnt(add_days, registry):
    journal = add_days(1, 4)
    rows = day_rows(5)
    for part in range(4):
        some = rows[part::4]
        sketch = Sketch.from_rows(some["pctr"], some["click"], field={"country": some["country"]}, resolution=64)
        journal.add(sketch, day_name(5), source=f"feedback {part}")
        journal.add(sketch, day_name(6), source=f"feedback {part}")
    done = mcnet.update(journal.store, until=day_name(5))
    assert done.learnt[-1] == day_name(5)
    sources = [entry.source for entry in journal.entries() if entry.period >= day_name(5)]
    assert sorted(sources) == ["(compacted)", *(f"feedback {part}" for part in range(4))], (
        "the open period is as it was"
    )
    assert mcnet.update(journal.store, until=day_name(5)).learnt == ()


def test_a_head_knows_its_columns_after_the_first_run(tmp_path, registry):
    for day in range(1, 3):
        rows = day_rows(day, rows=500)
        rows.with_columns(pctr=(rows["pctr"] / (1 - rows["pctr"])).log()).write_parquet(tmp_path / f"{day}.parquet")
    columns = {"score": "pctr", "label": "click", "field": "country", "score_type": "logit"}
    mcnet.update(registry, tmp_path / "1.parquet", **columns, time="ts", every="1d")
    done = mcnet.update(registry, tmp_path / "2.parquet")
    assert (done.added.rows, done.learnt) == (500, (day_name(2),))
    first, second = (sketch.score.mean() for _, sketch in mcnet.Journal(registry).sketches())
    assert first == pytest.approx(second, rel=0.1), "logits again"


def test_the_status_has_the_money_of_what_was_served(tmp_path, registry):
    columns = {"score": "pctr", "label": "click", "field": "country", "time": "ts", "every": "1d"}
    expected = 0.0
    for day in range(1, 8):
        rows = day_rows(day).with_columns(bid=pl.when(pl.col("country") == "FR").then(4.0).otherwise(1.0))
        log = tmp_path / f"{day}.parquet"
        rows.write_parquet(log)
        mcnet.update(registry, log, **(columns | {"value": "bid"} if day == 1 else {}))  # as the last run has read them
        expected += float((rows["bid"] * rows["click"]).sum()) if day > 4 else 0.0
    money = status_of(mcnet.Store(registry))["money"]
    assert [one["period"] for one in money["periods"]] == [day_name(day) for day in (5, 6, 7)]
    assert money["observed_value"] == pytest.approx(expected)
    assert money["observed_value"] == pytest.approx(sum(one["observed_value"] for one in money["periods"]))
    assert money["predicted_value"] == pytest.approx(expected, rel=0.1)
    assert {one["name"] for one in money["fields"]["country"]} == {"FR", "NL", "US"}
    assert money["actions"]["tested"] == 3
    mcnet.update(registry)
    assert status_of(mcnet.Store(registry))["money"] == money
    with pytest.raises(InputError, match="both given"):
        mcnet.update(registry, value=1.0, value_per_positive="paid")


def test_a_number_is_what_every_positive_is_worth(add_days, registry):
    mcnet.update(add_days(1, 6).store)
    assert status_of(mcnet.Store(registry))["money"] is None
    store = add_days(7, 7).store
    mcnet.update(store, value=2.5)
    money = status_of(store)["money"]
    assert money["observed_value"] == pytest.approx(2.5 * day_rows(7)["click"].sum())
    mcnet.update(add_days(8, 8).store)  # it stays
    both = sum(day_rows(day)["click"].sum() for day in (7, 8))
    assert status_of(store)["money"]["observed_value"] == pytest.approx(2.5 * both)
    with pytest.raises(InputError, match="above 0"):
        mcnet.update(store, value=0)


def test_a_first_run_that_fails_leaves_no_head(add_days, registry, tmp_path):
    store = add_days(1, 1).store
    (tmp_path / "bad.csv").write_text("score,label\n0.1,2\n")
    with pytest.raises(InputError, match="label has 1 value outside"):
        mcnet.update(tmp_path / "new.db", tmp_path / "bad.csv", score="score", label="label", period=1)
    assert mcnet.Store(tmp_path / "new.db").heads == []
    with pytest.raises(BusyError, match=r"another process is learning in .*ads\.db"), store.learning():
        mcnet.update(store, wait_seconds=0.1)


def test_nothing_is_published_after_a_suspect_period_alone(add_days, registry):
    published = mcnet.update(add_days(1, 7).store)
    assert published.outcome == "published"
    rows = day_rows(8)
    flipped = Sketch.from_rows(rows["pctr"], 1 - rows["click"], field={"country": rows["country"]}, resolution=64)
    store = mcnet.Store(registry)
    store.journal().add(flipped, day_name(8), source="flipped")
    for _ in range(2):
        done = mcnet.update(store)
        assert (done.outcome, done.version, done.learnt) == ("nothing new", published.version, ())
        assert done.reason == f"every period since version {published.version} is suspect and was not learnt"
    after = mcnet.update(add_days(9, 9).store)
    assert (after.outcome, after.learnt) == ("published", (day_name(9),))


def test_a_table_is_told_where_it_belongs(registry):
    with pytest.raises(InputError, match="named by their files, not given as DataFrame; write the rows to a file, or"):
        mcnet.update(registry, day_rows(1), score="pctr", label="click", time="ts", every="1d")


def test_a_published_model_knows_the_columns_of_its_logs(tmp_path):
    store = tmp_path / "ads.db"
    for day in range(1, 5):
        log = tmp_path / f"{day}.parquet"
        day_rows(day).with_columns(ts=pl.lit(day_name(day))).write_parquet(log)
        done = mcnet.update(store, log, score="pctr", label="click", field="country", time="ts", every="1d")
    assert done.outcome == "published"
    columns = mcnet.Registry(store).load().provenance["columns"]
    assert columns == {"score": "pctr", "label": "click", "score_type": "probability", "negatives_kept": 1.0}
    # The first model of a head knows them, too, though the head keeps them only when its run has ended.
    logs, options = [tmp_path / f"{day}.parquet" for day in range(1, 5)], {"time": "ts", "every": "1d"}
    first = mcnet.update(tmp_path / "b.db", logs, score="pctr", label="click", field="country", **options)
    assert (first.outcome, first.version) == ("published", "1")
    assert mcnet.Registry(tmp_path / "b.db").load().provenance["columns"] == columns
