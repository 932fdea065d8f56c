"""The page of a monitor: what is watched, the alarms, and PCOC over periods with the alarms marked."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.terminal_text import count, counted
from mcnet.data.fields import MISSING_LABEL
from mcnet.data.periods import shown_periods
from mcnet.metrics.evaluate_sketch import Predictor, predict_cells
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import group_sums
from mcnet.plots.drift import Drift, draw_drift
from mcnet.plots.style import INK, QUIET, Spec
from mcnet.report.assets import packed_data, packed_plotly, read_asset
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.monitor import Monitor
from mcnet.tracking.period import sorted_periods

__all__ = ["period_drifts", "write_monitor_page"]

_MOST_LINES = 40
_MOST_FIGURES = 12


def period_drifts(
    periods: Iterable[tuple[str, Sketch]], model: Predictor | None, watched: Sequence[str]
) -> dict[str, Drift]:
    """Return the PCOC per period of all rows ("level") and of field values ("country=NL"), with intervals."""
    names: list[str] = []
    found: dict[str, list[Any]] = {what: [] for what in watched}
    for period, sketch in periods:
        names.append(period)
        probability = sketch.score if model is None else predict_cells(model, sketch)
        codes = {
            f"{column.name}={MISSING_LABEL if value is None else value}": (column.codes, code)
            for column in sketch.contexts.columns(sketch.context)
            for code, value in enumerate(column.values)
        }
        for what, parts in found.items():
            column, code = codes.get(what, (None, 0))
            cells = column == code if column is not None else np.full(len(sketch), "=" not in what)
            zeros = np.zeros(int(cells.sum()), dtype=np.int64)
            sums = group_sums(probability[cells], sketch.rate[cells], zeros, sketch.weight[cells], count=1)
            parts.append([*(float(end[0]) for end in group_pcoc(sums)), float(sums.weight[0])])
    drifts = {}
    for what, parts in found.items():
        pcoc, low, high, weight = np.array(parts).reshape(-1, 4).T
        drifts[what] = Drift(tuple(names), (what,), pcoc[None], low[None], high[None], weight)
    return drifts


def write_monitor_page(
    path: str | PathLike[str],
    monitor: Monitor,
    periods: Sequence[tuple[str, Sketch]],
    model: Predictor | None = None,
    *,
    reference: Sequence[str] = (),
    title: str = "Monitor",
) -> Path:
    """Write what a monitor has found as one self-contained HTML page.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    monitor : the monitor, after its updates.
    periods : (period, sketch) in order, for the figures.
    model : what served these rows; None if the scores are the served probabilities.
    reference : the periods from which the monitor learnt how much periods differ.
    title : the heading of the page.
    """
    table = monitor.table().to_dicts()
    alarms = monitor.alarms
    shown = ["level", *(alarm.what for alarm in alarms if alarm.what not in ("level", "slope"))][:_MOST_FIGURES]
    drifts = period_drifts(periods, model, shown)
    since = {line["what"]: line["since"] for line in table if line["alarm"]}
    figures = {
        "All rows" if what == "level" else what: _marked(draw_drift(drift), drift, since.get(what), reference)
        for what, drift in drifts.items()
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(read_asset("monitor.html.j2")).render(
        title=title,
        lead=_lead(alarms),
        periods=_watched_periods(periods, reference),
        alpha=f"{monitor.alpha:g}",
        limit=f"{1.0 / monitor.alpha:,.6g}",
        alarms=[(alarm.what, alarm.advice()) for alarm in alarms],
        lines=[_line(line) for line in table[:_MOST_LINES]],
        left_out=count(len(table) - _MOST_LINES) if len(table) > _MOST_LINES else "",
        figures=list(figures),
        style=read_asset("page.css"),
        script=read_asset("unpack.js") + read_asset("monitor.js"),
        plotly=packed_plotly(),
        data=packed_data(list(figures.values())),
    )
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def _lead(alarms: Sequence[Any]) -> str:
    if not alarms:
        return "No alarm: nothing speaks against calibration."
    number = "One alarm" if len(alarms) == 1 else f"{len(alarms)} alarms"
    return f"{number}. The costliest: {alarms[0].advice()}."


def _watched_periods(periods: Sequence[tuple[str, Sketch]], reference: Sequence[str]) -> str:
    watched = [period for period, _ in periods if period not in set(reference)]
    reference, watched = shown_periods(reference), shown_periods(watched)
    known = counted(len(reference), "reference period")
    learnt = f"{known}, {reference[0]} to {reference[-1]}; " if reference else ""
    return learnt + (f"{len(watched):,} watched, {watched[0]} to {watched[-1]}" if watched else "none watched yet")


def _line(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **line,
        "evidence": evidence_text(line["log_evidence"]),
        "pcoc": f"{line['pcoc']:.3f}",
        "interval": f"{line['pcoc_low']:.3f} … {line['pcoc_high']:.3f}",
        "excess": f"{line['excess']:+,.0f}",
        "weight": count(line["rows"]),
    }


def evidence_text(log_evidence: float) -> str:
    """Return an e-value as people read it.

    >>> evidence_text(0.0), evidence_text(8.0), evidence_text(40.0), evidence_text(-9.0)
    ('1.0', '2,981', 'over a million', '0.0')
    """
    if log_evidence > np.log(1e6):
        return "over a million"
    value = float(np.exp(log_evidence))
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.1f}"


def _marked(figure: Spec, drift: Drift, since: str | None, reference: Sequence[str]) -> Spec:
    """Return a figure with a line where a change began, and the reference in grey."""
    dated = figure["layout"]["xaxis"].get("type") == "date"
    places: dict[str, Any] = {period: period if dated else place for place, period in enumerate(drift.periods)}
    if not dated and "tickvals" not in figure["layout"]["xaxis"]:
        places = {period: float(period) for period in drift.periods}
    shapes = []
    inside = [period for period in sorted_periods(list(reference)) if period in places]
    if inside:
        area = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}, "fillcolor": QUIET}
        shapes.append({**area, "x0": places[inside[0]], "x1": places[inside[-1]], "layer": "below", "opacity": 0.5})
    if since in places:
        line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": INK, "width": 2, "dash": "dash"}}
        shapes.append({**line, "x0": places[since], "x1": places[since]})
    return {**figure, "layout": {**figure["layout"], "shapes": shapes}}
