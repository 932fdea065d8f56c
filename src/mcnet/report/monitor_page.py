"""The page of a monitor, the status page of the loop, and the page of a difference."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.arrays import logit, sigmoid
from mcnet._shared.files import whole_file
from mcnet._shared.messages import count, counted, figure, percent
from mcnet.difference import ModelDifference
from mcnet.metrics.calibration_error import group_pcoc
from mcnet.metrics.evaluation import Predictor, predict_cells
from mcnet.metrics.sums import GroupSums, group_sums
from mcnet.model.model import CalibrationModel
from mcnet.plots.figures import Line, draw_curves
from mcnet.plots.style import INK, QUIET, Spec, as_svg
from mcnet.plots.timeline import Drift, draw_drift, draw_rows, period_places
from mcnet.report.page import read_asset, template, write_page
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import shown_periods, sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.monitor import Monitor

# The page of a monitor: what is watched, the alarms, and PCOC over periods with the alarms marked.

_MOST_LINES = 40
_MOST_FIGURES = 12
_NO_ROWS = GroupSums(*np.zeros((5, 1)))
"""The sums of a field value in a period that lacks it."""


def period_drifts(
    periods: Iterable[tuple[str, Sketch]], model: Predictor | None, watched: Sequence[str]
) -> dict[str, Drift]:
    """Return the PCOC per period of all rows ("level") and of field values ("country=NL"), with intervals."""
    names: list[str] = []
    sums_of: dict[str, list[GroupSums]] = {what: [] for what in watched}
    for period, sketch in periods:
        names.append(period)
        probability = sketch.score if model is None else predict_cells(model, sketch)
        parts = {"level": group_sums(probability, sketch.rate, None, sketch.weight)}
        for column in sketch.contexts.columns(sketch.context):
            sums = group_sums(probability, sketch.rate, column.codes, sketch.weight, count=len(column.values))
            labels = (f"{column.name}={MISSING_LABEL if value is None else value}" for value in column.values)
            parts |= {label: sums.where(np.array([code])) for code, label in enumerate(labels) if label in sums_of}
        for what, found in sums_of.items():
            found.append(parts.get(what, _NO_ROWS))
    drifts = {}
    for what, found in sums_of.items():
        sums = GroupSums(*np.array([part.columns() for part in found]).reshape(-1, 5).T)
        pcoc, low, high = (end[None] for end in group_pcoc(sums))
        drifts[what] = Drift(tuple(names), (what,), pcoc, low, high, sums.weight)
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
    alarms, tracked = monitor.alarms, getattr(model, "method", "") == "tracker"
    served = {one.what: asdict(one) for one in monitor.served([line["what"] for line in table[:_MOST_LINES]])}
    shown = ["level", *(alarm.what for alarm in alarms if alarm.what not in ("level", "slope"))][:_MOST_FIGURES]
    drifts = period_drifts(periods, model, shown)
    since = {line["what"]: line["since"] for line in table if line["alarm"]}
    figures = {
        "All rows" if what == "level" else what: _marked(draw_drift(drift), drift, since.get(what), reference)
        for what, drift in drifts.items()
    }
    return write_page(
        path,
        "monitor.html.j2",
        data=list(figures.values()),
        script="monitor.js",
        title=title,
        lead=_lead(alarms, tracked),
        periods=_watched_periods(periods, reference),
        alpha=f"{monitor.alpha:g}",
        limit=f"{1.0 / monitor.alpha:,.6g}",
        alarms=[(alarm.what, alarm.advice(tracked=tracked)) for alarm in alarms],
        lines=[_line(line | {"served": served_text(served.get(line["what"]))}) for line in table[:_MOST_LINES]],
        left_out=count(len(table) - _MOST_LINES) if len(table) > _MOST_LINES else "",
        figures=list(figures),
    )


def _lead(alarms: Sequence[Any], tracked: bool) -> str:
    if not alarms:
        return "No alarm: nothing speaks against calibration."
    number = "One alarm" if len(alarms) == 1 else f"{len(alarms)} alarms"
    return f"{number}. The costliest: {alarms[0].advice(tracked=tracked)}."


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
    positions = dict(zip(drift.periods, period_places(drift.periods)[0], strict=True))
    shapes = []
    inside = [period for period in sorted_periods(list(reference)) if period in positions]
    if inside:
        area = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}, "fillcolor": QUIET}
        shapes.append(
            {**area, "x0": positions[inside[0]], "x1": positions[inside[-1]], "layer": "below", "opacity": 0.5}
        )
    if since in positions:
        line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": INK, "width": 2, "dash": "dash"}}
        shapes.append({**line, "x0": positions[since], "x1": positions[since]})
    return {**figure, "layout": {**figure["layout"], "shapes": shapes}}


# The page of the state of a head: written as a file without scripts, and answered by the service as its dashboard.

_WIDTHS = (("on-desk", 560, 60), ("on-phone", 340, 24))
"""For a wide screen and for a phone: the class of a picture, its width in pixels, and how many periods it shows."""


def write_status_page(path: str | PathLike[str], status: dict[str, Any]) -> Path:
    """Write the state of a head as one self-contained page.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    status : what `mcnet.operations.status.status_of` returns.
    """
    with whole_file(path) as part:
        part.write_text(status_html(status, read_asset("page.css") + read_asset("status.css")), encoding="utf-8")
    return Path(path)


def status_html(status: dict[str, Any], style: str, script: str = "", root: str = "") -> str:
    """Return the state of a head as a page; one that refreshes itself and can change versions if it has a script.

    Parameters
    ----------
    status : what `mcnet.operations.status.status_of` returns; `service` has what a service adds.
    style, script : the whole of the page's style and script.
    root : the way from this page to the others of the service.
    """
    status = _as_read(status)
    run, current, monitor = status["last_run"], status["current"], status["monitor"] or {}
    service = status.get("service")
    # One hour of a hundred times the rows, or without positives, would squeeze all others into a line.
    left_out = {one["period"] for one in status.get("suspects", []) if one["state"] in ("waiting", "left out")}
    drawn = [one for one in status["periods"] if one["period"] not in left_out]
    return template("status.html.j2").render(
        status=status,
        service=service,
        name=service["name"] if service else "Calibration" if status["head"] == "default" else status["head"],
        served=(service["served"] or {}).get("version")
        if service
        else None
        if current is None
        else str(current["number"]),
        level=_level(status),
        headline=headline(status),
        tiles=_tiles(status),
        run=run,
        waiting=[one for one in status.get("suspects", []) if one["state"] == "waiting"],
        calibration=_both_widths(_pcoc_picture, drawn),
        feedback=_both_widths(_rows_picture, drawn),
        gate=_gate_lines(status),
        limit=f"{1.0 / monitor['alpha']:,.6g}" if monitor else "",
        watched=watched_lines(status),
        telling=_TELLING,
        left_out=left_out,
        following=following_lines(status),
        money=status.get("money"),
        release=f"mcnet versions release {status['store']} --head {status['head']}",
        happened=_happened,
        shown_time=_shown_time,
        style=style,
        script=script,
        root=root,
    )


_NAMES_OF_PERIODS = {"period", "last_period", "fitted_until", "until", "first", "last", "since", "raised"}
_NAMES_OF_TIMES = {"current", "events", "runs"}
"""In these parts `since` and `first` are timestamps."""


def _as_read(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status with its periods as people read them: midnight with its time in a loop of hours."""
    names: dict[str, str] = {}

    def visited(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            return {name: value if name in _NAMES_OF_TIMES else visited(value, name) for name, value in part.items()}
        if isinstance(part, list):
            return [visited(one, key) for one in part]
        if key in _NAMES_OF_PERIODS and isinstance(part, str):
            return names.setdefault(part, part)
        return part

    visited(status)
    names.update(zip(list(names), shown_periods(list(names)), strict=True))
    shown: dict[str, Any] = visited(status)
    return shown


def _shown_time(text: str) -> str:
    """Return a timestamp of UTC as people read it.

    >>> _shown_time("2026-11-16T13:05:00+00:00")
    '2026-11-16 13:05'
    """
    return text[:16].replace("T", " ")


def _level(status: dict[str, Any]) -> str:
    """Return how the state is: "bad", "warn" or "good"."""
    service, run = status.get("service") or {}, status["last_run"] or {}
    if run.get("outcome") == "failed" or service.get("refused") or service.get("unreachable") or status["problem"]:
        return "bad"
    refused = (status["decision"] or {}).get("outcome") == "refused"
    waiting = any(one["state"] == "waiting" for one in status.get("suspects", []))
    return "warn" if refused or waiting or (status["monitor"] or {}).get("alarms") or not status["current"] else "good"


def headline(status: dict[str, Any]) -> str:
    """Return what the last run did, and what people have done with the versions since."""
    run, decision, current, held = (status[name] for name in ("last_run", "decision", "current", "held"))
    if run is None:
        served = "No version yet; mcnet update publishes the first one." if current is None else ""
        return served or f"Version {current['number']} is served; the update job has not run yet."
    version = f"version {run['version']}" if run["version"] else "no version"
    moved = current is not None and str(current["number"]) != run["version"]
    sentence = {
        "published": f"Version {run['version']} was published" + (" by force." if run["forced"] else "."),
        "nothing new": f"Nothing new: {version} is served.",
        "waiting": f"Too few periods to judge a model by: {version} is served.",
        "refused": f"The gate refused a new model: {version} stays.",
        "held": f"Nothing was published: {version} stays.",
        "failed": f"The last run failed, and {version} stays: {run['reason']}.",
    }[run["outcome"]]
    if run["outcome"] == "nothing new" and decision is not None and decision["outcome"] == "refused":
        sentence += " The gate refused the last new model."
    if current is not None and moved:
        sentence += f" Since then version {current['number']} was made the current one."
    if held:
        sentence += f" It is {held}."
    elif run.get("held"):
        sentence += " The hold was released since then: the next run may publish."
    number = len(run["alarms"])
    if number:
        sentence += f" {'One new alarm' if number == 1 else f'{number} new alarms'}: {run['alarms'][0]['advice']}."
    return sentence


def _tiles(status: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures at the top: a name, a number, and a note."""
    current, journal, service = status["current"], status["journal"], status.get("service")
    tiles = []
    if current is not None:
        since = f"since {_shown_time(current['since'])} UTC" if current.get("since") else ""
        tiles.append(("Version", str(current["number"]), since))
    level = next((line for line in watched_lines(status) if line["what"] == "level"), None)
    if level is not None:
        tiles.append(("PCOC since served", level["served"].partition(" (")[0], level["served"].partition(" ")[2]))
    tiles.append(
        ("Alarms", count((status["monitor"] or {}).get("alarms", 0)), f"{len(status['alarms'])} in the last runs")
    )
    until = f", until {journal['last_period']}" if journal["last_period"] else ""
    tiles.append(("Rows", count(journal["rows"]), f"in {counted(journal['periods'], 'period')}{until}"))
    if service is not None:
        traffic, workers = service["traffic"], service["workers"]
        unseen = f"{traffic['unseen_rows'] / traffic['predictions']:.1%}" if traffic["predictions"] else "–"
        tiles += [
            ("Predictions", count(traffic["predictions"]), "rows"),
            ("Latency, 99 %", _latency(traffic["p99_seconds"]), f"median {_latency(traffic['median_seconds'])}"),
            ("Unseen values", unseen.replace("%", " %"), f"{count(traffic['unseen_rows'])} rows"),
            ("Errors", count(traffic["server_errors"]), f"{count(traffic['client_errors'])} refused requests"),
            (
                "Workers",
                str(len(workers)),
                "serve one version" if len(set(workers)) < 2 else "serve different versions",
            ),
        ]
    return tiles


def _latency(seconds: float | None) -> str:
    """Return the upper end of a bucket as people read it.

    >>> _latency(0.00025), _latency(0.0025), _latency(1.0), _latency(None)
    ('≤ 250 µs', '≤ 2.5 ms', '≤ 1 s', '–')
    """
    if seconds is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"≤ {seconds / size:.3g} {unit}"
    return f"≤ {seconds / 1e-6:.3g} µs"


def _gate_lines(status: dict[str, Any]) -> list[str]:
    """Return what the gate decided last and why, one reason per line."""
    decision, run = status["decision"], status["last_run"]
    if decision is None:
        return ["Nothing was decided yet" + (f": {run['reason']}." if run else ".")]
    gate, forced = decision["gate"], ", by force" if decision["forced"] else ""
    because = gate["problems"] or [gate["waiting"] or decision["reason"]]
    lines = [
        f"The last new model, with the rows until {decision['until']}, was {_OUTCOMES[decision['outcome']]}{forced}:"
    ]
    lines += [f"{reason}." for reason in because if reason]
    if gate["problems"] and gate["shift"] is not None:
        lines.append(
            f"Mean probabilities would move by {gate['shift']['overall']:+.1%}, of {gate['shift']['where']} by "
            f"{gate['shift']['largest']:+.1%}."
        )
    return lines


_OUTCOMES = {"published": "published", "refused": "refused", "waiting": "not published yet", "held": "not published"}


def _happened(event: dict[str, Any]) -> str:
    """Return an event of the history in words."""
    what = event["event"]
    if what == "rolled back":
        said = f"Rolled back from version {event.get('was')} to version {event['version']}"
    else:
        said = what.capitalize() if event.get("version") is None else f"Version {event['version']} {what}"
    times = f", {event['times']} times since {_shown_time(event['first'])}" if event["times"] > 1 else ""
    return ": ".join(filter(None, (said + times, event.get("note"), event.get("reason"))))


def _both_widths(
    draw: Callable[[list[dict[str, Any]], int], str], periods: list[dict[str, Any]]
) -> list[tuple[str, str]]:
    """Return a picture for a wide screen and one for a phone, each with its class; none without periods."""
    pictures = [(name, draw(periods[-most:], width)) for name, width, most in _WIDTHS]
    return [(name, picture) for name, picture in pictures if picture]


def _pcoc_picture(periods: list[dict[str, Any]], width: int) -> str:
    """Return the PCOC of each period: of the scores, and of what was served or, before that, forecast."""
    told = [[one.get(name) for name in ("served_pcoc", "tracker_pcoc", "now_pcoc")] for one in periods]
    ratios = [[one["base_pcoc"] for one in periods], [next(filter(None, one), [None] * 3) for one in told]]
    pcoc, low, high = np.moveaxis(np.array(ratios, dtype=np.float64).reshape(2, -1, 3), 2, 0)  # None becomes NaN
    if not np.isfinite(pcoc).any():
        return ""
    names = tuple(one["period"] for one in periods)
    unknown = np.full(len(names), np.nan)
    drift = Drift(names, ("scores as they are", "served, or forecast before"), pcoc, low, high, unknown)
    return as_svg(draw_drift(drift), "PCOC of each period", width=width, height=260, style="")


def _rows_picture(periods: list[dict[str, Any]], width: int) -> str:
    if not periods or "positives" not in periods[0]:
        return ""
    names = tuple(one["period"] for one in periods)
    figure = draw_rows(names, *([one[name] for one in periods] for name in ("rows", "positives")))
    return as_svg(figure, "Rows of each period", width=width, height=190, style="")


def following_lines(status: dict[str, Any]) -> list[str]:
    """Return in sentences which memory is used, and which field values move by themselves."""
    found = status.get("following")
    if not found:
        return []
    lines = [
        f"The level follows rows with a mean age of {found['level_age']:.3g} periods, slope and shape "
        f"{found['shape_age']:.3g}."
    ]
    for one in found["values"]:
        same = f"; {one['same_as']} always occurs with it and cannot be told apart" if one["same_as"] else ""
        lines.append(
            f"{one['field']}={MISSING_LABEL if one['value'] is None else one['value']} moves by itself since "
            f"{one['since']}, by {one['offset']:+.2f} logits ({one['low']:+.2f} … {one['high']:+.2f}), from rows with "
            f"a mean age of {one['memory']:.3g} periods{same}."
        )
    if found["moving"] > len(found["values"]):
        lines.append(f"{found['moving'] - len(found['values']):,} more values move by themselves, less far.")
    if found["others"]:
        low, high = (f"{age:.3g}" for age in found["others_age"])
        age = low if low == high else f"{low} to {high}"
        other = f"{counted(found['others'], 'field value')} move{'s' if found['others'] == 1 else ''}"
        lines.append(f"{other} with the level, from rows with a mean age of {age} periods.")
    return lines


_TELLING = 10
"""With less evidence than this, the page names no change: its most likely beginning is a matter of chance."""


def watched_lines(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the monitor watches, all rows first, as people read it."""
    return [_watched(line) for line in (status["monitor"] or {}).get("table", [])]


def _watched(line: dict[str, Any]) -> dict[str, Any]:
    pcoc, low, high = (figure(line[name], 3) for name in ("pcoc", "pcoc_low", "pcoc_high"))
    changed = line["log_evidence"] >= np.log(_TELLING)
    return {
        **line,
        "name": {"level": "All rows", "slope": "Slope"}.get(line["what"], line["what"]),
        "since": line["since"] if changed else "–",
        "pcoc": f"{pcoc} ({low} … {high})" if changed else "–",
        "excess": f"{line['excess']:+,.0f}" if changed else "–",
        "evidence": evidence_text(line["log_evidence"]),
        "served": served_text(line.get("served")),
    }


def served_text(served: Mapping[str, Any] | None) -> str:
    """Return the PCOC since a version is served, with its interval; a dash if there is none."""
    if served is None:
        return "–"
    value, low, high = ("∞" if served[name] is None else figure(served[name], 3) for name in ("pcoc", "low", "high"))
    return f"{value} ({low} … {high})"


# The page of a difference: what changes from one model to another, by field value and by score.

_MOST_CONTEXTS = 200
_MOST_PICTURES = 12
_POINTS = 80
_MOST_NAMES = 20


def write_difference_page(
    path: str | PathLike[str],
    difference: ModelDifference,
    old: CalibrationModel,
    new: CalibrationModel,
    *,
    title: str = "What changes",
) -> Path:
    """Write the difference of two models as one self-contained HTML page, which needs no script.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    difference : what `mcnet.diff` returned for the two models.
    old, new : the models, for the pictures of their curves.
    title : the heading of the page.

    Returns
    -------
    path : the file written.
    """
    lines = difference.table.head(_MOST_CONTEXTS).to_dicts()
    left_out = difference.table.height - len(lines)
    return write_page(
        path,
        "difference.html.j2",
        title=title,
        lead=_difference_lead(difference),
        weighed="the rows given" if difference.weighted_by == "rows" else "scores spread evenly over the fitted range",
        by_rows=difference.weighted_by == "rows",
        models=[_model(name, model) for name, model in (("Old", old), ("New", new))],
        lines=[_difference_line(line) for line in lines],
        left_out=count(left_out) if left_out else "",
        bands=[
            {**_difference_line(band), "score": f"{band['score_low']:.3g} … {band['score_high']:.3g}"}
            for band in difference.by_score.to_dicts()
        ],
        only=[
            (which, count(len(names)), ", ".join(names[:_MOST_NAMES]), len(names) > _MOST_NAMES)
            for which, names in (("old", difference.only_old), ("new", difference.only_new))
            if names
        ],
        pictures=_pictures(difference, old, new),
    )


def _difference_lead(difference: ModelDifference) -> str:
    if difference.largest == 0.0:
        return "Nothing changes: both models give the same probabilities."
    first = difference.table.row(0, named=True)
    most = f" Most of it in {first['context']} ({first['shift']:+.2%})." if difference.table.height > 1 else ""
    return (
        f"The mean probability changes by {difference.shift:+.2%}; no probability by more than "
        f"{percent(difference.largest)}.{most}"
    )


def _difference_line(line: dict[str, Any]) -> dict[str, str]:
    shown = {name: f"{100 * line[name]:.4g}\N{NO-BREAK SPACE}%" for name in ("old_rate", "new_rate")}
    more = {"weight": count(line["weight"]), "shift": f"{line['shift']:+.2%}"}
    if "context" in line:
        more |= {
            "context": line["context"],
            "largest": percent(line["largest"]),
            "moved": f"{line['positives_moved']:+,.1f}",
        }
    return {**shown, **more}


def _model(name: str, model: CalibrationModel) -> tuple[str, str]:
    history = model.provenance
    periods = history.get("fitted_periods") or {}
    until = periods.get("last") or history.get("last_period")
    if until:
        until = shown_periods([str(until), str(periods.get("first", ""))])[0]
    rows = f", {count(history['rows'])} rows" if history.get("rows") else ""
    return name, f"{model.method}{rows}{f', until {until}' if until else ''}"


def _pictures(difference: ModelDifference, old: CalibrationModel, new: CalibrationModel) -> list[tuple[str, str]]:
    """Return the curves of both models in the contexts that change most."""
    bands = difference.by_score
    ends = np.clip([bands["score_low"].min(), bands["score_high"].max()], 1e-6, 1.0 - 1e-6)
    low, high = logit(ends)
    score = sigmoid(np.linspace(low, max(high, low + 1e-3), _POINTS))
    pictures = []
    for index, name in zip(difference.order[:_MOST_PICTURES], difference.table["context"], strict=False):
        field = difference.contexts.columns(np.full(_POINTS, index, dtype=np.int32)) if old.fields else None
        lines = [
            Line(label, score, model.predict(score, field, score_type="probability"))
            for label, model in (("old", old), ("new", new))
        ]
        pictures.append((name, as_svg(draw_curves(lines), f"Curves of {name}")))
    return pictures
