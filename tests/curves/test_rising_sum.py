"""The sum of rising terms: the same bits in arrays, in loops and row by row, the plain sum, and an exact order."""

from dataclasses import replace
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnet._shared.loops import numba_installed
from mcnet.curves import rising_sum
from mcnet.curves.family import Combination, CurveFamily
from mcnet.curves.rising_sum import RisingSum, distinct_keys, exp_parts, point_and_line, raw_logit

LOWEST, HIGHEST = 1e-7, 1.0 - 1e-7


def make_family(seed, sizes=(5, 4), panels=8, bends=4, limit=np.inf, steep=0.2):
    """Fields of so many values, and pairs of the first with each other field, of which some are known."""
    draw = np.random.default_rng(seed)
    combinations = tuple(
        Combination(0, second, size, np.flatnonzero(draw.random(sizes[0] * size) < 0.6))
        for second, size in enumerate(sizes[1:], 1)
    )
    counts = [*sizes, *(len(c.keys) for c in combinations)]
    return CurveFamily(
        knots=np.sort(draw.normal(-3.0, 2.0, panels - 1)),
        origin=int(draw.integers(panels - 1)),
        offset=float(draw.normal()),
        log_slope=0.3 * draw.standard_normal(panels),
        offset_by=draw.standard_normal(bends),
        log_slope_by=steep * draw.standard_normal((panels, bends)),
        numbers=tuple(0.3 * draw.standard_normal((count, bends)) for count in counts),
        combinations=combinations,
        limit=limit,
    ).rounded()


def plain_sum(family, score, codes):
    """The obvious sum, term by term, with the functions of Python."""
    pairs = [c.codes(np.array([codes]))[0] for c in family.combinations]
    moved = np.zeros(len(family.offset_by))
    for code, numbers in zip([*codes, *pairs], family.numbers, strict=True):
        if 0 <= code < len(numbers):
            moved += numbers[code]
    score = min(max(score, LOWEST), HIGHEST)
    x = log(score / (1.0 - score))
    total = family.offset + float(moved @ family.offset_by)
    ends = [-1e9, *family.knots.tolist(), 1e9]
    origin = family.knots[family.origin]
    for panel, (low, high) in enumerate(pairwise(ends)):
        slope = exp(family.log_slope[panel] + float(moved @ family.log_slope_by[panel]))
        total += slope * (min(max(x, low), high) - min(max(origin, low), high))
    limit = min(family.limit, rising_sum.LARGEST_LOGIT)
    total = min(max(total, min(x, -limit)), max(x, limit))
    return 1.0 / (1.0 + exp(-total))


def rows_of(family, rows, seed):
    """Scores over the whole range and at knots; codes of which some are unseen (-1) or beyond what has numbers."""
    draw = np.random.default_rng(seed)
    knots = 1.0 / (1.0 + np.exp(-family.knots))
    scores = np.concatenate([1.0 / (1.0 + np.exp(-draw.uniform(-17.0, 17.0, rows))), [0.0, 1.0], knots])
    sizes = [len(part) for part in family.numbers[: family.fields]]
    return scores, np.column_stack([draw.integers(-1, size + 1, len(scores)) for size in sizes])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 60),
    sizes=st.sampled_from([(5, 3), (2, 3, 4), (3, 2, 2, 2)]),
    panels=st.sampled_from([2, 3, 9]),
    limit=st.sampled_from([np.inf, 2.0]),
    steep=st.sampled_from([0.2, 2.0]),
)
def test_arrays_loops_and_single_rows_have_the_same_bits_and_are_the_plain_sum(seed, rows, sizes, panels, limit, steep):
    family = make_family(seed, sizes, panels, limit=limit, steep=steep)
    scores, codes = rows_of(family, rows, seed)
    evaluator, which = RisingSum(family), np.arange(len(scores))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rising_sum, "worth_compiling", lambda *_: False)
        patched.setattr(rising_sum, "CONTEXTS_PER_BLOCK", 7)
        in_arrays = evaluator.predict(scores, codes, which)
        patched.setattr(rising_sum, "worth_compiling", lambda *_: numba_installed())
        np.testing.assert_array_equal(evaluator.predict(scores, codes, which), in_arrays)
    one = [
        evaluator.line(tuple(row))(min(max(score, LOWEST), HIGHEST))
        for score, row in zip(scores.tolist(), codes.tolist(), strict=True)
    ]
    assert one == in_arrays.tolist()
    if steep < 1.0:  # a steep line makes more of the last digit of a logit
        plain = [plain_sum(family, score, row) for score, row in zip(scores.tolist(), codes.tolist(), strict=True)]
        np.testing.assert_allclose(in_arrays, plain, rtol=1e-12)


def test_rows_share_contexts_in_any_order():
    family = make_family(1, (6, 5))
    scores, codes = rows_of(family, 5_000, 3)
    distinct, which = np.unique(codes, axis=0, return_inverse=True)
    evaluator = RisingSum(family)
    together = evaluator.predict(scores, distinct, which.ravel())
    np.testing.assert_array_equal(together, evaluator.predict(scores, codes, np.arange(len(scores))))
    order = np.random.default_rng(0).permutation(len(scores))
    np.testing.assert_array_equal(evaluator.predict(scores[order], distinct, which.ravel()[order]), together[order])


@pytest.mark.parametrize("size", [50, 10**15])
def test_keys_are_numbered_as_a_dictionary_would(size, monkeypatch):
    monkeypatch.setattr(rising_sum, "worth_compiling", lambda *_: numba_installed())
    keys = np.random.default_rng(0).choice(np.random.default_rng(1).integers(0, size, 40), 300)
    distinct, which = distinct_keys(keys, size)
    np.testing.assert_array_equal(distinct[which], keys)
    assert len(set(distinct.tolist())) == len(distinct)


def _sigmoid(t):
    point, line = point_and_line(-t)
    mantissa, whole = exp_parts(point)
    return 1.0 / (1.0 + np.ldexp(mantissa, whole.astype(np.int32)) * line)


def _logit(scores):
    return raw_logit(*np.frexp(scores / (1.0 - scores)))


def test_the_elementary_functions_are_right_to_thirteen_digits():
    draw = np.random.default_rng(0)
    t = draw.uniform(-28.0, 28.0, 200_000)
    np.testing.assert_allclose(_sigmoid(t), 1.0 / (1.0 + np.exp(-t)), rtol=1e-13)
    scores = np.concatenate([draw.uniform(LOWEST, HIGHEST, 100_000), 10.0 ** draw.uniform(-7.0, -1e-7, 100_000)])
    np.testing.assert_allclose(_logit(scores), np.log(scores / (1.0 - scores)), rtol=0.0, atol=1e-13)


def _neighbours(centres, each):
    """Return floats next to each other around the centres, in order: `[centres, 2 · each + 1]`."""
    bits = np.sort(centres).view(np.int64)[:, None] + np.arange(-each, each + 1)
    return bits.view(np.float64)


def test_neither_function_falls_where_its_lines_meet_nor_between_neighbours():
    draw = np.random.default_rng(1)
    # Half-way between two grid points one line ends and the next begins.
    seams = (draw.integers(-28 * 2**22, 28 * 2**22, 300_000) + 0.5) / 2.0**22
    for centres in (seams, draw.uniform(-28.0, 28.0, 100_000), 2.0 ** draw.uniform(-60.0, 0.0, 1_000)):
        t = _neighbours(np.abs(centres), 8)
        assert np.all(np.diff(_sigmoid(t), axis=1) >= 0.0)
        assert np.all(np.diff(_sigmoid(-t), axis=1) <= 0.0)
    mantissas = (draw.integers(2**22, 2**23, 300_000) + 0.5) / 2.0**23
    odds = np.ldexp(mantissas, draw.integers(-22, 24, len(mantissas)))
    powers = np.ldexp(1.0, np.arange(-22, 24))
    for centres in (odds, powers, powers * np.sqrt(0.5)):
        near = _neighbours(centres, 8)
        assert np.all(np.diff(raw_logit(*np.frexp(near)), axis=1) >= 0.0)
    every = np.linspace(LOWEST, HIGHEST, 400_001)
    assert np.all(np.diff(_logit(every)) > 0.0)


def test_the_order_is_exact_in_a_million_unseen_combinations():
    draw = np.random.default_rng(5)
    for steep, limit in ((0.3, np.inf), (2.0, 9.0)):
        family = make_family(int(10 * steep), (1_100, 1_100), panels=12, bends=5, limit=limit, steep=steep)
        family = replace(family, combinations=(), numbers=family.numbers[:2])
        evaluator = RisingSum(family)
        pairs = draw.choice(1_100 * 1_100, 500_000, replace=False)
        codes, which = np.column_stack(np.divmod(pairs, 1_100)), np.arange(len(pairs))
        # A third of the scores lie at a knot, where two panels meet.
        knots = 1.0 / (1.0 + np.exp(-draw.choice(family.knots, len(pairs))))
        anywhere = 1.0 / (1.0 + np.exp(-draw.uniform(-12.0, 12.0, len(pairs))))
        scores = np.where(draw.random(len(pairs)) < 1 / 3, knots, anywhere)
        before = evaluator.predict(scores, codes, which)
        for step in (1, 1, 2**20):
            scores = (scores.view(np.int64) + step).view(np.float64)
            after = evaluator.predict(np.minimum(scores, 1.0), codes, which)
            assert np.all(after >= before)
            before = after


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), low=st.floats(0.0, 1.0), high=st.floats(0.0, 1.0), steep=st.floats(0.0, 5.0))
def test_a_higher_score_never_has_a_lower_probability(seed, low, high, steep):
    line = RisingSum(make_family(seed, steep=steep)).line((seed % 6 - 1, seed % 5 - 1))
    low, high = sorted(min(max(score, LOWEST), HIGHEST) for score in (low, high))
    assert 0.0 < line(low) <= line(high) < 1.0
    assert line(low) <= line(float(np.nextafter(low, 1.0)))
