"""Evaluate from a sketch: each cell is a row with a fractional label and the cell's weight."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Protocol

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.columns import check_total_weight
from mcnet.errors import InputError, NotSupportedError
from mcnet.metrics.evaluation import Evaluation, coded_fields, evaluate_columns
from mcnet.metrics.settings import MetricSettings
from mcnet.model.as_model import as_model
from mcnet.sketch.sketch import Sketch

__all__ = ["Predictor", "evaluate_cells", "evaluate_sketch", "predict_cells"]


class Predictor(Protocol):
    """Whatever turns scores into probabilities: a fitted calibrator or a loaded model."""

    def predict(self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None) -> FloatArray:
        """Return the probability of each score."""


def predict_cells(predictor: Predictor | str | PathLike[str], sketch: Sketch) -> FloatArray:
    """Return the calibrated probability of every cell, at its mean score."""
    if getattr(predictor, "needs_features", False):
        raise NotSupportedError("WithFeatures needs the features of rows, which a sketch does not keep; use evaluate")
    if not isinstance(sketch, Sketch):
        raise InputError(f"the rows are {type(sketch).__name__}; the calibrator comes first, then a sketch of the rows")
    model: Any = getattr(predictor, "model_", predictor)
    if not hasattr(model, "predict_cells"):
        model = as_model(predictor, "evaluated")
    found: FloatArray = model.predict_cells(sketch)
    return found


def evaluate_cells(
    probabilities: FloatArray,
    sketch: Sketch,
    settings: MetricSettings | None = None,
    *,
    by: Sequence[str] | None = None,
    within_folds: bool = False,
) -> Evaluation:
    """Evaluate one probability per cell against the labels of the cells.

    Parameters
    ----------
    probabilities : of each cell.
    sketch : the cells.
    settings : of the metrics.
    by : the fields to evaluate inside of; all those of the sketch if not given.
    within_folds : whether each fold was predicted by a fit on the other ones, see `evaluate_columns`.
    """
    columns = sketch.contexts.columns(sketch.context)
    fields = coded_fields([column for column in columns if by is None or column.name in by])
    folds = sketch.fold if within_folds else None
    found = evaluate_columns(probabilities, sketch.rate, sketch.weight, fields, folds=folds, settings=settings)
    return replace(found, rows=sketch.rows)


def evaluate_sketch(calibrator: Predictor | str | PathLike[str], sketch: Sketch, **settings: Any) -> Evaluation:
    """Evaluate a calibrator (or a loaded model) on the rows behind a sketch.

    AUC is within 1e-4 of that of the rows, since only rows of one cell, closer than 1/512 in logit, count as ties.

    Parameters
    ----------
    calibrator : a fitted calibrator, a loaded model, or the path of a model file.
    sketch : the rows to judge on, with the fields that the model needs.
    settings : those of `evaluate`: epsilon, level, bins …

    Returns
    -------
    Evaluation
        As `evaluate` gives for rows.
    """
    if isinstance(sketch, Sketch):
        check_total_weight(sketch.weight)
    return evaluate_cells(predict_cells(calibrator, sketch), sketch, MetricSettings(**settings))
