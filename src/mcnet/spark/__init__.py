"""Calibration where the rows are: Spark tables, classic or through Spark Connect.

- `sketching`: a table to a `Sketch`, in Spark SQL expressions alone. `per_period`: a sketch per period, and Structured
  Streaming into a journal, each micro-batch exactly once.
- `applying`: a model to a table, through Arrow or as an expression.
- `pipeline`: the same for pipelines of `pyspark.ml`, and how good probabilities are.

Nothing here uses RDDs or a SparkContext, so that everything works through Spark Connect too.
"""

from mcnet._shared.messages import need_extra

need_extra("spark", "mcnet.spark")

from mcnet.spark.applying import apply  # noqa: E402
from mcnet.spark.per_period import journal_writer  # noqa: E402
from mcnet.spark.per_period import sketches_per_period as journal  # noqa: E402
from mcnet.spark.pipeline import (  # noqa: E402
    CalibrationEstimator,
    CalibrationEstimatorModel,
    CalibrationEvaluator,
    evaluate,
)
from mcnet.spark.sketching import sketch  # noqa: E402

__all__ = [
    "CalibrationEstimator",
    "CalibrationEstimatorModel",
    "CalibrationEvaluator",
    "apply",
    "evaluate",
    "journal",
    "journal_writer",
    "sketch",
]
