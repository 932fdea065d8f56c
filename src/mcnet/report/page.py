"""The report: one HTML page that needs nothing but a browser."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.math import sums_by
from mcnet._shared.typing import FloatArray
from mcnet.data.contexts import Contexts
from mcnet.metrics.evaluate_sketch import evaluate_cells, predict_cells
from mcnet.metrics.evaluation import Evaluation
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import group_sums
from mcnet.model.drawing import prepare_lines
from mcnet.plots.curves import draw_curves
from mcnet.plots.drift import draw_drift
from mcnet.plots.forest import Forest, draw_forest, prepare_forest
from mcnet.plots.histogram import draw_histogram, prepare_histogram
from mcnet.plots.reliability import draw_reliability
from mcnet.plots.style import Spec
from mcnet.report.assets import packed_data, packed_plotly, read_asset
from mcnet.report.drift import PeriodSums, drift_of, period_sums
from mcnet.report.facts import describe_order, prepare_comparison, prepare_facts, prepare_parameters, prepare_values
from mcnet.report.order import prepare_order
from mcnet.report.preparation import prepare_points, prepare_reliability, score_span
from mcnet.report.views import View, prepare_views, unite
from mcnet.report.wording import count, with_interval
from mcnet.selection.select import Selection
from mcnet.sketch.sketch import Sketch

__all__ = ["write_report"]

_LINES = 5
_SHOWN_VALUES = 30


def write_report(
    path: str | PathLike[str],
    selection: Selection,
    sketch: Sketch,
    *,
    title: str | None = None,
    test: Sketch | None = None,
    drift: Mapping[str, Sketch] | None = None,
    test_drift: Mapping[str, Sketch] | None = None,
    views: int = 300,
) -> Path:
    """Write a comparison and its chosen calibrator as one self-contained HTML page.

    Parameters
    ----------
    path : where to write; the file appears whole or not at all.
    selection : what `mcnet.select` returned.
    sketch : the rows the methods were fitted on.
    title : the heading of the page.
    test : rows to show before and after calibration; without it, those that the selection was judged on, each
        predicted by a fit that had not seen it.
    drift : the fitted rows as a sketch for each period, in order, to show calibration over time; `sketches_by` makes
        them. What is shown of them is in-sample, and the page says so.
    test_drift : the same of rows that the fit had not seen.
    views : how many field values and contexts can be chosen at most, the heaviest first.
    """
    judged = selection.judged if test is None else test
    after = selection.chosen.probabilities if test is None else predict_cells(selection.calibrator, test)
    fitted = sketch.unfolded()
    # The place of each figure on the page, with its periods.
    timelines = {name: dict(given) for name, given in (("fresh-drift", test_drift), ("drift", drift)) if given}
    contexts, places = unite([judged, fitted, *(part for periods in timelines.values() for part in periods.values())])
    left = iter(places[2:])
    sums = {
        name: period_sums(selection.calibrator, periods, [next(left) for _ in periods], len(contexts))
        for name, periods in timelines.items()
    }
    shown = prepare_views(contexts, sums_by(places[0], judged.weight, len(contexts)), limit=views)
    painter = _Painter(selection.calibrator, judged, after, fitted, contexts, places[0], places[1], sums)
    evaluated = selection.chosen.evaluation if test is None else evaluate_cells(after, judged)
    forests = _forests(evaluate_cells(judged.score, judged), evaluated)
    judged_on = selection.judged_on if test is None else "the test rows"
    data = {
        "views": [painter.paint(view) for view in shown],
        "forests": [
            {"name": name, "values": list(f.first(_SHOWN_VALUES).values), "figure": draw_forest(f, limit=_SHOWN_VALUES)}
            for name, f in forests.items()
        ],
    }
    page = _template().render(
        title=title or "Calibration report",
        facts=prepare_facts(selection, sketch, judged, judged_on),
        parameters=prepare_parameters(selection),
        has_fields=bool(selection.judged.contexts.names),
        chosen=selection.chosen.method,
        judged_on=judged_on,
        comparison=prepare_comparison(selection),
        compared_on=selection.judged_on,
        failed=selection.failed,
        groups=_grouped(shown),
        tables={name: (forest, prepare_values(forest)) for name, forest in forests.items()},
        order=describe_order(selection.chosen.method, prepare_order(selection.calibrator, judged)),
        timelines=list(timelines),
        count=count,
        style=read_asset("page.css"),
        script=read_asset("page.js"),
        plotly=packed_plotly(),
        data=packed_data(data),
    )
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


class _Painter:
    """Draws the figures of one view after the other; all share the sketches and their common contexts."""

    def __init__(
        self,
        calibrator: Any,
        judged: Sketch,
        after: FloatArray,
        fitted: Sketch,
        contexts: Contexts,
        judged_contexts: NDArray[np.int32],
        fitted_contexts: NDArray[np.int32],
        timelines: Mapping[str, PeriodSums],
    ) -> None:
        self.calibrator = calibrator
        self.judged, self.after, self.fitted, self.contexts = judged, after, fitted, contexts
        self.judged_contexts, self.fitted_contexts, self.timelines = judged_contexts, fitted_contexts, timelines

    def paint(self, view: View) -> dict[str, Any]:
        """Return the words and figures of a view."""
        cells = view.of(self.judged_contexts, len(self.contexts))
        columns = {"before": self.judged.score, "after": self.after}
        figures = {
            "reliability": draw_reliability(
                {name: prepare_reliability(p, self.judged, cells) for name, p in columns.items()}
            ),
            "curves": self._curves(view, cells),
            "histogram": draw_histogram(
                prepare_histogram({n: p[cells] for n, p in columns.items()}, self.judged.weight[cells])
            ),
        }
        figures |= {name: draw_drift(drift_of(sums, view.contexts)) for name, sums in self.timelines.items()}
        return {"summary": self._summary(cells), "figures": figures}

    def _curves(self, view: View, cells: NDArray[np.intp]) -> Spec:
        own = view.of(self.fitted_contexts, len(self.contexts))
        # A value that the fit had not seen has no cells there: the ones it is judged on stand in for its scores.
        score, weight = (
            (self.fitted.score[own], self.fitted.weight[own])
            if len(own)
            else (self.judged.score[cells], self.judged.weight[cells])
        )
        heaviest = self.contexts.subset(view.contexts[:_LINES].astype(np.int32))
        lines = prepare_lines(self.calibrator, heaviest, score_span(score, weight), pooled=not view.group)
        return draw_curves(lines, prepare_points(self.fitted, own) if len(own) else None)

    def _summary(self, cells: NDArray[np.intp]) -> str:
        positives, weight = self.judged.positives[cells], self.judged.weight[cells]
        said = []
        for p in (self.judged.score[cells], self.after[cells]):
            sums = group_sums(p, positives / weight, None, weight)
            pcoc, low, high = (float(column[0]) for column in group_pcoc(sums))
            said.append(with_interval(pcoc, low, high))
        rows = f"{count(float(weight.sum()))} rows, {count(float(positives.sum()))} positives"
        return f"{rows}. PCOC {said[0]} before, {said[1]} after."


def _forests(before: Evaluation, after: Evaluation) -> dict[str, Forest]:
    pairs = {name: (before.fields[name], after.fields[name]) for name in before.fields}
    if len(pairs) > 1:
        pairs[before.contexts.name] = (before.contexts, after.contexts)
    return {
        name: prepare_forest({"before": first.table, "after": second.table}) for name, (first, second) in pairs.items()
    }


def _grouped(views: list[View]) -> dict[str, list[tuple[int, View]]]:
    groups: dict[str, list[tuple[int, View]]] = {}
    for place, view in enumerate(views):
        groups.setdefault(view.group, []).append((place, view))
    return groups


def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(read_asset("page.html.j2"))
