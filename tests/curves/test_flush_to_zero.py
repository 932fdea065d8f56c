"""Predictions are the same where another library has set the processor to flush subnormal numbers to zero."""

import sys

import numpy as np
import pytest

import mcnet
from mcnet.datasets.simulator import simulate

torch = pytest.importorskip("torch", reason="torch switches the mode: pip install '.[networks]'")

METHODS = ["base", "histogram", "isotonic", "platt", "beta", "sir", "platt-field", "per-field", "mcnet-bayes"]
SUBNORMAL = [5e-324, 1e-310, 2.2250738585072e-308, sys.float_info.min]


@pytest.fixture
def flushed():
    """Switch the mode on within the test."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers to zero")
    torch.set_flush_denormal(False)

    class Flushed:
        def __enter__(self):
            torch.set_flush_denormal(True)
            assert sys.float_info.min / 2 == 0.0

        def __exit__(self, *_):
            torch.set_flush_denormal(False)

    return Flushed()


@pytest.fixture(scope="module")
def log():
    return simulate(4_000, rate=0.1, seed=2)


def scores_around(knots):
    around = [knots, np.nextafter(knots, 0.0), np.nextafter(knots, 1.0), np.linspace(0.0, 1.0, 501), SUBNORMAL]
    return np.unique(np.clip(np.concatenate(around), 0.0, 1.0))


@pytest.mark.parametrize("method", METHODS)
def test_predictions_have_the_same_bits(flushed, log, method, tmp_path):
    calibrator = mcnet.calibrator(method)
    field = log.text("field") if calibrator.field_use != "none" else None
    calibrator.fit(log.score, log.label, field=field)
    calibrator.save(tmp_path / "model.json")
    scores = scores_around(np.unique(calibrator.curves_.knots)[:2_000])
    given = None if field is None else [field[0]] * len(scores)
    expected = calibrator.predict(scores, given)
    many = np.resize(scores, 150_000)
    with flushed:
        loaded = mcnet.load(tmp_path / "model.json")
        found = loaded.predict(scores, given)
        alone = [loaded.predict_one(score, None if field is None else field[0]) for score in [*SUBNORMAL, 0.25]]
        large = loaded.predict(many, None if field is None else [field[0]] * len(many))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(large, np.resize(expected, 150_000))
    np.testing.assert_array_equal(alone[:-1], expected[np.searchsorted(scores, SUBNORMAL)])
    if calibrator.monotone:
        assert (np.diff(found) >= 0.0).all()
    assert ((found > 0.0) & (found < 1.0)).all()


@pytest.mark.parametrize("method", METHODS)
def test_fits_are_the_same_up_to_rounding(flushed, log, method):
    calibrator = mcnet.calibrator(method)
    field = log.text("field") if calibrator.field_use != "none" else None
    expected = calibrator.fit(log.score, log.label, field=field).predict(log.score, field)
    with flushed:
        found = mcnet.calibrator(method).fit(log.score, log.label, field=field).predict(log.score, field)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_training_leaves_the_mode_as_it_was(flushed):
    optimise = pytest.importorskip("mcnet.networks.optimise")
    with flushed:
        with optimise.flush_denormals():
            assert sys.float_info.min / 2 == 0.0
        assert sys.float_info.min / 2 == 0.0
    with optimise.flush_denormals():
        assert sys.float_info.min / 2 == 0.0
    assert sys.float_info.min / 2 > 0.0
