"""The evaluator of `pyspark.ml`: any metric of mcnet, for `CrossValidator` and `TrainValidationSplit`."""

from collections.abc import Sequence
from typing import Any

from pyspark import keyword_only
from pyspark.ml.evaluation import Evaluator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from mcnet.metrics.registry import find_metric
from mcnet.spark.evaluation import evaluate

__all__ = ["CalibrationEvaluator"]


class CalibrationEvaluator(Evaluator, DefaultParamsReadable, DefaultParamsWritable):
    """Judge probabilities by a metric of mcnet, such as log-loss (the default), F-RCE or AUC.

    A metric that is best at 1, such as PCOC, counts by its distance from 1.

    Parameters
    ----------
    metricName : a metric of `mcnet.metrics`, such as "log_loss", "f_rce" or "auc".
    probabilityCol, labelCol, weightCol : columns.
    fieldCols : the fields to judge inside of.
    """

    metricName: Any = Param(Params._dummy(), "metricName", "metric", typeConverter=TypeConverters.toString)
    probabilityCol: Any = Param(Params._dummy(), "probabilityCol", "column", typeConverter=TypeConverters.toString)
    labelCol: Any = Param(Params._dummy(), "labelCol", "column of labels", typeConverter=TypeConverters.toString)
    weightCol: Any = Param(Params._dummy(), "weightCol", "column of weights", typeConverter=TypeConverters.toString)
    fieldCols: Any = Param(Params._dummy(), "fieldCols", "fields", typeConverter=TypeConverters.toListString)

    @keyword_only
    def __init__(
        self,
        *,
        metricName: str = "log_loss",
        probabilityCol: str = "calibrated",
        labelCol: str = "label",
        weightCol: str | None = None,
        fieldCols: Sequence[str] = (),
    ) -> None:
        """Set the parameters that are given."""
        super().__init__()
        self._setDefault(metricName="log_loss", probabilityCol="calibrated", labelCol="label", fieldCols=[])
        self._set(**{name: value for name, value in self._input_kwargs.items() if value is not None})

    def _evaluate(self, dataset: DataFrame) -> float:
        metric = find_metric(self.getOrDefault(self.metricName))
        found = evaluate(
            dataset,
            probability=self.getOrDefault(self.probabilityCol),
            label=self.getOrDefault(self.labelCol),
            weight=self.getOrDefault(self.weightCol) if self.isDefined(self.weightCol) else None,
            field=self.getOrDefault(self.fieldCols) or None,
        )
        value = float(found.estimates[metric.name].value)
        return abs(value - 1.0) if metric.better == "one" else value

    def isLargerBetter(self) -> bool:
        """Tell whether a larger value of the metric is a better one."""
        return find_metric(self.getOrDefault(self.metricName)).better == "higher"
