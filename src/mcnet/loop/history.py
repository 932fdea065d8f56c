"""The history of runs: one line per run, including failed ones."""

import time
from contextlib import suppress
from os import PathLike
from typing import Any

from mcnet._shared.json_lines import finite
from mcnet.errors import McnetError
from mcnet.loop.folder import LoopFolder
from mcnet.loop.outcome import Update
from mcnet.loop.status import refresh_status
from mcnet.versions.registry import Registry
from mcnet.versions.version import now

__all__ = ["add_failed_run", "add_run", "record_failed_run"]


def record_failed_run(registry: str | PathLike[str], reason: str, *, wait_seconds: float = 60.0) -> None:
    """Write the line of a run that could not do so itself, since something ended its process.

    Parameters
    ----------
    registry : the folder of the registry.
    reason : what is known of its end.
    wait_seconds : how long to wait for another run that is at work.
    """
    opened = Registry(registry)
    with LoopFolder(opened.path).locked(wait_seconds):
        add_failed_run(opened, reason, "", time.monotonic())


def add_failed_run(registry: Registry, reason: str, note: str, started: float) -> None:
    """Write the line of a run that ended with an error; what earlier runs have decided stays."""
    folder = LoopFolder(registry.path)
    earlier = folder.last_runs(1)
    last = earlier[0] if earlier else {}
    version = last.get("version")
    with suppress(McnetError):  # somebody may have promoted another one since the last run
        version = None if registry.current_number is None else str(registry.current_number)
    done = Update("failed", reason, version, until=last.get("until"))
    kept = {"decided": last.get("decided"), "alarms_told": last.get("alarms_told", [])}
    add_run(folder, done, started, note, served=[], **kept)
    refresh_status(registry)


def add_run(folder: LoopFolder, done: Update, started: float, note: str, **more: Any) -> None:
    """Write the line of a run, and what the next runs need to know of it."""
    seconds = round(time.monotonic() - started, 3)
    folder.add_run(finite({"time": now(), "seconds": seconds, **done.to_dict(), "note": note, **more}))
