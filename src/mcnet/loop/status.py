"""The status of the loop: what is served, what the last run decided and why, and whether it is calibrated."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import polars as pl

from mcnet._shared.file_lock import exclusive_lock
from mcnet._shared.json_files import write_json
from mcnet._shared.json_lines import finite
from mcnet.errors import McnetError
from mcnet.loop.folder import LoopFolder
from mcnet.loop.learning import Learnt
from mcnet.report.status_page import write_status_page
from mcnet.tracking.journal import Journal
from mcnet.tracking.monitor import Monitor
from mcnet.versions.version import now
from mcnet.versions.view import RegistryView

__all__ = ["refresh_status", "status_document", "write_status"]

SHOWN_PERIODS, SHOWN_RUNS, SHOWN_VERSIONS, SHOWN_VALUES = 60, 20, 10, 12
_OVERALL = ("level", "slope")
RUNS_READ = 200
"""What was served in the shown periods is looked up in so many runs."""


def status_document(
    journal: Journal, registry: RegistryView, folder: LoopFolder, learnt: Learnt | None, monitor: Monitor | None
) -> dict[str, Any]:
    """Return the status as JSON-able values.

    Parameters
    ----------
    journal, registry, folder : of the loop; the line of the last run is written already.
    learnt : what the tracker knows; None if there is no period yet.
    monitor : the monitor of what was served; None if there is no period yet.
    """
    runs = folder.last_runs(RUNS_READ)
    entries = journal.entries()
    document: dict[str, Any] = finite(
        {
            "format": "mcnet status",
            "version": 1,
            "time": now(),
            "journal": {
                "path": str(journal.path),
                "periods": len({entry.period for entry in entries}),
                "last_period": journal.periods[-1] if entries else None,
                "rows": sum(entry.rows for entry in entries),
            },
            "registry": str(registry.path),
            **_versions(registry),
            **_runs(runs),
            "decision": next((run for run in reversed(runs) if run["gate"] is not None), None),
            "periods": [] if learnt is None else _periods(learnt, runs),
            "alarms": [{**alarm, "told": run["time"]} for run in reversed(runs) for alarm in reversed(run["alarms"])][
                :SHOWN_RUNS
            ],
            "monitor": None if monitor is None else _monitor(monitor),
        }
    )
    return document


def _runs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last run, and the list of runs."""
    ended = next((run["time"] for run in reversed(runs) if run["outcome"] != "failed"), None)
    return {
        "last_run": runs[-1],
        "last_ended": ended,
        "runs": [_shown(run) for run in reversed(runs[-SHOWN_RUNS:])],
    }


def _versions(registry: RegistryView) -> dict[str, Any]:
    """Return what is served now, whether it is held, and the newest versions."""
    promoted = registry.promoted
    return {
        "current": asdict(promoted[-1]) if promoted else None,
        "held": None if registry.held is None else str(registry.held),
        "versions": [asdict(version) for version in reversed(registry.newest(SHOWN_VERSIONS))],
    }


def refresh_status(registry: RegistryView) -> None:
    """Write the status again after the registry or the list of runs has changed; the rest is as the last run left it.

    Every change of a registry calls this (a release, a rollback, …), and so does a run that failed.

    Parameters
    ----------
    registry : the registry of the loop; one without a loop is left as it is.
    """
    folder = LoopFolder(registry.path)

    def refreshed() -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = json.loads(folder.status_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None  # there is no status yet, or none that can be read: the history of runs has the lines
        runs = folder.last_runs(RUNS_READ)
        if not runs:
            return None
        found = {"time": now(), **_runs(runs)}
        with suppress(McnetError):  # a damaged registry: what was known of it stays
            found |= _versions(registry)
        document |= finite(found)
        return document

    if folder.status_file.exists():
        write_status(folder, refreshed)


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    names = ("time", "seconds", "outcome", "reason", "version", "replaced", "forced", "until", "note")
    return {name: run[name] for name in names} | {
        "rows": run["added"]["rows"],
        "learnt": len(run["learnt"]),
        "alarms": len(run["alarms"]),
    }


def _periods(learnt: Learnt, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last periods: their rows, and the PCOC of the scores, of the tracker's forecast and of what served."""
    served = {one["period"]: one for run in runs for one in run["served"]}
    return [
        {
            "period": one.period,
            "rows": one.rows,
            "weight": one.weight,
            "positives": one.positives,
            "base_pcoc": one.base_pcoc,
            "tracker_pcoc": one.tracker_pcoc,
            "served_pcoc": served.get(one.period, {}).get("pcoc"),
            "served_version": served.get(one.period, {}).get("version"),
            "base_log_loss": one.base_loss / one.weight,
            "tracker_log_loss": one.tracker_loss / one.weight,
        }
        for one in learnt.judged[-SHOWN_PERIODS:]
    ]


def _monitor(monitor: Monitor) -> dict[str, Any]:
    table = monitor.table()
    if table.height:  # all rows first, then the values with most evidence
        table = pl.concat([table.filter(pl.col("what").is_in(_OVERALL)), table.filter(~pl.col("what").is_in(_OVERALL))])
    return {
        "alpha": monitor.alpha,
        "last_period": monitor.last_period,
        "watched": table.height,
        "alarms": table.filter(pl.col("alarm")).height if table.height else 0,
        "table": table.head(SHOWN_VALUES).to_dicts(),
    }


def write_status(folder: LoopFolder, status: Callable[[], dict[str, Any] | None]) -> None:
    """Write the status for programs and for people, each file whole or not at all.

    Parameters
    ----------
    folder : of the loop.
    status : returns the status, or None to leave the files as they are. It is called under a lock, so that what it
        reads of the registry is not older than what another process has written meanwhile.
    """
    with exclusive_lock(folder.path / ".status-lock"):
        document = status()
        if document is not None:
            write_json(folder.status_file, document, indent=1)
            write_status_page(folder.status_page, document)
