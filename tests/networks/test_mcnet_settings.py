"""The settings of MCNet: what cannot be honoured is refused in words that help, and what was chosen can be read."""

import numpy as np
import pytest

import mcnet
from mcnet.bayes import fields as family
from mcnet.errors import CalibrationWarning, InputError, NotFittedError
from mcnet.sketch.sketch import Sketch

SMALL = {"hidden": (4, 4), "embedding": 2}


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    scores = draw.uniform(0.05, 0.6, 2_000)
    return scores, draw.random(2_000) < scores, {"a": draw.integers(0, 6, 2_000), "b": draw.integers(0, 5, 2_000)}


def test_a_field_without_use_is_answered_by_what_gives_it_one(rows):
    scores, labels, field = rows
    with pytest.warns(CalibrationWarning, match="mcnet-bayes does not use the field a × b: .*; leave field_aware"):
        mcnet.BayesMCNet(field_aware=False).fit(scores, labels, field=field)
    with pytest.warns(CalibrationWarning, match="neucalib does not use the field a × b: .*; set alpha_balance > 0"):
        mcnet.NeuCalib().fit(scores, labels, field=field)
    with pytest.warns(CalibrationWarning, match="platt does not use the field a × b: .*; use mcnet-bayes"):
        mcnet.Platt().fit(scores, labels, field=field)


@pytest.mark.parametrize("bins", ["many", 0, 2.5, None, True])
@pytest.mark.parametrize("made", [mcnet.BayesMCNet, pytest.param(mcnet.MCNet, marks=pytest.mark.networks)])
def test_bins_that_are_none_are_told_of_auto(rows, bins, made):
    with pytest.raises(InputError, match="it must be 'auto' or a whole number above 0"):
        made(bins=bins).fit(*rows[:2])


def test_a_method_that_cannot_choose_its_bins_does_not_speak_of_auto(rows):
    with pytest.raises(InputError, match="bins is 'auto'; it must be a whole number above 0"):
        mcnet.Histogram(bins="auto").fit(*rows[:2])


@pytest.mark.networks
def test_the_number_of_bins_is_known_after_the_fit_and_after_resuming(rows, tmp_path):
    scores, labels, _ = rows
    with pytest.raises(NotFittedError):
        mcnet.BayesMCNet().bins_  # noqa: B018
    assert mcnet.BayesMCNet(bins=7).fit(scores, labels).bins_ == 7
    chosen = mcnet.BayesMCNet().fit(scores, labels)
    assert chosen.bins_ == len(chosen.posterior_.panels.edges) - 1 == 48
    networks = mcnet.MCNet(**SMALL, bins=3).fit(scores, labels)
    assert networks.bins_ == 3
    networks.save(tmp_path / "model.json", training_state=True)
    assert mcnet.MCNet.resume(tmp_path / "model.json").bins_ == 3
    with pytest.warns(CalibrationWarning):
        assert mcnet.BayesMCNet().fit([0.1, 0.2], [0, 0]).bins_ == 1


@pytest.mark.networks
def test_bins_chosen_by_held_back_rows_are_told(rows):
    scores, labels, _ = rows
    fitted = mcnet.MCNet(**SMALL).fit(scores[:600], labels[:600])
    assert fitted.bins == "auto"
    assert fitted.bins_ in (5, 6)  # 5, or as many as leave 25 rows of the rarer class to each where a fold is held back
    assert fitted.bins_ == 1 + len(fitted.network_.bank.edges)


def test_a_pair_of_fields_that_combine_in_too_many_ways_is_named(rows, monkeypatch):
    scores, labels, field = rows
    monkeypatch.setattr(family, "MOST_COMBINATIONS", 29)
    with pytest.warns(CalibrationWarning, match="a × b has 30 combinations, more than 29") as caught:
        fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert fitted.posterior_.combinations == ()
    grid, asked = np.linspace(0.01, 0.9, 20), {"a": [1] * 20, "b": [2] * 20}
    adding = mcnet.BayesMCNet(interactions=False).fit(scores, labels, field=field)
    np.testing.assert_allclose(fitted.predict(grid, asked), adding.predict(grid, asked), rtol=1e-9)
    third = field | {"c": np.arange(2_000) % 2}
    with pytest.warns(CalibrationWarning, match="a × b"):
        assert family.telling(Sketch.from_rows(scores, labels, field=third)).pairs == [(0, 2), (1, 2)]
