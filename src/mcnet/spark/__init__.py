"""Calibration where the rows are: Spark tables, classic or through Spark Connect.

- `sketching`: a table to a `Sketch`, in Spark SQL expressions alone. `periods`: a sketch per period.
- `applying`: a model to a table, through Arrow or as an `expression`, with `piece_arrays`. `evaluation`: how good
  probabilities are.
- `streaming`: Structured Streaming into a journal, each micro-batch exactly once.
- `estimator`, `estimator_model`, `evaluator`: the same for pipelines of `pyspark.ml`; `parameters`: what they share.
- `tables`: what is asked of a Spark table before it is read.

Nothing here uses RDDs or a SparkContext, so that everything works through Spark Connect too.
"""

from mcnet._shared.extras import need_spark

need_spark("mcnet.spark")

from mcnet.spark.applying import apply  # noqa: E402
from mcnet.spark.estimator import CalibrationEstimator  # noqa: E402
from mcnet.spark.estimator_model import CalibrationEstimatorModel  # noqa: E402
from mcnet.spark.evaluation import evaluate  # noqa: E402
from mcnet.spark.evaluator import CalibrationEvaluator  # noqa: E402
from mcnet.spark.periods import journal  # noqa: E402
from mcnet.spark.sketching import sketch  # noqa: E402
from mcnet.spark.streaming import journal_writer  # noqa: E402

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
