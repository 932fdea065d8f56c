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
    times, work = found["times"], found["work"]
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
        ]
    )
    print(text)
    report.keep("engines", text, full, {"rows": rows, **found})


if __name__ == "__main__":
    main(full=False)
