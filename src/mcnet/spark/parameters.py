"""The parameters that the estimator and its model share, in the manner of `pyspark.ml`."""

from collections.abc import Sequence
from typing import Any

from pyspark.ml.param import Param, Params, TypeConverters

__all__ = ["CalibrationParams"]


def _parameter(name: str, doc: str, converter: Any) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=converter)


class CalibrationParams(Params):
    """Names of columns, and what their scores are."""

    scoreCol = _parameter("scoreCol", "column of scores; of a vector, class 1", TypeConverters.toString)
    fieldCols = _parameter("fieldCols", "field columns", TypeConverters.toListString)
    outputCol = _parameter("outputCol", "column of calibrated probabilities", TypeConverters.toString)
    scoreType = _parameter("scoreType", "what the scores are: probability or logit", TypeConverters.toString)

    def __init__(self) -> None:
        """Set the defaults."""
        super().__init__()
        self._setDefault(scoreCol="probability", fieldCols=[], outputCol="calibrated", scoreType="probability")

    def getScoreCol(self) -> str:
        """Return the column of scores."""
        found: str = self.getOrDefault(self.scoreCol)
        return found

    def setScoreCol(self, value: str) -> Any:
        """Set the column of scores."""
        return self._set(scoreCol=value)

    def getFieldCols(self) -> list[str]:
        """Return the field columns."""
        found: list[str] = self.getOrDefault(self.fieldCols)
        return found

    def setFieldCols(self, value: Sequence[str]) -> Any:
        """Set the field columns."""
        return self._set(fieldCols=list(value))

    def getOutputCol(self) -> str:
        """Return the column of calibrated probabilities."""
        found: str = self.getOrDefault(self.outputCol)
        return found

    def setOutputCol(self, value: str) -> Any:
        """Set the column of calibrated probabilities."""
        return self._set(outputCol=value)

    def getScoreType(self) -> str:
        """Return what the scores are."""
        found: str = self.getOrDefault(self.scoreType)
        return found

    def setScoreType(self, value: str) -> Any:
        """Set what the scores are: probability or logit."""
        return self._set(scoreType=value)
