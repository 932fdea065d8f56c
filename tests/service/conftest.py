"""A store of three versions, and services on it that tests share, since starting one takes seconds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.service.running import Running, running

import mcnet
from mcnet._shared.messages import has_extra
from mcnet.model.model import CalibrationModel
from mcnet.store.store import Store
from mcnet.store.versions import Registry


@pytest.fixture(autouse=True, scope="session")
def what_the_service_needs() -> None:
    """Leave these tests out where the extra `serve` is not installed."""
    if not has_extra("serve"):
        pytest.skip("uvicorn, starlette or another library of the service is not installed: pip install '.[serve]'")


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
    path = tmp_path_factory.mktemp("template") / "ads.db"
    registry = Registry(path)
    for place, model in enumerate(models):
        registry.add(model, f"fit {place}")
    registry.store.close()
    return path


@pytest.fixture
def registry(template: Path, tmp_path: Path) -> Registry:
    """The versions of a copy of the store, which a test may change."""
    shutil.copy(template, tmp_path / "ads.db")
    return Registry(tmp_path / "ads.db")


@pytest.fixture(scope="module")
def pair(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of two workers, for tests that change its versions."""
    folder = tmp_path_factory.mktemp("pair")
    shutil.copy(template, folder / "ads.db")
    with running(folder / "ads.db", folder, "--workers", "2", "--poll", "0.1") as service:
        yield service


@pytest.fixture(scope="session")
def shared(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of two workers, for tests that leave its versions as they are."""
    folder = tmp_path_factory.mktemp("service")
    shutil.copy(template, folder / "ads.db")
    Store(folder / "ads.db").configure(key_days=100_000)  # so that periods of long ago are judged by their plausibility
    with running(folder / "ads.db", folder, "--workers", "2", "--max-rows", "500000", "--timeout", "2") as service:
        yield service
