"""Placing knots by the bend of a curve: the error bound, the order, and few knots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnet._shared.arrays import PROBABILITY_FLOOR, clip_scores, logit, sigmoid
from mcnet.curves.compile import (
    LOGIT_EDGE,
    compile_functions,
    compile_lines,
    compiled_error,
    place_knots,
    short,
    tolerated,
)
from mcnet.curves.family import Lines, round_to_digits

FINE = clip_scores(sigmoid(np.linspace(-LOGIT_EDGE, LOGIT_EDGE, 20_001)))


def random_lines(seed, roughness, limit):
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.uniform(-14.0, 14.0, rng.integers(2, 40)))
    number = int(rng.integers(1, 6))
    rises = np.exp(rng.normal(0.0, roughness, (number, len(knots) - 1))) * np.diff(knots)
    values = rng.normal(-8.0, 6.0, (number, 1)) + np.cumsum(np.pad(rises, ((0, 0), (1, 0))), axis=1)
    slopes = np.exp(rng.normal(0.0, 1.0, (2, number)))
    return Lines(knots, values, *slopes, limit)


def largest_error(curves, lines):
    exact = np.clip(sigmoid(lines.at(logit(FINE))), PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    found = np.array([np.interp(FINE, *pair) for pair in curves.pairs()])
    missed = np.abs(found - exact)
    # Next to 1 probabilities are known to rounding only.
    return float((np.where(missed > 3e-15, missed, 0.0) / tolerated(exact)).max())


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.2, 1.0, 2.5]),
    st.sampled_from([np.inf, 3.0, 9.0, 12.0, 20.0]),
    st.sampled_from([1e-3, 1e-4, 1e-5]),
)
def test_the_stated_error_holds_everywhere_and_no_curve_falls(seed, roughness, limit, error):
    lines = random_lines(seed, roughness, limit)
    curves = place_knots(lines, error)
    assert curves.problem(number=len(curves), monotone=True) is None
    assert largest_error(curves, lines) <= error


@pytest.mark.parametrize("limit", [np.inf, 6.0])
def test_it_takes_about_as_many_knots_as_a_line_stretched_point_by_point(limit):
    for seed in range(4):
        lines = random_lines(seed, 0.2, limit)
        number = len(lines.values)
        slow = compile_functions(
            lambda which, l, lines=lines: lines.rows(which[:, 0]).at(l), number, breaks=sigmoid(lines.knots)
        )
        fast = compile_lines(lines)
        assert compiled_error(lines) == 1e-4
        assert len(fast.probabilities) <= 1.1 * len(slow.probabilities)
        for one, two in zip(fast.pairs(), slow.pairs(), strict=True):
            np.testing.assert_allclose(np.interp(FINE, *one), np.interp(FINE, *two), rtol=2e-4)


def test_the_score_itself_takes_two_knots():
    lines = Lines(np.array([-3.0, 0.5, 2.0]), np.array([[-3.0, 0.5, 2.0]]), np.ones(1), np.ones(1))
    curves = place_knots(lines, 1e-4)
    np.testing.assert_allclose(curves.knots, curves.probabilities, rtol=1e-9)
    assert len(curves.knots) == 2


def test_a_curve_does_not_depend_on_its_neighbours():
    lines = random_lines(5, 0.5, 9.0)
    many = lines.rows(np.arange(300) % len(lines.values))
    together = place_knots(many, 1e-4).pairs()
    for curve, (knots, values) in enumerate(place_knots(lines, 1e-4).pairs()):
        for copy in range(curve, 300, len(lines.values)):
            np.testing.assert_allclose(together[copy], (knots, values), rtol=1e-9)


def test_ten_digits_of_a_probability_are_those_that_text_has():
    values = 10.0 ** np.random.default_rng(0).uniform(-12.0, np.log10(0.9), 5_000)
    np.testing.assert_allclose(short(values), [float(f"{value:.10g}") for value in values], rtol=2e-10)
    assert (short(np.array([0.95, 1.0 - 1e-12])) == [0.95, 1.0 - 1e-12]).all()


@settings(max_examples=200)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(3, 12))
def test_significant_digits_are_those_that_text_has(value, digits):
    found = float(round_to_digits(np.array([value]), digits)[0])
    assert found == pytest.approx(float(f"{value:.{digits}g}"), rel=1.001 * 10.0 ** (1 - digits), abs=0.0)
    assert float(f"{found:.{digits}g}") == found
