"""Files of schema version 1 are still read: the golden ones were written by mcnet 0.1.0."""

import json
from pathlib import Path

import numpy as np
import pytest

import mcnet
from mcnet.model.model_file import read_model

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_of_version_1_predicts_as_it_did(name, tmp_path):
    expected = EXPECTED[name]
    model = read_model(GOLDEN / f"{name}.json")
    given = expected["scores"], expected["field"]
    # Compiling a family goes through exp, which other processors round otherwise.
    np.testing.assert_allclose(model.predict(*given, score_type="probability"), expected["predicted"], rtol=1e-9)
    model.save(tmp_path / "again.json")
    again = read_model(tmp_path / "again.json")
    np.testing.assert_array_equal(again.predict(*given), model.predict(*given))
    for state in ("method", "score_type", "total_weight", "balanced_by", "isotonic_share", "monotone", "provenance"):
        assert getattr(again, state) == getattr(model, state), state
    assert json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))["schema"] == 2


def test_what_version_1_kept_in_its_history_becomes_fields_of_the_model():
    assert read_model(GOLDEN / "logit.json").score_type == "logit"
    assert read_model(GOLDEN / "no_field.json").score_type == "probability"
    assert read_model(GOLDEN / "no_field.json").total_weight == 4000.0
    assert read_model(GOLDEN / "balanced_by.json").balanced_by == ("country",)
    assert read_model(GOLDEN / "isotonic_share.json").isotonic_share == 0.25
    assert read_model(GOLDEN / "curves_and_family.json").family is not None


def test_a_model_of_version_1_with_features_says_what_it_lacks():
    with pytest.warns(mcnet.CalibrationWarning, match="without its features"):
        mcnet.load(GOLDEN / "auxiliary.json")
