"""How time and memory of a fit grow with rows, field values and bins: each point in a process of its own."""

import numpy as np

from benchmarks import report
from benchmarks.measure import child

_CHILD = """
import json, sys, time
import mcnet
from benchmarks.data import simulated
from benchmarks.measure import cpu_time, peak_memory, warm_up
from benchmarks.peers.protocol import forget_peak, memory
rows, values, bins = (int(argument) for argument in sys.argv[1:])
warm_up()
log = simulated(rows, values, 0, 0)
field = log.fields["field"]
forget_peak()
before = memory("VmRSS")
sketched, sketch = cpu_time(lambda: mcnet.Sketch.from_rows(log.score, log.label, field=field), 2)
model = mcnet.BayesMCNet(bins=bins or "auto")
took, _ = cpu_time(lambda: model.fit_sketch(sketch), 2)
print(json.dumps({"sketch": sketched, "fit": took, "memory": memory("VmHWM") - before}))
"""


def exponents(at: list[float], figures: dict[str, list[float]]) -> list[str]:
    """Return the slope of each figure in logarithms, over the larger half of the points."""
    half = len(at) // 2
    return [
        f"{np.polyfit(np.log(at[half:]), np.log(np.maximum(line[half:], 1e-9)), 1)[0]:.2f}" for line in figures.values()
    ]


def main(full: bool = False) -> None:
    ladders = {
        "rows": [(n, 4, 0) for n in (100_000, 1_000_000, 10_000_000, *((100_000_000,) if full else ()))],
        "field values": [(1_000_000, n, 0) for n in (4, 40, 400, 4_000, *((40_000,) if full else ()))],
        "bins": [(200_000, 4, n) for n in (8, 16, 32, 64, 128)],
    }
    parts = [
        "## Growth\n\nBayesMCNet on rows in memory; memory is the peak above the rows themselves. The exponent "
        "is the slope of the logarithms over the larger half of the points: 0 does not grow, 1 grows in proportion."
    ]
    for place, (name, points) in enumerate(ladders.items()):
        found = [child(_CHILD, *(str(number) for number in point)) for point in points]
        at = [point[place] for point in points]
        figures = {what: [one[what] for one in found] for what in ("sketch", "fit", "memory")}
        lines = [
            [f"{n:,}", report.seconds(one["sketch"]), report.seconds(one["fit"]), f"{one['memory']:.0f} MB"]
            for n, one in zip(at, found, strict=True)
        ]
        lines.append(["**exponent**", *exponents(at, figures)])
        parts.append(report.table([name, "sketch", "fit", "memory"], lines))
        print(parts[-1], flush=True)
        report.keep("growth", "\n\n".join(parts), full)
