"""`mcnet apply`: rate and peak memory, Parquet to Parquet with three columns: python -m benchmarks.apply."""

import argparse
import tempfile
from pathlib import Path

from benchmarks.measure import child, click_log_file, machine
from mcnet.calibrators.per_field import PerField
from mcnet.sketch.scan import scan

# A process of its own for every size: the peak of memory never falls.
_CHILD = """
import json, sys, time
from benchmarks.measure import peak_memory
from mcnet.model.model_file import load
from mcnet.model.apply import apply_to_files
model, log, output = sys.argv[1:]
loaded = load(model)
begin, cpu = time.perf_counter(), time.process_time()
rows = apply_to_files(loaded, log, output, score="score").rows
print(json.dumps([rows, time.perf_counter() - begin, time.process_time() - cpu, peak_memory()]))
"""


def main(sizes: list[int]) -> None:
    """Print a line a size, and what the memory comes to at 100 M rows."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model, output = Path(folder) / "model.json", Path(folder) / "out.parquet"
        small = click_log_file(1_000_000)
        sketch = scan(small, score="score", label="label", field="country")
        PerField("isotonic").fit_sketch(sketch).save(model)
        child(_CHILD, str(model), str(small), str(output))  # the first run compiles the hot loop
        print(f"{'rows':>12}{'seconds':>10}{'M rows/s':>10}{'M rows/CPU s':>14}{'peak MB':>10}")
        for size in sizes:
            rows, seconds, cpu, memory = child(_CHILD, str(model), str(click_log_file(size)), str(output))
            found.append((rows, memory))
            print(f"{rows:>12,}{seconds:>10.2f}{rows / seconds / 1e6:>10.2f}{rows / cpu / 1e6:>14.2f}{memory:>10.0f}")
    if len(found) > 1:
        (few, low), (many, high) = found[-2], found[-1]
        print(f"memory from 10 M to 100 M rows, at this slope: {90e6 * (high - low) / (many - few):+.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[3e6, 10e6, 30e6])
    print(machine())
    main([int(size) for size in parser.parse_args().rows])
