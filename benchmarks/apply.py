"""`mcnet apply`: rows a second and peak memory from Parquet to Parquet, at growing numbers of rows."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from mcnet.calibrators.per_field import PerField
from mcnet.rows.simulate import simulate
from mcnet.sketch.scanning import scan

__all__ = ["main"]

_CHUNK = 1_000_000

# A process of its own for every size: the peak of memory never falls.
_CHILD = """
import resource, sys, time
from mcnet.curves.store import load
from mcnet.serve.applying import apply_to_files
model, log, output = sys.argv[1:]
loaded = load(model)
begin = time.perf_counter()
rows = apply_to_files(loaded, log, output, score="pctr")
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
print(rows, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def write_log(path: Path, rows: int) -> None:
    """Write a log of three columns (score, label, field of four values) by repeating a million simulated rows."""
    million = simulate(_CHUNK, seed=1).frame().select(pctr="score", click="label", country="field").lazy()
    pieces = [million.head(min(_CHUNK, rows - start)) for start in range(0, rows, _CHUNK)]
    pl.concat(pieces).sink_parquet(path)


def measure(model: Path, log: Path, output: Path) -> tuple[int, float, float, float]:
    """Return rows, seconds, CPU seconds and the peak of memory in MB of one run."""
    arguments = [sys.executable, "-c", _CHILD, str(model), str(log), str(output)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    rows, seconds, cpu, memory = done.stdout.split()
    return int(rows), float(seconds), float(cpu), float(memory)


def main() -> None:
    """Print a line a size, and what the memory comes to at 100 M rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[3e6, 10e6, 30e6])
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to rest between sizes")
    sizes = [int(size) for size in parser.parse_args().rows]
    wait = parser.parse_args().wait
    found = []
    with tempfile.TemporaryDirectory() as folder:
        log, model, output = (Path(folder) / name for name in ("log.parquet", "model.json", "out.parquet"))
        write_log(log, 1_000_000)
        sketch = scan(log, score="pctr", label="click", field="country")
        PerField("isotonic").fit_sketch(sketch).save(model)
        measure(model, log, output)  # the first run compiles the hot loop
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'rows':>12}{'seconds':>10}{'M rows/s':>10}{'M rows/CPU s':>14}{'peak MB':>10}")
        for size in sizes:
            write_log(log, size)
            time.sleep(wait)
            rows, seconds, cpu, memory = measure(model, log, output)
            found.append((rows, memory))
            print(f"{rows:>12,}{seconds:>10.2f}{rows / seconds / 1e6:>10.2f}{rows / cpu / 1e6:>14.2f}{memory:>10.0f}")
    if len(found) > 1:
        (few, low), (many, high) = found[-2], found[-1]
        slope = (high - low) / (many - few)
        print(f"from 10 M to 100 M rows, at this slope: {90e6 * slope:+.0f} MB")


if __name__ == "__main__":
    main()
