"""Intervals of a model: around what it serves, and rising with the score."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnet


class Wavy:
    """An uncertainty whose band goes up and down, to the disadvantage of whoever trusts it."""

    def band(self, logits, codes, level):
        middle = logits + np.sin(5.0 * logits) + codes.sum(axis=1)[:, None]
        return middle - level, middle + level

    def to_dict(self):
        return {}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    score = rng.random(3000)
    fitted = mcnet.PerField("platt").fit(score, rng.random(3000) < score, field=rng.choice(["a", "b"], 3000))
    return replace(fitted.model_, uncertainty=Wavy())


def test_an_interval_includes_what_is_served_and_rises_with_the_score(model):
    scores = np.linspace(0.0, 1.0, 20_001)
    for value in ("a", "b", "unseen"):
        low, high = model.interval(scores, np.full(len(scores), value))
        served = model.predict(scores, np.full(len(scores), value))
        assert np.all((low <= served) & (served <= high))
        assert np.all(np.diff(low) >= 0.0)
        assert np.all(np.diff(high) >= 0.0)
        assert np.all((low > 0.0) & (high < 1.0))


def test_no_interval_ends_at_exactly_one():
    few = mcnet.BayesMCNet().fit([0.2, 0.4, 0.6, 0.9], [0, 1, 0, 1]).model_
    low, high = few.interval([0.5, 0.999, 1.0], level=1 - 1e-12)
    assert (low > 0.0).all()
    assert (high < 1.0).all()


@given(score=st.floats(1e-6, 1 - 1e-6), value=st.sampled_from(["a", "b", "unseen", None]))
def test_the_interval_of_a_row_does_not_depend_on_its_neighbours(model, score, value):
    low, high = model.interval([score], [value])
    lows, highs = model.interval([0.1, score, 0.9], ["b", value, "a"])
    np.testing.assert_allclose((low[0], high[0]), (lows[1], highs[1]), rtol=1e-9)
    if value is not None:
        np.testing.assert_allclose(model.interval(score, value), (low[0], high[0]), rtol=1e-9)


def test_a_higher_level_is_wider(model):
    narrow, wide = (model.interval([0.2, 0.4], ["a", "b"], level) for level in (0.5, 0.9))
    assert np.all(wide[0] <= narrow[0])
    assert np.all(narrow[1] <= wide[1])


@pytest.mark.parametrize("level", [0, 1, -0.5, 90, "0.9", None, True, float("nan")])
def test_a_level_is_between_0_and_1(model, level):
    with pytest.raises(mcnet.InputError, match="level is"):
        model.interval([0.1], ["a"], level)


def test_many_contexts_are_bounded_in_memory(model, monkeypatch):
    monkeypatch.setattr("mcnet.model.bands._REMEMBERED_CONTEXTS", 2)
    monkeypatch.setattr("mcnet.model.bands._CONTEXTS_PER_BLOCK", 2)
    fresh = replace(model)
    field = ["a", "b", "unseen"] * 10
    scores = np.linspace(0.05, 0.95, 30)
    for found, expected in zip(fresh.interval(scores, field), model.interval(scores, field), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert len(fresh._bands._remembered) <= 2


def test_a_model_without_fields():
    fitted = mcnet.Platt().fit([0.1, 0.4, 0.6], [0, 1, 1])
    plain = replace(fitted.model_, uncertainty=Wavy())
    low, high = plain.interval([0.3, 0.5])
    assert np.all((low <= plain.predict([0.3, 0.5])) & (plain.predict([0.3, 0.5]) <= high))


def test_empty_input_and_a_model_without_uncertainty(model):
    assert [len(end) for end in model.interval([], [])] == [0, 0]
    with pytest.raises(mcnet.NotSupportedError, match="no intervals; fit BayesMCNet"):
        mcnet.Platt().fit([0.1, 0.4], [0, 1]).model_.interval([0.3])
