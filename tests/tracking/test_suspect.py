"""A look before learning: broken periods are kept and not learnt, real changes are learnt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

import mcnet
from mcnet.tracking.suspect import LEAST_PERIODS, Counts, Look, Measured, slope_of

ROWS, CLEAN = 3_000, LEAST_PERIODS + 2
SCORES = expit(np.linspace(-5.0, 0.0, 40))


def rows(period, *, change=0.0, private=0.0, seed=0):
    """Return scores, labels and the field of a period; all values move by `change`, the first one by `private`."""
    rng = np.random.default_rng([seed, period])
    raw, value = rng.normal(-2.2, 1.0, ROWS), rng.choice(4, ROWS, p=[0.4, 0.3, 0.2, 0.1])
    truth = expit(0.9 * raw + change + private * (value == 0))
    return expit(raw), (rng.random(ROWS) < truth).astype(float), np.array(list("abcd"))[value]


def learnt(**names):
    tracker = mcnet.Tracker(**names)
    for period in range(CLEAN):
        score, label, field = rows(period)
        tracker.update(score, label, field={"value": field}, period=period)
    return tracker


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look") / "tracker"
    learnt().save(folder)
    return folder


@pytest.fixture
def tracker(saved):
    return mcnet.Tracker.load(saved)


def broken(kind, period=CLEAN):
    score, label, field = rows(period)
    rng = np.random.default_rng(period)
    if kind == "flipped":
        label = 1.0 - label
    elif kind == "shuffled":
        label = rng.permutation(label)
    elif kind == "all positive":
        label = np.ones(ROWS)
    elif kind == "none positive":
        label = np.zeros(ROWS)
    elif kind == "rows":
        score, label, field = (np.tile(part, 100) for part in (score, label, field))
    elif kind == "one value lost":
        label = np.where(field == "a", 0.0, label)
    elif kind == "other scores":
        score = expit(-0.9 + 0.7 * (logit(score) + 2.2) + rng.normal(0.0, 0.4, ROWS))
    elif kind == "no field":
        field = np.where(rng.random(ROWS) < 0.9, None, field)
    return score, label, field


def served(tracker):
    return np.concatenate([tracker.predict(SCORES, {"value": [value] * len(SCORES)}) for value in "abcd"])


CAUSES = {
    "flipped": "labels fall as scores rise.*flipped",
    "shuffled": "no longer follow the scores.*wrong rows",
    "all positive": "positives are all .* rows where .* were expected in all values at once, scores unchanged",
    "none positive": "positives are 0 where .* in all values at once, scores unchanged: labels missing",
    "rows": "100 times the usual rows: sent more than once",
    "one value lost": "positives of value=a are 0 .*labels of this value missing",
    "other scores": "scores moved, labels did not .*: a new base model",
    "no field": "90% of the rows have no value in a field",
}


@pytest.mark.parametrize("kind", CAUSES)
def test_a_broken_period_is_kept_and_not_learnt_and_its_cause_is_said(tracker, kind):
    before = served(tracker)
    score, label, field = broken(kind)
    with pytest.warns(mcnet.CalibrationWarning, match=CAUSES[kind]):
        tracker.update(score, label, field={"value": field}, period=CLEAN)
    (suspect,) = tracker.suspects
    assert (suspect.period, suspect.state) == (str(CLEAN), "waiting")
    assert served(tracker) == pytest.approx(before, rel=0.02)  # the season of the coming period may differ
    score, label, field = rows(CLEAN + 1)
    tracker.update(score, label, field={"value": field}, period=CLEAN + 1)
    assert tracker.suspects[-1].state == "left out"
    assert served(tracker) == pytest.approx(before, rel=0.2)


def test_an_explanation_has_the_suspect_periods_and_why(tracker):
    assert "suspect" not in str(tracker.explain())
    score, label, field = broken("none positive")
    with pytest.warns(mcnet.CalibrationWarning):
        tracker.update(score, label, field={"value": field}, period=CLEAN)
    found = tracker.explain()
    assert [one.period for one in found.suspects] == [str(CLEAN)]
    assert f"suspect: the period {CLEAN}, waiting: positives are 0 where" in str(found)


def suspicion(slopes, slope, error, *, slope_error=0.0, whole=(6_000.0, 330.0, 330.0), value=None, levels=(0.0,)):
    """Return what is suspect beside periods of these slopes and levels."""
    usual = {"rows": 6_000.0, "rate": 0.055, "value": 0.0, "scores": 0.1, "missing": 0.0, "unseen": 0.0}
    look = Look(
        [
            {
                **usual,
                "slope": one,
                "slope_error": slope_error,
                "level": (level := levels[place % len(levels)]),
                "miss": abs(level),
            }
            for place, one in enumerate(slopes)
        ]
    )
    counts = Counts(*whole)
    values = () if value is None else (("value=a", Counts(*value), Counts(*value).beside(counts).change(12)),)
    return look.suspicion(Measured(counts, slope, error, 0.1, 0.0, 0.0, values))


STEADY, VARYING = np.linspace(0.9, 1.1, 20).tolist(), np.linspace(0.2, 1.8, 20).tolist()


def test_a_slope_that_may_be_none_is_suspect_where_slopes_hardly_vary():
    assert suspicion(STEADY, 0.12, 0.058).kind == "slope"  # labels that were shuffled, at two errors from 0
    assert suspicion(STEADY, 0.4, 0.058) is None  # a poor hour, not one without any relation
    assert suspicion(STEADY, 0.0, 0.25) is None  # few positives cannot tell
    assert suspicion(VARYING, 0.1, 0.15) is None
    assert suspicion(VARYING, -1.0, 0.1).kind == "slope"


def test_slopes_that_vary_as_few_positives_let_them_hide_no_flipped_labels():
    assert suspicion(VARYING, -0.4, 0.1) is None  # a stream whose slopes do vary
    assert suspicion(VARYING, -0.4, 0.1, slope_error=0.3).kind == "slope"


def test_a_level_is_suspect_beyond_any_change_and_where_such_levels_are_rare():
    nothing, three_times = (6_000.0, 0.0, 330.0), (6_000.0, 990.0, 330.0)
    assert suspicion(STEADY, 1.0, 0.1, whole=nothing).kind == "level"
    assert suspicion(STEADY, 1.0, 0.1, whole=three_times) is None  # a change
    assert suspicion(STEADY, 1.0, 0.1, whole=(60.0, 0.0, 3.0)) is None  # few rows
    stormy = (0.0, 1.5, -1.4, 1.6)
    assert suspicion(STEADY, 1.0, 0.1, whole=(6_000.0, 2_400.0, 330.0)).kind == "level"
    assert suspicion(STEADY, 1.0, 0.1, whole=(6_000.0, 2_400.0, 330.0), levels=stormy) is None


def test_a_value_is_judged_beside_the_level_of_the_other_rows():
    value = (42.0, 1.0, 21.4)
    assert suspicion(STEADY, 1.0, 0.1, whole=(900.0, 300.0, 320.0), value=value).kind == "value"
    # A clear day after storms: few flights are late, and of one airport hardly any.
    assert suspicion(STEADY, 1.0, 0.1, whole=(900.0, 120.0, 320.0), value=value) is None


@given(
    rates=st.lists(st.floats(0.05, 0.9), min_size=2, max_size=6, unique=True),
    level=st.floats(-1.0, 1.0),
    rows=st.integers(500, 5_000),
)
def test_the_slope_is_one_whatever_the_level_and_none_without_relation(rates, level, rows):
    chance, weight = np.array(rates), np.full(len(rates), float(rows))
    whole = Counts(weight.sum(), float(weight @ chance), float(weight @ chance))
    assert slope_of(chance, weight, weight * chance, whole)[0] == pytest.approx(1.0)
    mean = float(chance.mean())
    same = expit(logit(mean) + level)
    moved = Counts(weight.sum(), float(weight.sum() * same), float(weight @ chance))
    slope, error = slope_of(chance, weight, weight * same, moved)
    assert slope == pytest.approx(0.0, abs=1e-9)
    assert error > 0.0


def test_without_a_look_whatever_comes_is_learnt(tracker):
    score, label, field = broken("none positive")
    tracker.update(score, label, field={"value": field}, period=CLEAN, look=False)
    assert not tracker.suspects
    assert tracker._learner.learnt == CLEAN + 1


@pytest.mark.parametrize(("change", "private"), [(1.1, 0.0), (-1.1, 0.0), (0.0, 1.1), (0.0, -1.1)])
def test_a_change_of_level_is_learnt_at_once(tracker, change, private):
    for period in range(CLEAN, CLEAN + 2):
        score, label, field = rows(period, change=change, private=private)
        tracker.update(score, label, field={"value": field}, period=period)
    assert not tracker.suspects


def test_the_first_periods_are_learnt_whatever_they_are():
    tracker = mcnet.Tracker()
    for period in range(LEAST_PERIODS):
        score, label, field = rows(period)
        tracker.update(score, 1.0 - label if period % 2 else label, field={"value": field}, period=period)
    assert not tracker.suspects


def test_a_large_change_is_learnt_once_two_further_periods_agree(tracker):
    for period in range(CLEAN, CLEAN + 3):
        score, label, field = rows(period, change=-3.0)
        told = "learnt now, as a change" if period == CLEAN + 2 else "suspect and was not learnt"
        with pytest.warns(mcnet.CalibrationWarning, match=told):
            tracker.update(score, label, field={"value": field}, period=period)
    assert [one.state for one in tracker.suspects] == ["learnt"] * 3
    score, label, field = rows(CLEAN + 3, change=-3.0)
    assert tracker.predict(score, {"value": field}).sum() / label.sum() < 2.0
    tracker.update(score, label, field={"value": field}, period=CLEAN + 3)
    assert len(tracker.suspects) == 3


@pytest.mark.parametrize("kind", ["none positive", "flipped"])
def test_what_no_change_of_the_world_looks_like_is_never_learnt_by_itself_and_the_alarm_says_so(tracker, kind):
    for period in range(CLEAN, CLEAN + 4):
        score, label, field = broken(kind, period)
        told = "3 suspect periods in a row: nothing is being learnt" if period == CLEAN + 2 else "suspect"
        with pytest.warns(mcnet.CalibrationWarning, match=told):
            tracker.update(score, label, field={"value": field}, period=period)
    assert [one.state for one in tracker.suspects] == ["waiting"] * 4
    alarm = tracker._learner.look.alarm
    assert (alarm.what, alarm.since, alarm.raised) == ("learning", str(CLEAN), str(CLEAN + 2))
    assert "nothing is being learnt" in alarm.advice()


def test_a_released_period_is_learnt_as_without_a_look(tracker, saved):
    other = mcnet.Tracker.load(saved)
    score, label, field = rows(CLEAN, change=-3.0)
    other.update(score, label, field={"value": field}, period=CLEAN, look=False)
    with pytest.warns(mcnet.CalibrationWarning):
        tracker.update(score, label, field={"value": field}, period=CLEAN)
    assert tracker.release(CLEAN).suspects[-1].state == "released"
    assert served(tracker) == pytest.approx(served(other), rel=1e-9)
    with pytest.raises(mcnet.InputError, match=f"{CLEAN} is not kept as suspect; none is"):
        tracker.release(CLEAN)


def test_a_period_that_is_released_late_adds_its_rows(tracker):
    score, label, field = rows(CLEAN, change=-3.0)
    with pytest.warns(mcnet.CalibrationWarning):
        tracker.update(score, label, field={"value": field}, period=CLEAN)
    score, label, field = rows(CLEAN + 1)
    tracker.update(score, label, field={"value": field}, period=CLEAN + 1)
    before = tracker._learner.everything.sketch.rows
    tracker.release(CLEAN)
    assert tracker._learner.everything.sketch.rows == before + ROWS


def test_a_saved_tracker_goes_on_as_the_one_that_was_saved(tracker, tmp_path):
    for period in (CLEAN, CLEAN + 1):
        score, label, field = rows(period, change=-3.0)
        with pytest.warns(mcnet.CalibrationWarning):
            tracker.update(score, label, field={"value": field}, period=period)
    tracker.save(tmp_path / "again")
    again = mcnet.Tracker.load(tmp_path / "again")
    assert again.suspects == tracker.suspects
    score, label, field = rows(CLEAN + 2, change=-3.0)
    for one in (tracker, again):
        with pytest.warns(mcnet.CalibrationWarning, match="learnt now"):
            one.update(score, label, field={"value": field}, period=CLEAN + 2)
    assert served(again) == pytest.approx(served(tracker), rel=1e-9)


def journal_of(folder, last):
    journal = mcnet.Journal(folder)
    for period in range(last):
        score, label, field = rows(period)
        journal.add(mcnet.Sketch.from_rows(score, label, field={"value": field}), period, source="log")
    score, label, field = broken("none positive", last)
    journal.add(mcnet.Sketch.from_rows(score, label, field={"value": field}), last, source="log")
    return journal


def test_a_period_of_a_journal_is_released_or_replaced(tmp_path):
    journal = journal_of(tmp_path / "journal", CLEAN)
    with pytest.warns(mcnet.CalibrationWarning, match="Journal.release learns it"):
        tracker = mcnet.Tracker.from_journal(journal)
    assert tracker._learner.learnt == CLEAN
    journal.release(CLEAN)
    assert tracker.follow(journal)._learner.learnt == CLEAN + 1
    journal.compact()
    assert journal.released == {str(CLEAN)}
    # Other rows are looked at again: a release is of the rows that were there.
    score, label, field = rows(CLEAN)
    journal.add(mcnet.Sketch.from_rows(score, label, field={"value": field}), CLEAN, source="log", replace=True)
    assert journal.released == set()
    tracker.follow(journal)
    assert tracker._learner.learnt == CLEAN + 1
    assert not tracker.suspects
    with pytest.raises(mcnet.InputError, match="has no period 99"):
        journal.release(99)
