"""The estimator of `pyspark.ml`: a sketch made by Spark, a fit on the driver in seconds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyspark import keyword_only
from pyspark.ml import Estimator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from mcnet._shared.typing import ScoreType
from mcnet.calibrators.registry import calibrator
from mcnet.errors import InputError
from mcnet.spark.estimator_model import CalibrationEstimatorModel
from mcnet.spark.parameters import CalibrationParams
from mcnet.spark.sketching import sketch

__all__ = ["CalibrationEstimator"]


class CalibrationEstimator(Estimator, CalibrationParams, DefaultParamsReadable, DefaultParamsWritable):
    """Calibrate the scores of a stage before it, per field: `fit` gives a `CalibrationEstimatorModel`.

    Parameters
    ----------
    scoreCol : the column of scores. Of a vector, such as the `probability` of a classifier of Spark, the entry of
        class 1 is taken.
    labelCol, weightCol : the columns of labels and, if there is one, of weights.
    fieldCols : field columns.
    outputCol : the column that the model adds.
    method : one of `mcnet.methods()`.
    methodParams : the parameters of the method, as a mapping or as JSON.
    scoreType : "probability" or "logit".
    negativesKept : the fraction of negatives that survived down-sampling; they are weighted back.
    """

    labelCol: Any = Param(Params._dummy(), "labelCol", "column of labels", typeConverter=TypeConverters.toString)
    weightCol: Any = Param(Params._dummy(), "weightCol", "column of weights", typeConverter=TypeConverters.toString)
    method: Any = Param(Params._dummy(), "method", "one of mcnet.methods()", typeConverter=TypeConverters.toString)
    methodParams: Any = Param(
        Params._dummy(), "methodParams", "parameters of the method, as JSON", typeConverter=TypeConverters.toString
    )
    negativesKept: Any = Param(
        Params._dummy(), "negativesKept", "fraction of negatives kept", typeConverter=TypeConverters.toFloat
    )

    @keyword_only
    def __init__(
        self,
        *,
        scoreCol: str = "probability",
        labelCol: str = "label",
        fieldCols: Sequence[str] = (),
        weightCol: str | None = None,
        outputCol: str = "calibrated",
        method: str = "mcnet-bayes",
        methodParams: Mapping[str, Any] | str = "{}",
        scoreType: ScoreType = "probability",
        negativesKept: float = 1.0,
    ) -> None:
        """Set the parameters that are given."""
        super().__init__()
        self._setDefault(labelCol="label", method="mcnet-bayes", methodParams="{}", negativesKept=1.0)
        self.setParams(**self._input_kwargs)

    @keyword_only
    def setParams(
        self,
        *,
        scoreCol: str = "probability",
        labelCol: str = "label",
        fieldCols: Sequence[str] = (),
        weightCol: str | None = None,
        outputCol: str = "calibrated",
        method: str = "mcnet-bayes",
        methodParams: Mapping[str, Any] | str = "{}",
        scoreType: ScoreType = "probability",
        negativesKept: float = 1.0,
    ) -> "CalibrationEstimator":
        """Set the parameters that are given."""
        given = {name: value for name, value in self._input_kwargs.items() if value is not None}
        if isinstance(given.get("methodParams"), Mapping):
            given["methodParams"] = json.dumps(given["methodParams"])
        if isinstance(given.get("fieldCols"), str):
            given["fieldCols"] = [given["fieldCols"]]
        return cast("CalibrationEstimator", self._set(**given))

    def _fit(self, dataset: DataFrame) -> CalibrationEstimatorModel:
        unfitted = calibrator(self.getOrDefault(self.method), **self._method_parameters())
        rows = sketch(
            dataset,
            score=self.getScoreCol(),
            label=self.getOrDefault(self.labelCol),
            field=self.getFieldCols() or None,
            weight=self.getOrDefault(self.weightCol) if self.isDefined(self.weightCol) else None,
            score_type=cast(ScoreType, self.getScoreType()),
            negatives_kept=self.getOrDefault(self.negativesKept),
        )
        fitted = CalibrationEstimatorModel(unfitted.fit_sketch(rows).model_)
        return cast(CalibrationEstimatorModel, self._copyValues(fitted._resetUid(self.uid)))

    def _method_parameters(self) -> dict[str, Any]:
        text = self.getOrDefault(self.methodParams)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InputError(f'methodParams is {text!r}; it must be a JSON object such as {{"bins": 10}}')
        return found
