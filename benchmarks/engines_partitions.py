"""How sketching in Spark grows with the partitions that are read and those that are shuffled."""

from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.engines import COLUMNS, ROWS, local_spark, plain
from benchmarks.measure import click_log_file, in_turn, machine
from mcnet.spark import sketch

CASES = ((2, 16), (16, 16), (128, 16), (128, 128), (128, 200))
"""Partitions that are read, and partitions that are shuffled."""

ONE_FILE = {"spark.shuffle.sort.bypassMergeThreshold": "1"}
"""Lets every task write one file, whatever the number of partitions that are shuffled."""


def growing(spark: Any, log: Path) -> dict[tuple[int, int], dict[str, float]]:
    """Return the times of a sketch and of the group-by, by the number of partitions that are read and shuffled."""
    times = {}
    for read, shuffled in CASES:
        spark.conf.set("spark.sql.shuffle.partitions", str(shuffled))
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(max(log.stat().st_size // read, 1 << 20)))
        df = spark.read.parquet(str(log))
        works = {"sketch": lambda df=df: sketch(df, **COLUMNS), "plain": lambda df=df: plain(df)}
        times[read, shuffled] = in_turn(works, 2)
    return times


def main(full: bool) -> None:
    """Measure, print, and keep the section of the page."""
    rows = ROWS if full else ROWS // 10
    log, runs = click_log_file(rows), []
    for settings in ({}, ONE_FILE):
        with local_spark(settings) as spark:
            sketch(spark.read.parquet(str(log)), **COLUMNS)  # what is compiled once
            runs.append(growing(spark, log))
    lines = [
        [*map(str, case), *(report.seconds(run[case][work]) for run in runs for work in ("sketch", "plain"))]
        for case in CASES
    ]
    text = "\n\n".join(
        [
            f"## Engines: partitions in Spark\n\n{rows:,} rows in one Parquet file, one field of 4 values, `local[2]`, "
            f"the shortest of 2. {machine(load=False)}.",
            report.table(
                ["partitions read", "shuffled", "sketch", "group-by", "sketch in one file", "group-by in one file"],
                lines,
            ),
            "Up to 200 shuffled partitions, every task writes a file for each that it has cells for, and their product "
            "is what costs time. *In one file* is with `spark.shuffle.sort.bypassMergeThreshold` set to 1 when Spark "
            "was started.",
        ]
    )
    print(text)
    kept = [{f"{read} × {shuffled}": time for (read, shuffled), time in run.items()} for run in runs]
    report.keep("engines_partitions", text, full, {"rows": rows, "default": kept[0], "in_one_file": kept[1]})


if __name__ == "__main__":
    main(full=False)
