"""The two hot loops on one core, against what no loop can beat: a copy of the bytes, and one count of ready keys."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

import mcnet
from benchmarks.measure import click_log, cpu_time, machine
from benchmarks.report import keep_printed
from mcnet._shared.arrays import sigmoid
from mcnet.curves import evaluate
from mcnet.curves.curves import Curves
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import field_columns
from mcnet.sketch.grid import LogitGrid

COUNTRIES = np.array(["ES", "FR", "NL", "US"])
KNOTS = 500


@contextmanager
def without_numba() -> Iterator[None]:
    """Let everything believe that numba is not installed."""
    with ExitStack() as stack:
        for module in ("curves.evaluate", "sketch.accumulate", "_shared.distinct_values"):
            stack.enter_context(patch(f"mcnet.{module}.numba_installed", lambda: False))
        yield


def curves_of(values: int) -> CalibrationModel:
    """Return a model with random monotone curves, the pooled one and one per field value."""
    generator = np.random.default_rng(0)
    pairs = []
    for _ in range(1 + values):
        knots = sigmoid(np.sort(generator.normal(-4.0, 3.0, KNOTS)))
        pairs.append((knots, np.sort(generator.uniform(0.001, 0.999, KNOTS))))
    contexts = Contexts.of(field_columns(COUNTRIES[:values]), values)[0] if values else Contexts.none()
    return CalibrationModel("random", {}, contexts, Curves.of(pairs))


def least(functions: dict[str, Callable[[], Any]], rows: int, repeats: int) -> dict[str, float]:
    """Return the least CPU time of each in ns per row, run in turn so that a busy moment strikes all alike."""
    for function in functions.values():
        function()  # compilers are paid for before
    times = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            times[name] = min(times[name], cpu_time(function)[0] / rows * 1e9)
    return times


def show(times: dict[str, float], floor: str) -> None:
    for name, time in times.items():
        print(f"{name:<52}{time:7.2f} ns per row   {time / times[floor]:6.1f}×")


def evaluating(rows: int, repeats: int) -> None:
    scores, _, codes = click_log(rows)
    text = COUNTRIES[codes]
    series = pl.Series("country", text)
    alone, four = curves_of(0), curves_of(4)
    small = {
        "a copy of scores": scores.copy,
        "predict, no field": lambda: alone.predict(scores),
    }
    show(least(small, rows, repeats), "a copy of scores")
    fields = {
        "a copy of scores and codes": lambda: (scores.copy(), codes.copy()),
        "predict, 4 values as whole numbers": lambda: four.predict(scores, field=codes),
        "predict, 4 values as NumPy texts": lambda: four.predict(scores, field=text),
        "predict, 4 values as Polars texts": lambda: four.predict(scores, field=series),
    }
    show(least(fields, rows, repeats), "a copy of scores and codes")
    with without_numba():
        plain, fields_of = replace(alone), replace(four)
        functions = {
            "a copy of scores and codes": fields["a copy of scores and codes"],
            "NumPy alone: predict, no field": lambda: plain.predict(scores),
            "NumPy alone: predict, 4 values as whole numbers": lambda: fields_of.predict(scores, field=codes),
        }
        show(least(functions, rows, 2), "a copy of scores and codes")


def sketching(rows: int, repeats: int) -> None:
    scores, labels, codes = click_log(rows)
    text = COUNTRIES[codes]
    series = pl.Series("country", text)
    grid = LogitGrid()
    keys = (grid.locate(scores)[0] - grid.first).astype(np.int64)
    given = {
        "no field": None,
        "4 values as int32": codes,
        "4 values as Polars categories": series.cast(pl.Categorical),
        "4 values as Polars texts": series,
        "4 values as NumPy texts": text,
    }
    functions: dict[str, Callable[[], Any]] = {"one np.bincount of ready keys": lambda: np.bincount(keys)}
    for name, field in given.items():
        functions[f"sketch, {name}"] = lambda field=field: mcnet.Sketch.from_rows(scores, labels, field=field)
    show(least(functions, rows, repeats), "one np.bincount of ready keys")
    with without_numba():
        fewer = {"one np.bincount of ready keys": functions["one np.bincount of ready keys"]}
        for name in ("no field", "4 values as int32"):
            fewer[f"NumPy alone: sketch, {name}"] = functions[f"sketch, {name}"]
        show(least(fewer, rows, 2), "one np.bincount of ready keys")


def tables(full: bool) -> None:
    rows, repeats = (10_000_000, 9) if full else (4_000_000, 7)
    print(f"CPU time on one core, {rows:,} rows; curves of {KNOTS} knots; × is against the first line of each block")
    with patch.object(evaluate, "_ROWS_PER_THREAD", rows):
        print("== evaluating ==")
        evaluating(rows, repeats)
        print("== sketching from memory ==")
        sketching(rows, repeats)


def main(full: bool = False) -> None:
    keep_printed("hot_loops", "The hot loops", lambda: tables(full), full)


if __name__ == "__main__":
    print(machine())
    tables(full=False)
