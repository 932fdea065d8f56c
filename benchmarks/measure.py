"""Timing and memory, measured the same way by every benchmark."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / ".data"


def best_time(function: Callable[[], Any], repeats: int = 3) -> float:
    """Return the shortest wall time in seconds: what else the machine does only ever adds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def in_turn(functions: dict[str, Callable[[], Any]], repeats: int = 3) -> dict[str, float]:
    """Return the shortest time of each, run in turn so that a busy moment strikes all alike."""
    times: dict[str, float] = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            times[name] = min(times[name], best_time(function, 1))
    return times


def cpu_time(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the least CPU seconds of all threads, and the last result; other work on the machine does not count."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        best = min(best, time.process_time() - begin)
    return best, result


def warm_up() -> None:
    """Fit and predict a little, so that imports and compilers are paid for before any clock starts."""
    import mcnet

    scores, labels, codes = click_log(200_000)
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=codes)
    fitted.predict(scores, field=codes)


def child(code: str, *arguments: str) -> dict[str, Any]:
    """Run Python code in a process of its own; return what it printed as JSON."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory() -> float:
    """Return the peak memory of this process in MB."""
    # Not getrusage: its peak is inherited from the process that started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell the peak memory of a process")


def click_log(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores around 2 %, clicks, and the codes of four field values of very different size."""
    generator = np.random.default_rng(seed)
    scores = 1.0 / (1.0 + np.exp(4.0 - 1.1 * generator.standard_normal(rows)))
    labels = (generator.random(rows) < 0.85 * scores).astype(np.int8)
    codes = np.searchsorted([0.916, 0.94, 0.989], generator.random(rows)).astype(np.int32)
    return scores, labels, codes


def click_log_file(rows: int) -> Path:
    """Return a Parquet file of `click_log`, written once and in pieces."""
    import polars as pl

    path = DATA / f"log-{rows}.parquet"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        parts = []
        for start in range(0, rows, 10_000_000):
            scores, labels, codes = click_log(min(10_000_000, rows - start), seed=start)
            country = pl.Series(["ES", "FR", "NL", "US"]).gather(codes)
            parts.append(pl.DataFrame({"score": scores, "label": labels, "country": country}).lazy())
        pl.concat(parts).sink_parquet(path)
    return path


def machine(load: bool = True) -> str:
    """Return one line on the machine and the versions that matter."""
    import polars
    import sklearn

    import mcnet

    busy = f"load {os.getloadavg()[0]:.1f}, " if load else ""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {busy}Python {platform.python_version()}, "
        f"NumPy {np.__version__}, Polars {polars.__version__}, scikit-learn {sklearn.__version__}, "
        f"mcnet {mcnet.__version__}"
    )
