"""Intervals of curves that are no family: a deviation at a few scores of every curve."""

import json

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

import mcnet
from mcnet._shared.files import checksum
from mcnet.model.bands import CurveDeviations


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    tracker = mcnet.Tracker()
    for day in range(3):
        score, country = rng.uniform(0.05, 0.4, 600), rng.choice(["NL", "FR"], 600)
        tracker.update(score, rng.random(600) < 0.7 * score, field={"country": country}, period=day)
    return tracker.model_


def test_the_band_is_the_curve_and_so_many_deviations(model):
    known = CurveDeviations(
        model.curves, model.contexts, np.array([-3.0, 0.0]), np.array([[0.3, 0.3], [0.1, 0.2], [0.4, 0.4]])
    )
    raw = np.array([-3.0, -1.5, 0.0, 1.0])
    for code, name, spread in ((0, "FR", [0.1, 0.15, 0.2, 0.2]), (1, "NL", [0.4] * 4), (-1, "other", [0.3] * 4)):
        (low,), (high,) = known.band(raw, np.array([[code]]), 0.9)
        middle = logit(model.predict(expit(raw), [name] * 4))
        np.testing.assert_allclose(high - middle, norm.ppf(0.95) * np.array(spread), rtol=1e-9)
        np.testing.assert_allclose(middle - low, norm.ppf(0.95) * np.array(spread), rtol=1e-9)


def test_a_saved_model_has_the_same_intervals(model, tmp_path):
    model.save(tmp_path / "model.json")
    loaded = mcnet.load(tmp_path / "model.json")
    scores = np.linspace(0.01, 0.99, 50)
    for value in ("NL", "FR", "never seen"):
        before, after = (m.interval(scores, [value] * 50) for m in (model, loaded))
        np.testing.assert_array_equal(before, after)
        assert (before[0] < before[1]).all()
        assert (np.diff(before, axis=1) >= 0.0).all()


@pytest.mark.parametrize(
    ("part", "wrong", "said"),
    [
        ("places", [1.0, 0.0], "not in order"),
        ("deviations", [[0.1, 0.1]], "other curves"),
        ("deviations", [[-0.1, 0.1]] * 3, "not a finite number"),
    ],
)
def test_deviations_that_do_not_fit_are_refused(model, tmp_path, part, wrong, said):
    model.save(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    document["uncertainty"] = {"places": [0.0, 1.0], "deviations": [[0.1, 0.1]] * 3, part: wrong}
    document["checksum"] = checksum(document)
    (tmp_path / "model.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(mcnet.FileFormatError, match=said):
        mcnet.load(tmp_path / "model.json")
