"""The board: what every worker counts, in memory that all workers share, and the sums for Prometheus."""

import fcntl
import math
import mmap
import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from mcnet.version import __version__

if TYPE_CHECKING:
    from mcnet.operations.service.served import ServedVersions

BOARD_PREFIX = "mcnet-serve-"
"""How the folders of boards are called, among temporary files."""

_STARTING_SECONDS = 3600.0
"""A folder this young may be that of a service whose workers are about to start."""

ROUTES = ("calibrate", "infer", "feedback", "versions", "dashboard", "metrics", "health", "other")
"""Groups of routes that are counted together."""

STATUSES = ("2xx", "4xx", "5xx")

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the latency histogram in seconds; one more bucket has what took longer."""

_SINGLE = (
    "rows",
    "unseen_rows",
    "reloads",
    "reload_failures",
    "feedback_rows",
    "feedback_known",
    "unknown_keys",
    "incomplete_bodies",
    "looked_at",
    "version",
    "pid",
)
_PER_ROUTE = len(STATUSES) + len(BUCKETS) + 2
_SLOTS = len(_SINGLE) + len(ROUTES) * _PER_ROUTE


class Numbers:
    """The numbers of one worker, or sums over workers. Several threads may count at the same time."""

    def __init__(self, values: "memoryview[float] | list[float]") -> None:
        self.values = values
        self._lock = Lock()

    def __getitem__(self, name: str) -> float:
        return float(self.values[_SINGLE.index(name)])

    def __setitem__(self, name: str, value: float) -> None:
        self.values[_SINGLE.index(name)] = value

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count something."""
        with self._lock:
            self.values[_SINGLE.index(name)] += amount

    def rows(self, number: int, unseen: int) -> None:
        """Count predictions, and how many of them had a field value that the model does not know."""
        self.add("rows", number)
        self.add("unseen_rows", unseen)

    def answered(self, route: int, status: int, seconds: float) -> None:
        """Count an answer of a route (its place in ROUTES)."""
        values, begin = self.values, len(_SINGLE) + route * _PER_ROUTE
        with self._lock:
            values[begin + (0 if status < 400 else 1 if status < 500 else 2)] += 1.0
            values[begin + len(STATUSES) + bisect_left(BUCKETS, seconds)] += 1.0
            values[begin + _PER_ROUTE - 1] += seconds

    def statuses(self, route: int) -> list[float]:
        """Return the answers of a route, by class of status."""
        begin = len(_SINGLE) + route * _PER_ROUTE
        return [float(v) for v in self.values[begin : begin + len(STATUSES)]]

    def latencies(self, route: int) -> tuple[list[float], float]:
        """Return how many answers took how long, and the sum of all seconds."""
        begin = len(_SINGLE) + route * _PER_ROUTE + len(STATUSES)
        return [float(v) for v in self.values[begin : begin + len(BUCKETS) + 1]], float(
            self.values[begin + len(BUCKETS) + 1]
        )


class Board:
    """The files of all workers, and the one that this worker owns.

    Parameters
    ----------
    folder : where the files are; the workers of one service share it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: dict[str, memoryview[float]] = {}
        for index in count():
            handle = os.open(folder / f"worker-{index}", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                os.close(handle)
        os.ftruncate(handle, 8 * _SLOTS)
        self._handle = handle  # the lock lasts as long as this process
        self.own = Numbers(self._mapped(f"worker-{index}", handle))
        self.own["pid"] = os.getpid()
        self.own["looked_at"] = 0.0

    def _mapped(self, name: str, handle: int) -> "memoryview[float]":
        self._maps[name] = memoryview(mmap.mmap(handle, 8 * _SLOTS)).cast("d")
        return self._maps[name]

    def _all(self) -> Iterator[tuple[str, Numbers]]:
        for path in sorted(self.folder.glob("worker-*")):
            view = self._maps.get(path.name)
            if view is None:
                handle = os.open(path, os.O_RDWR)
                try:
                    if os.fstat(handle).st_size < 8 * _SLOTS:
                        continue  # its worker is just starting
                    view = self._mapped(path.name, handle)
                finally:
                    os.close(handle)
            yield path.name, Numbers(view)

    def total(self) -> Numbers:
        """Return the sums over all workers, those that are gone included."""
        return Numbers([sum(column) for column in zip(*(n.values for _, n in self._all()), strict=True)])

    def living(self) -> list[Numbers]:
        """Return the numbers of the workers that live."""
        living = []
        for name, numbers in self._all():
            if numbers["pid"] == os.getpid() or self._is_locked(name):
                living.append(numbers)
        return living

    def _is_locked(self, name: str) -> bool:
        return _is_locked(self.folder / name)


def _is_locked(path: Path) -> bool:
    """Tell whether the worker of a file lives."""
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def has_served(folder: Path) -> bool:
    """Tell whether a worker of a service has ever loaded a version."""
    version = slice(8 * _SINGLE.index("version"), 8 * _SINGLE.index("version") + 8)
    return any(any(path.read_bytes()[version]) for path in folder.glob("worker-*"))


def remove_abandoned_boards(folder: Path) -> None:
    """Delete the boards that services which were killed have left among the temporary files."""
    for board in folder.glob(f"{BOARD_PREFIX}*"):
        with suppress(OSError):  # somebody else's, or gone meanwhile
            young = time.time() - board.stat().st_mtime < _STARTING_SECONDS
            if not young and not any(_is_locked(path) for path in board.glob("worker-*")):
                shutil.rmtree(board)


# `GET /metrics`: what Prometheus scrapes, summed over all workers; few series, however many clients and values.

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, dict[str, str], float]


def metrics_text(board: Board, versions: "ServedVersions", status: dict[str, Any] | None) -> str:
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

    def put(name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        lines.append(f"# HELP {name} {help}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in samples)

    def one(name: str, kind: str, help: str, value: float, **labels: str) -> None:
        put(name, kind, help, [("", labels, value)])

    one("mcnet_info", "gauge", "The version of mcnet.", 1, version=__version__)
    one("mcnet_workers", "gauge", "Processes that answer.", len(living))
    put(
        "mcnet_requests_total",
        "counter",
        "Requests answered.",
        [
            ("", {"route": route, "status": status_class}, value)
            for index, route in enumerate(ROUTES)
            for status_class, value in zip(STATUSES, total.statuses(index), strict=True)
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
    for index, route in enumerate(ROUTES):
        counts, seconds = total.latencies(index)
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


def _age(timestamp: str) -> float:
    try:
        return max(time.time() - datetime.fromisoformat(timestamp).timestamp(), 0.0)
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
