"""Rows and models of the tests of the store, and an empty store on each database."""

import numpy as np
import pytest

from mcnet.calibrators.parametric import Platt
from mcnet.sketch.sketch import Sketch
from mcnet.store.store import Store


def rows(seed, number=50, field=True):
    rng = np.random.default_rng(seed)
    score = rng.random(number)
    names = rng.choice(["NL", "FR"], number) if field else None
    return Sketch.from_rows(score, rng.random(number) < score, field=names)


def model(seed):
    rng = np.random.default_rng(seed)
    score = rng.random(200)
    return Platt().fit(score, rng.random(200) < score).model_


@pytest.fixture
def store(store_address):
    return Store(store_address)


@pytest.fixture
def opened(store_address):
    """A function that opens the journal of a head of a store on either database."""
    return lambda name: Store(store_address).journal(name)


@pytest.fixture
def journal(opened):
    return opened("journal")
