"""Positives that arrive late: the curve of their arrival, and corrected periods against waiting and ignoring."""

from datetime import datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.bayes.estimator import BayesMCNet
from mcnet.datasets.worlds import DelayedWorld, make_world
from mcnet.errors import InputError
from mcnet.sketch.grid import VALUE_UNITS
from mcnet.sketch.sketch import Sketch
from mcnet.store.arrival import ArrivalCurve, corrected_sketch
from mcnet.store.entries import Entry
from mcnet.store.journal import Journal
from mcnet.tracking.backtest_run import KnownCounts

NOW = 30
LAST_AGE = 9


def entry(period, age, positives):
    return Entry(str(period), "orders", "", 100, 100.0, float(positives), age)


def counted(delayed, t, age):
    rows = delayed.period(t)
    return Sketch.from_rows(rows.score, delayed.arrived(t, age), field=rows.field.tolist(), resolution=32)


def learnt(delayed):
    found = []
    for t in range(NOW):
        for age in range(min(NOW - 1 - t, LAST_AGE) + 1):
            found.append(entry(t, float(age), delayed.arrived(t, age).sum()))
    return ArrivalCurve.learn(found)


@pytest.fixture(scope="module")
def delayed():
    return DelayedWorld(make_world("jump", 1, periods=40, rows=2000, values=4, jump_at=26), mean_delay=2.0)


def test_the_share_by_age_is_learnt_from_older_periods(delayed):
    curve = learnt(delayed)
    truth = 1.0 - 0.7 * np.exp(-curve.ages / 2.0)
    assert np.allclose(curve.share, truth / truth[-1], atol=0.03)
    assert (np.diff(curve.share) >= 0.0).all()
    assert curve.share[-1] == 1.0
    assert curve.at(None) == (1.0, 0.0)
    assert curve.at(50.0) == (1.0, 0.0)
    assert (np.diff(curve.log_variance) <= 0.0).all()


def test_few_positives_are_less_sure():
    small = ArrivalCurve.learn([entry(1, 0.0, 2), entry(1, 1.0, 4)])
    large = ArrivalCurve.learn([entry(1, 0.0, 2000), entry(1, 1.0, 4000)])
    assert small.at(0.0)[0] == pytest.approx(0.5, abs=0.01)
    assert small.at(0.0)[1] > 100.0 * large.at(0.0)[1]


def test_periods_that_differ_in_delay_make_the_share_less_sure():
    alike = [entry(t, age, n) for t in range(8) for age, n in ((0.0, 500), (1.0, 1000))]
    unlike = [entry(t, age, n) for t in range(8) for age, n in ((0.0, 300 + 400 * (t % 2)), (1.0, 1000))]
    assert ArrivalCurve.learn(unlike).at(0.0)[1] > 10.0 * ArrivalCurve.learn(alike).at(0.0)[1]


def test_complete_counts_are_the_last_age():
    curve = ArrivalCurve.learn([entry(1, 0.0, 400), entry(1, 3.0, 700), entry(1, None, 1000)])
    assert curve.at(0.0)[0] == pytest.approx(0.4, abs=0.01)
    assert curve.at(3.0)[0] == pytest.approx(0.7, abs=0.01)
    assert ArrivalCurve.learn([entry(1, 0.0, 400), entry(2, 1.0, 400)]) is None


def test_a_corrected_period_expects_the_positives_that_will_be_there(delayed):
    curve = learnt(delayed)
    ratios = []
    for t in range(12, 20):
        early, complete = counted(delayed, t, 0), counted(delayed, t, LAST_AGE)
        corrected = corrected_sketch(early, 0.0, curve)
        scale = corrected.total_weight / early.total_weight
        assert 0.2 < scale < 0.6
        assert (corrected.positives <= corrected.weight + 1e-12).all()
        ratios.append(corrected.total_positives / scale / complete.total_positives)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
    assert corrected_sketch(early, None, curve) is early
    assert corrected_sketch(early, 0.0, None) is early


def test_what_rows_are_worth_is_corrected_with_them(delayed):
    early = counted(delayed, 12, 0).with_value(2.5)
    corrected = corrected_sketch(early, 0.0, learnt(delayed))
    assert corrected.value_kind == "row"
    expected = [2.5 * corrected.total_weight, 2.5 * corrected.total_positives, 2.5**2 * corrected.total_weight]
    assert corrected.values.sum(axis=0) / VALUE_UNITS == pytest.approx(expected, rel=1e-6)
    assert corrected.without_values() == corrected_sketch(early.without_values(), 0.0, learnt(delayed))


def test_one_class_periods_are_corrected_too(delayed):
    none = Sketch.from_rows([0.1, 0.2, 0.3], [0, 0, 0])
    assert corrected_sketch(none, 0.0, learnt(delayed)).total_positives == 0.0


def test_corrected_periods_beat_waiting_and_ignoring_after_a_jump(delayed):
    curve = learnt(delayed)

    def total(last, correct):
        parts = []
        for t in range(12, last + 1):
            age = min(NOW - 1 - t, LAST_AGE)
            sketch = counted(delayed, t, age)
            parts.append(0.5 ** ((NOW - t) / 2.0) * (corrected_sketch(sketch, age, curve) if correct else sketch))
        return Sketch.merged(parts)

    coming = delayed.period(NOW)

    def loss(sketch):
        q = BayesMCNet(isotonic_share=0.0).fit_sketch(sketch).predict(coming.score, coming.field.tolist())
        p = coming.probability
        return float(np.mean(p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q))))

    corrected = loss(total(NOW - 1, True))
    assert corrected < 0.5 * loss(total(NOW - 1, False))
    assert corrected < 0.5 * loss(total(NOW - 8, False))


def test_a_journal_corrects_by_itself_once_ages_are_given(tmp_path, delayed):
    journal = Journal(tmp_path / "journal")
    for t in (1, 2, 3):
        for age in (0, 3) if t < 3 else (0,):
            journal.add(counted(delayed, t, age), t, source="orders", age=age)
    plain, corrected = journal.sketch(since=3, corrected=False), journal.sketch(since=3)
    assert plain == counted(delayed, 3, 0)
    rate = corrected.total_positives / corrected.total_weight
    assert rate > 1.5 * plain.total_positives / plain.total_weight
    assert journal.sketch(until=2) == journal.sketch(until=2, corrected=False)


def test_delays_are_known_once_all_counts_are_complete(tmp_path, delayed):
    journal = Journal(tmp_path / "journal")
    for age in (0, 2, None):
        journal.add(counted(delayed, 1, 2 if age is None else age), 1, source="orders", age=age)
    assert journal.arrival().share[-1] == 1.0 > journal.arrival().share[0]
    assert journal.sketch() == counted(delayed, 1, 2)


def test_a_journal_without_ages_is_left_alone(tmp_path, delayed):
    journal = Journal(tmp_path / "journal")
    journal.add(counted(delayed, 1, 0), 1, source="orders")
    assert journal.arrival() is None
    assert journal.sketch() == counted(delayed, 1, 0)


# -- journals of counts at several ages: replay and backtest -------------------------------------------------------


def journal_at(path, delayed, now, last_age=4):
    """A journal as it is at the end of period `now`: each period counted once per period so far."""
    journal = Journal(path)
    for t in range(now + 1):
        for age in range(min(now - t, last_age) + 1):
            journal.add(counted(delayed, t, age), t, source="orders", age=age)
    return journal


def test_a_tracker_that_follows_counts_of_growing_age_is_as_if_replayed(tmp_path, delayed):
    journal = journal_at(tmp_path / "journal", delayed, 5)
    tracker = mcnet.Tracker.from_journal(journal)
    scores, field = np.linspace(0.05, 0.5, 20), ["v0"] * 20
    before = tracker.predict(scores, field)
    # One more count of an old period changes what is believed of all recent ones.
    journal_at(tmp_path / "journal", delayed, 6)
    again = tracker.follow(journal).predict(scores, field)
    np.testing.assert_array_equal(again, mcnet.Tracker.from_journal(journal).predict(scores, field))
    assert not np.array_equal(before, again)
    ignoring = mcnet.Tracker()
    for period, sketch in journal.sketches(corrected=False):
        ignoring.update_sketch(sketch, period)
    truth = delayed.period(7)
    ratio = [np.sum(t.predict(truth.score, truth.field)) / truth.label.sum() for t in (tracker, ignoring)]
    assert abs(np.log(ratio[0])) < abs(np.log(ratio[1]))


class Listener:
    """Stands in for the tracker, and writes down what it is told."""

    def __init__(self):
        self.told = []

    def predict(self, scores, field=None):
        return scores

    def update_sketch(self, sketch, period=None):
        self.told.append((period, sketch))


@pytest.mark.parametrize("delay", [0, 2])
def test_a_backtest_tells_only_what_was_known_then(tmp_path, delayed, delay):
    told = []
    for now in (6, 9):
        listener = Listener()
        journal = journal_at(tmp_path / f"until {now}", delayed, now)
        mcnet.backtest(journal, methods=[], delay=delay, tracker=lambda listener=listener: listener)
        told.append(listener.told)
    assert len(told[0]) == 6 - delay
    assert told[1][: 6 - delay] == told[0]  # counts that came later change nothing
    assert told[0][0][1] != next(journal.sketches())[1]


def test_what_was_known_by_a_moment_is_what_the_journal_said_then(tmp_path, delayed):
    late = journal_at(tmp_path / "late", delayed, 9)
    known = KnownCounts(late, {str(t): float(t) for t in range(10)})
    for now in (2, 6):
        then = journal_at(tmp_path / f"until {now}", delayed, now)
        arrival = known.arrival(float(now))
        np.testing.assert_array_equal(arrival.share, then.arrival().share)
        for period, sketch in then.sketches():
            assert known.sketch(period, float(now), arrival) == sketch
        assert known.sketch(str(now + 1), float(now), arrival) is None


def test_the_age_of_each_period_follows_from_the_moment_of_counting(tmp_path):
    log = tmp_path / "log.parquet"
    pl.DataFrame({"s": [0.1, 0.2], "y": [0, 1], "t": ["2026-01-07", "2026-02-09"]}).write_parquet(log)
    told = {"score": "s", "label": "y", "time": "t", "source": "orders"}
    journal = Journal(tmp_path / "days")
    journal.add_files(log, every="1d", counted="2026-02-10T12", **told)
    assert journal.table()["age"].to_list() == [33.5, 0.5]
    months = Journal(tmp_path / "months")
    months.add_files(log, every="1mo", counted=datetime(2026, 3, 1, 9, tzinfo=timezone(timedelta(hours=9))), **told)
    assert months.table()["age"].to_list() == [28 / 31, 0.0]
    with pytest.raises(InputError, match="the period 2026-02-09 ends after that"):
        journal.add_files(log, every="1d", counted="2026-02-09T12", **told)
    with pytest.raises(InputError, match="counted was given without a source"):
        journal.add_files(log, every="1d", counted="2026-02-10", **told | {"source": None})
    with pytest.raises(InputError, match="give one of them"):
        journal.add_files(log, every="1d", counted="2026-02-10", age=1, **told)
