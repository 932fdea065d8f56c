"""Engines that have the rows: calibrating in Spark, against a pass that writes the same columns and a constant."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import mcnet
from benchmarks import report
from benchmarks.engines import COLUMNS, ROWS, local_spark
from benchmarks.measure import DATA, click_log_file, in_turn, machine
from mcnet.spark import apply


def written(df: Any, path: Path) -> None:
    df.write.mode("overwrite").parquet(str(path))


def scores_as_they_are() -> Any:
    """Return a function of Arrow columns that does nothing: what Spark takes to send rows to Python and back."""
    from pyspark.sql import functions as F

    def same(batches):
        for score, _ in batches:
            yield score

    same.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return F.arrow_udf(same, "double")


def applying(spark: Any, log: Path, model: Any, repeats: int) -> dict[str, float]:
    """Return the time of writing a log with a constant, and with probabilities made by `apply`."""
    from pyspark.sql import functions as F

    df, path = spark.read.parquet(str(log)), DATA / "spark-written"
    try:
        return in_turn(
            {
                "constant": lambda: written(df.withColumn("calibrated", F.lit(0.5)), path),
                "nothing": lambda: written(df.withColumn("calibrated", scores_as_they_are()("score", "country")), path),
                "apply": lambda: written(apply(df, model), path),
            },
            repeats,
        )
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main(full: bool) -> None:
    """Measure, print, and keep the section of the page."""
    rows, repeats = (ROWS, 2) if full else (ROWS // 10, 3)
    log = click_log_file(rows)
    model = mcnet.BayesMCNet().fit_sketch(mcnet.scan(log, **COLUMNS)).model_
    with local_spark() as spark:
        times = applying(spark, log, model, repeats)
    names = {
        "constant": "write the columns and a constant",
        "nothing": "write the columns and one that Python returns as it is",
        "apply": "write the columns, calibrated by `apply`",
    }
    lines = [[name, report.seconds(times[key]), f"{times[key] / times['constant']:.2f}"] for key, name in names.items()]
    text = "\n\n".join(
        [
            f"## Engines: calibrating in Spark\n\n{rows:,} rows in one Parquet file, one field of 4 values, "
            f"`local[2]`, the shortest of {repeats}. {machine(load=False)}.",
            report.table(["work", "time", "ratio"], lines),
        ]
    )
    print(text)
    report.keep("engines_apply", text, full, {"rows": rows, "times": times})


if __name__ == "__main__":
    main(full=False)
