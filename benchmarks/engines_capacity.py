"""What a plan of capacity needs: the driver's memory per cell of a sketch, and the accuracy of a coarser grid."""

import numpy as np

import mcnet
from benchmarks import report
from benchmarks.measure import child, click_log_file, machine

CELLS_PER_VALUE = 4_500
LEVEL = 0.9

_CHILD = """
import json, sys
import numpy as np, pyarrow as pa
import mcnet
from benchmarks.measure import peak_memory
from mcnet.rows.spec import RowSpec
from mcnet.sketch.query import query_spec
from mcnet.sketch.query_rows import ABOUT, CELL, POSITION, POSITIVES, ROWS, WEIGHT, spec_text

cells, per_value = int(sys.argv[1]), int(sys.argv[2])
about = spec_text(query_spec(RowSpec("score", "label", ("country",))))

def result(cells):
    number = np.arange(cells)
    columns = {
        "country": pa.array(np.char.add("value ", (number // per_value).astype(str)).tolist()),
        CELL: pa.array((number % per_value - per_value // 2).astype(np.int32)),
        ROWS: pa.array(np.full(cells, 10)),
        WEIGHT: pa.array(np.full(cells, 10)),
        POSITIVES: pa.array(np.ones(cells)),
        POSITION: pa.array(np.full(cells, 5e6)),
    }
    size = sum(column.nbytes for column in columns.values())
    said = pa.DictionaryArray.from_arrays(pa.nulls(cells, pa.int8()).fill_null(0), [about])
    return pa.table({**columns, ABOUT: said}), size

mcnet.Sketch.from_table(result(10_000)[0])  # what is imported and compiled once
table, size = result(cells)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is what the process has now
now = peak_memory()
made = mcnet.Sketch.from_table(table)
beside = (peak_memory() - now) * 2**20
print(json.dumps({"cells": len(made), "arrow": size / cells, "made": beside / cells}))
"""


def memory_of_cells(sizes: tuple[int, ...]) -> list[dict[str, float]]:
    """Return the bytes per cell of a result in Arrow, and those that making the sketch needs beside."""
    return [child(_CHILD, str(cells), str(CELLS_PER_VALUE)) for cells in sizes]


def coarser_grid(rows: int) -> dict[str, float]:
    """Return how much a fit at resolution 64 differs from one at 512, and how wide its interval is, both in percent."""
    log = click_log_file(rows)
    fine, coarse = (
        mcnet.BayesMCNet()
        .fit_sketch(mcnet.scan(log, score="score", label="label", field="country", resolution=resolution))
        .model_
        for resolution in (512, 64)
    )
    sketch = mcnet.scan(log, score="score", label="label", field="country")
    scores = sketch.score
    fields = sketch.contexts.columns(sketch.cells.context)
    one, other = fine.predict(scores, fields), coarse.predict(scores, fields)
    low, high = fine.interval(scores, fields, LEVEL)
    average = lambda values: float(np.average(values, weights=sketch.weight)) * 100.0  # noqa: E731
    return {"moved": average(np.abs(other / one - 1.0)), "half_width": average((high - low) / 2.0 / one)}


def main(full: bool) -> None:
    """Measure, print, and keep the section of the page."""
    sizes = (1_000_000, 4_000_000, 16_000_000) if full else (1_000_000, 4_000_000)
    memory, rows = memory_of_cells(sizes), 2_500_000
    grid = coarser_grid(rows)
    text = "\n\n".join(
        [
            f"## Engines: capacity\n\nThe result of a sketch query with {CELLS_PER_VALUE:,} cells per field value "
            f"becomes a sketch on the driver. {machine(load=False)}.",
            report.table(
                ["cells", "in Arrow", "beside it, while the sketch is made"],
                [
                    [f"{one['cells']:,}", f"{one['arrow']:.0f} bytes per cell", f"{one['made']:.0f} bytes per cell"]
                    for one in memory
                ],
            ),
            f"On {rows:,} rows of four values a fit at resolution 64 differs from one at 512 by {grid['moved']:.2f} % "
            f"on average, where the {LEVEL:.0%} interval is ± {grid['half_width']:.1f} % wide.",
        ]
    )
    print(text)
    report.keep("engines_capacity", text, full, {"memory": memory, "grid": grid})


if __name__ == "__main__":
    main(full=False)
