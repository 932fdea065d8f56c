"""The report: one HTML page that needs nothing but a browser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.math import sums_by
from mcnet._shared.terminal_text import count, counted
from mcnet._shared.typing import FloatArray
from mcnet.metrics.evaluate_sketch import evaluate_cells, predict_cells
from mcnet.metrics.evaluation import Evaluation
from mcnet.model.drawing import model_facts
from mcnet.model.model import CalibrationModel
from mcnet.plots.forest import Forest, draw_forest, prepare_forest
from mcnet.report.assets import packed_data, packed_plotly, read_asset, template
from mcnet.report.facts import (
    describe_order,
    prepare_comparison,
    prepare_facts,
    prepare_headline,
    prepare_parameters,
    prepare_values,
)
from mcnet.report.figures import MethodFigures, ReportRows
from mcnet.report.order import prepare_order
from mcnet.report.views import View, prepare_views
from mcnet.selection.selection import MethodResult, Selection
from mcnet.sketch.sketch import Sketch

__all__ = ["write_evaluation", "write_report"]

_FOREST_VALUES = 30
_UNCHANGED = "base"
"""The method that leaves scores as they are: before and after are the same, so it has nothing to show."""


def write_report(
    path: str | PathLike[str],
    selection: Selection,
    sketch: Sketch,
    *,
    title: str | None = None,
    test: Sketch | None = None,
    drift: Mapping[str, Sketch] | None = None,
    test_drift: Mapping[str, Sketch] | None = None,
    views: int = 240,
    methods: int = 3,
) -> Path:
    """Write a comparison of methods, and figures of the best ones, as one self-contained HTML page.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    selection : what `mcnet.select` returned.
    sketch : the rows that the methods were fitted on.
    title : the heading of the page.
    test : rows to show before and after calibration. By default they are the rows that the selection was judged on,
        each predicted by a fit that has not seen it.
    drift : one sketch of the fitted rows per period, in order, to show calibration over time; `sketches_by` makes them.
        These figures are in-sample, and the page says so.
    test_drift : one sketch per period of rows that the fit has not seen.
    views : the number of views in all: each method has the same ones, all rows first, then the largest field values
        and contexts.
    methods : how many methods can be looked at; the chosen one first, then the others by log-loss.

    Returns
    -------
    path : the file written.
    """
    judged = selection.judged if test is None else test
    timelines = {name: dict(given) for name, given in (("fresh-drift", test_drift), ("drift", drift)) if given}
    rows = ReportRows.of(judged, sketch.unfolded(), timelines)
    shown = _shown_methods(selection, methods)
    within_folds = test is None and judged.folds > 1
    before = evaluate_cells(judged.score, judged, within_folds=within_folds)
    if test is None:
        figures = [_MethodPage(r.method, r.calibrator, r.probabilities, r.evaluation, rows) for r in shown]
    else:
        figures = [_predicted(r.method, r.calibrator, test, rows) for r in shown]
    judged_on = selection.judged_on if test is None else "the test rows"
    return _write_page(
        path,
        rows,
        before,
        figures,
        views,
        title=title or "Calibration report",
        facts=prepare_facts(selection, sketch, judged, judged_on),
        parameters=prepare_parameters(selection),
        chosen=selection.chosen.method,
        judged_on=judged_on,
        comparison=prepare_comparison(selection),
        compared_on=selection.judged_on,
        within_folds=selection.judged.folds > 1,
        failed=selection.failed,
    )


def write_evaluation(
    path: str | PathLike[str],
    model: CalibrationModel,
    sketch: Sketch,
    *,
    title: str | None = None,
    periods: Mapping[str, Sketch] | None = None,
    views: int = 240,
) -> Path:
    """Write what a model does to some rows, before and after, as one self-contained HTML page.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    model : the model to judge.
    sketch : the rows to judge it on, with its fields.
    title : the heading of the page.
    periods : one sketch of the same rows per period, in order, to show calibration over time.
    views : the number of views: all rows first, then the largest field values and contexts.

    Returns
    -------
    path : the file written.
    """
    timelines = {"judged-drift": dict(periods)} if periods else {}
    whole = sketch.unfolded()
    rows = ReportRows.of(whole, whole, timelines)
    positives = counted(whole.total_positives, "positive")
    facts = [("method", model.method), *model_facts(model)]
    return _write_page(
        path,
        rows,
        evaluate_cells(whole.score, whole),
        [_predicted(model.method, model, whole, rows)],
        views,
        title=title or "Evaluation of a model",
        facts=[(term[0].upper() + term[1:], said) for term, said in facts],
        parameters=[],
        chosen=model.method,
        judged_on=f"{counted(whole.rows, 'row')}, {positives}",
        comparison=[],
        compared_on="",
        within_folds=False,
        failed={},
    )


@dataclass(frozen=True)
class _MethodPage:
    """A method that the page shows: what it predicts for the judged rows, and how good that is."""

    method: str
    calibrator: Any
    after: FloatArray
    evaluated: Evaluation
    rows: ReportRows

    @cached_property
    def figures(self) -> MethodFigures:
        """Return its figures, which predict the rows of every period."""
        return MethodFigures(self.calibrator, self.after, self.rows)


def _predicted(method: str, calibrator: Any, judged: Sketch, rows: ReportRows) -> _MethodPage:
    after = predict_cells(calibrator, judged)
    return _MethodPage(method, calibrator, after, evaluate_cells(after, judged), rows)


def _write_page(
    path: str | PathLike[str],
    rows: ReportRows,
    before: Evaluation,
    shown: Sequence[_MethodPage],
    views: int,
    **words: Any,
) -> Path:
    """Write the page of some methods, the first one as its main one; `words` are those of the template."""
    offered = prepare_views(
        rows.contexts,
        sums_by(rows.judged_contexts, rows.judged.weight, len(rows.contexts)),
        limit=max(1, views // len(shown)),
    )
    forests = _forests(before, {page.method: page.evaluated for page in shown})
    page = template("page.html.j2").render(
        **words,
        headline=prepare_headline(before, shown[0].evaluated, shown[0].figures.period_extremes()),
        has_fields=bool(rows.judged.contexts.names),
        shown=[page.method for page in shown],
        groups=_grouped(offered),
        tables={name: (forest, prepare_values(forest)) for name, forest in forests.items()},
        timelines=list(rows.timelines),
        count=count,
        style=read_asset("page.css"),
        script=read_asset("unpack.js") + read_asset("page.js"),
        plotly=packed_plotly(),
        data=packed_data([_method_data(page, offered, before) for page in shown]),
    )
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def _shown_methods(selection: Selection, number: int) -> list[MethodResult]:
    """Return the methods to look at: the chosen one, then the others by log-loss; one that changes nothing last."""
    others = [result for result in selection.results if result is not selection.chosen]
    ordered = [selection.chosen, *others]
    changing = [result for result in ordered if result.method != _UNCHANGED]
    return (changing or ordered)[: max(1, number)]


def _method_data(page: _MethodPage, views: list[View], before: Evaluation) -> dict[str, Any]:
    """Return the figures and sentences of one method, as the script of the page reads them."""
    forests = _forests(before, {"after": page.evaluated})
    return {
        "method": page.method,
        "order": describe_order(page.method, prepare_order(page.calibrator, page.rows.judged)),
        "views": [page.figures.draw(view) for view in views],
        "forests": [
            {
                "name": name,
                "values": list(forest.first(_FOREST_VALUES).values),
                "figure": draw_forest(forest, limit=_FOREST_VALUES),
            }
            for name, forest in forests.items()
        ],
    }


def _forests(before: Evaluation, after: Mapping[str, Evaluation]) -> dict[str, Forest]:
    """Return a forest per field, and one of the contexts if there are several fields."""
    columns = {"before": before, **after}
    forests = {
        name: prepare_forest({series: found.fields[name].table for series, found in columns.items()})
        for name in before.fields
    }
    if len(forests) > 1:
        forests[before.contexts.name] = prepare_forest(
            {series: found.contexts.table for series, found in columns.items()}
        )
    return forests


def _grouped(views: list[View]) -> dict[str, list[tuple[int, View]]]:
    groups: dict[str, list[tuple[int, View]]] = {}
    for place, view in enumerate(views):
        groups.setdefault(view.group, []).append((place, view))
    return groups
