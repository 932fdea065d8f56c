"""Fits with nothing to learn from say why they are a constant, in warnings and in errors."""

import numpy as np
import pytest

import mcnet
from mcnet.errors import CalibrationWarning, NotSupportedError

ONE_SCORE, TWO_SCORES = np.full(10, 0.3), np.linspace(0.1, 0.4, 10)
BOTH = [0, 1] * 5
CASES = [
    (mcnet.NeuCalib, ONE_SCORE, BOTH, "all rows have one score"),
    (mcnet.NeuCalib, TWO_SCORES, np.zeros(10), "every row is negative"),
    (mcnet.BayesMCNet, TWO_SCORES, np.ones(10), "every row is positive"),
    (mcnet.BayesMCNet, ONE_SCORE, BOTH, "all rows have one score"),
    pytest.param(mcnet.MCNet, ONE_SCORE, BOTH, "all rows have one score", marks=pytest.mark.networks),
]


@pytest.mark.parametrize(("kind", "scores", "labels", "cause"), CASES)
def test_the_cause_is_the_one_that_holds(kind, scores, labels, cause):
    with pytest.warns(CalibrationWarning, match=cause):
        fitted = kind().fit(scores, labels)
    assert fitted.constant_because_ == cause
    with pytest.raises(NotSupportedError, match=cause):
        fitted.predict(scores, exact=True)


def test_the_interval_of_a_constant_is_refused_for_its_own_reason():
    with pytest.warns(CalibrationWarning):
        fitted = mcnet.BayesMCNet().fit(TWO_SCORES, np.zeros(10))
    with pytest.raises(NotSupportedError, match="every row is negative"):
        fitted.interval(TWO_SCORES)


def test_a_fit_that_learns_forgets_the_cause():
    platt = mcnet.Platt()
    with pytest.warns(CalibrationWarning):
        platt.fit(ONE_SCORE, BOTH)
    assert platt.constant_because_ == "all rows have one score"
    assert not hasattr(platt.fit(TWO_SCORES, BOTH), "constant_because_")


def test_the_field_that_balanced_a_fit_is_let_pass_and_not_needed(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.01, 0.3, 2000)
    labels, field = rng.random(2000) < scores / 2, {"country": rng.choice(["NL", "FR"], 2000)}
    fitted = mcnet.NeuCalib(bins=5, alpha_balance=0.1).fit(scores, labels, field=field)
    fitted.save(tmp_path / "model.json")
    served = mcnet.load(tmp_path / "model.json")
    for few in (slice(None), slice(0, 3)):
        asked = {"country": field["country"][few]}
        for predictor in (fitted, served):
            np.testing.assert_array_equal(predictor.predict(scores[few]), predictor.predict(scores[few], asked))
        exact = fitted.predict(scores[few], exact=True)
        np.testing.assert_allclose(exact, fitted.predict(scores[few], asked, exact=True), rtol=1e-12)
    with pytest.warns(CalibrationWarning):
        constant = mcnet.NeuCalib(alpha_balance=0.1).fit(ONE_SCORE, BOTH, field=["a", "b"] * 5)
    assert constant.predict([0.3]) == constant.predict([0.3], field=["a"])
    with pytest.raises(NotSupportedError, match="without a field"):
        mcnet.NeuCalib(bins=5).fit(scores, labels).predict(scores, field)
