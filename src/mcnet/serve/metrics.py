"""`GET /metrics`: what Prometheus scrapes, summed over all workers; few series, however many clients and values."""

import math
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from mcnet.serve.board import BUCKETS, ROUTES, STATUSES, Board
from mcnet.serve.versions import ServedVersions
from mcnet.version import __version__

__all__ = ["METRICS_TYPE", "metrics_text"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, dict[str, str], float]


def metrics_text(board: Board, versions: ServedVersions, status: dict[str, Any] | None) -> str:
    """Return the metrics of the whole service, whichever worker is asked.

    Parameters
    ----------
    board : the numbers of all workers.
    versions : what this worker serves.
    status : what the update job wrote last, if it ever ran: it has the PCOC and the evidence of the monitor.
    """
    total, living, served = board.total(), board.living(), versions.current
    distinct = {numbers["version"] for numbers in living}
    lines: list[str] = []

    def put(name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in samples)

    def one(name: str, kind: str, text: str, value: float, **labels: str) -> None:
        put(name, kind, text, [("", labels, value)])

    one("mcnet_info", "gauge", "The version of mcnet.", 1, version=__version__)
    one("mcnet_workers", "gauge", "Processes that answer.", len(living))
    put(
        "mcnet_requests_total",
        "counter",
        "Requests answered.",
        [
            ("", {"route": route, "status": status_class}, value)
            for place, route in enumerate(ROUTES)
            for status_class, value in zip(STATUSES, total.statuses(place), strict=True)
        ],
    )
    put("mcnet_request_seconds", "histogram", "Time from a request's head to its answer.", _histograms(total))
    one("mcnet_predictions_total", "counter", "Rows calibrated.", total["rows"])
    one("mcnet_unseen_rows_total", "counter", "Rows with a field value the model does not know.", total["unseen_rows"])
    one("mcnet_unknown_keys_total", "counter", "Keys of records that no model field has.", total["unknown_keys"])
    one("mcnet_incomplete_bodies_total", "counter", "Requests that ended in their body.", total["incomplete_bodies"])
    one("mcnet_model_version", "gauge", "The version served.", served.version.number)
    one("mcnet_model_versions_served", "gauge", "Different versions served by the workers now.", len(distinct))
    one("mcnet_model_age_seconds", "gauge", "Time since the served version was added.", _age(served.version.added))
    one("mcnet_model_held", "gauge", "1 while the current version is held and updates publish nothing.", versions.held)
    one("mcnet_reloads_total", "counter", "Versions loaded in place of another, in all workers.", total["reloads"])
    one(
        "mcnet_reload_failures_total",
        "counter",
        "Versions refused while the one before served on, in all workers.",
        total["reload_failures"],
    )
    one("mcnet_feedback_rows_total", "counter", "Rows of feedback added to the journal.", total["feedback_rows"])
    one("mcnet_feedback_known_total", "counter", "Feedback that had come before.", total["feedback_known"])
    if status is not None:
        _put_monitor(put, one, status)
    return "\n".join(lines) + "\n"


def _histograms(total: Any) -> Iterable[Sample]:
    for place, route in enumerate(ROUTES):
        counts, seconds = total.latencies(place)
        so_far = 0.0
        for end, number in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
            so_far += number
            yield "_bucket", {"route": route, "le": end}, so_far
        yield "_sum", {"route": route}, seconds
        yield "_count", {"route": route}, so_far


def _put_monitor(put: Any, one: Any, status: dict[str, Any]) -> None:
    """Put what the update job found: the level and the slope of all rows, and the number of alarms."""
    run, ended = status.get("last_run") or {}, status.get("last_ended")
    if isinstance(ended, str):
        text = "Time since the last run of the update job that did not fail."
        one("mcnet_update_age_seconds", "gauge", text, _age(ended))
    one("mcnet_update_failed", "gauge", "1 if the last run of the update job failed.", run.get("outcome") == "failed")
    monitor = status.get("monitor")
    if not monitor:
        return
    watched = {line["what"]: line for line in monitor.get("table", []) if line.get("what") in ("level", "slope")}
    if "level" in watched:
        pcoc = watched["level"].get("pcoc")
        text = "Predicted over observed positives of all rows since the most probable change."
        one("mcnet_monitor_pcoc", "gauge", text, math.nan if pcoc is None else pcoc)
    evidence = [
        ("", {"what": what}, math.exp(min(line["log_evidence"], 700.0)))
        for what, line in watched.items()
        if line.get("log_evidence") is not None
    ]
    put("mcnet_monitor_e_value", "gauge", "Evidence against calibration, weighted by its share of alpha.", evidence)
    alarms = monitor.get("alarms", math.nan)
    one("mcnet_monitor_alarms", "gauge", "Alarms that stand: of all rows, the slope, and field values.", alarms)


def _age(moment: str) -> float:
    try:
        return max(time.time() - datetime.fromisoformat(moment).timestamp(), 0.0)
    except ValueError:
        return math.nan


def _labels(labels: dict[str, str]) -> str:
    """Return labels as Prometheus has them; all are words of ours, without characters to escape."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    return (
        "NaN"
        if math.isnan(value)
        else str(int(value))
        if math.isfinite(value) and value == int(value)
        else repr(float(value))
    )
