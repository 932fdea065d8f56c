"""Evaluation: the same numbers as np.interp, the same bits on every path, and never a fall."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.curves.plain import evaluate_plainly

import mcnet.curves.evaluate as evaluate_module
from mcnet._shared.arrays import SCORE_FLOOR, clip_scores, sigmoid
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator, evaluate_few, evaluate_numpy, lookup_tables
from mcnet.errors import InputError
from mcnet.model.small_batches import SmallBatches
from mcnet.rows.contexts import Contexts

MANY = 50_000


def around(knots):
    knots = np.asarray(knots)
    points = [knots, np.nextafter(knots, 0.0), np.nextafter(knots, 1.0), 0.5 * (knots[1:] + knots[:-1])]
    ends = [SCORE_FLOOR, 0.5, np.nextafter(0.5, 0.0), 1.0 - SCORE_FLOOR]
    return np.unique(clip_scores(np.concatenate([*points, ends])))


def many(curves, scores, which=0):
    """Evaluate through the compiled loop."""
    assert len(scores) <= MANY
    which = np.broadcast_to(which, len(scores))
    return Evaluator(curves)(np.resize(scores, MANY), np.resize(which, MANY).astype(np.int32))[: len(scores)]


def in_numpy(curves, scores, which=0):
    """Evaluate without the compiled loop: by tables, and without them as few rows are."""
    which = np.broadcast_to(which, len(scores))
    found = evaluate_numpy(lookup_tables(curves), scores, which)
    np.testing.assert_array_equal(evaluate_few(curves, scores, which), found)
    return found


def smooth(number):
    knots = sigmoid(np.linspace(-16, 16, number))
    return knots, sigmoid(0.7 * np.linspace(-16, 16, number) - 1.0)


CURVES = {
    "constant": (np.array([0.5]), np.array([0.3])),
    "line": (np.array([0.1, 0.9]), np.array([0.2, 0.8])),
    "smooth": smooth(2_000),
    "steps": (np.repeat(np.linspace(0.05, 0.95, 200), 2), np.repeat(np.linspace(0.01, 0.99, 201), 2)[1:-1]),
    "steps on round numbers": (np.repeat([0.125, 0.25, 0.5, 0.75, 0.875], 2), np.linspace(0.1, 0.9, 10)),
    "a jump amid lines": (np.array([0.2, 0.4, 0.4, 0.7]), np.array([0.1, 0.2, 0.5, 0.6])),
    "three knots at one score": (np.array([0.2, 0.4, 0.4, 0.4, 0.7]), np.array([0.1, 0.2, 0.3, 0.5, 0.6])),
    "falling": (np.array([0.2, 0.5, 0.5, 0.8]), np.array([0.6, 0.4, 0.7, 0.1])),
    "steep": (np.array([0.3, np.nextafter(0.3, 1), 0.6]), np.array([0.1, 0.8, 0.9])),
    "ends": (np.array([0.0, 1e-9, 1e-7, 1 - 1e-7, 1.0]), np.array([0.1, 0.2, 0.3, 0.4, 0.5])),
    "a crowd": (np.sort(0.3 + 1e-5 * np.random.default_rng(0).random(5_000)), np.linspace(0.1, 0.9, 5_000)),
    "a crowd at one score": (np.repeat([0.2, 0.3, 0.6], [1, 40, 1]), np.linspace(0.1, 0.9, 42)),
    "powers of two": (np.sort(np.concatenate([2.0 ** -np.arange(1, 24), 1 - 2.0 ** -np.arange(2, 24)])),) * 2,
}


@pytest.mark.parametrize("name", CURVES)
def test_every_path_is_np_interp_and_all_have_the_same_bits(name):
    knots, values = CURVES[name]
    scores = around(knots)
    curves = Curves.of([(knots, values)])
    plain = evaluate_plainly(curves, scores, np.zeros(len(scores), dtype=np.int32))
    expected = np.interp(scores, knots, values)
    # At a jump np.interp gives the right value, too, but on a slope of 1e15 its rounding differs.
    exact = np.abs(plain - expected) <= 4 * np.spacing(expected) + 4 * np.spacing(scores) * slope_at(curves, scores)
    assert exact.all()
    np.testing.assert_array_equal(many(curves, scores), plain)
    np.testing.assert_array_equal(in_numpy(curves, scores), plain)
    few = SmallBatches(Contexts.none(), curves)
    np.testing.assert_array_equal(np.concatenate([few([s], None) for s in scores.tolist()]), plain)


def slope_at(curves, scores):
    knots = curves.grid(0)
    at = np.clip(np.searchsorted(knots, scores, side="right") - 1, 0, len(knots) - 1)
    return np.abs(curves.slopes[at])


@pytest.mark.parametrize("name", [name for name in CURVES if name != "falling"])
def test_a_monotone_curve_never_falls_between_neighbouring_floats(name):
    knots, values = CURVES[name]
    curves = Curves.of([(knots, values)])
    assert (np.diff(many(curves, around(knots))) >= 0.0).all()
    for centre in knots[:: max(1, len(knots) // 20)]:
        neighbours = [centre]
        for _ in range(40):
            neighbours = [np.nextafter(neighbours[0], 0.0), *neighbours, np.nextafter(neighbours[-1], 1.0)]
        assert (np.diff(many(curves, clip_scores(np.array(neighbours)))) >= 0.0).all()


pairs = st.integers(1, 25).flatmap(
    lambda n: st.tuples(
        st.lists(st.one_of(st.floats(1e-7, 1 - 1e-7), st.sampled_from([0.25, 0.5, 0.75])), min_size=n, max_size=n),
        st.lists(st.floats(1e-12, 1 - 1e-12), min_size=n, max_size=n),
    )
)


@settings(max_examples=60)
@given(st.lists(pairs, min_size=1, max_size=4), st.integers(0, 2**32))
def test_random_curves_agree_on_every_path_and_never_fall(drawn, seed):
    curves = Curves.of([(np.sort(knots), np.sort(values)) for knots, values in drawn])
    scores = around(np.sort(np.concatenate([knots for knots, _ in drawn])))
    which = np.random.default_rng(seed).integers(0, len(curves), len(scores))
    plain = evaluate_plainly(curves, scores, which)
    np.testing.assert_array_equal(many(curves, scores, which), plain)
    np.testing.assert_array_equal(in_numpy(curves, scores, which), plain)
    for curve, (knots, values) in enumerate(curves.pairs()):
        all_here = evaluate_plainly(curves, scores, np.full(len(scores), curve))
        assert (np.diff(all_here) >= 0.0).all()
        assert all_here.min() >= values[0]
        assert all_here.max() <= values[-1]
        np.testing.assert_array_equal(all_here[which == curve], plain[which == curve])
        wide = np.diff(knots).min(initial=1.0) > 1e-6
        if wide:
            np.testing.assert_allclose(all_here, np.interp(scores, knots, values), rtol=1e-9)


def test_very_many_grids_make_do_with_a_coarse_guide(monkeypatch):
    rng = np.random.default_rng(0)
    curves = Curves.of([(np.sort(rng.random(30)), np.sort(rng.random(30))) for _ in range(20)])
    scores, which = clip_scores(rng.random(MANY)), rng.integers(0, 20, MANY).astype(np.int32)
    guided = Evaluator(curves)(scores, which)
    monkeypatch.setattr("mcnet.curves.evaluate._GUIDE_LIMIT", 10)
    np.testing.assert_array_equal(Evaluator(curves)(scores, which), guided)
    np.testing.assert_array_equal(evaluate_plainly(curves, scores, which), guided)


def test_crowds_of_knots_amid_other_curves():
    names = ("smooth", "a crowd", "steps", "a crowd at one score", "ends", "a crowd")
    curves = Curves.of([CURVES[name] for name in names])
    scores = np.concatenate([around(CURVES[name][0]) for name in names])
    for which in range(len(curves)):
        expected = evaluate_plainly(curves, scores, np.full(len(scores), which))
        np.testing.assert_array_equal(many(curves, scores, which), expected)
        np.testing.assert_array_equal(in_numpy(curves, scores, which), expected)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(15, 400), st.floats(1e-6, 1 - 1e-6), st.sampled_from([1e-3, 1e-9, 1e-15]))
def test_crowds_of_any_size_have_the_bits_of_numpy(seed, number, centre, width):
    rng = np.random.default_rng(seed)
    knots = np.sort(clip_scores(centre + width * rng.normal(size=number)))
    curves = Curves.of([(knots, np.sort(rng.uniform(0.01, 0.99, number))), CURVES["line"]])
    scores = around(knots)
    which = rng.integers(0, 2, len(scores))
    plain = evaluate_plainly(curves, scores, which)
    np.testing.assert_array_equal(many(curves, scores, which), plain)
    np.testing.assert_array_equal(in_numpy(curves, scores, which), plain)


def test_threads_share_the_work_and_the_model():
    curves = Curves.of([CURVES["smooth"], CURVES["steps"]])
    rng = np.random.default_rng(1)
    scores, which = clip_scores(rng.random(1_200_000)), rng.integers(0, 2, 1_200_000).astype(np.int32)
    expected = evaluate_plainly(curves, scores, which)
    np.testing.assert_array_equal(Evaluator(curves)(scores, which), expected)
    # A fresh evaluator, asked by several threads at once, makes its tables under their feet.
    evaluator = Evaluator(curves)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: evaluator(scores[i::8], which[i::8]), range(8)))
    for i, part in enumerate(parts):
        np.testing.assert_array_equal(part, expected[i::8])


def test_without_numba_the_bits_are_the_same(monkeypatch):
    curves = Curves.of([CURVES["smooth"]])
    scores = clip_scores(np.random.default_rng(2).random(MANY))
    expected = Evaluator(curves)(scores)
    monkeypatch.setattr("mcnet.curves.evaluate.worth_compiling", lambda *_: False)
    np.testing.assert_array_equal(Evaluator(curves)(scores), expected)


def test_equal_grids_are_stored_once():
    knots = np.array([0.1, 0.2])
    curves = Curves.of([(knots, knots), (knots.copy(), knots / 2), (knots / 2, knots)])
    assert (len(curves), curves.grids) == (3, 2)


def test_curves_say_what_is_wrong_with_them():
    def problem(knots, values, monotone=True):
        return Curves.of([(np.array(knots), np.array(values))]).problem(number=1, monotone=monotone)

    assert problem([0.1, 0.2], [0.1, 0.2]) is None
    assert "falls" in problem([0.1, 0.2], [0.2, 0.1])
    assert problem([0.1, 0.2], [0.2, 0.1], monotone=False) is None
    assert "not in order" in problem([0.2, 0.1], [0.1, 0.2])
    assert "not in order" in problem([0.1, 1.1], [0.1, 0.2])
    assert "not in order" in problem([-0.1, 0.1], [0.1, 0.2])
    grids = [np.array([0.5, 0.9]), np.array([0.1, 0.2]), np.array([0.4, 0.3])]
    assert Curves.of([(grid, np.array([0.1, 0.2])) for grid in grids[:2]]).problem(number=2, monotone=True) is None
    assert "grid 2" in Curves.of([(grid, np.array([0.1, 0.2])) for grid in grids]).problem(number=3, monotone=True)
    assert "inside (0, 1)" in problem([0.1, 0.2], [0.0, 0.2])
    assert "inside (0, 1)" in problem([0.1, 0.2], [0.1, 1.0])
    assert "finite" in problem([0.1, np.nan], [0.1, 0.2])
    with pytest.raises(InputError, match="2 knots and 1 prob"):
        Curves.of([(np.array([0.1, 0.2]), np.array([0.1]))])


def test_curves_are_bounded_away_from_0_and_1():
    bounded = Curves.of([(np.array([0.1, 0.2]), np.array([0.0, 1.0]))]).bounded()
    assert bounded.problem(number=len(bounded), monotone=True) is None


@pytest.mark.parametrize("rows", [100, MANY + 7])
def test_rows_that_cannot_be_evaluated_are_found_wherever_they_are(rows):
    curves = Curves.of([CURVES["smooth"], CURVES["steps"]])
    scores, which = np.linspace(0.0, 1.0, rows), np.zeros(rows, dtype=np.int32)
    assert Evaluator(curves).attempt(scores, which) is not None
    for place in (0, rows // 2, rows - 1):
        for bad in (np.nan, np.inf, -np.inf, -1e-300, np.nextafter(1.0, 2.0)):
            spoilt = scores.copy()
            spoilt[place] = bad
            assert Evaluator(curves).attempt(spoilt) is None
            assert Evaluator(curves).attempt(spoilt, which) is None
            with pytest.raises(InputError, match=r"outside \[0, 1\]"):
                Evaluator(curves)(spoilt)
        for bad in (-2, 1, 2**31 - 2, -(2**31)):
            wrong = which.copy()
            wrong[place] = bad
            assert Evaluator(curves).attempt(scores, wrong, 1) is None


def test_scores_in_steps_are_evaluated_too():
    curves = Curves.of([CURVES["smooth"]])
    scores = np.random.default_rng(3).random(2 * MANY)
    np.testing.assert_array_equal(Evaluator(curves)(scores[::2]), Evaluator(curves)(scores[::2].copy()))


def test_without_numba_batches_of_any_curves_are_the_same_each_time(monkeypatch):
    monkeypatch.setattr(evaluate_module, "worth_compiling", lambda *_: False)
    rng = np.random.default_rng(0)
    curves = Curves.of([(np.sort(rng.random(30)), np.sort(rng.random(30))) for _ in range(50)])
    evaluator, scores = Evaluator(curves), clip_scores(rng.random(1_000))
    which = rng.integers(-1, 49, 1_000)
    expected = evaluate_plainly(curves, scores, which + 1)
    for _ in range(3):
        np.testing.assert_array_equal(evaluator(scores, which, 1), expected)
