"""Days of a simulated stream as log files, sketches and journals."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal

ROWS = 4000


def day_name(day: int) -> str:
    return f"2026-11-{day:02}"


def day_rows(day: int, ratio: float = 0.7, rows: int = ROWS) -> pl.DataFrame:
    """Return the rows of a day: the truth is `ratio` times the score, and a third less in FR."""
    rng = np.random.default_rng(day)
    score, country = rng.uniform(0.02, 0.4, rows), rng.choice(["NL", "FR", "US"], rows)
    truth = ratio * score * np.where(country == "FR", 2 / 3, 1.0)
    moment = np.datetime64(f"{day_name(day)}T00:00") + np.arange(rows).astype("timedelta64[ms]")
    click = (rng.random(rows) < truth).astype(np.int8)
    return pl.DataFrame({"pctr": score, "click": click, "country": country, "ts": moment})


@pytest.fixture
def add_days(tmp_path: Path) -> Callable[..., Journal]:
    """Add days to the journal of the test, from the first to the last."""
    journal = Journal(tmp_path / "ads.db")

    def add(first: int, last: int, **world: float) -> Journal:
        for day in range(first, last + 1):
            rows = day_rows(day, **world)
            sketch = Sketch.from_rows(rows["pctr"], rows["click"], field={"country": rows["country"]}, resolution=64)
            journal.add(sketch, day_name(day), source=f"day {day} {world}")
        return journal

    return add
