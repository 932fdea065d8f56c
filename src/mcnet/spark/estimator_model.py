"""The fitted stage of `pyspark.ml`: applies a model of mcnet, and is saved and loaded by Spark."""

import json
from typing import Any, cast

from pyspark.ml import Model
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter
from pyspark.sql import DataFrame

from mcnet._shared.typing import ScoreType
from mcnet.errors import NotFittedError
from mcnet.model.file import model_document, parse_model
from mcnet.model.model import CalibrationModel
from mcnet.spark.applying import apply
from mcnet.spark.parameters import CalibrationParams

__all__ = ["CalibrationEstimatorModel"]


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
        text = json.dumps(model_document(self._stage.calibration), ensure_ascii=True, allow_nan=False)
        self.sparkSession.createDataFrame([(text,)], schema="value string").coalesce(1).write.text(f"{path}/model")


class _Reader(MLReader[Any]):
    """Loads what `_Writer` has saved."""

    def load(self, path: str) -> CalibrationEstimatorModel:
        """Load the stage; a model that does not match its checksum is refused."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        text = self.sparkSession.read.text(f"{path}/model").first()[0]
        stage = CalibrationEstimatorModel(parse_model(text, f"{path}/model"))
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        return stage
