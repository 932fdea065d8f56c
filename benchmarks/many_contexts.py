"""Thousands of contexts: time and memory of a fit, size of the file, speed of predict; each in a process of its own."""

import json

from benchmarks import report
from benchmarks.measure import DATA, child

_CHILD = """
import json, os, sys, time
import numpy as np
import mcnet
from benchmarks.data import simulated
from benchmarks.measure import cpu_time, warm_up
from benchmarks.peers.protocol import forget_peak, memory
values, rows, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
warm_up()
log = simulated(rows, values, 0, 0)
sketch = mcnet.Sketch.from_rows(log.score, log.label, field=log.fields["field"])
scores, field = log.score[:1_000_000].copy(), log.fields["field"][:1_000_000].copy()
del log
forget_peak()
before = memory("VmRSS")
wall = time.perf_counter()
model = mcnet.BayesMCNet()
took, _ = cpu_time(lambda: model.fit_sketch(sketch))
wall = time.perf_counter() - wall
peak = memory("VmHWM")
model.save(path)
predict, _ = cpu_time(lambda: model.predict(scores, field), 5)
print(json.dumps({"cells": len(sketch.cells), "fit": took, "wall": wall, "peak": peak, "before": before,
                  "file": os.path.getsize(path), "predict": predict / len(scores)}))
"""


_SHAPES = """
import json, sys, time
import numpy as np
import mcnet
from benchmarks.peers.protocol import forget_peak, memory
sizes, rows, path = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
draw = np.random.default_rng(0)
x = draw.normal(-2.5, 1.0, rows)
z, fields = 0.9 * x, {}
for number, size in enumerate(sizes):
    fields[f"field{number}"] = draw.integers(0, size, rows)
    z = z + draw.normal(0.0, 0.3, size)[fields[f"field{number}"]]
score, label = 1.0 / (1.0 + np.exp(-x)), draw.random(rows) < 1.0 / (1.0 + np.exp(-z))
del x, z
started = time.process_time()
if path:
    import polars as pl
    pl.DataFrame({"score": score, "label": label.astype(np.int8), **fields}).write_parquet(path)
    del score, label, fields
    forget_peak()
    started = time.process_time()
    sketch = mcnet.scan(path, score="score", label="label", field=[f"field{n}" for n in range(len(sizes))])
else:
    sketch = mcnet.Sketch.from_rows(score, label.astype(float), field=fields)
scan = time.process_time() - started
started = time.process_time()
model = mcnet.BayesMCNet().fit_sketch(sketch)
print(json.dumps({"cells": len(sketch.cells), "contexts": len(sketch.contexts), "scan": scan,
                  "fit": time.process_time() - started, "peak": memory("VmHWM"),
                  "iterations": model.posterior_.iterations, "pooled": sum(model.pooled_values_.values())}))
"""


def shapes(full: bool, figures: dict[str, dict[str, float]]) -> str:
    """Return a table of fits with contexts of other shapes: many fields, two large ones, a million values."""
    lines = []
    for name, sizes, rows, from_file in (
        ("20 fields of 2 values", [2] * 20, 100_000, False),
        ("300 × 300 values", [300, 300], 1_000_000, False),
        *((("1,000,000 values, from a file", [1_000_000], 10_000_000, True),) if full else ()),
    ):
        path = DATA / "shapes.parquet"
        found = child(_SHAPES, json.dumps(sizes), str(rows), str(path) if from_file else "")
        path.unlink(missing_ok=True)
        figures[name] = {"seconds": found["scan"] + found["fit"], "peak": found["peak"]}
        lines.append(
            [
                name,
                f"{rows:,}",
                f"{found['contexts']:,}",
                f"{found['scan']:.1f} s",
                f"{found['fit']:.1f} s",
                f"{found['scan'] + found['fit']:.1f} s",
                f"{found['iterations']}",
                f"{found['pooled']:,}",
                f"{found['peak']:.0f} MB",
            ]
        )
        print(lines[-1], flush=True)
    head = ["fields", "rows", "contexts", "sketch", "fit", "together", "iterations", "pooled values", "peak memory"]
    return (
        "\n\nOther shapes, CPU time of a fresh process: importing and loading the compiled loops count. Goals: "
        "20 fields in 10 s together; a million values in 2 minutes and 3 GB (full form)."
        f"\n\n{report.table(head, lines)}"
    )


def main(full: bool = False) -> None:
    DATA.mkdir(exist_ok=True)
    lines = []
    figures: dict[str, dict[str, float]] = {}
    for values, rows in (
        (4, 2_000_000),
        (500, 2_000_000),
        (5_000, 2_000_000),
        *(((50_000, 10_000_000),) if full else ()),
    ):
        path = DATA / "contexts.json"
        found = child(_CHILD, str(values), str(rows), str(path))
        figures[f"{values:,} contexts"] = {"seconds": found["wall"], "peak": found["peak"]}
        lines.append(
            [
                f"{values:,}",
                f"{rows:,}",
                f"{found['cells']:,}",
                f"{found['fit']:.2f} s ({found['wall']:.2f} s wall)",
                f"{found['peak']:.0f} MB ({found['before']:.0f} MB before)",
                report.size(found["file"]),
                report.seconds(found["predict"]),
            ]
        )
        print(lines[-1], flush=True)
    head = ["contexts", "rows", "cells", "fit on the sketch", "peak memory during the fit", "file", "predict a row"]
    text = (
        "## Many contexts\n\nOne field with values sized by Zipf's law; predict is given ready codes. Goal at 50,000 "
        f"contexts (full form): under 2 minutes and 1 GB.\n\n{report.table(head, lines)}"
    ) + shapes(full, figures)
    report.keep("many_contexts", text, full, figures)
