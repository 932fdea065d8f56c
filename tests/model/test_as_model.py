"""Whatever a user may pass as a model leads to one, or to a message; never to curves that ignore features."""

import numpy as np
import pytest

import mcnet
from mcnet.model.model_file import as_model


@pytest.fixture(scope="module")
def calibrator():
    score = np.linspace(0.05, 0.6, 400)
    return mcnet.Platt().fit(score, np.random.default_rng(0).random(400) < score)


def test_a_calibrator_its_model_and_its_file_are_one_model(calibrator, tmp_path):
    calibrator.model_.save(tmp_path / "model.json")
    expected = calibrator.predict(np.array([0.1, 0.2]))
    for given in (calibrator, calibrator.model_, tmp_path / "model.json", str(tmp_path / "model.json")):
        assert np.array_equal(as_model(given, "applied").predict(np.array([0.1, 0.2])), expected)


def test_what_has_no_curve_of_the_score_is_refused(calibrator):
    class Features:
        needs_features = True
        model_ = calibrator.model_

    with pytest.raises(mcnet.NotSupportedError, match="depends on more than the score"):
        as_model(Features(), "applied")
    with pytest.raises(mcnet.NotFittedError, match="this Platt is not fitted yet"):
        as_model(mcnet.Platt(), "applied")
    with pytest.raises(mcnet.InputError, match="object cannot be applied; pass a model"):
        as_model(object(), "applied")
