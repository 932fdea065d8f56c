"""A family of curves: rows of any contexts at once are what each row is alone, and curves are plain integrals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet._shared.math import logit, sigmoid
from mcnet.curves import family as families
from mcnet.curves.family import Combination, CurveFamily, Lines


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


def one_by_one(family, scores, codes):
    """Every row alone: the line of its context, asked at its score."""
    logits = logit(np.clip(scores, 1e-7, 1.0 - 1e-7))
    found = [family.lines(codes[row : row + 1]).at(logits[row : row + 1])[0, 0] for row in range(len(scores))]
    return sigmoid(np.array(found))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 60),
    together=st.integers(1, 12),
    sizes=st.sampled_from([(4,), (5, 3), (2, 3, 4)]),
    panels=st.sampled_from([2, 3, 9]),
    limit=st.sampled_from([np.inf, 2.0]),
)
def test_rows_together_are_the_rows_one_by_one(seed, rows, together, sizes, panels, limit):
    family = make_family(seed, sizes, panels, limit=limit)
    scores, codes = rows_of(family, rows, seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(families, "_TOGETHER", together)
        np.testing.assert_array_equal(family.predict(scores, codes), one_by_one(family, scores, codes))


def test_more_contexts_than_a_block_holds():
    family = make_family(3, sizes=(80, 60), bends=11, panels=30)
    codes = np.array([[a, b] for a in range(-1, 80) for b in range(-1, 60)])
    assert len(codes) > 2 * families._TOGETHER
    draw = np.random.default_rng(0)
    codes, scores = codes[draw.permutation(len(codes))], draw.random(len(codes))
    some = draw.choice(len(codes), 200, replace=False)
    np.testing.assert_array_equal(family.predict(scores, codes)[some], one_by_one(family, scores[some], codes[some]))


def test_no_rows_are_no_probabilities():
    assert make_family(0).predict(np.empty(0), np.empty((0, 2), dtype=int)).shape == (0,)


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
    fitted = mcnet.MCNet(bins=6).fit(scores, draw.random(rows) < scores, field={"a": first, "b": second})
    asked = {"a": draw.permutation(first), "b": draw.permutation(second)}
    seen = set(zip(first.tolist(), second.tolist(), strict=True))
    pairs = zip(asked["a"].tolist(), asked["b"].tolist(), strict=True)
    unseen = np.flatnonzero([pair not in seen for pair in pairs])
    assert len(unseen) > 1_000
    together = fitted.predict(scores, asked)
    for row in unseen[:50]:
        values = (int(asked["a"][row]), int(asked["b"][row]))
        assert fitted.predict_one(float(scores[row]), values) == together[row]
    np.testing.assert_allclose(together[unseen], fitted.predict(scores, asked, exact=True)[unseen], rtol=1e-6)
