"""The report: one HTML page that needs nothing but a browser."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.math import sums_by
from mcnet._shared.terminal_text import count
from mcnet._shared.typing import FloatArray
from mcnet.metrics.evaluate_sketch import evaluate_cells, predict_cells
from mcnet.metrics.evaluation import Evaluation
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

__all__ = ["write_report"]

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
    views: int = 300,
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
    after = {r.method: r.probabilities if test is None else predict_cells(r.calibrator, test) for r in shown}
    offered = prepare_views(
        rows.contexts,
        sums_by(rows.judged_contexts, judged.weight, len(rows.contexts)),
        limit=max(1, views // len(shown)),
    )
    within_folds = test is None and judged.folds > 1
    before = evaluate_cells(judged.score, judged, within_folds=within_folds)
    evaluated = {r.method: r.evaluation if test is None else evaluate_cells(after[r.method], judged) for r in shown}
    judged_on = selection.judged_on if test is None else "the test rows"
    page = template("page.html.j2").render(
        title=title or "Calibration report",
        facts=prepare_facts(selection, sketch, judged, judged_on),
        headline=prepare_headline(before, evaluated[shown[0].method]),
        parameters=prepare_parameters(selection),
        has_fields=bool(selection.judged.contexts.names),
        chosen=selection.chosen.method,
        shown=[result.method for result in shown],
        judged_on=judged_on,
        comparison=prepare_comparison(selection),
        compared_on=selection.judged_on,
        within_folds=selection.judged.folds > 1,
        failed=selection.failed,
        groups=_grouped(offered),
        tables={name: (forest, prepare_values(forest)) for name, forest in _forests(before, evaluated).items()},
        timelines=list(timelines),
        count=count,
        style=read_asset("page.css"),
        script=read_asset("unpack.js") + read_asset("page.js"),
        plotly=packed_plotly(),
        data=packed_data([_method_data(r, after[r.method], rows, offered, before, evaluated[r.method]) for r in shown]),
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


def _method_data(
    result: MethodResult,
    after: FloatArray,
    rows: ReportRows,
    views: list[View],
    before: Evaluation,
    evaluated: Evaluation,
) -> dict[str, Any]:
    """Return the figures and sentences of one method, as the script of the page reads them."""
    figures = MethodFigures(result.calibrator, after, rows)
    forests = _forests(before, {"after": evaluated})
    return {
        "method": result.method,
        "order": describe_order(result.method, prepare_order(result.calibrator, rows.judged)),
        "views": [figures.draw(view) for view in views],
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
