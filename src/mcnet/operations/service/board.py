"""The board: what every worker counts, in memory that all workers share, and the sums for Prometheus."""

import fcntl
import math
import mmap
import os
import shutil
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from mcnet.errors import InputError
from mcnet.version import __version__

if TYPE_CHECKING:
    from mcnet.operations.service.served import ServedHeads, ServedVersions

BOARD_PREFIX = "mcnet-serve-"
"""How the folders of boards are called, among temporary files."""

_STARTING_SECONDS = 3600.0
"""A folder this young may be that of a service whose workers are about to start."""

ROUTES = ("calibrate", "infer", "feedback", "versions", "dashboard", "metrics", "health", "other")
"""Groups of routes that are counted together."""

STATUSES = ("2xx", "4xx", "5xx")

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the latency histogram in seconds; one more bucket has what took longer."""

_SINGLE = ("incomplete_bodies", "store_errors", "feedback_commits", "looked_at", "pid")
_SUMS = ("unseen_rows", "unknown_keys", "reloads", "reload_failures", "feedback_rows", "feedback_known")
"""Sums per head that Prometheus gets under these names."""
_PER_HEAD = ("head", "version", "rows", *_SUMS)
"""What is counted per head: its number in the store, the version that is served, and sums."""
_ROWS, _UNSEEN_ROWS = _PER_HEAD.index("rows"), _PER_HEAD.index("unseen_rows")
_PER_ROUTE = len(STATUSES) + len(BUCKETS) + 2
_HEADS_BEGIN = len(_SINGLE) + len(ROUTES) * _PER_ROUTE
_MOST_HEADS = 256
_SLOTS = _HEADS_BEGIN + _MOST_HEADS * len(_PER_HEAD)


class _Counts:
    """Numbers by name. Several threads may count at the same time."""

    names: tuple[str, ...]

    def __init__(self, values: "memoryview[float] | list[float]") -> None:
        self.values = values
        self._lock = Lock()

    def __getitem__(self, name: str) -> float:
        return float(self.values[self.names.index(name)])

    def __setitem__(self, name: str, value: float) -> None:
        self.values[self.names.index(name)] = value

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count something."""
        with self._lock:
            self.values[self.names.index(name)] += amount


class HeadNumbers(_Counts):
    """The numbers of one head in one worker, or sums over workers."""

    names = _PER_HEAD

    def count_rows(self, number: int, unseen: int) -> None:
        """Count predictions, and how many of them had a field value that the model does not know."""
        with self._lock:
            self.values[_ROWS] += number
            if unseen:
                self.values[_UNSEEN_ROWS] += unseen


class Numbers(_Counts):
    """The numbers of one worker, or sums over workers."""

    names = _SINGLE

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
        self._heads: dict[int, HeadNumbers] = {}
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
                if path.stat().st_size < 8 * _SLOTS:
                    continue  # its worker is just starting
                with path.open("r+b") as file:
                    view = self._mapped(path.name, file.fileno())
            yield path.name, Numbers(view)

    def total(self) -> Numbers:
        """Return the sums over all workers, those that are gone included."""
        return Numbers([sum(column) for column in zip(*(n.values[:_HEADS_BEGIN] for _, n in self._all()), strict=True)])

    def head(self, number: int) -> HeadNumbers:
        """Return what this worker counts of a head.

        Parameters
        ----------
        number : of the head in its store.
        """
        if number not in self._heads:
            own = self.own.values
            taken = {int(own[begin]): begin for begin in reversed(_HEAD_SLOTS)}  # the first free one is left under 0
            begin = taken.get(number, taken.get(0))
            if begin is None:
                raise InputError(f"a service has at most {_MOST_HEADS} heads; use another store for the others")
            self._heads[number] = HeadNumbers(own[begin : begin + len(_PER_HEAD)])
            self._heads[number]["head"] = number
        return self._heads[number]

    def total_of(self, number: int) -> HeadNumbers:
        """Return the sums of a head over all workers, those that are gone included."""
        found = [part for _, numbers in self._all() if (part := _part_of(numbers, number)) is not None]
        return HeadNumbers([sum(column) for column in zip(*found, strict=True)] or [0.0] * len(_PER_HEAD))

    def served(self, number: int) -> list[str]:
        """Return the version of a head that each living worker serves; "0" of one that serves none."""
        parts = [_part_of(numbers, number) for numbers in self.living()]
        return [str(0 if part is None else int(HeadNumbers(part)["version"])) for part in parts]

    def living(self) -> list[Numbers]:
        """Return the numbers of the workers that live."""
        everybody, own = self._all(), os.getpid()
        return [numbers for name, numbers in everybody if numbers["pid"] == own or _is_locked(self.folder / name)]


_HEAD_SLOTS = range(_HEADS_BEGIN, _SLOTS, len(_PER_HEAD))


def _part_of(numbers: Numbers, head: int) -> "memoryview[float] | list[float] | None":
    """Return the numbers of a head among those of a worker; None if it never served that head."""
    values = numbers.values
    return next((values[at : at + len(_PER_HEAD)] for at in _HEAD_SLOTS if values[at] == head), None)


def _is_locked(path: Path) -> bool:
    """Tell whether the worker of a file lives."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def has_served(folder: Path) -> bool:
    """Tell whether a worker of a service has ever loaded a version."""
    versions = slice(_HEADS_BEGIN + _PER_HEAD.index("version"), _SLOTS, len(_PER_HEAD))
    boards = (path.read_bytes() for path in folder.glob("worker-*"))
    return any(any(memoryview(board).cast("d")[versions]) for board in boards if len(board) == 8 * _SLOTS)


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


def metrics_text(board: Board, heads: "ServedHeads", statuses: Mapping[str, dict[str, Any] | None]) -> str:
    """Return the metrics of the whole service, whichever worker is asked.

    Parameters
    ----------
    board : the numbers of all workers.
    heads : what this worker serves.
    statuses : by head, what the update job wrote last, if it ever ran: the PCOC and the evidence of the monitor.
    """
    total, living = board.total(), board.living()
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
    one("mcnet_incomplete_bodies_total", "counter", "Requests that ended in their body.", total["incomplete_bodies"])
    one("mcnet_store_errors_total", "counter", "Times the store could not be read or written.", total["store_errors"])
    text = "Transactions in which feedback was written, several requests in each."
    one("mcnet_feedback_commits_total", "counter", text, total["feedback_commits"])
    one("mcnet_store_reachable", "gauge", "0 while the store cannot be reached.", heads.unreachable is None)
    values: dict[str, list[Sample]] = defaultdict(list)
    for name, head in heads.by_name.items():
        for metric, value in _head_values(board, head).items():
            values[metric].append(("", {"head": name}, value))
        for metric, labels, value in _monitor_values(statuses.get(name)):
            values[metric].append(("", {"head": name, **labels}, value))
    for metric, (kind, text) in _HEAD_METRICS.items():
        if metric in values:
            put(metric, kind, text, values[metric])
    return "\n".join(lines) + "\n"


_HEAD_METRICS = {
    "mcnet_predictions_total": ("counter", "Rows calibrated."),
    "mcnet_unseen_rows_total": ("counter", "Rows with a field value the model does not know."),
    "mcnet_unknown_keys_total": ("counter", "Keys of records that no model field has."),
    "mcnet_model_version": ("gauge", "The version served."),
    "mcnet_model_versions_served": ("gauge", "Different versions served by the workers now."),
    "mcnet_model_age_seconds": ("gauge", "Time since the served version was added."),
    "mcnet_model_held": ("gauge", "1 while the current version is held and updates publish nothing."),
    "mcnet_reloads_total": ("counter", "Versions loaded in place of another, in all workers."),
    "mcnet_reload_failures_total": ("counter", "Versions refused while the one before served on, in all workers."),
    "mcnet_feedback_rows_total": ("counter", "Rows of feedback added to the journal."),
    "mcnet_feedback_known_total": ("counter", "Feedback that had come before."),
    "mcnet_update_age_seconds": ("gauge", "Time since the last run of the update job that did not fail."),
    "mcnet_update_failed": ("gauge", "1 if the last run of the update job failed."),
    "mcnet_monitor_pcoc": ("gauge", "Predicted over observed positives of all rows since the most probable change."),
    "mcnet_monitor_e_value": ("gauge", "Evidence against calibration, weighted by its share of alpha."),
    "mcnet_monitor_alarms": ("gauge", "Alarms that stand: of all rows, the slope, and field values."),
    "mcnet_update_refused": ("gauge", "1 while the gate has refused the last new model."),
    "mcnet_suspect_periods": ("gauge", "Suspect periods that are kept and not learnt."),
    "mcnet_alerts_waiting": ("gauge", "Alerts that no webhook has taken yet; those of the last days."),
    "mcnet_alerts_sent_total": ("counter", "Alerts that the webhook has taken."),
    "mcnet_alert_failures_total": ("counter", "Attempts to send an alert that failed."),
    "mcnet_alerts_dropped_total": ("counter", "Alerts that were given up."),
    "mcnet_value_pcoc": ("gauge", "Predicted over observed positives of a field value since the version is served."),
    "mcnet_value_pcoc_low": ("gauge", "The lower end of its 95 % interval."),
    "mcnet_value_pcoc_high": ("gauge", "The upper end of its 95 % interval."),
    "mcnet_value_rows": ("gauge", "The rows of a field value since the version is served."),
}


_ALERT_COUNTS = {
    "mcnet_alerts_waiting": "waiting",
    "mcnet_alerts_sent_total": "sent",
    "mcnet_alert_failures_total": "failures",
    "mcnet_alerts_dropped_total": "dropped",
}
_VALUE_NUMBERS = {
    "mcnet_value_pcoc": "pcoc",
    "mcnet_value_pcoc_low": "low",
    "mcnet_value_pcoc_high": "high",
    "mcnet_value_rows": "rows",
}


def _head_values(board: Board, head: "ServedVersions") -> dict[str, float]:
    total, served = board.total_of(head.number), head.current
    values = {f"mcnet_{name}_total": total[name] for name in _SUMS}
    values |= {"mcnet_predictions_total": total["rows"], "mcnet_model_held": head.held is not None}
    values["mcnet_model_versions_served"] = len(set(board.served(head.number)))
    if served is not None:
        about = served.version
        values |= {"mcnet_model_version": about.number, "mcnet_model_age_seconds": _age(about.added)}
    return values


def _monitor_values(status: dict[str, Any] | None) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield what the update job found: the level and the slope of all rows, alarms, and the values that matter most."""
    if status is None or status["last_run"] is None:
        return
    run, ended = status["last_run"], status.get("last_ended")
    if isinstance(ended, str):
        yield "mcnet_update_age_seconds", {}, _age(ended)
    yield "mcnet_update_failed", {}, run.get("outcome") == "failed"
    yield "mcnet_update_refused", {}, (status.get("decision") or {}).get("outcome") == "refused"
    yield "mcnet_suspect_periods", {}, sum(one.get("state") == "waiting" for one in status.get("suspects") or [])
    for metric, name in _ALERT_COUNTS.items():
        yield metric, {}, (status.get("alerts") or {}).get(name, 0)
    monitor = status.get("monitor")
    if not monitor:
        return
    for one in monitor.get("values") or ():
        field, _, value = one["what"].partition("=")
        for metric, name in _VALUE_NUMBERS.items():
            unknown = math.nan if name == "rows" else math.inf  # JSON has no infinite ends
            number = one.get(name)
            yield metric, {"field": field, "value": value}, unknown if number is None else number
    watched = {line["what"]: line for line in monitor.get("table", []) if line.get("what") in ("level", "slope")}
    if "level" in watched:
        pcoc = watched["level"].get("pcoc")
        yield "mcnet_monitor_pcoc", {}, math.nan if pcoc is None else pcoc
    for what, line in watched.items():
        if line.get("log_evidence") is not None:
            yield "mcnet_monitor_e_value", {"what": what}, math.exp(min(line["log_evidence"], 700.0))
    yield "mcnet_monitor_alarms", {}, monitor.get("alarms", math.nan)


def _histograms(total: Any) -> Iterable[Sample]:
    for index, route in enumerate(ROUTES):
        counts, seconds = total.latencies(index)
        so_far = 0.0
        for end, number in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
            so_far += number
            yield "_bucket", {"route": route, "le": end}, so_far
        yield "_sum", {"route": route}, seconds
        yield "_count", {"route": route}, so_far


def _age(timestamp: str) -> float:
    try:
        return max(time.time() - datetime.fromisoformat(timestamp).timestamp(), 0.0)
    except ValueError:
        return math.nan


def _labels(labels: dict[str, str]) -> str:
    """Return labels as Prometheus has them."""
    pairs = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if labels else ""


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
"""What Prometheus has in the place of characters that a label must not have."""


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))
