"""A small log with known truth: four field values, each with a distortion of its own."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from mcnet._shared.messages import has_extra
from mcnet.networks.training_points import TrainingCells

if not has_extra("networks"):
    collect_ignore_glob = ["test_*.py"]


def truth(logit: NDArray[np.float64], value: NDArray[np.int64]) -> NDArray[np.float64]:
    shift = np.array([-0.6, -0.25, -1.0, 0.0])[value]
    slope = np.array([0.8, 1.15, 0.95, 0.7])[value]
    wave = np.array([0.25, 0.2, -0.22, 0.15])[value]
    pace = np.array([1.6, 1.1, 1.9, 2.2])[value]
    centred = logit + 3.5
    return expit(shift + slope * centred - 3.5 + wave * np.sin(pace * centred))


def draw(rows: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    value = random.choice(4, size=rows, p=[0.55, 0.25, 0.15, 0.05])
    logit = random.normal(-3.6, 1.1, rows)
    label = (random.random(rows) < truth(logit, value)).astype(np.float64)
    return logit, value, label


def summarise(logit: NDArray[np.float64], value: NDArray[np.int64], label: NDArray[np.float64]) -> TrainingCells:
    key = np.floor(logit * 64).astype(np.int64)
    key = (key - key.min()) * 4 + value
    distinct, inverse = np.unique(key, return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)
    mean = np.bincount(inverse, weights=logit) / weight
    return TrainingCells.of(
        mean,
        weight,
        np.bincount(inverse, weights=label),
        distinct % 4,
        codes=np.arange(4)[:, None],
    )


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))


@pytest.fixture(scope="session")
def log() -> SimpleNamespace:
    """The functions of this file, for tests that need a log of their own size."""
    return SimpleNamespace(truth=truth, draw=draw, summarise=summarise, divergence=divergence)


@pytest.fixture(scope="session")
def cells() -> TrainingCells:
    return summarise(*draw(200_000))
