"""Compiling: few knots, a stated error, an order that is guaranteed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from mcnet._shared.arrays import clip_scores, logit, sigmoid
from mcnet.curves.compile import (
    _stretch_one,
    _stretch_together,
    compile_functions,
    compile_table,
    dense_scores,
    project_monotone,
)
from mcnet.curves.evaluate import Evaluator

FUNCTIONS = {
    "identity": lambda l: l,
    "flat": lambda l: 0.1 * l - 4.0,
    "constant": lambda l: 0.0 * l - 4.0,
    "steep": lambda l: 8.0 * l + 3.0,
    "very steep": lambda l: 60.0 * (l + 2.0),
    "a cliff": lambda l: 1e4 * (l - 1.0),
    "a hinge": lambda l: np.maximum(l, 0.3 * l) - 1.0,
    "a parabola, clipped": lambda l: 0.2 * np.clip(l, -5, 2) ** 2 + 2.0 * np.clip(l, -5, 2),
    "ripples": lambda l: l + np.sin(8.0 * l) / 8.0,
    "a logarithm": lambda l: 3.0 * np.log(np.clip(l + 17.0, 0.01, None)) - 8.0,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("error", [1e-2, 1e-4, 1e-5])
def test_the_stated_error_holds_between_the_points_looked_at(name, error):
    function = FUNCTIONS[name]
    curves = compile_functions(lambda which, l: function(l) + 0.0 * which, 1, error=error)
    assert curves.bounded().problem(number=len(curves), monotone=True) is None
    fine = clip_scores(sigmoid(np.linspace(-16.2, 16.2, 32 * 64 * 10)))
    truth, found = sigmoid(function(logit(fine))), Evaluator(curves)(fine)
    seen = (truth > 1e-9) & (truth < 1 - 1e-9)
    assert (np.abs(found - truth) <= error * np.minimum(truth, 10.0 * (1.0 - truth)))[seen].all()


def test_the_identity_takes_two_knots():
    assert len(compile_functions(lambda which, l: l + 0.0 * which, 1).knots) == 2


def test_many_curves_compile_as_each_one_does():
    rng = np.random.default_rng(0)
    slope, shift = rng.uniform(0.2, 3.0, 40), rng.normal(0, 1, 40)
    together = compile_functions(lambda which, l: slope[which] * l + shift[which], 40)
    at = clip_scores(rng.random(500))
    for curve in range(40):
        alone = compile_functions(lambda which, l, c=curve: slope[c] * l + shift[c] + 0.0 * which, 1)
        found = Evaluator(together)(at, np.full(500, curve))
        np.testing.assert_allclose(found, Evaluator(alone)(at), rtol=2e-4)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(2, 80))
def test_curves_walked_together_and_alone_have_the_same_knots(seed, points):
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.choice(np.linspace(0.01, 0.99, 60), points))
    values = np.sort(rng.random((3, points)), axis=1)
    # A score may come twice (a jump), not three times.
    keep = np.concatenate([[True, True], scores[2:] != scores[:-2]])
    scores, values = scores[keep], values[:, keep]
    allowed = 0.02 * np.minimum(values, 1 - values)
    together = _stretch_together(scores, values, allowed)
    for mask, row, bound in zip(together, values, allowed, strict=True):
        np.testing.assert_array_equal(mask, _stretch_one(scores.tolist(), row.tolist(), bound.tolist()))


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(2, 80))
def test_a_compiled_table_keeps_to_its_points_and_its_jumps(seed, points):
    rng = np.random.default_rng(seed)
    jumps = rng.choice(np.linspace(0.05, 0.95, 19), 3, replace=False)
    scores = np.sort(np.concatenate([np.unique(rng.random(points)), jumps, jumps]))
    values = np.sort(rng.uniform(0.001, 0.999, (2, len(scores))), axis=1)
    curves = compile_table(scores, values, error=0.01)
    for curve in range(2):
        found = np.interp(scores, curves.grid(curve), curves.values(curve))
        left = np.concatenate([scores[:-1] == scores[1:], [False]])
        bound = 0.01 * np.minimum(values[curve], 10.0 * (1.0 - values[curve]))
        assert (np.abs(found - values[curve])[~left] <= bound[~left]).all()
        assert (np.diff(curves.values(curve)) >= 0).all()


def test_dense_scores_hold_breaks_once_and_jumps_twice():
    scores = dense_scores(np.array([0.123456, 0.3]), np.array([0.3, 0.7]))
    assert [int((scores == at).sum()) for at in (0.123456, 0.3, 0.7)] == [1, 2, 2]
    assert (np.diff(scores) >= 0).all()


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(2, 60))
def test_the_projection_is_the_weighted_isotonic_one(seed, points):
    rng = np.random.default_rng(seed)
    values, mass = rng.random((3, points)), rng.uniform(0.1, 5.0, (3, points))
    values[0].sort()
    found, moved = project_monotone(values, mass)
    np.testing.assert_array_equal(found[0], values[0])
    for row in range(3):
        oracle = IsotonicRegression().fit(np.arange(points), values[row], sample_weight=mass[row])
        np.testing.assert_allclose(found[row], oracle.predict(np.arange(points)), rtol=1e-6)
        assert (np.diff(found[row]) >= 0).all()
    assert moved.curves == sum((np.diff(row) < 0).any() for row in values)
    assert moved.largest == pytest.approx(np.abs(found - values).max())
    np.testing.assert_array_equal(project_monotone(values, mass[0])[0][1], project_monotone(values[1:2], mass[0])[0][0])


def test_a_projection_where_there_are_no_data_is_still_defined():
    found, _ = project_monotone(np.array([[0.5, 0.4, 0.6, 0.3]]), np.array([0.0, 0.0, 0.0, 0.0]))
    assert (np.diff(found[0]) >= 0).all()
    assert np.isfinite(found).all()
