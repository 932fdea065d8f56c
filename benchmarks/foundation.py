"""Sketching and predicting against scikit-learn's isotonic regression; start-up; memory against rows."""

import subprocess
import sys

import numpy as np
from sklearn.isotonic import IsotonicRegression

import mcnet
from benchmarks import report
from benchmarks.measure import best_time, child, click_log, click_log_file, in_turn

_SCAN = """
import json, sys, time
import mcnet
from benchmarks.measure import peak_memory
begin = time.perf_counter()
sketch = mcnet.scan(sys.argv[1], score="score", label="label", field="country")
seconds = time.perf_counter() - begin
print(json.dumps({"seconds": seconds, "memory": peak_memory()}))
"""


def sketching(rows: int) -> None:
    path = click_log_file(rows)
    scores, labels, _ = click_log(rows)
    times = in_turn(
        {
            "scan": lambda: mcnet.scan(path, score="score", label="label", field="country"),
            "isotonic": lambda: IsotonicRegression(out_of_bounds="clip").fit(scores, labels),
        },
        repeats=2,
    )
    ratio = times["isotonic"] / times["scan"]
    print(f"sketch of {rows:,} rows from Parquet with a field   {times['scan']:7.2f} s")
    print(
        f"scikit-learn isotonic fit, same rows in memory     {times['isotonic']:7.2f} s   sketch is {ratio:.1f}× faster"
    )


def memory(small: int, large: int) -> None:
    found = {rows: child(_SCAN, str(click_log_file(rows))) for rows in (small, large)}
    for rows, measured in found.items():
        print(f"scan of {rows:>11,} rows   peak {measured['memory']:6.0f} MB   {measured['seconds']:6.1f} s")
    print(f"growth {found[large]['memory'] - found[small]['memory']:+.0f} MB")


def predicting(rows: int) -> None:
    scores, labels, codes = click_log(rows)
    fitted = mcnet.PlattField().fit(scores[:1_000_000], labels[:1_000_000], field=codes[:1_000_000])
    peer = IsotonicRegression(out_of_bounds="clip").fit(scores[:1_000_000], labels[:1_000_000])
    fitted.predict(scores[:100_000], field=codes[:100_000])
    texts = np.array(["ES", "FR", "NL", "US"])[codes]
    named = mcnet.PlattField().fit(scores[:1_000_000], labels[:1_000_000], field=texts[:1_000_000])
    times = in_turn(
        {
            "predict, field as whole numbers": lambda: fitted.predict(scores, field=codes),
            "scikit-learn isotonic, no field": lambda: peer.predict(scores),
        }
    )
    times["predict, field as texts"] = best_time(lambda: named.predict(scores, field=texts), 1)
    for name, seconds in times.items():
        ratio = times["scikit-learn isotonic, no field"] / seconds
        print(f"{name:<34}{seconds / rows * 1e9:7.1f} ns per row   {ratio:5.1f}×")
    one = [float(scores[0])]
    field = [0]
    seconds = best_time(lambda: [fitted.predict(one, field=field) for _ in range(1000)]) / 1000
    peer_seconds = best_time(lambda: [peer.predict(one) for _ in range(1000)]) / 1000
    scalar = best_time(lambda: [fitted.predict_one(one[0], 0) for _ in range(1000)]) / 1000
    print(f"one row: predict {seconds * 1e6:.1f} µs, predict_one {scalar * 1e6:.1f} µs; ", end="")
    print(f"scikit-learn {peer_seconds * 1e6:.1f} µs")


def starting() -> None:
    begin = "import time; begin = time.perf_counter(); import mcnet; print(time.perf_counter() - begin)"
    times = [
        float(subprocess.run([sys.executable, "-c", begin], capture_output=True, check=True).stdout) for _ in range(3)
    ]
    print(f"import mcnet: {min(times) * 1e3:.0f} ms")


def tables(full: bool) -> None:
    print("== sketching ==")
    sketching(20_000_000)
    print("== memory of a scan ==")
    memory(10_000_000, 100_000_000 if full else 30_000_000)
    print("== predicting ==")
    predicting(10_000_000)
    print("== starting ==")
    starting()


def main(full: bool = False) -> None:
    title = "Sketching, predicting, starting (wall time, all cores)"
    report.keep_printed("foundation", title, lambda: tables(full), full)


if __name__ == "__main__":
    tables("--full" in sys.argv)
