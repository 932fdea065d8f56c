"""Thousands of contexts: time and memory of a fit, size of the file, speed of predict; each in a process of its own."""

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
codes = model.codes(field)
predict, _ = cpu_time(lambda: model.predict(scores, codes=codes), 5)
print(json.dumps({"cells": len(sketch.cells), "fit": took, "wall": wall, "peak": peak, "before": before,
                  "file": os.path.getsize(path), "predict": predict / len(scores)}))
"""


def main(full: bool = False) -> None:
    DATA.mkdir(exist_ok=True)
    lines = []
    for values, rows in (
        (4, 2_000_000),
        (500, 2_000_000),
        (5_000, 2_000_000),
        *(((50_000, 10_000_000),) if full else ()),
    ):
        path = DATA / "contexts.json"
        found = child(_CHILD, str(values), str(rows), str(path))
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
    )
    report.keep("many_contexts", text, full)
