"""The page of the state of a head: written as a file without scripts, answered by the service as its dashboard."""

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.files import whole_file
from mcnet._shared.messages import count, counted, figure
from mcnet.plots.style import as_svg
from mcnet.plots.timeline import Drift, draw_drift, draw_rows
from mcnet.report.page import read_asset, template
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import shown_periods

_WIDTHS = (("on-desk", 560, 60), ("on-phone", 340, 24))
"""For a wide screen and for a phone: the class of a picture, its width in pixels, and how many periods it shows."""


def write_status_page(path: str | PathLike[str], status: dict[str, Any]) -> Path:
    """Write the state of a head as one self-contained page."""
    with whole_file(path) as part:
        part.write_text(status_html(status, read_asset("page.css") + read_asset("status.css")), encoding="utf-8")
    return Path(path)


def status_html(status: dict[str, Any], style: str, script: str = "", root: str = "") -> str:
    """Return the state of a head as a page; one that refreshes itself and can change versions if it has a script."""
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


def evidence_text(log_evidence: float) -> str:
    """Return an e-value as people read it.

    >>> evidence_text(0.0), evidence_text(8.0), evidence_text(40.0), evidence_text(-9.0)
    ('1.0', '2,981', 'over a million', '0.0')
    """
    if log_evidence > np.log(1e6):
        return "over a million"
    value = float(np.exp(log_evidence))
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.1f}"
