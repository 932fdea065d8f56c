"""What the pictures show of a calibrator and a sketch, worked out as plain numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.curves.model import CalibrationModel
from mcnet.errors import NotSupportedError
from mcnet.figures.curves import Line, Points
from mcnet.metrics.binned import Reliability, equal_mass_bins, reliability
from mcnet.metrics.intervals import wilson
from mcnet.metrics.sums import group_sums
from mcnet.rows.columns import FloatArray, logit, sigmoid
from mcnet.sketch.sketch import Sketch

__all__ = ["fitted_model", "prepare_lines", "prepare_points", "prepare_reliability", "score_span"]

POOLED = "pooled"
_LINE_POINTS = 160
_TAIL = 0.0005


def fitted_model(calibrator: Any) -> CalibrationModel:
    """Return the model of a fitted calibrator, or the model itself."""
    model: CalibrationModel = getattr(calibrator, "model_", calibrator)
    return model


def prepare_reliability(
    probabilities: FloatArray, sketch: Sketch, cells: NDArray[np.intp] | None = None, *, bins: int = 20
) -> Reliability:
    """Return the reliability table of one probability a cell, over all cells or those given.

    Bins have equal mass; where positives are few there are fewer bins, so that each has some.
    """
    chosen = slice(None) if cells is None else cells
    rate, weight = sketch.rate[chosen], sketch.weight[chosen]
    enough = max(3, int(np.sqrt(float((rate * weight).sum()))))
    return reliability(probabilities[chosen], rate, weight, bins=min(bins, enough))


def prepare_points(sketch: Sketch, cells: NDArray[np.intp] | None = None, *, groups: int = 40) -> Points:
    """Return the observed rate, with Wilson's interval, of neighbouring cells in groups of equal mass."""
    chosen = slice(None) if cells is None else cells
    score, rate, weight = sketch.score[chosen], sketch.rate[chosen], sketch.weight[chosen]
    enough = max(3, int(np.sqrt(float((rate * weight).sum()))))
    sums = group_sums(score, rate, equal_mass_bins(score, weight, min(groups, enough)), weight)
    low, high = wilson(sums.positives, sums.weight)
    return Points(sums.predicted / sums.weight, sums.positives / sums.weight, low, high, sums.weight)


def score_span(score: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the scores between which all but a thousandth of the weight lies."""
    order = np.argsort(score)
    mass = np.cumsum(weight[order])
    first, last = np.searchsorted(mass, mass[-1] * np.array([_TAIL, 1.0 - _TAIL]))
    return float(score[order[first]]), float(score[order[min(last, len(order) - 1)]])


def prepare_lines(
    calibrator: Any, curves: Sequence[int], between: tuple[float, float], *, bands: bool = True
) -> list[Line]:
    """Return some curves of a calibrator between two scores: 0 is the pooled one, i + 1 that of context i.

    A calibrator that has `interval(scores, field=…)` gets bands of it.
    """
    model = fitted_model(calibrator)
    low, high = logit(np.array(between))
    scores = sigmoid(np.linspace(low, high, _LINE_POINTS)) if high > low else np.array([between[0]])
    labels = model.contexts.labels()
    lines = []
    for curve in curves:
        codes = np.full(len(scores), curve - 1, dtype=np.int32)
        probability = model.predict(scores, codes=codes) if model.fields else model.predict(scores)
        band = _band(calibrator, model, scores, codes) if bands else (None, None)
        lines.append(Line(labels[curve - 1] if curve else POOLED, scores, probability, *band))
    return lines


def _band(
    calibrator: Any, model: CalibrationModel, scores: FloatArray, codes: NDArray[np.int32]
) -> tuple[FloatArray | None, FloatArray | None]:
    interval = getattr(calibrator, "interval", None)
    # The pooled curve of a model with fields stands for no field value that could be asked for.
    if interval is None or (model.fields and codes[0] < 0):
        return None, None
    try:
        low, high = interval(scores, field=model.contexts.columns(codes) if model.fields else None)
    except NotSupportedError:
        return None, None
    return low, high
