"""Streams in time: each day is predicted from the days before it, then its labels are revealed.

`val` and `test` are put together and cut into days; the days of `test` but the first, which `val` shares, are judged by
their log-loss over all rows. Methods with a fixed memory are fitted every day on sketches that fade by a half-life.
"""

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import mcnet
from benchmarks import data, report
from benchmarks.time_peers import peer_lines
from mcnet.datasets.worlds import make_world

HALF_LIVES = (2.0, 4.0, 8.0, np.inf)
MEMORIES_OF = {"mcnet-bayes": {"isotonic_share": 0.0}, "platt-field": {}}
QUICK_DAYS = 20
"""Days that the quick form judges, the last ones."""
HOURS, QUICK_HOURS = 8760, 300


def days_of(files: tuple[Path, Path]) -> tuple[list[tuple[Any, pl.DataFrame]], int]:
    """Return the days of a stream in order, and the place of the first one that is judged."""
    parts = [pl.read_parquet(file) for file in files]
    first = parts[1]["ts"].cast(pl.Datetime).min().date()  # type: ignore[union-attr]
    log = pl.concat(parts).with_columns(day=pl.col("ts").cast(pl.Datetime).dt.date())
    days = sorted(((key[0], part) for key, part in log.group_by("day")), key=lambda day: day[0])
    return days, next(place for place, (day, _) in enumerate(days) if day > first)


def columns(day: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, dict[str, pl.Series]]:
    return day["score"].to_numpy(), day["label"].to_numpy().astype(float), {"field": day["field"]}


def losses(said: np.ndarray, label: np.ndarray) -> float:
    return -float(np.sum(np.where(label > 0.0, np.log(said), np.log1p(-said))))


def follow(days: list[tuple[Any, pl.DataFrame]], first: int) -> tuple[float, list[float]]:
    """Return the log-loss of the tracker, and the CPU seconds of each update."""
    tracker, lost, rows, took = mcnet.Tracker(), 0.0, 0, []
    for place, (day, part) in enumerate(days):
        score, label, field = columns(part)
        if place >= first:
            lost += losses(tracker.predict(score, field), label)
            rows += len(label)
        begin = time.process_time()
        tracker.update(score, label, field=field, period=day)
        took.append(time.process_time() - begin)
    return lost / rows, took


def refitted(days: list[tuple[Any, pl.DataFrame]], first: int, method: str, half_life: float) -> float:
    """Return the log-loss of a method that is fitted every day with one memory."""
    past, lost, rows = None, 0.0, 0
    fading = 0.5 ** (1.0 / half_life)
    for place, (_, part) in enumerate(days):
        score, label, field = columns(part)
        if place >= first and past is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = mcnet.calibrator(method, **MEMORIES_OF[method]).fit_sketch(past)
            lost += losses(fitted.predict(score, field), label)
            rows += len(label)
        new = mcnet.Sketch.from_rows(score, label, field=field, resolution=64)
        past = new if past is None else (past if fading == 1.0 else fading * past) + new
    return lost / rows


def lines(full: bool) -> Iterator[tuple[str, str, float, float | None]]:
    """Yield stream, who predicts, log-loss, and CPU seconds of a median update."""
    for name in data.REAL:
        files = data.real_files(name, "")
        if files is None:
            continue
        days, first = days_of(files)
        if not full:
            days, first = days[-3 * QUICK_DAYS :], 2 * QUICK_DAYS
        judged = [columns(part) for _, part in days[first:]]
        rows = sum(len(label) for _, label, _ in judged)
        yield name, "base scores", sum(losses(np.clip(s, 1e-7, 1 - 1e-7), y) for s, y, _ in judged) / rows, None
        lost, took = follow(days, first)
        yield name, "**Tracker()**", lost, float(np.median(took))
        for method in MEMORIES_OF:
            for half_life in HALF_LIVES:
                memory = "everything" if np.isinf(half_life) else f"half-life {half_life:g} days"
                yield name, f"{method}, {memory}", refitted(days, first, method, half_life), None
        for who, lost in peer_lines(days, first):
            yield name, who, lost, None


def hourly(hours: int) -> tuple[float, int]:
    """Return the CPU seconds of following so many hours with 4 field values, and the size of the saved state."""
    import tempfile

    world, tracker = make_world("slow", periods=hours, values=4), mcnet.Tracker()
    took = 0.0
    for hour in range(hours):
        rows = world.period(hour)
        begin = time.process_time()
        tracker.update(rows.score, rows.label, field=rows.field, period=hour)
        took += time.process_time() - begin
    with tempfile.TemporaryDirectory() as folder:
        tracker.save(folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return took, size


def main(full: bool = False) -> None:
    found = []
    for stream, who, lost, took in lines(full):
        found.append((stream, who, f"{lost:.5f}", report.seconds(took)))
        print("  ", *found[-1], flush=True)
    hours = HOURS if full else QUICK_HOURS
    took, size = hourly(hours)
    text = f"""## Time: each day predicted from the days before it

{report.table(("stream", "predicted by", "log-loss", "CPU of an update"), found)}

BLR and MarBLR (Feng et al. 2022) and online Platt scaling with calibeating (Gupta and Ramdas 2023) are written from
their published updates; "best of" is chosen in hindsight, in favour of the peer.

{hours:,} hourly periods of 1,000 rows with 4 field values: {took:.0f} s of CPU, {took / hours * 1e3:.0f} ms per update;
the saved state has {report.size(size)}.
"""
    report.keep("time_streams", text, full, found)
    print(text)


if __name__ == "__main__":
    import sys

    main("--full" in sys.argv)
