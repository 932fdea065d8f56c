"""A registry of three versions, and a service on it that the tests of one file share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.serve.running import Running, running

import mcnet
from mcnet._shared.extras import has_serve
from mcnet.model.model import CalibrationModel
from mcnet.versions.registry import Registry

COUNTRIES = ["DE", "FR", "NL", "US"]


def rows(seed: int, number: int = 20_000, factor: float = 0.6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = 1.0 / (1.0 + np.exp(3.0 - rng.normal(size=number)))
    country = rng.choice(COUNTRIES, number)
    label = (rng.random(number) < score * np.where(country == "NL", factor, 0.9)).astype(float)
    return score, label, country


@pytest.fixture(scope="session")
def models() -> list[CalibrationModel]:
    found = []
    for seed in range(3):
        score, label, country = rows(seed, factor=0.4 + 0.2 * seed)
        found.append(mcnet.BayesMCNet().fit(score, label, field={"country": country}).model_)
    return found


@pytest.fixture(scope="session")
def template(models: list[CalibrationModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "registry"
    registry = Registry(path)
    for place, model in enumerate(models):
        registry.add(model, f"fit {place}")
    return path


@pytest.fixture
def registry(template: Path, tmp_path: Path) -> Registry:
    """A copy of the registry that a test may change."""
    shutil.copytree(template, tmp_path / "registry")
    return Registry(tmp_path / "registry")


@pytest.fixture(scope="module")
def shared(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of two workers with a journal, shared by the tests of a file."""
    if not has_serve():
        pytest.skip("granian or pyarrow is not installed: pip install 'mcnet[serve]'")
    folder = tmp_path_factory.mktemp("service")
    shutil.copytree(template, folder / "registry")
    words = ("--workers", "2", "--max-rows", "500000", "--timeout", "2", "--journal", str(folder / "journal"))
    with running(folder / "registry", folder, *words) as service:
        yield service
