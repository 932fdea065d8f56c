"""A family of curves: rows of any contexts at once are what each row is alone, and curves are plain integrals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet._shared.arrays import logit, sigmoid
from mcnet.curves import family as family_evaluation
from mcnet.curves.family import Combination, CurveFamily, FamilyEvaluator, Lines


def make_family(seed, sizes=(5, 3), panels=8, bends=4, pairs=True, limit=np.inf):
    draw = np.random.default_rng(seed)
    keys = np.flatnonzero(draw.random(sizes[0] * sizes[1]) < 0.6) if pairs and len(sizes) > 1 else None
    combinations = () if keys is None else (Combination(0, 1, sizes[1], keys),)
    counts = [*sizes, *(len(c.keys) for c in combinations)]
    return CurveFamily(
        knots=np.sort(draw.normal(-3.0, 2.0, panels - 1)),
        origin=int(draw.integers(panels - 1)),
        offset=float(draw.normal()),
        log_slope=0.3 * draw.standard_normal(panels),
        offset_by=draw.standard_normal(bends),
        log_slope_by=draw.standard_normal((panels, bends)),
        numbers=tuple(0.3 * draw.standard_normal((count, bends)) for count in counts),
        combinations=combinations,
        limit=limit,
    )


def rows_of(family, rows, seed):
    """Scores over the whole range, and codes of which some are unseen (-1) and some beyond what is known."""
    draw = np.random.default_rng(seed)
    scores = np.concatenate([sigmoid(draw.uniform(-17.0, 17.0, rows)), [0.0, 1.0], sigmoid(family.knots)])
    known = [len(part) for part in family.numbers[: family.fields]]
    return scores, np.column_stack([draw.integers(-1, size + 1, len(scores)) for size in known])


def straight_from_the_lines(family, scores, codes):
    """Every row alone: the line of its context, at the logit of its score."""
    logits = logit(np.clip(scores, 1e-7, 1.0 - 1e-7))
    found = [family.lines(codes[row : row + 1]).at(logits[row : row + 1])[0, 0] for row in range(len(scores))]
    return np.clip(sigmoid(np.array(found)), 1e-12, 1.0 - 1e-12)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 60),
    together=st.integers(1, 12),
    sizes=st.sampled_from([(4,), (5, 3), (2, 3, 4)]),
    panels=st.sampled_from([2, 3, 9]),
    limit=st.sampled_from([np.inf, 2.0]),
)
def test_a_row_has_the_same_probability_alone_and_in_any_batch(seed, rows, together, sizes, panels, limit):
    family = make_family(seed, sizes, panels, limit=limit)
    scores, codes = rows_of(family, rows, seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(family_evaluation, "CONTEXTS_PER_BLOCK", together)
        evaluator = FamilyEvaluator(family)
        batch = evaluator.predict(scores, codes)
        order = np.random.default_rng(seed).permutation(len(scores))
        np.testing.assert_array_equal(evaluator.predict(scores[order], codes[order]), batch[order])
        alone = [evaluator.predict_one(score, tuple(row)) for score, row in zip(scores, codes.tolist(), strict=True)]
        np.testing.assert_array_equal(alone, batch)
    # Chords between grid points miss a kink by a little.
    np.testing.assert_allclose(batch, straight_from_the_lines(family, scores, codes), rtol=5e-3, atol=1e-12)


def test_chords_are_close_to_curves_of_usual_slopes():
    family = make_family(3, sizes=(80, 60), bends=3, panels=30)
    family = replace(family, log_slope_by=0.3 * family.log_slope_by)
    draw = np.random.default_rng(0)
    codes, scores = draw.integers(0, 60, (3_000, 2)), draw.uniform(0.001, 0.999, 3_000)
    found = FamilyEvaluator(family).predict(scores, codes)
    np.testing.assert_allclose(found, straight_from_the_lines(family, scores, codes), rtol=1e-4)


def test_the_order_of_adjacent_scores_is_kept_in_a_million_contexts():
    draw = np.random.default_rng(5)
    contexts = 1_000_000
    for sizes, scale, limit in (((1_100, 1_100), 1.0, np.inf), ((1_100, 1_100), 6.0, 9.0)):
        family = make_family(int(scale), sizes, panels=12, bends=6, pairs=False, limit=limit)
        family = replace(family, numbers=tuple(scale * part for part in family.numbers))
        evaluator = FamilyEvaluator(family)
        pairs = draw.choice(sizes[0] * sizes[1], contexts // 2, replace=False)
        codes = np.column_stack(np.divmod(pairs, sizes[1]))
        # Half of the scores lie on a grid point, half anywhere; the next three floats follow each of them.
        points = draw.choice(evaluator._grid[0][1:-1], len(codes))
        scores = np.where(draw.random(len(codes)) < 0.5, points, sigmoid(draw.uniform(-12.0, 12.0, len(codes))))
        scores = np.nextafter(scores, 0.0)
        before = evaluator.predict(scores, codes)
        for _ in range(3):
            scores = np.nextafter(scores, 1.0)
            after = evaluator.predict(scores, codes)
            assert np.all(after >= before)
            before = after


def test_the_order_is_kept_along_a_whole_curve():
    for seed, limit in ((0, np.inf), (1, 3.0)):
        family = make_family(seed, panels=30, bends=6, limit=limit)
        evaluator = FamilyEvaluator(family)
        grid = evaluator._grid[0]
        near = [np.nextafter(grid, 0.0), grid, np.nextafter(grid, 1.0), np.linspace(0.0, 1.0, 20_001)]
        scores = np.sort(np.concatenate(near))
        for code in ((0, 0), (4, 2), (-1, 1), (-1, -1)):
            p = evaluator.predict(scores, np.tile(code, (len(scores), 1)))
            assert np.all(np.diff(p) >= 0.0)
            assert np.all((p > 0.0) & (p < 1.0))


def test_no_rows_are_no_probabilities():
    assert FamilyEvaluator(make_family(0)).predict(np.empty(0), np.empty((0, 2), dtype=int)).shape == (0,)


def test_a_line_is_what_interpolation_says_and_straight_on_beyond():
    lines = Lines(
        np.array([-2.0, 0.0, 1.0]), np.array([[-1.0, 0.0, 3.0], [0.0, 1.0, 1.5]]), *np.array([[2, 3], [4, 5]])
    )
    logits = np.array([-3.0, -2.0, -1.5, 0.25, 1.0, 2.0])
    inside = [np.interp(logits, lines.knots, values) for values in lines.values]
    beyond = np.array([[-2.0, 0, 0, 0, 0, 4.0], [-3.0, 0, 0, 0, 0, 5.0]])
    np.testing.assert_allclose(lines.at(logits), inside + beyond, rtol=1e-15)
    which = np.array([0, 1, 1, 0, 1, 0])
    np.testing.assert_array_equal(lines.each(which, logits), lines.at(logits)[which, np.arange(6)])


def test_a_single_knot_is_two_half_lines():
    lines = Lines(np.array([1.0]), np.array([[0.5], [0.75]]), np.array([2.0, 1.0]), np.array([3.0, 4.0]))
    np.testing.assert_array_equal(lines.at(np.array([0.0, 1.0, 2.0])), [[-1.5, 0.5, 3.5], [-0.25, 0.75, 4.75]])
    np.testing.assert_array_equal(lines.each(np.array([1, 0]), np.array([2.0, 0.0])), [4.75, -1.5])


def test_combinations_without_a_curve_of_their_own_are_served_by_the_family():
    draw = np.random.default_rng(0)
    rows = 3_000
    scores, first, second = draw.uniform(0.01, 0.5, rows), draw.integers(0, 200, rows), draw.integers(0, 150, rows)
    fitted = mcnet.BayesMCNet(bins=6).fit(scores, draw.random(rows) < scores, field={"a": first, "b": second})
    asked = {"a": draw.permutation(first), "b": draw.permutation(second)}
    seen = set(zip(first.tolist(), second.tolist(), strict=True))
    pairs = zip(asked["a"].tolist(), asked["b"].tolist(), strict=True)
    unseen = np.flatnonzero([pair not in seen for pair in pairs])
    assert len(unseen) > 1_000
    together = fitted.predict(scores, asked)
    for row in unseen[:50]:
        values = (int(asked["a"][row]), int(asked["b"][row]))
        assert fitted.predict_one(float(scores[row]), values) == together[row]
    np.testing.assert_allclose(together[unseen], fitted.predict(scores, asked, exact=True)[unseen], rtol=1e-4)
