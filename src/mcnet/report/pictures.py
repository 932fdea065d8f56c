"""Figures for a notebook: each function returns a Plotly figure."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mcnet.data.fields import field_columns
from mcnet.errors import InputError
from mcnet.model.drawing import prepare_lines
from mcnet.plots.curves import draw_curves
from mcnet.plots.drift import Drift, draw_drift
from mcnet.plots.forest import Forest, draw_forest
from mcnet.plots.histogram import Masses, draw_histogram
from mcnet.plots.reliability import ReliabilityTable, draw_reliability
from mcnet.plots.style import as_plotly
from mcnet.report.preparation import prepare_points, score_span
from mcnet.sketch.sketch import Sketch

__all__ = ["plot_curves", "plot_drift", "plot_forest", "plot_histogram", "plot_reliability"]


def plot_curves(calibrator: Any, sketch: Sketch, field: Any = None) -> Any:
    """Show a curve of a calibrator over the rows of a sketch, with the band if the calibrator has one.

    Parameters
    ----------
    calibrator : a fitted calibrator or a loaded model.
    sketch : the rows.
    field : whose curve: a value, or {name: value} with several fields; None for the pooled curve over all rows.

    Returns
    -------
    figure : of Plotly.

    >>> from mcnet.calibrators.platt import Platt
    >>> sketch = Sketch.from_rows([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> [trace.name for trace in plot_curves(Platt().fit_sketch(sketch), sketch).data][:2]
    ['pooled', 'observed rate']
    """
    cells, contexts = np.arange(len(sketch)), None
    if field is not None:
        values = field if isinstance(field, Mapping) else dict.fromkeys(sketch.contexts.names[:1], field)
        context = sketch.contexts.lookup(field_columns({name: [value] for name, value in values.items()}))
        if context[0] < 0:
            raise InputError(f"the sketch has no rows of {values}; leave field out for the pooled curve")
        cells, contexts = np.flatnonzero(sketch.context == context[0]), sketch.contexts.subset(context)
    between = score_span(sketch.score[cells], sketch.weight[cells])
    return as_plotly(draw_curves(prepare_lines(calibrator, contexts, between), prepare_points(sketch, cells)))


def plot_reliability(tables: Mapping[str, ReliabilityTable]) -> Any:
    """Show one or two reliability tables, for example {"before": …, "after": …}."""
    return as_plotly(draw_reliability(tables))


def plot_forest(forest: Forest, *, limit: int = 30) -> Any:
    """Show the PCOC of the `limit` field values with the largest impact."""
    return as_plotly(draw_forest(forest, limit=limit))


def plot_histogram(masses: Masses) -> Any:
    """Show the distribution of scores."""
    return as_plotly(draw_histogram(masses))


def plot_drift(drift: Drift) -> Any:
    """Show PCOC per period."""
    return as_plotly(draw_drift(drift))
