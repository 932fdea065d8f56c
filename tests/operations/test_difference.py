import numpy as np
import pytest

from mcnet.calibrators.parametric import Identity, Platt
from mcnet.calibrators.per_field import PlattField
from mcnet.difference import diff
from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch


def fitted(seed, ratio=1.0, countries=("NL", "FR")):
    rng = np.random.default_rng(seed)
    score, field = rng.uniform(0.05, 0.5, 20_000), rng.choice(countries, 20_000)
    truth = np.where(field == countries[0], ratio * score, score)
    return PlattField().fit(score, rng.random(20_000) < truth, field={"country": field}).model_


def test_a_model_does_not_differ_from_itself():
    found = diff(fitted(1), fitted(1))
    assert (found.shift, found.largest) == (0.0, 0.0)
    assert found.only_old == found.only_new == ()


def test_the_field_value_that_changed_comes_first():
    rng = np.random.default_rng(3)
    rows = Sketch.from_rows(
        rng.uniform(0.05, 0.5, 5000), rng.integers(0, 2, 5000), field={"country": rng.choice(["NL", "FR"], 5000)}
    )
    found = diff(fitted(1), fitted(2, ratio=0.8), rows)
    assert found.table["context"][0] == "NL"
    assert found.table["shift"][0] == pytest.approx(-0.2, abs=0.03)
    assert abs(found.table["shift"][1]) < 0.03
    assert found.weighted_by == "rows"
    assert found.table["weight"].sum() == 5000


def test_the_change_of_the_mean_is_that_of_the_rows():
    rng = np.random.default_rng(4)
    score = rng.uniform(0.05, 0.5, 3000)
    rows = Sketch.from_rows(score, rng.integers(0, 2, 3000))
    old = Identity().fit(score, score > 0.2).model_
    new = Platt().fit(score, rng.random(3000) < 0.7 * score).model_
    expected = new.predict(score).sum() / old.predict(score).sum() - 1.0
    assert diff(old, new, rows).shift == pytest.approx(expected, abs=1e-4)


def test_contexts_of_one_model_only_are_named():
    found = diff(fitted(1), fitted(1, countries=("NL", "DE")))
    assert (found.only_old, found.only_new) == (("FR",), ("DE",))


def test_models_that_need_different_fields_are_refused():
    score = np.linspace(0.1, 0.9, 50)
    with pytest.raises(InputError, match="different fields"):
        diff(fitted(1), Platt().fit(score, score > 0.5).model_)


def test_the_bands_of_the_score_have_equal_weight_and_add_up_to_the_whole():
    rng = np.random.default_rng(5)
    field = {"country": rng.choice(["NL", "FR"], 5000)}
    rows = Sketch.from_rows(rng.uniform(0.05, 0.5, 5000), rng.integers(0, 2, 5000), field=field)
    found = diff(fitted(1), fitted(2, ratio=0.8), rows)
    bands = found.by_score
    assert bands.height == 10
    assert bands["weight"].sum() == 5000
    assert bands["weight"].min() > 400
    assert (bands["score_low"][1:] >= bands["score_high"][:-1]).all()
    moved = (bands["weight"] * bands["new_rate"]).sum() / (bands["weight"] * bands["old_rate"]).sum() - 1.0
    assert moved == pytest.approx(found.shift, rel=1e-9)


def test_contexts_of_other_fields_are_not_missing():
    rng = np.random.default_rng(6)
    score, label = rng.uniform(0.05, 0.5, 4000), rng.integers(0, 2, 4000)
    fields = {"country": rng.choice(["NL", "FR"], 4000), "device": rng.choice(["tv", "phone"], 4000)}
    both = PlattField().fit(score, label, field=fields).model_
    found = diff(fitted(1), both, Sketch.from_rows(score, label, field=fields))
    assert (found.only_old, found.only_new) == ((), ())
