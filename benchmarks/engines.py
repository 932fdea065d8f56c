"""Engines that have the rows: sketching in Spark, against Spark's own group-by of the same file."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mcnet
from benchmarks import report
from benchmarks.measure import DATA, click_log_file, in_turn, machine, peak_memory
from mcnet.spark import sketch

ROWS = 50_000_000
COLUMNS = {"score": "score", "label": "label", "field": "country"}


@contextlib.contextmanager
def local_spark(more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Run Spark on two cores of this machine, with more settings if there are any."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.local.dir": str(DATA / "spark"),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in (settings | dict(more or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def stages_of(spark: Any, work: Callable[[], Any]) -> dict[str, float]:
    """Return the CPU seconds of the JVM's tasks and the bytes they shuffled, of one piece of work."""
    context = spark.sparkContext
    group = f"measured {id(work)}"
    context.setJobGroup(group, group)
    work()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [store.lastStageAttempt(stage) for stage in sorted({s for job in jobs if job for s in job.stageIds})]
    return {
        "cpu": sum(stage.executorCpuTime() for stage in stages) / 1e9,
        "shuffled": sum(stage.shuffleWriteBytes() for stage in stages),
    }


def plain(df: Any) -> None:
    """Let Spark group by the field, as it does for everybody."""
    from pyspark.sql import functions as F

    df.groupBy("country").agg(F.count("*"), F.sum("label"), F.sum("score")).collect()


def by_logit(df: Any) -> None:
    """Let Spark group by the field and the logit in as many cells as a sketch has, without deciding edges."""
    from pyspark.sql import functions as F

    cell = F.floor(512 * F.ln(F.col("score") / (1 - F.col("score"))))
    df.groupBy("country", cell).agg(F.count("*"), F.sum("label"), F.sum("score")).toArrow()


def sketching(spark: Any, log: Path, repeats: int) -> dict[str, Any]:
    df = spark.read.parquet(str(log))
    works = {"plain": lambda: plain(df), "logit": lambda: by_logit(df), "sketch": lambda: sketch(df, **COLUMNS)}
    times = in_turn(works, repeats)
    return {"times": times, "work": {name: stages_of(spark, one) for name, one in works.items()}}


GROWTH = ((2, 16), (16, 16), (128, 16), (128, 128), (128, 200))
"""Partitions that are read, and partitions that are shuffled."""

ONE_FILE = {"spark.shuffle.sort.bypassMergeThreshold": "1"}
"""Lets every task write one file, whatever the number of partitions that are shuffled."""


def growing(spark: Any, log: Path) -> dict[tuple[int, int], dict[str, float]]:
    """Return the times of a sketch and of the group-by, by the number of partitions that are read and shuffled."""
    times = {}
    for read, shuffled in GROWTH:
        spark.conf.set("spark.sql.shuffle.partitions", str(shuffled))
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(max(log.stat().st_size // read, 1 << 20)))
        df = spark.read.parquet(str(log))
        works = {"sketch": lambda df=df: sketch(df, **COLUMNS), "plain": lambda df=df: plain(df)}
        times[read, shuffled] = in_turn(works, 2)
    spark.conf.unset("spark.sql.shuffle.partitions")
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    return times


def main(full: bool) -> None:
    """Measure, print, and keep the section of the page."""
    rows, repeats = (ROWS, 3) if full else (ROWS // 10, 3)
    log, tenth = click_log_file(rows), click_log_file(rows // 10)
    expected = mcnet.scan(log, **COLUMNS)
    with local_spark() as spark:
        small = sketch(spark.read.parquet(str(tenth)), **COLUMNS)
        before = peak_memory()
        found = sketching(spark, log, repeats)
        equal = sketch(spark.read.parquet(str(log)), **COLUMNS) == expected
        after = peak_memory()
        partitions = growing(spark, log)
    with local_spark(ONE_FILE) as spark:
        in_one_file = growing(spark, log)
    times, work = found["times"], found["work"]
    runs = (partitions, in_one_file)
    names = {
        "plain": "group by country: count, sum of labels, sum of scores",
        "logit": "group by country and floor(512 · logit)",
        "sketch": "sketch",
    }
    lines = [[name, report.seconds(times[key]), f"{times[key] / times['plain']:.2f}"] for key, name in names.items()]
    text = "\n\n".join(
        [
            f"## Engines: sketching in Spark\n\n{rows:,} rows in one Parquet file, one field of 4 values, `local[2]`, "
            f"the shortest of {repeats}. {machine(load=False)}.",
            report.table(["work", "time", "ratio"], lines),
            f"The sketch is {'equal' if equal else '**not equal**'} to that of `mcnet.scan`, bit for bit: "
            f"{len(expected):,} cells. CPU of the tasks: {work['plain']['cpu']:.1f} s for the group-by, "
            f"{work['logit']['cpu']:.1f} s with the logit, "
            f"{work['sketch']['cpu']:.1f} s for the sketch, that is {rows / work['sketch']['cpu'] / 1e6:.1f} M rows "
            f"per second and core. Shuffled: {report.size(work['sketch']['shuffled'])}, "
            f"{work['sketch']['shuffled'] / len(expected):.0f} bytes per cell.",
            f"The Python process of the driver grew by {after - before:.0f} MB from a sketch of {small.rows:,} rows to "
            f"one of {rows:,}.",
            report.table(
                ["partitions read", "shuffled", "sketch", "group-by", "sketch in one file", "group-by in one file"],
                [
                    [*map(str, case), *(report.seconds(run[case][w]) for run in runs for w in ("sketch", "plain"))]
                    for case in GROWTH
                ],
            ),
            "Up to 200 shuffled partitions, every task writes a file for each that it has cells for, and their product "
            "is what costs time. *In one file* is with `spark.shuffle.sort.bypassMergeThreshold` set to 1 when Spark "
            "was started.",
        ]
    )
    print(text)
    kept = [{f"{read} × {shuffled}": time for (read, shuffled), time in run.items()} for run in runs]
    report.keep("engines", text, full, {"rows": rows, **found, "partitions": kept[0], "in_one_file": kept[1]})


if __name__ == "__main__":
    main(full=False)
