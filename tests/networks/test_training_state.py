"""The training state: tied to its model, refused when altered or when it belongs to another model."""

import numpy as np
import pytest

import mcnet
from mcnet.calibrators.training_state import load_state, state_path

pytestmark = pytest.mark.networks

SMALL = {"bins": 2, "hidden": (4,), "embedding": 2}
KINDS = {
    "mcnet": lambda: mcnet.MCNet(**SMALL),
    "adacalib": lambda: mcnet.AdaCalib(candidates=(2, 3), steps=20),
    "neucalib": lambda: mcnet.NeuCalib(bins=4),
    "mcnet-bayes": lambda: mcnet.BayesMCNet(bins=4),
}
SCORES = np.linspace(0.0, 1.0, 101)


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    scores = draw.uniform(0.05, 0.6, 1_500)
    return scores, draw.random(1_500) < scores


@pytest.fixture
def saved(rows, tmp_path):
    path = tmp_path / "model.json"
    mcnet.NeuCalib(bins=4).fit(*rows).save(path, training_state=True)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_calibrator_predicts_the_same_and_continues(kind, rows, tmp_path):
    fitted = KINDS[kind]().fit(*rows)
    fitted.save(tmp_path / "model.json", training_state=True)
    resumed = type(fitted).resume(tmp_path / "model.json")
    assert resumed.get_params() == fitted.get_params()
    np.testing.assert_array_equal(resumed.predict(SCORES), fitted.predict(SCORES))
    np.testing.assert_allclose(resumed.predict(SCORES, exact=True), fitted.predict(SCORES, exact=True), rtol=1e-12)
    resumed.set_params(warm_start=True).fit(*rows)
    np.testing.assert_allclose(resumed.predict(rows[0]), fitted.predict(rows[0]), rtol=0.1)


def test_settings_can_be_numbers_of_numpy(rows, tmp_path):
    numbers = {"bins": np.int64(2), "hidden": (np.int32(4),), "embedding": np.int64(2), "beta_order": np.float32(0.5)}
    fitted = mcnet.MCNet(**numbers, seed=np.int64(3)).fit(*rows)
    plain = mcnet.MCNet(**SMALL, beta_order=0.5, seed=3).fit(*rows)
    np.testing.assert_array_equal(fitted.predict(SCORES), plain.predict(SCORES))
    fitted.save(tmp_path / "model.json", training_state=True)
    resumed = mcnet.MCNet.resume(tmp_path / "model.json")
    assert resumed.get_params() == plain.get_params()
    np.testing.assert_array_equal(resumed.predict(SCORES), fitted.predict(SCORES))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_another_model_is_refused(kind, rows, tmp_path):
    one, other = KINDS[kind]().fit(*rows), KINDS[kind]().fit(rows[0] ** 2, rows[1])
    one.save(tmp_path / "model.json", training_state=True)
    other.model_.save(tmp_path / "model.json")  # as `mcnet fit -o` does: the model alone
    with pytest.raises(mcnet.FileFormatError, match="belongs to another model"):
        type(one).resume(tmp_path / "model.json")
    with pytest.raises(mcnet.InputError, match="resume it with its own class"):
        (mcnet.NeuCalib if kind != "neucalib" else mcnet.MCNet).resume(tmp_path / "model.json")


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_is_resumed_as_the_constant_it_is(kind, tmp_path):
    with pytest.warns(mcnet.CalibrationWarning, match="every row is negative"):
        fitted = KINDS[kind]().fit([0.1, 0.2, 0.3], [0, 0, 0])
    fitted.save(tmp_path / "model.json", training_state=True)
    resumed = type(fitted).resume(tmp_path / "model.json")
    assert resumed.constant_because_ == "every row is negative"
    with pytest.raises(mcnet.NotSupportedError, match="no function behind its curve"):
        resumed.predict(SCORES, exact=True)
    np.testing.assert_array_equal(resumed.predict(SCORES), fitted.predict(SCORES))
    for constant in (fitted, resumed):
        with pytest.raises(mcnet.NotSupportedError, match="there is no function behind its curve"):
            constant.predict(SCORES, exact=True)


def test_one_flipped_bit_anywhere_is_refused(saved):
    state = state_path(saved)
    whole = bytearray(state.read_bytes())
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= 1 << (place % 8)
        state.write_bytes(altered)
        with pytest.raises(mcnet.FileFormatError, match=r"damaged|not a training state"):
            load_state(saved)
    state.write_bytes(whole)
    assert set(load_state(saved).arrays) == {"knots", "values"}


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_a_truncated_state_is_refused(saved, kept):
    state = state_path(saved)
    state.write_bytes(state.read_bytes()[:kept])
    with pytest.raises(mcnet.FileFormatError, match="damaged"):
        load_state(saved)


def test_a_model_without_state_says_how_to_have_one(rows, tmp_path):
    mcnet.BayesMCNet(bins=4).fit(*rows).save(tmp_path / "model.json")
    assert not state_path(tmp_path / "model.json").exists()
    with pytest.raises(mcnet.InputError, match="there is no training state"):
        mcnet.BayesMCNet.resume(tmp_path / "model.json")
