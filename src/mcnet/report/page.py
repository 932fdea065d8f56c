"""The report: one HTML page that needs nothing but a browser."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from mcnet._shared.arrays import sums_by
from mcnet._shared.files import whole_file
from mcnet._shared.messages import Figure, amount, count, counted, figure, percent, with_interval
from mcnet.calibrators.methods import default_parameters
from mcnet.metrics.evaluation import Evaluation, evaluate_cells, predict_cells
from mcnet.metrics.money import Money
from mcnet.model.drawing import CONTRIBUTIONS_EXPLAINED, contribution_tables, fitted_model, model_facts
from mcnet.model.model import CalibrationModel
from mcnet.plots.figures import Forest, draw_forest, forest_of
from mcnet.plots.style import Spec
from mcnet.report.page_figures import MethodFigures, Order, ReportRows, View, order_of, views_of
from mcnet.selection import MethodResult, Selection, difference_words
from mcnet.sketch.sketch import Sketch

# The parts that are embedded in the page: Plotly's library, style, script, and compressed data.


def read_asset(name: str) -> str:
    """Return a text file of this package."""
    return files("mcnet.report").joinpath(name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Return a template of a page, which may call `amount` and `count`; what it puts into the page is escaped."""
    environment = Environment(
        loader=FunctionLoader(read_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(amount=amount, count=count)
    return environment.get_template(name)


def write_page(path: str | PathLike[str], name: str, *, data: Any, **words: Any) -> Path:
    """Write a template in the frame of all pages as one self-contained file, whole or not at all.

    Its script draws `data`.
    """
    drawn = {"script": read_asset("page.js"), "plotly": packed_plotly(), "data": packed_data(data)}
    page = template(name).render(**words, **drawn, style=read_asset("page.css"))
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def figures_alone(method: str, *views: dict[str, Spec]) -> list[dict[str, Any]]:
    """Return views that are figures without sentences, as the script of the page reads the data of a method."""
    return [
        {
            "method": method,
            "order": "",
            "views": [{"summary": "", "explanation": "", "figures": figures} for figures in views],
            "forests": [],
        }
    ]


@cache
def packed_plotly() -> str:
    """Return Plotly's JavaScript from its Python package, compressed.

    The bundle has 4.8 MB; compressed it has 2 MB, and any browser since 2023 can decompress it.
    """
    return _packed(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes())


def packed_data(data: Any) -> str:
    """Return data as compressed JSON."""
    return _packed(json.dumps(data, separators=(",", ":"), allow_nan=False).encode())


def _packed(content: bytes) -> str:
    # No time stamp: the same content gives the same page.
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


# The sentences and tables of the page: the result, the comparison, the field values, what was fitted on what.


def headline_of(
    before: Evaluation, after: Evaluation, periods: tuple[float, float] | None = None
) -> list[tuple[str, str, str, str]]:
    """Return the main metrics before and after calibration, in words: name, before, after, and what stands below.

    A PCOC of 1 over all rows can hide periods far from it: `periods`, the lowest and the highest PCOC of a period after
    calibration, stand below the PCOC.
    """
    below = "" if periods is None else f"single periods after: {figure(periods[0], 3)} … {figure(periods[1], 3)}"
    metrics = [("Log-loss", "log_loss", 5), ("PCOC", "pcoc", 3), ("F-RCE", "f_rce", 4), ("AUC", "auc", 4)]
    return [
        (
            name,
            figure(before.estimates[key].value, digits),
            figure(after.estimates[key].value, digits),
            below if key == "pcoc" else "",
        )
        for name, key, digits in metrics
        if key != "f_rce" or before.fields
    ] + ([] if before.money is None or after.money is None else _money_headline(before.money, after.money))


def _money_headline(before: Money, after: Money) -> list[tuple[str, str, str, str]]:
    """Return the money that is over-bid and under-bid, before and after."""
    pairs = (("Over-bid money", before.over, after.over), ("Under-bid money", before.under, after.under))
    return [
        (name, amount(was.value), amount(now.value), f"95 % interval: {amount(now.low)} … {amount(now.high)}")
        for name, was, now in pairs
    ]


def facts_of(selection: Selection, sketch: Sketch, judged: Sketch, judged_on: str) -> list[tuple[str, str]]:
    """Return what was fitted on what, as pairs of a term and its text."""
    chosen = selection.chosen
    model = chosen.calibrator.model_
    known = model.provenance
    facts = [
        ("Method", chosen.method),
        ("Fitted on", f"{count(sketch.rows)} rows, {_positives(sketch)}"),
        ("Judged on", f"{judged_on}: {count(judged.rows)} rows, {_positives(judged)}"),
    ]
    if sketch.total_weight != sketch.rows:
        facts.insert(2, ("Weight", f"{count(sketch.total_weight)} (rows are weighted)"))
    names = sketch.contexts.names
    if names:
        numbers = (count(len(values)) for values in sketch.contexts.values)
        values = [f"{name} ({number} values)" for name, number in zip(names, numbers, strict=True)]
        together = f"; {count(len(sketch.contexts))} contexts" if len(names) > 1 else ""
        unused = "" if model.fields else " (the chosen method has one curve for all)"
        facts.append(("Fields", ", ".join(values) + together + unused))
    if model.parameters:
        lines = parameters_of(selection)
        chosen_ones = [f"{line['name']} = {line['value']}" for line in lines if line["chosen"]]
        string = ", ".join(chosen_ones) + "; the others at their defaults" if chosen_ones else "all at their defaults"
        facts.append(("Parameters", string))
    facts.append(("Scores", f"from {figure(known['lowest_score'])} to {figure(known['highest_score'])}"))
    facts.append(("Sketch", f"{count(len(sketch))} cells, resolution {sketch.resolution}"))
    facts.append(("Made", f"{known['date'].replace('T', ' ').replace('+00:00', ' UTC')} by {known['library']}"))
    return facts


def parameters_of(selection: Selection) -> list[dict[str, Any]]:
    """Return one line per parameter of the chosen method, those that are chosen, not at their default, first."""
    model = selection.calibrator.model_
    usual = default_parameters(model.method)
    lines = [
        {
            "name": name,
            "value": _value(value),
            "default": _value(usual[name]) if name in usual else "",
            "chosen": usual.get(name) != value,
        }
        for name, value in model.parameters.items()
    ]
    return sorted(lines, key=lambda line: not line["chosen"])


def _value(value: object) -> str:
    """Return a parameter as a person writes it.

    >>> [_value(value) for value in (None, True, 0.5, ["a", 1], {"method": "platt"})]
    ['none', 'yes', '0.5', 'a, 1', 'method = platt']
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_value(entry)}" for name, entry in value.items()) or "none"
    return str(value)


def _positives(sketch: Sketch) -> str:
    rate = sketch.total_positives / sketch.total_weight
    return f"{count(sketch.total_positives)} positives ({percent(rate)})"


def _line(selection: Selection, result: MethodResult) -> dict[str, Any]:
    """Return the line of a method in the comparison."""
    ev, gap = result.evaluation, result.difference
    order = order_of(result.calibrator, selection.judged)
    over, error = difference_words(gap.value, gap.standard_error)
    best = result is selection.results[0]
    return {
        "method": result.method,
        "chosen": result.method == selection.chosen.method,
        "log_loss": f"{ev.log_loss:.5f}",
        "difference": Figure("best") if best else Figure(over, f"± {error}"),
        "pcoc": with_interval(ev.pcoc, *ev.interval("pcoc")),
        "f_rce": _field_error(ev) if ev.fields else None,
        "auc": with_interval(ev.auc, *ev.interval("auc"), digits=4),
        "order": _order_figure(order),
        "seconds": f"{result.fit_seconds:.2g} s",
    }


def _order_figure(order: Order) -> Figure:
    """Return whether the order of scores is kept: with several curves within a context, not between contexts."""
    if not order.kept:
        return Figure("broken", f"{percent(order.share_below)} of rows")
    return Figure("kept", "within each context" if order.curves > 1 else "")


def _field_error(ev: Evaluation) -> Figure:
    """Return the F-RCE beside its noise floor and the interval of its true value."""
    error = ev.estimates["f_rce"]
    value = with_interval(error.value, error.low, error.high, digits=4)
    floor = f"noise floor {figure(error.floor)}"
    return Figure(value.value, f"{floor}, true value {value.beside}" if value.beside else floor)


def describe_order(method: str, order: Order) -> str:
    """Return one or two sentences on the order of scores under the chosen method."""
    if order.kept:
        one = order.curves == 1
        which = "The curve" if one else f"Each of the {count(order.curves)} curves"
        sentence = (
            f"{which} of {method} rises or stays level everywhere: {'' if one else 'within a context '}a higher score "
            "never gets a lower probability."
        )
    else:
        which = f"{count(order.falling)} of the {count(order.curves)} curves of {method} fall"
        sentence = (
            f"{which if order.curves > 1 else f'The curve of {method} falls'} somewhere, by "
            f"{figure(order.largest_drop)} at most: {percent(order.share_below)} of the rows get a lower probability "
            "than a row of their context with a lower score."
        )
    if order.kept and order.reported:
        sentence += f" To guarantee this, fitted probabilities were moved by at most {figure(order.reported)}."
    return sentence


def values_of(forest: Forest, *, limit: int = 300) -> list[dict[str, Any]]:
    """Return one line per field value, the worst first."""
    return [
        {
            "value": forest.values[i],
            "weight": count(forest.weight[i]),
            "positives": count(forest.positives[i]),
            "impact": f"{forest.impact[forest.judged, i]:,.1f}",
            "pcoc": list(map(with_interval, forest.pcoc[:, i], forest.low[:, i], forest.high[:, i])),
        }
        for i in range(min(limit, len(forest)))
    ]


# The report: one HTML page that needs nothing but a browser.

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
        figures = [MethodFigures(r.method, r.calibrator, r.probabilities, r.evaluation, rows) for r in shown]
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
        facts=facts_of(selection, sketch, judged, judged_on),
        parameters=parameters_of(selection),
        chosen=selection.chosen.method,
        judged_on=judged_on,
        comparison=[_line(selection, result) for result in selection.results],
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
    """Write what a model does to some rows, before and after, as one self-contained HTML page."""
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


def _predicted(method: str, calibrator: Any, judged: Sketch, rows: ReportRows) -> MethodFigures:
    after = predict_cells(calibrator, judged)
    return MethodFigures(method, calibrator, after, evaluate_cells(after, judged), rows)


def _write_page(
    path: str | PathLike[str],
    rows: ReportRows,
    before: Evaluation,
    shown: Sequence[MethodFigures],
    views: int,
    **words: Any,
) -> Path:
    """Write the page of some methods, the first one as its main one; `words` are those of the template."""
    offered = views_of(
        rows.contexts,
        sums_by(rows.judged_contexts, rows.judged.weight, len(rows.contexts)),
        limit=max(1, views // len(shown)),
    )
    forests = _forests(before, {page.method: page.evaluated for page in shown})
    return write_page(
        path,
        "page.html.j2",
        data=[_method_data(page, offered, before) for page in shown],
        **words,
        headline=headline_of(before, shown[0].evaluated, shown[0].period_extremes()),
        has_fields=bool(rows.judged.contexts.names),
        shown=[page.method for page in shown],
        groups=_grouped(offered),
        actions=None if shown[0].evaluated.money is None else shown[0].evaluated.actions(),
        contributions=contribution_tables(fitted_model(shown[0].calibrator)),
        contributions_explained=CONTRIBUTIONS_EXPLAINED,
        tables={name: (forest, values_of(forest)) for name, forest in forests.items()},
        timelines=list(rows.timelines),
    )


def _shown_methods(selection: Selection, number: int) -> list[MethodResult]:
    """Return the methods to look at: the chosen one, then the others by log-loss; one that changes nothing last."""
    others = [result for result in selection.results if result is not selection.chosen]
    ordered = [selection.chosen, *others]
    changing = [result for result in ordered if result.method != _UNCHANGED]
    return (changing or ordered)[: max(1, number)]


def _method_data(page: MethodFigures, views: list[View], before: Evaluation) -> dict[str, Any]:
    """Return the figures and sentences of one method, as the script of the page reads them."""
    forests = _forests(before, {"after": page.evaluated})
    return {
        "method": page.method,
        "order": describe_order(page.method, order_of(page.calibrator, page.rows.judged)),
        "views": [page.draw(view) for view in views],
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
        name: forest_of({series: result.fields[name].table for series, result in columns.items()})
        for name in before.fields
    }
    if len(forests) > 1:
        forests[before.contexts.name] = forest_of({series: result.contexts.table for series, result in columns.items()})
    return forests


def _grouped(views: list[View]) -> dict[str, list[tuple[int, View]]]:
    groups: dict[str, list[tuple[int, View]]] = {}
    for index, view in enumerate(views):
        groups.setdefault(view.group, []).append((index, view))
    return groups
