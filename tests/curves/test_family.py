"""A family of curves: rows of any contexts at once are what each row is alone, and curves are plain integrals."""

import numpy as np

import mcnet
from mcnet.curves.family import Lines


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
