"""The gate on its own: past periods are made up, so that it is known what it has to say."""

from dataclasses import replace

import numpy as np
import pytest
from tests.operations.conftest import day_name, day_rows

from mcnet.calibrators.per_field import PlattField
from mcnet.curves.curves import Curves
from mcnet.metrics.evaluation import predict_cells
from mcnet.operations.gate import (
    LEAST_CONFIRMATION,
    Current,
    Gate,
    gains,
    invalid,
    later_than_fit,
    mean_difference,
    shift_between,
)
from mcnet.operations.learning import Judged, sketch_log_loss
from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal
from mcnet.store.versions import Version

NO_PCOC = (None, None, None)


def model(ratio=0.7, field="country"):
    rows = day_rows(29, ratio, 20_000)
    return PlattField().fit(rows["pctr"], rows["click"], field={field: rows["country"]}).model_


@pytest.fixture(scope="module")
def candidate():
    return model()


@pytest.fixture(scope="module")
def rows():
    found = day_rows(27, rows=10_000)
    return Sketch.from_rows(found["pctr"], found["click"], field={"country": found["country"]})


def judged(number, tracker=0.0, base=0.0, spread=0.001):
    """Return periods whose losses per row are 0.5 and so much more."""
    rng = np.random.default_rng(3)
    found = []
    for day in range(1, number + 1):
        losses = 4000 * (0.5 + np.array([base, tracker]) + rng.normal(0.0, spread, 2))
        found.append(Judged(day_name(day), f"digest {day}", 4000, 4000.0, 500.0, *losses.tolist(), NO_PCOC, NO_PCOC))
    return found


def kept(number):
    """Return what periods would have lost under the versions served before them: 0.5 per row, give or take."""
    noise = np.random.default_rng(4).normal(0.0, 0.001, number)
    return {day_name(day + 1): 4000 * (0.5 + noise[day]) for day in range(number)}


def current(of, until=None, digest=None):
    return Current(Version(1, "2026-11-01", "0" * 64, of.method, of.fields, 1000, "", until, digest), of)


def test_a_first_version_must_gain_on_the_scores(candidate, add_days):
    journal = add_days(1, 5)
    gate = Gate()
    assert gate.judge(candidate, None, judged(4, tracker=-0.01), journal).passed
    found = gate.judge(candidate, None, judged(4, tracker=0.01), journal)
    assert not found.passed
    assert "nothing is published before it gains" in found.waiting
    assert "2 of the 3 periods" in gate.judge(candidate, None, judged(2, tracker=-1.0), journal).waiting


def test_updates_that_made_it_worse_are_stopped(candidate, add_days):
    journal = add_days(1, 8)
    newest = current(candidate, day_name(8), "digest 8")
    found = Gate().judge(candidate, newest, judged(8, tracker=0.01), journal, kept_losses=kept(8))
    assert found.comparison.other == "the versions served then"
    assert not found.passed
    assert found.reason.startswith("worse than the versions served then on 8 unseen periods")
    worse, better = judged(8, tracker=0.01), judged(8, tracker=-0.01)
    assert Gate(tolerance=0.02).judge(candidate, newest, worse, journal, kept_losses=kept(8)).passed
    assert Gate().judge(candidate, newest, better, journal, kept_losses=kept(8)).passed


def test_until_enough_periods_were_served_a_model_is_compared_with_the_scores(candidate, add_days):
    journal, newest = add_days(1, 8), current(candidate, day_name(8), "digest 8")
    some = dict(list(kept(8).items())[:2])
    found = Gate().judge(candidate, newest, judged(8, tracker=-0.01), journal, kept_losses=some)
    assert (found.comparison.other, found.passed) == ("the scores as they are", True)
    assert not Gate().judge(candidate, newest, judged(8, tracker=0.01), journal, kept_losses=some).passed


def test_chance_alone_stops_nothing(candidate, add_days):
    newest = current(candidate, day_name(8), "digest 8")
    past = judged(8, tracker=0.0005, spread=0.01)
    assert Gate().judge(candidate, newest, past, add_days(1, 8), kept_losses=kept(8)).passed


def test_an_older_version_is_compared_itself(candidate, add_days):
    journal = add_days(1, 8)
    old = current(candidate, day_name(2), "digest 2")
    found = Gate().judge(candidate, old, judged(8, tracker=0.5), journal)
    assert found.comparison.other == "version 1"
    assert (found.comparison.first, found.comparison.periods) == (day_name(4), 5)
    losses = {
        period: sketch_log_loss(sketch, predict_cells(candidate, sketch)) for period, sketch in journal.sketches()
    }
    mine = [one for one in judged(8, tracker=0.5) if one.period >= day_name(4)]
    expected = sum(one.tracker_loss - losses[one.period] for one in mine) / (4000 * len(mine))
    assert found.comparison.difference == pytest.approx(expected, abs=2e-3)
    assert not found.passed


def test_periods_later_than_a_fit(candidate):
    past = judged(8)
    assert later_than_fit(past, current(candidate).version, 0) == past, "a version that tells nothing may be as old"
    assert later_than_fit(past, current(candidate, "week 3").version, 0) == past
    assert [one.period for one in later_than_fit(past, current(candidate, day_name(5)).version, 0)] == [
        *(day_name(day) for day in (6, 7, 8))
    ]
    assert [one.period for one in later_than_fit(past, current(candidate, day_name(5)).version, 2)] == [day_name(8)]
    ours = current(candidate, day_name(5), "digest 5").version
    assert [one.period for one in later_than_fit(past, ours, 0)] == [day_name(7), day_name(8)]


def test_a_field_value_that_moves_too_far_is_named(candidate, add_days):
    rows = day_rows(28, rows=40_000)
    label = np.where(rows["country"] == "NL", np.random.default_rng(1).random(40_000) < 0.4, rows["click"])
    moved = PlattField().fit(rows["pctr"], label, field={"country": rows["country"]}).model_
    newest = current(candidate, day_name(8), "digest 8")
    found = Gate(max_shift=0.3).judge(moved, newest, judged(8), add_days(1, 8))
    assert found.shift.where == "country=NL"
    assert "the mean probability of country=NL moves by +1" in found.reason
    # A larger limit does not help a candidate that the latest periods contradict.
    (problem,) = Gate(max_shift=3.0).judge(moved, newest, judged(8), add_days(1, 8)).problems
    assert problem.startswith("the mean probability of country=NL moves by +1")
    assert problem.endswith("and each of the last 2 periods speaks against it")


def test_half_is_as_far_as_double(candidate, rows):
    down = shift_between(model(0.8), model(0.4), rows)
    up = shift_between(model(0.4), model(0.8), rows)
    assert down.overall < 0.0 < up.overall
    assert down.size == pytest.approx(up.size, rel=0.05)


def test_a_context_that_rises_from_few_positives_moves():
    rng = np.random.default_rng(2)
    score, country = rng.uniform(0.01, 0.03, 40_000), rng.choice(["NL", "FR"], 40_000, p=[0.9, 0.1])
    rate = {"old": np.where(country == "FR", 0.4, 1.0), "new": np.where(country == "FR", 6.0, 1.0)}
    old, new = (
        PlattField().fit(score, rng.random(40_000) < rate[name] * score, field={"country": country}).model_
        for name in rate
    )
    found = Sketch.from_rows(score, np.zeros(40_000), field={"country": country})
    moved = shift_between(old, new, found)
    assert moved.where == "country=FR"
    assert moved.largest > 3.0


def test_fields_in_another_order_can_be_judged_and_more_of_them_are_refused():
    rng = np.random.default_rng(4)
    score = rng.uniform(0.05, 0.3, 8_000)
    field = {name: rng.choice(["a", "b"], 8_000) for name in ("slot", "mobile")}
    label = rng.random(8_000) < score
    turned = {name: field[name] for name in ("mobile", "slot")}
    old, new = (PlattField().fit(score, label, field=given).model_ for given in (field, turned))
    seen = Sketch.from_rows(score, label, field=turned)
    assert invalid(new, seen, old) == ""
    assert abs(shift_between(old, new, seen).largest) < 0.01
    fewer = PlattField().fit(score, label, field={"slot": field["slot"]}).model_
    assert "needs the field 'mobile', which clients of the current one do not send" in invalid(new, seen, fewer)
    assert abs(shift_between(fewer, new, seen).overall) < 0.01


def test_what_cannot_be_served_is_invalid(candidate, rows):
    assert invalid(candidate, rows, None) == ""
    assert "lacks the field 'country' of the rows" in invalid(model(field="site"), rows, None)
    logits = replace(candidate, score_type="logit")
    assert "takes logits as scores" in invalid(logits, rows, candidate)
    falling = replace(candidate, monotone=False, curves=upside_down(candidate.curves))
    assert invalid(falling, rows, None) != ""


def upside_down(curves):
    """Return curves that fall where the others rise."""
    return Curves.of([(curves.grid(one), curves.values(one)[::-1]) for one in range(len(curves))])


def test_a_far_move_passes_if_each_of_the_last_periods_says_so(add_days):
    old, new = model(0.7), model(0.3)
    add_days(1, 6)
    journal = add_days(7, 7, ratio=0.3)
    stale = current(old, day_name(6), "digest 6")
    found = Gate(max_shift=0.2).judge(new, stale, judged(7, tracker=-0.001), journal)
    assert "and only one of the last 2 periods says so; allowed is" in found.reason
    journal = add_days(8, 8, ratio=0.3)
    found = Gate(max_shift=0.2).judge(new, stale, judged(8, tracker=-0.001), journal)
    assert found.passed, found.problems
    assert "but each of the last 2 periods says so" in found.reason


def test_of_a_common_move_that_is_confirmed_no_small_value_has_to_say_so_by_itself(tmp_path):
    def rows(day, ratio, number=2_000, apart=1.0):
        rng = np.random.default_rng(day)
        score, value = rng.uniform(0.1, 0.3, number), rng.integers(0, 21, number) % 20
        truth = ratio * score * np.where(value == 0, apart, 1.0)
        return score, rng.random(number) < truth, {"value": [f"v{code}" for code in value]}

    def fitted(*world, **apart):
        score, label, field = rows(*world, **apart)
        return PlattField().fit(score, label, field=field).model_

    journal = Journal(tmp_path / "journal")
    for day in range(1, 9):
        score, label, field = rows(day, 0.7 if day < 7 else 0.4)
        journal.add(Sketch.from_rows(score, label, field=field, resolution=64), day_name(day))
    old, new = fitted(20, 0.7, 60_000), fitted(21, 0.4, 60_000)
    stale = current(old, day_name(6), "digest 6")
    found = Gate(max_shift=0.5).judge(new, stale, judged(8, tracker=-0.001), journal)
    assert found.passed, found.problems
    assert "but each of the last 2 periods says so" in found.reason
    far = fitted(22, 0.4, 60_000, apart=0.4)  # a value that moves by much more than all of them
    found = Gate(max_shift=0.5).judge(far, stale, judged(8, tracker=-0.001), journal)
    assert "the mean probability of value=v0 moves by -7" in found.reason


def test_suspect_periods_are_left_out_of_every_comparison(candidate, add_days):
    journal = add_days(1, 8)
    past = judged(8, tracker=-0.01)
    past[5] = replace(past[5], suspect="labels missing?", tracker_loss=1e9)
    newest = current(candidate, day_name(8), "digest 8")
    found = Gate().judge(candidate, newest, past, journal)
    assert found.passed
    assert found.comparison.periods == 7


def test_one_wild_period_decides_nothing_in_either_direction():
    rng = np.random.default_rng(0)
    for sign in (1.0, -1.0):
        loss = 1000.0 * (sign * 0.002 + rng.normal(0.0, 0.001, 12))
        for wild in (-300.0, 300.0):
            value, low, high = mean_difference(np.append(loss, wild), np.full(13, 1000.0))
            assert np.sign(value) == sign
            assert np.sign(low) == np.sign(high) == sign


def two_fields(label, rows=9_000, seed=0):
    rng = np.random.default_rng(seed)
    score, field = rng.uniform(0.1, 0.4, rows), {"a": rng.choice(["x", "y"], rows), "b": rng.choice(["u", "v"], rows)}
    return score, rng.random(rows) < label(score, field), field


def test_of_several_fields_a_value_and_a_context_are_confirmed_by_their_own_rows():
    def moved(score, field):
        return score * np.where(field["a"] == "x", 0.4, 1.0)

    old, new = (
        PlattField().fit(score, label, field=field).model_
        for score, label, field in (two_fields(lambda s, _: s, 40_000, 1), two_fields(moved, 40_000, 2))
    )
    days = [Sketch.from_rows(s, y, field=field) for s, y, field in (two_fields(moved, seed=seed) for seed in (3, 4))]
    shift = shift_between(old, new, days[0])
    assert {name for name, move in shift.moves if move < -0.4} == {"a=x", "a=x, b=u", "a=x, b=v"}
    for day in days:
        latest = gains(day, old, new)
        assert [latest[name] > LEAST_CONFIRMATION for name in ("a=x", "a=x, b=v", "a=y")] == [True, True, False]


def test_what_was_worse_for_a_while_passes_once_it_is_good_again(candidate, add_days):
    journal, newest = add_days(1, 12), current(candidate, day_name(12), "digest 12")
    bad = judged(9, tracker=0.02)
    eleven, twelve = ([*bad, *judged(days, tracker=-0.005)[9:]] for days in (11, 12))
    assert not Gate().judge(candidate, newest, eleven, journal, kept_losses=kept(12)).passed
    found = Gate().judge(candidate, newest, twelve, journal, kept_losses=kept(12))
    assert found.passed
    assert found.comparison.is_worse
    assert "but each of the last 3 periods was predicted no worse" in found.reason
