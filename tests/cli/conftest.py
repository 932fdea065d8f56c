"""A small log on disk, and the command line run inside this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mcnet.cli.run import run
from mcnet.datasets.simulator import simulate


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def mcnet(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def call(*words: Any) -> Done:
        capsys.readouterr()
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def frame() -> pl.DataFrame:
    log = simulate(8000, rate=0.1, seed=3).frame()
    day = pl.Series("day", ["mon", "tue"]).gather(pl.Series(range(len(log))) % 2)
    return log.select(
        pl.col("score").alias("pctr"), pl.col("label").alias("click"), pl.col("field").alias("country"), day
    )


@pytest.fixture
def log(frame: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "log.parquet"
    frame.write_parquet(path)
    return path


COLUMNS = ("--score", "pctr", "--label", "click", "--field", "country")


@pytest.fixture
def columns() -> tuple[str, ...]:
    return COLUMNS


@pytest.fixture
def model(mcnet: Callable[..., Done], log: Path) -> Path:
    path = log.parent / "model.json"
    assert mcnet("fit", log, *COLUMNS, "--method", "platt-field", "-o", path, "-q").code == 0
    return path
