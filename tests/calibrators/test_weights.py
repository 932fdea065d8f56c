"""Weights of any size: every method fits what a float can represent, and refuses the rest with one sentence."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnet.calibrators.methods import calibrator, methods
from mcnet.datasets.simulator import simulate
from mcnet.errors import InputError

LOG = simulate(400, rate=0.2, seed=4)
SLOW = {"mcnet": {"hidden": (8,), "embedding": 4}, "neucalib": {}, "adacalib": {"steps": 50}}


def fit(method, weight, **small):
    chosen = calibrator(method, **small)
    field = None if chosen.field_use == "none" else LOG.text("field")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen.fit(LOG.score, LOG.label, field=field, weight=weight)
        p = chosen.predict(np.linspace(0.0, 1.0, 101), field=None if field is None else ["0"] * 101)
    assert np.all((p > 0.0) & (p < 1.0))
    assert not chosen.model_.monotone or np.all(np.diff(p) >= 0.0)
    return p


@pytest.mark.parametrize("method", sorted(set(methods()) - set(SLOW)))
@settings(max_examples=5)
@given(exponent=st.integers(-300, 290), spread=st.sampled_from([0, 3, 300]), seed=st.integers(0, 5))
def test_weights_of_any_size_are_fitted(method, exponent, spread, seed):
    draw = np.random.default_rng(seed)
    exponents = np.clip(exponent + spread * draw.uniform(-1.0, 1.0, len(LOG)), -300.0, 290.0)
    fit(method, 10.0**exponents)


@pytest.mark.parametrize("method", sorted(set(SLOW) & set(methods())))
@pytest.mark.parametrize("weight", [1e290])
@pytest.mark.networks
def test_weights_of_any_size_are_fitted_by_networks(method, weight):
    fit(method, np.full(len(LOG), weight), **SLOW[method])


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_sums_beyond_a_float_are_refused(method):
    # One sentence, and no warning of NumPy's beside it, which would be an error here.
    with pytest.raises(InputError, match="weight"):
        calibrator(method).fit(LOG.score, LOG.label, weight=np.full(len(LOG), 1e307))
