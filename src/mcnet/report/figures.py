"""The figures of the page: for each method and each view, reliability, curves, scores and drift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.terminal_text import count, counted, with_interval
from mcnet._shared.typing import CodeArray, FloatArray
from mcnet.data.contexts import Contexts
from mcnet.metrics.binned import equal_mass_bins
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import group_sums
from mcnet.model.drawing import fitted_model, prepare_lines
from mcnet.plots.curves import Line, draw_curves
from mcnet.plots.drift import draw_drift
from mcnet.plots.histogram import draw_histogram, prepare_histogram
from mcnet.plots.reliability import draw_reliability
from mcnet.plots.style import Spec
from mcnet.report.drift import drift_of, period_sums
from mcnet.report.preparation import prepare_points, prepare_reliability, score_span
from mcnet.report.views import View, unite
from mcnet.sketch.sketch import Sketch

__all__ = ["MethodFigures", "ReportRows", "mean_line"]

_SHOWN_CONTEXTS = 5
_MEAN_GROUPS = 40
_LINE_POINTS = 48
"""Enough for a smooth line; a page has hundreds of them."""


@dataclass(frozen=True)
class ReportRows:
    """The rows that the page shows, as sketches that share one list of contexts.

    `judged` are the rows to show before and after calibration, `fitted` those of the fit, `timelines` the periods of
    each figure over time. `judged_contexts` and so on give the context of each cell in `contexts`.
    """

    judged: Sketch
    fitted: Sketch
    timelines: Mapping[str, Mapping[str, Sketch]]
    contexts: Contexts
    judged_contexts: CodeArray
    fitted_contexts: CodeArray
    timeline_contexts: Mapping[str, list[CodeArray]]

    @staticmethod
    def of(judged: Sketch, fitted: Sketch, timelines: Mapping[str, Mapping[str, Sketch]]) -> "ReportRows":
        """Return the rows with the contexts of all of them."""
        parts = [part for periods in timelines.values() for part in periods.values()]
        contexts, places = unite([judged, fitted, *parts])
        left = iter(places[2:])
        by_timeline = {name: [next(left) for _ in periods] for name, periods in timelines.items()}
        return ReportRows(judged, fitted, timelines, contexts, places[0], places[1], by_timeline)


class MethodFigures:
    """The figures of one method, one view after the other."""

    def __init__(self, calibrator: Any, after: FloatArray, rows: ReportRows) -> None:
        """Take a fitted calibrator, or a model, and its probabilities of the cells of `rows.judged`."""
        self.calibrator, self.after, self.rows = calibrator, after, rows
        self.of_fitted = predict_cells(calibrator, rows.fitted)
        self.sums = {
            name: period_sums(calibrator, periods, rows.timeline_contexts[name], len(rows.contexts))
            for name, periods in rows.timelines.items()
        }

    def period_extremes(self) -> tuple[float, float] | None:
        """Return the lowest and the highest PCOC of a single period after calibration; of fresh rows, if there are."""
        for sums in self.sums.values():
            return drift_of(sums).extremes(1)
        return None

    def draw(self, view: View) -> dict[str, Any]:
        """Return the sentences and figures of a view."""
        judged = self.rows.judged
        cells = view.of(self.rows.judged_contexts, len(self.rows.contexts))
        columns = {"before": judged.score, "after": self.after}
        curves, explanation = self._curves(view, cells)
        figures = {
            "reliability": draw_reliability(
                {name: prepare_reliability(p, judged, cells) for name, p in columns.items()}
            ),
            "curves": curves,
            "histogram": draw_histogram(
                prepare_histogram({n: p[cells] for n, p in columns.items()}, judged.weight[cells])
            ),
        }
        for name, sums in self.sums.items():
            # Beside fresh rows, those of the fit are shown once, for all rows: half of the page would be theirs.
            if name != "drift" or len(self.sums) == 1 or not view.group:
                figures[name] = draw_drift(drift_of(sums, view.contexts))
        return {"summary": self._summary(cells), "explanation": explanation, "figures": figures}

    def _curves(self, view: View, cells: NDArray[np.intp]) -> tuple[Spec, str]:
        """Return the figure of the curves, and the sentence that says what its lines are."""
        rows = self.rows
        own = view.of(rows.fitted_contexts, len(rows.contexts))
        # A value that is not in the fitted rows has no cells there: the range of its scores is that of the judged rows.
        source, chosen = (rows.fitted, own) if len(own) else (rows.judged, cells)
        between = score_span(source.score[chosen], source.weight[chosen])
        points = prepare_points(rows.fitted, own) if len(own) else None
        fields = fitted_model(self.calibrator).fields
        largest = rows.contexts.subset(view.contexts[:_SHOWN_CONTEXTS].astype(np.int32))
        whole = not view.group
        lines = prepare_lines(self.calibrator, largest, between, pooled=whole, points=_LINE_POINTS)
        if not fields or (len(view.contexts) == 1 and not whole):
            band = " The band is the 95 % interval of the line." if lines[0].low is not None else ""
            return draw_curves(lines, points), "The line turns a raw score into a probability." + band
        sentences = [f"Thin lines are the curves of the {counted(len(largest), 'largest context')}."]
        if whole:
            sentences.append("“pooled” is the curve of field values that were not in the fit.")
        if len(own):
            lines = [mean_line(rows.fitted, self.of_fitted, own), *lines]
            sentences.insert(
                0,
                f"The thick line is the mean calibrated probability of the rows at each score, over all "
                f"{count(len(view.contexts))} contexts.",
            )
        return draw_curves(lines, points), " ".join(sentences)

    def _summary(self, cells: NDArray[np.intp]) -> str:
        judged = self.rows.judged
        positives, weight = judged.positives[cells], judged.weight[cells]
        values = []
        for p in (judged.score[cells], self.after[cells]):
            sums = group_sums(p, positives / weight, None, weight)
            pcoc, low, high = (float(column[0]) for column in group_pcoc(sums))
            values.append(with_interval(pcoc, low, high))
        rows = f"{count(float(weight.sum()))} rows, {count(float(positives.sum()))} positives"
        return f"{rows}. PCOC {values[0]} before, {values[1]} after."


def mean_line(sketch: Sketch, probabilities: FloatArray, cells: NDArray[np.intp]) -> Line:
    """Return the mean probability of neighbouring cells, in groups of equal mass, over their mean score."""
    score, weight = sketch.score[cells], sketch.weight[cells]
    group = equal_mass_bins(score, weight, _MEAN_GROUPS)
    by_score, by_probability = (group_sums(p, p, group, weight) for p in (score, probabilities[cells]))
    return Line("mean", by_score.predicted / by_score.weight, by_probability.predicted / by_probability.weight)
