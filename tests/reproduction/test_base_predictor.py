"""The base predictor: learns, stops on rows held back, and is not upset by what it has never seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mcnet.errors import InputError
from mcnet.metrics import auc
from reproduction.base_predictor import SMALL, train_base_predictor
from reproduction.impressions import PRESETS, simulate_impressions
from reproduction.tasks import Features

QUICK = replace(SMALL, epochs=3)


@pytest.fixture(scope="module")
def parts():
    return simulate_impressions(PRESETS["aliexpress"], scale=0.004, seed=1, shift=False)


@pytest.fixture(scope="module")
def features(parts):
    return {split: Features(*part.features()) for split, part in parts.items()}


def test_it_ranks_rows_it_has_never_seen(parts, features):
    base = train_base_predictor(features["training"], parts["training"].click.label, QUICK)
    score = base.predict(features["test"])
    assert np.all((score > 0) & (score < 1))
    assert auc(score, parts["test"].click.label).value > 0.58
    assert score.mean() == pytest.approx(parts["test"].click.label.mean(), rel=0.4)


def test_the_same_seed_trains_the_same_network_and_leaves_torch_alone(parts, features):
    some, label = features["training"].take(slice(0, 4000)), parts["training"].click.label[:4000]
    recipe = replace(QUICK, epochs=1, dropout=0.2)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = train_base_predictor(some, label, recipe).predict(some)
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_allclose(one, train_base_predictor(some, label, recipe).predict(some), rtol=1e-3)
    other = train_base_predictor(some, label, replace(recipe, seed=1)).predict(some)
    assert not np.allclose(one, other, rtol=1e-3)


def test_unseen_ids_and_missing_numbers_still_get_a_probability(parts, features):
    base = train_base_predictor(
        features["training"].take(slice(0, 4000)), parts["training"].click.label[:4000], replace(QUICK, epochs=1)
    )
    strange = features["test"].take(slice(0, 10))
    strange.categories[:] = 10**6
    strange.numbers[:, 0] = np.nan
    assert np.all(np.isfinite(base.predict(strange)))


def test_training_stops_when_the_held_back_rows_get_no_better():
    draw = np.random.default_rng(0)
    noise = Features(draw.normal(size=(3000, 4)).astype(np.float32), draw.integers(0, 300, (3000, 6)).astype(np.int32))
    base = train_base_predictor(noise, (draw.random(3000) < 0.1).astype(np.int8), replace(SMALL, epochs=30))
    assert base.epochs < 15


def test_features_may_be_mapped_from_a_file(tmp_path, parts, features):
    some, label = features["training"].take(slice(0, 3000)), parts["training"].click.label[:3000]
    np.save(tmp_path / "numbers.npy", some.numbers)
    np.save(tmp_path / "categories.npy", some.categories)
    mapped = Features(*(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("numbers", "categories")))
    recipe = replace(QUICK, epochs=1)
    np.testing.assert_allclose(
        train_base_predictor(mapped, label, recipe).predict(mapped),
        train_base_predictor(some, label, recipe).predict(some),
        rtol=1e-3,
    )


def test_rows_of_one_class_are_refused():
    rows = Features(np.zeros((100, 1), np.float32), np.zeros((100, 1), np.int32))
    with pytest.raises(InputError, match="too few to train"):
        train_base_predictor(rows, np.zeros(100, np.int8))


def test_rows_that_are_not_chosen_have_no_say(parts, features):
    some, label = features["training"].take(slice(0, 4000)), parts["training"].click.label[:4000].copy()
    chosen = np.arange(4000) % 2 == 0
    recipe = replace(QUICK, epochs=1)
    one = train_base_predictor(some, label, recipe, chosen=chosen).predict(some)
    label[~chosen] = 1 - label[~chosen]
    some.numbers[~chosen] = 1e6
    two = train_base_predictor(some, label, recipe, chosen=chosen).predict(some)
    np.testing.assert_allclose(one[chosen], two[chosen], rtol=1e-3)
