"""Weights far above 1: the fit says when it has not reached its maximum, and what to do."""

import warnings

import numpy as np

import mcnet


def make_rows(number=2_000, values=30, seed=0):
    rng = np.random.default_rng(seed)
    field = rng.integers(0, values, number)
    logits = rng.normal(-1.5, 1.0, number)
    chance = 1.0 / (1.0 + np.exp(-logits - rng.normal(0.0, 0.6, values)[field]))
    return 1.0 / (1.0 + np.exp(-logits)), (rng.random(number) < chance).astype(int), field


def test_a_fit_that_ends_before_its_maximum_says_so_and_names_the_weights():
    scores, labels, field = make_rows()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        fitted = mcnet.BayesMCNet().fit(scores, labels, field=field, weight=np.full(len(scores), 1e6))
    said = [str(warning.message) for warning in given if "before its maximum" in str(warning.message)]
    assert len(said) == 1
    assert "the mean weight is 1e+06" in said[0]
    assert "divide them by their mean" in said[0]
    assert not fitted.posterior_.finished
    for value in range(30):
        curve = fitted.predict(np.linspace(0.01, 0.9, 50), [value] * 50)
        assert np.all(np.diff(curve) >= 0.0)


def test_weights_divided_by_their_mean_are_fitted_to_the_end():
    scores, labels, field = make_rows()
    weight = np.full(len(scores), 1e6)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*before its maximum")
        fitted = mcnet.BayesMCNet().fit(scores, labels, field=field, weight=weight / weight.mean())
    assert fitted.posterior_.finished
    unweighted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    np.testing.assert_allclose(fitted.predict(scores, field), unweighted.predict(scores, field), rtol=1e-9)
