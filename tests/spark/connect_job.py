"""A client of a Spark Connect server that it starts on loopback: `connect_job.py FOLDER`; prints what worked."""

import os
import sys
import warnings
from pathlib import Path

from tests.sketches import alike
from tests.spark.sessions import LOOPBACK, settings

os.environ |= LOOPBACK
warnings.simplefilter("ignore")
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

import mcnet  # noqa: E402
from mcnet.spark import CalibrationEstimator, CalibrationEstimatorModel, apply, evaluate, journal, sketch  # noqa: E402

folder = Path(sys.argv[1])
builder = SparkSession.builder.remote("local[2]")
for name, value in settings(folder).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert not hasattr(spark, "_jvm") or "connect" in type(spark).__module__
print("remote")

generator = np.random.default_rng(7)
scores = generator.beta(1.0, 9.0, 4_000)
rows = pl.DataFrame(
    {
        "score": scores,
        "label": (generator.random(4_000) < 0.5 * scores).astype(np.int64),
        "country": generator.choice(["NL", "FR", "DE"], 4_000),
        "day": generator.choice(["2026-11-15", "2026-11-16"], 4_000),
    }
)
names = {"score": "score", "label": "label", "field": "country"}
df = spark.createDataFrame(rows.to_arrow()).repartition(3)
expected = mcnet.scan(rows, **names)
assert alike(sketch(df, **names), expected)
print("sketch")
assert alike(sum(journal(df, time="day", every="1d", **names).values()), expected)
print("journal")
model = mcnet.PlattField().fit_sketch(expected).model_


def same(found, model=model):
    table = pl.from_arrow(found.toArrow())
    return np.array_equal(table["calibrated"], model.predict(table["score"], {"country": table["country"]}))


assert same(apply(df, model))
print("apply")
assert evaluate(df, probability="score", field="country").rows == 4_000
print("evaluate")
fitted = CalibrationEstimator(scoreCol="score", fieldCols=["country"], method="platt-field").fit(df)
fitted.save(str(folder / "stage"))
assert same(CalibrationEstimatorModel.load(str(folder / "stage")).transform(df), fitted.calibration)
print("estimator")
spark.stop()
