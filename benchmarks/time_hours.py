"""A year of hourly periods with 4 field values, from a log file to a backtest of the tracker: time and memory."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from benchmarks import report
from mcnet.datasets.worlds import make_world

START = 1_735_689_600  # 2025-01-01: a journal refuses periods that lie in the future
HOURS, QUICK_HOURS = 8760, 1000
ROWS = 1_000
_RUN = """
import json, resource, sys, time
import mcnet

log, folder = sys.argv[1:]
said = []
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
begin, cpu = time.perf_counter(), time.process_time()
journal = mcnet.Journal(folder)
journal.add_files(log, score="score", label="label", field="field", time="ts", every="1h", resolution=64)
read = {"wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu, "peak": peak()}
begin, cpu = time.perf_counter(), time.process_time()
def progress(done, of):
    if done * 4 // of > (done - 1) * 4 // of:
        said.append(peak())
found = mcnet.backtest(journal, methods=[], progress=progress)
print(json.dumps({"read": read, "wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu, "peaks": said,
                  "loss": dict(found.summary.select("forecaster", "log_loss").iter_rows())}))
"""


def write_log(path: Path, hours: int) -> None:
    """Write a log of so many hours, in their order."""
    world, parts = make_world("slow", periods=hours, rows=ROWS, values=4), []
    for hour in range(hours):
        rows = world.period(hour)
        columns = {"score": rows.score, "label": rows.label, "field": rows.field}
        parts.append(pl.DataFrame(columns).with_columns(ts=pl.lit(START + hour * 3600)))
    pl.concat(parts).with_columns(pl.from_epoch("ts")).write_parquet(path)


def main(full: bool = False) -> None:
    hours = HOURS if full else QUICK_HOURS
    with tempfile.TemporaryDirectory() as home:
        log = Path(home) / "log.parquet"
        write_log(log, hours)
        words = [sys.executable, "-c", _RUN, str(log), str(Path(home) / "ads.db")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print("  ", found, flush=True)
    peaks = ", ".join(report.size(peak) for peak in found["peaks"])
    text = f"""## Time: a year of hours

{hours:,} hourly periods of {ROWS:,} rows with 4 field values, one process, one thread.

{
        report.table(
            ("step", "CPU", "wall", "per period (CPU)"),
            [
                [
                    "log file to journal",
                    f"{found['read']['cpu']:.0f} s",
                    f"{found['read']['wall']:.0f} s",
                    report.seconds(found["read"]["cpu"] / hours),
                ],
                [
                    "backtest of the tracker",
                    f"{found['cpu']:.0f} s",
                    f"{found['wall']:.0f} s",
                    report.seconds(found["cpu"] / hours),
                ],
            ],
        )
    }

Peak memory of the process: {report.size(found["read"]["peak"])} after the journal, then {
        peaks
    } after each quarter of the backtest.
"""
    report.keep("time_hours", text, full, found)


if __name__ == "__main__":
    main("--full" in sys.argv)
