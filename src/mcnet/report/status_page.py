"""The status page of the loop: one small HTML page without scripts."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.terminal_text import count, figure
from mcnet.plots.svg import Whiskers, small_drift
from mcnet.report.assets import read_asset, template
from mcnet.report.monitor_page import evidence_text

__all__ = ["write_status_page"]

_SHORTEST_DIGEST = 12
_PERIODS_ON_A_PHONE = 24


def write_status_page(path: str | PathLike[str], status: dict[str, Any]) -> Path:
    """Write the status of a loop as one self-contained page.

    Parameters
    ----------
    path : the file to write; it appears complete or not at all.
    status : what `status.json` of the loop has.
    """
    run, current = status["last_run"], status["current"]
    decision = status["decision"]
    gate = None if decision is None else decision["gate"]
    page = template("status.html.j2").render(
        headline=_headline(run, decision, current, status["held"]),
        held=status["held"],
        registry=status["registry"],
        good=run["outcome"] != "failed"
        and not run["alarms"]
        and (decision is None or decision["outcome"] != "refused"),
        run=run,
        decision=decision,
        gate=gate,
        comparison=_comparison(gate),
        shift=_shift(gate),
        current=current,
        facts=_facts(status),
        picture=_picture(status["periods"], 720),
        small_picture=_picture(status["periods"][-_PERIODS_ON_A_PHONE:], 360),
        watched=[_watched(line) for line in (status["monitor"] or {}).get("table", [])],
        limit="" if status["monitor"] is None else f"{1.0 / status['monitor']['alpha']:,.6g}",
        alarms=status["alarms"],
        versions=[
            {**version, "current": current is not None and version["number"] == current["number"]}
            for version in status["versions"]
        ],
        runs=[{**one, "rows": count(one["rows"]), "time": _moment(one["time"])} for one in status["runs"]],
        moment=_moment,
        count=count,
        style=read_asset("page.css"),
    )
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return Path(path)


def _moment(text: str) -> str:
    """Return a moment of UTC as people read it.

    >>> _moment("2026-11-16T13:05:00+00:00")
    '2026-11-16 13:05'
    """
    return text[:16].replace("T", " ")


def _headline(
    run: dict[str, Any], decision: dict[str, Any] | None, current: dict[str, Any] | None, held: str | None
) -> str:
    """Return what the last run did, and what people have done with the versions since."""
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


def _comparison(gate: dict[str, Any] | None) -> dict[str, Any] | None:
    found = None if gate is None else gate["comparison"]
    if found is None:
        return None
    ends = (found["low"], found["high"])
    interval = "" if None in ends else f"{found['low']:+.5f} … {found['high']:+.5f}"
    return {**found, "difference": f"{found['difference']:+.5f}", "interval": interval}


def _shift(gate: dict[str, Any] | None) -> dict[str, str] | None:
    found = None if gate is None else gate["shift"]
    if found is None:
        return None
    return {"overall": f"{found['overall']:+.1%}", "largest": f"{found['largest']:+.1%}", "where": found["where"]}


def _facts(status: dict[str, Any]) -> list[tuple[str, str]]:
    journal, current = status["journal"], status["current"]
    facts = [
        ("Journal", f"{journal['path']}: {count(journal['rows'])} rows in {count(journal['periods'])} periods"),
        ("Last period", journal["last_period"] or "none yet"),
        ("Registry", status["registry"]),
    ]
    if current is not None:
        facts += [
            ("Current version", f"{current['number']}, added {_moment(current['added'])} UTC"),
            ("Fitted until", current["fitted_until"] or "unknown"),
            ("Fields", ", ".join(current["fields"]) or "none"),
            ("Checksum", f"sha256:{current['digest'][:_SHORTEST_DIGEST]}…"),
        ]
    return facts


def _picture(periods: list[dict[str, Any]], width: int) -> str:
    """Return the PCOC of each period as a picture: the scores, and what was served or, before that, forecast."""
    if not periods:
        return ""
    names = [one["period"] for one in periods]
    after = [one["served_pcoc"] or one["tracker_pcoc"] for one in periods]
    before = [one["base_pcoc"] for one in periods]
    return small_drift(
        names,
        [Whiskers("scores as they are", _numbers(before)), Whiskers("served, or forecast before", _numbers(after))],
        width=width,
    )


def _numbers(ends: list[Any]) -> Any:
    return np.array([[np.nan if end is None else end for end in one] for one in ends], dtype=np.float64)


def _watched(line: dict[str, Any]) -> dict[str, Any]:
    missing = {name: float("nan") if line[name] is None else line[name] for name in ("pcoc", "pcoc_low", "pcoc_high")}
    return {
        **line,
        "pcoc": figure(missing["pcoc"], 3),
        "interval": f"{figure(missing['pcoc_low'], 3)} … {figure(missing['pcoc_high'], 3)}",
        "excess": f"{line['excess']:+,.0f}",
        "evidence": evidence_text(line["log_evidence"]),
    }
