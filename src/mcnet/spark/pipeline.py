"""Stages of `pyspark.ml`: estimator, model and evaluator."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.evaluation import Evaluator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import DataFrame

from mcnet._shared.arrays import ScoreType
from mcnet.calibrators.methods import calibrator
from mcnet.errors import InputError, NotFittedError
from mcnet.metrics.evaluation import Evaluation, evaluate_cells
from mcnet.metrics.judged_rows import MetricSettings
from mcnet.metrics.metric import find_metric
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document, parse_model
from mcnet.spark.applying import apply
from mcnet.spark.sketching import sketch

# The parameters that the estimator and its model share, in the manner of `pyspark.ml`.


def _parameter(name: str, doc: str, converter: Any = TypeConverters.toString) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=converter)


class CalibrationParams(Params):
    """Names of columns, and what their scores are."""

    scoreCol = _parameter("scoreCol", "column of scores; of a vector, class 1")
    fieldCols = _parameter("fieldCols", "field columns", TypeConverters.toListString)
    outputCol = _parameter("outputCol", "column of calibrated probabilities")
    scoreType = _parameter("scoreType", "what the scores are: probability or logit")

    def __init__(self) -> None:
        """Set the defaults."""
        super().__init__()
        self._setDefault(scoreCol="probability", fieldCols=[], outputCol="calibrated", scoreType="probability")

    def getScoreCol(self) -> str:
        """Return the column of scores."""
        return str(self.getOrDefault(self.scoreCol))

    def setScoreCol(self, value: str) -> Any:
        """Set the column of scores."""
        return self._set(scoreCol=value)

    def getFieldCols(self) -> list[str]:
        """Return the field columns."""
        return list(self.getOrDefault(self.fieldCols))

    def setFieldCols(self, value: Sequence[str]) -> Any:
        """Set the field columns."""
        return self._set(fieldCols=list(value))

    def getOutputCol(self) -> str:
        """Return the column of calibrated probabilities."""
        return str(self.getOrDefault(self.outputCol))

    def setOutputCol(self, value: str) -> Any:
        """Set the column of calibrated probabilities."""
        return self._set(outputCol=value)

    def getScoreType(self) -> str:
        """Return what the scores are."""
        return str(self.getOrDefault(self.scoreType))

    def setScoreType(self, value: str) -> Any:
        """Set what the scores are: probability or logit."""
        return self._set(scoreType=value)


# The fitted stage of `pyspark.ml`: applies a model of mcnet, and is saved and loaded by Spark.


class CalibrationEstimatorModel(Model, CalibrationParams, MLReadable, MLWritable):
    """What `CalibrationEstimator.fit` returns; `calibration` is the model of mcnet that it applies."""

    def __init__(self, calibration: CalibrationModel | None = None) -> None:
        """Hold a model; without one, as when Spark loads it, the model comes after."""
        super().__init__()
        self._calibration = calibration

    @property
    def calibration(self) -> CalibrationModel:
        """Return the model: to save as JSON, to export, to serve."""
        if self._calibration is None:
            raise NotFittedError("this stage has no model yet; fit a CalibrationEstimator, or load a saved stage")
        return self._calibration

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return apply(
            dataset,
            self.calibration,
            score=self.getScoreCol(),
            column=self.getOutputCol(),
            score_type=cast(ScoreType, self.getScoreType()),
        )

    def write(self) -> MLWriter:
        """Return what saves this stage."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        """Return what loads such a stage."""
        return _Reader()


class _Writer(MLWriter):
    """Saves the parameters as Spark does, and the model as its JSON document beside them."""

    def __init__(self, stage: CalibrationEstimatorModel) -> None:
        super().__init__()
        self._stage = stage

    def saveImpl(self, path: str) -> None:
        """Save the stage."""
        DefaultParamsWriter.saveMetadata(self._stage, path, self.sparkSession)
        string = json.dumps(model_document(self._stage.calibration), ensure_ascii=True, allow_nan=False)
        self.sparkSession.createDataFrame([(string,)], schema="value string").coalesce(1).write.text(f"{path}/model")


class _Reader(MLReader[Any]):
    """Loads what `_Writer` has saved."""

    def load(self, path: str) -> CalibrationEstimatorModel:
        """Load the stage; a model that does not match its checksum is refused."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        string = self.sparkSession.read.text(f"{path}/model").first()[0]
        stage = CalibrationEstimatorModel(parse_model(string, f"{path}/model"))
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        return stage


# The estimator of `pyspark.ml`: a sketch made by Spark, a fit on the driver in seconds.


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

    labelCol = _parameter("labelCol", "column of labels")
    weightCol = _parameter("weightCol", "column of weights")
    method = _parameter("method", "one of mcnet.methods()")
    methodParams = _parameter("methodParams", "parameters of the method, as JSON")
    negativesKept = _parameter("negativesKept", "fraction of negatives kept", TypeConverters.toFloat)

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

    def setParams(self, **given: Any) -> "CalibrationEstimator":
        """Set parameters by their names, as the constructor takes them."""
        given = {name: value for name, value in given.items() if value is not None}
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
        string = self.getOrDefault(self.methodParams)
        try:
            result = json.loads(string)
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise InputError(f'methodParams is {string!r}; it must be a JSON object such as {{"bins": 10}}')
        return result


# Evaluate probabilities in a Spark table, from a sketch of them.


def evaluate(
    df: DataFrame,
    *,
    probability: str = "calibrated",
    label: str = "label",
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    negatives_kept: float = 1.0,
    **settings: Any,
) -> Evaluation:
    """Measure how well the probabilities in a Spark table agree with its labels, overall and inside every field.

    Spark makes a sketch of the probabilities, and the metrics are computed from it. Rows whose probabilities are closer
    than 1/512 in logit share a cell: they count as ties in AUC, and count with their mean probability.

    Parameters
    ----------
    df : the rows.
    probability, label, weight : names of columns.
    field : the name of a field column, or a list of names.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    settings : those of `mcnet.evaluate`: epsilon, level, bins …

    Returns
    -------
    Evaluation
        As `mcnet.evaluate` gives for rows in memory.
    """
    chosen = MetricSettings(**settings)  # refused before Spark works
    rows = sketch(df, score=probability, label=label, field=field, weight=weight, negatives_kept=negatives_kept)
    return evaluate_cells(rows.score, rows, chosen).compute_all()


# The evaluator of `pyspark.ml`: any metric of mcnet, for `CrossValidator` and `TrainValidationSplit`.


class CalibrationEvaluator(Evaluator, DefaultParamsReadable, DefaultParamsWritable):
    """Judge probabilities by a metric of mcnet, such as log-loss (the default), F-RCE or AUC.

    A metric that is best at 1, such as PCOC, counts by its distance from 1.

    Parameters
    ----------
    metricName : a metric of `mcnet.metrics`, such as "log_loss", "f_rce" or "auc".
    probabilityCol, labelCol, weightCol : columns.
    fieldCols : the fields to judge inside of.
    """

    metricName = _parameter("metricName", "metric")
    probabilityCol = _parameter("probabilityCol", "column")
    labelCol = _parameter("labelCol", "column of labels")
    weightCol = _parameter("weightCol", "column of weights")
    fieldCols = _parameter("fieldCols", "fields", TypeConverters.toListString)

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
        result = evaluate(
            dataset,
            probability=self.getOrDefault(self.probabilityCol),
            label=self.getOrDefault(self.labelCol),
            weight=self.getOrDefault(self.weightCol) if self.isDefined(self.weightCol) else None,
            field=self.getOrDefault(self.fieldCols) or None,
        )
        value = float(result.estimates[metric.name].value)
        return abs(value - 1.0) if metric.better == "one" else value

    def isLargerBetter(self) -> bool:
        """Tell whether a larger value of the metric is a better one."""
        return find_metric(self.getOrDefault(self.metricName)).better == "higher"
