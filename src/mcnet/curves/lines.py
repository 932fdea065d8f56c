"""Lines to look at: some curves of a model at many scores, with bands where the calibrator has them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcnet.errors import InputError, NotSupportedError
from mcnet.figures.curves import Line, draw_curves
from mcnet.figures.style import as_plotly
from mcnet.rows.columns import FloatArray, logit, sigmoid
from mcnet.rows.fields import field_columns

if TYPE_CHECKING:
    from mcnet.curves.model import CalibrationModel

__all__ = ["curve_of", "fitted_model", "plot_lines", "prepare_lines"]

POOLED = "pooled"
_LINE_POINTS = 160
_SHOWN = 7


def fitted_model(calibrator: Any) -> "CalibrationModel":
    """Return the model of a fitted calibrator, or the model itself."""
    model: CalibrationModel = getattr(calibrator, "model_", calibrator)
    return model


def curve_of(model: "CalibrationModel", field: Any) -> int:
    """Return the number of the curve of a field value ({name: value} with several fields); 0 is the pooled one.

    Only an unseen value has the pooled curve in a model with fields.
    """
    if not model.fields:
        return 0
    values = field if isinstance(field, Mapping) else {model.fields[0]: field}
    if set(values) < set(model.fields):
        raise InputError(f"field is {field!r}; this model needs a value of each of {', '.join(model.fields)}")
    return int(model.contexts.lookup(field_columns({name: [values[name]] for name in model.fields}))[0]) + 1


def prepare_lines(
    calibrator: Any, curves: Sequence[int], between: tuple[float, float], *, bands: bool = True
) -> list[Line]:
    """Return some curves of a calibrator between two scores: 0 is the pooled one, i + 1 that of context i.

    A calibrator that has `interval(scores, field=…)` gets bands of it.
    """
    model = fitted_model(calibrator)
    low, high = logit(np.array(between))
    scores = sigmoid(np.linspace(low, high, _LINE_POINTS)) if high > low else np.array([between[0]])
    # A pooled curve borrows the label of the last context, and does not show it.
    labels = model.contexts.subset(np.array(curves, dtype=np.int32) - 1).labels()
    lines = []
    for curve, label in zip(curves, labels, strict=True):
        codes = np.full(len(scores), curve - 1, dtype=np.int32)
        probability = model.predict(scores, codes=codes) if model.fields else model.predict(scores)
        band = _band(calibrator, model, scores, codes) if bands else (None, None)
        lines.append(Line(label if curve else POOLED, scores, probability, *band))
    return lines


def _band(
    calibrator: Any, model: "CalibrationModel", scores: FloatArray, codes: NDArray[np.int32]
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


def plot_lines(calibrator: Any, field: Any = None) -> Any:
    """Show the pooled curve and the first few contexts' as a Plotly figure, or the curve of one field value."""
    model = fitted_model(calibrator)
    curves = range(min(len(model.curves), 1 + _SHOWN)) if field is None else [curve_of(model, field)]
    between = (model.provenance.get("lowest_score", 0.001), model.provenance.get("highest_score", 0.999))
    return as_plotly(draw_curves(prepare_lines(calibrator, curves, between, bands=len(curves) == 1)))
