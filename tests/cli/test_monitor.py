"""`mcnet monitor`: reference and watched periods, alarms, exit codes, state, page."""

import re

import numpy as np
import polars as pl
import pytest
from tests.operations.conftest import receiving

import mcnet as library
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import sketches_by
from mcnet.store.journal import Journal

DAYS = [f"2026-10-{day:02d}" for day in range(1, 25)]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Return a journal of 24 days; from the 17th on, scores of FR are twice too high."""
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("monitor") / "history"
    for place, day in enumerate(DAYS):
        score, country = rng.uniform(0.02, 0.3, 3000), rng.choice(["NL", "FR"], 3000)
        truth = np.where((country == "FR") & (place >= 16), 0.5 * score, score)
        Journal(folder).add(Sketch.from_rows(score, rng.random(3000) < truth, field={"country": country}), day)
    return folder


def test_an_alarm_is_described_and_fails_if_asked_to(mcnet, history):
    words = ("monitor", history, "--since", DAYS[10])
    done = mcnet(*words)
    assert done.code == 0, done.err
    assert "10 reference periods, 14 watched; evidence of 100 is an alarm" in done.out
    assert "country=FR" in done.out
    assert "over-predicted since 2026-10-17: update the model and publish it" in done.out
    assert "in 95 % of cases inside the interval at all times:" in done.out
    late = mcnet("monitor", history, "--since", DAYS[16]).out
    assert re.search(r"^country=FR over-predicted by \d+ % \(\d+ … \d+\), since 2026-10-17$", late, re.MULTILINE)
    for word, code in (("alarm", 1), ("value", 1), ("slope", 0)):
        assert mcnet(*words, "--fail-if", word, "-q").code == code
    found = mcnet(*words, "--json").document
    french = next(alarm for alarm in found["alarms"] if alarm["what"] == "country=FR")
    assert french["since"] == "2026-10-17"
    served = next(one for one in found["served"] if one["what"] == "country=FR")
    assert served["low"] < served["pcoc"] < served["high"]
    assert french["pcoc_low"] < french["pcoc"] < french["pcoc_high"]
    assert french["pcoc"] == pytest.approx(2.0, rel=0.2)
    assert not [alarm for alarm in found["alarms"] if alarm["what"] == "country=NL"]


def test_an_alarm_is_sent_once_however_often_the_monitor_runs(mcnet, history):
    words = ("monitor", history, "--since", DAYS[10], "--field-values", "hide", "-q")
    with receiving() as receiver:
        for _ in range(2):
            assert mcnet(*words, "--webhook", receiver.url).code == 0
        sent = [one["data"]["what"] for one in receiver.documents]
    assert "country=(hidden)" in sent
    assert len({one["id"] for one in receiver.documents}) == len(sent)
    refused = mcnet(*words, "--webhook", "http://example.com/T0KEN")
    assert (refused.code, "not encrypted" in refused.err, "T0KEN" in refused.err) == (2, True, False)


def test_calibrated_periods_raise_no_alarm(mcnet, history, tmp_path):
    folder = tmp_path / "calm"
    for day, sketch in Journal(history).sketches(until=DAYS[15]):
        Journal(folder).add(sketch, day)
    done = mcnet("monitor", folder, "--reference-until", DAYS[7], "--fail-if", "alarm")
    assert (done.code, "no alarm" in done.out) == (0, True), done.out


def test_the_reference_is_by_default_what_the_model_was_fitted_on(mcnet, history, tmp_path):
    model = tmp_path / "model.json"
    words = ("--method", "platt-field", "--since", DAYS[2], "--until", DAYS[11])
    assert mcnet("fit", history, *words, "-o", model).code == 0
    found = mcnet("monitor", history, "--model", model, "--json").document
    assert found["reference"] == DAYS[2:12]
    assert found["watched"] == DAYS[12:]
    assert "country=FR" in [alarm["what"] for alarm in found["alarms"]]


def test_a_state_continues_where_it_ended(mcnet, history, tmp_path):
    folder, state = tmp_path / "growing", tmp_path / "monitor.json"
    sketches = dict(Journal(history).sketches())
    words = ("monitor", folder, "--since", DAYS[10], "--json")
    for days in (DAYS[:14], DAYS[14:], []):
        for day in days:
            Journal(folder).add(sketches[day], day)
        found = mcnet(*words, "--state", state).document
    whole = mcnet(*words).document
    assert found == whole
    assert library.Monitor.load(state).last_period == DAYS[-1]
    done = mcnet(*words, "--state", state, "--alpha", "0.05")
    assert (done.code, "cannot change later" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fail-if", "pcoc>1"), "is not one of alarm, level, slope, value"),
        (("--since", "2026-10-05", "--reference-until", "2026-10-05"), "give one of them"),
        (("--alpha", "2"), "alpha is 2.0"),
        (("--period-effects", "many"), "neither learn nor a number"),
        (("--model", "nowhere.json"), "nowhere.json"),
    ],
)
def test_wrong_use_is_one_line(mcnet, history, words, message):
    done = mcnet("monitor", history, *words)
    assert (done.code, done.err.count("\n"), message in done.err) == (2, 1, True), done.err


def test_without_periods_to_watch_it_says_so(mcnet, history):
    done = mcnet("monitor", history, "--reference-until", DAYS[-1], "--fail-if", "alarm")
    assert (done.code, "no period has been watched yet" in done.err) == (0, True)


def test_a_state_is_about_one_model_and_its_options(mcnet, history, tmp_path):
    state, models = tmp_path / "state.json", []
    for last in (DAYS[5], DAYS[8]):
        models.append(tmp_path / f"{last}.json")
        assert mcnet("fit", history, "--method", "platt", "--until", last, "-o", models[-1]).code == 0
    words = ("monitor", history, "--state", state, "-q")
    begun = mcnet(*words, "--model", models[0], "--period-effects", 0, "--since", DAYS[10], "--until", DAYS[12])
    assert begun.code == 0, begun.err
    before = state.read_bytes()
    for more, message in (
        (("--model", models[1]), "has evidence on another model, which cannot be added to that on this model"),
        ((), "has evidence on another model, which cannot be added to that on the scores themselves"),
        (("--model", models[0], "--period-effects", "learn"), "was begun with --period-effects 0"),
        (("--model", models[0], "--since", DAYS[11]), f"was begun with --since {DAYS[10]}, which cannot change"),
        (("--model", models[0], "--reference-until", DAYS[9]), "was begun with no --reference-until"),
    ):
        done = mcnet(*words, *more)
        assert (done.code, message in done.err) == (2, True), done.err
    assert state.read_bytes() == before
    later = mcnet("monitor", history, "--state", state, "--model", models[0], "--json").document
    assert (later["reference"], later["watched"]) == (DAYS[:10], DAYS[10:])


def test_periods_after_until_are_left_for_later(mcnet, history, tmp_path):
    words = ("monitor", history, "--since", DAYS[10], "--json")
    found = mcnet(*words, "--until", DAYS[13], "--state", tmp_path / "s.json").document
    assert (found["watched"], found["last_period"]) == (DAYS[10:14], DAYS[13])
    assert mcnet(*words, "--state", tmp_path / "s.json").document == mcnet(*words).document


def test_watched_periods_are_shown_in_money(mcnet, history, tmp_path):
    assert "over-bid" not in mcnet("monitor", history).out
    listed = tmp_path / "actions.csv"
    words = ("monitor", history, "--since", DAYS[16], "--value", "2", "--actions-table", listed)
    found = mcnet(*words, "--json").document["money"]
    predicted = dict(zip(*(found["fields"]["country"][name] for name in ("value", "predicted_value")), strict=True))[
        "FR"
    ]
    french = sketches_by(Journal(history).sketch(since=DAYS[16]), "country")["FR"]
    assert predicted == pytest.approx(2 * (french.score @ french.weight), rel=1e-3)
    assert found["overbid"]["low"] < predicted / 2 < found["overbid"]["high"]
    assert [one["period"] for one in found["periods"]] == DAYS[16:]
    assert [action["value"] for action in found["actions"]["actions"]] == ["FR"]
    assert listed.read_text(encoding="utf-8").count("\n") == 2
    done = mcnet(*words, "--force")
    assert "money of the last 8 watched periods" in done.out
    assert "country = FR" in done.out
    for words, problem in ((("--value", "0"), "above 0"), (("--actions-table", tmp_path / "other.csv"), "no values")):
        refused = mcnet("monitor", history, *words)
        assert (refused.code, problem in refused.err) == (2, True), refused.err
    assert not (tmp_path / "other.csv").exists()


def test_a_journal_keeps_the_values_of_its_rows(mcnet, tmp_path):
    score, label = np.tile([0.1, 0.3], 500), np.tile([0, 0, 1, 0], 250)
    log = tmp_path / "log.csv"
    table = {"p": score, "y": label, "bid": np.where(score < 0.2, 1.0, 2.5), "day": np.arange(1000) // 500}
    pl.DataFrame(table).write_csv(log)
    named = (log, "--score", "p", "--label", "y", "--time", "day", "--every", "1")
    for name, value in (("column.db", "bid"), ("number.db", "2")):
        store = tmp_path / name
        assert mcnet("journal", "add", store, *named, "--value", value).code == 0
        money = mcnet("monitor", store, "--json").document["money"]
        predicted = 500 * (0.1 * 1.0 + 0.3 * 2.5) if value == "bid" else 500 * 0.4 * 2
        assert money["predicted_value"] == pytest.approx(predicted, rel=1e-3)
        assert money["observed_value"] == pytest.approx(250 * 1.0 if value == "bid" else 500.0, rel=1e-9)
    refused = mcnet("journal", "add", tmp_path / "none.db", *named, "--value", "-1")
    assert (refused.code, "above 0" in refused.err) == (2, True)
    assert not (tmp_path / "none.db").exists()
