"""What workers count, for Prometheus and the dashboard; prometheus_client adds up the files of all workers."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from mcnet.version import __version__

if TYPE_CHECKING:
    from mcnet.operations.service.served import ServedHeads

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client keeps the numbers of all workers; it is set before a worker starts."""

ROUTES = ("calibrate", "infer", "feedback", "versions", "dashboard", "metrics", "health", "other")
STATUSES = ("2xx", "4xx", "5xx")
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the latency histogram in seconds."""

_REQUESTS = Counter("mcnet_requests", "Requests answered.", ["route", "status"])
_SECONDS = Histogram("mcnet_request_seconds", "Time from a request to its answer.", ["route"], buckets=BUCKETS)
STORE_ERRORS = Counter("mcnet_store_errors", "Times the store could not be read or written.")
FEEDBACK_COMMITS = Counter("mcnet_feedback_commits", "Transactions in which feedback was written.")
LOOKED_AT = Gauge("mcnet_looked_at", "When a worker looked at the store.", multiprocess_mode="liveall")
VERSION = Gauge("mcnet_worker_version", "The version that a worker serves.", ["head"], multiprocess_mode="liveall")
_OF_HEAD = {
    name: Counter(f"mcnet_{name}", text, ["head"])
    for name, text in {
        "predictions": "Rows calibrated.",
        "unseen_rows": "Rows with a field value the model does not know.",
        "unknown_keys": "Keys of records that no model field has.",
        "reloads": "Versions loaded in place of another, in all workers.",
        "reload_failures": "Versions refused while the one before served on, in all workers.",
        "feedback_rows": "Rows of feedback added to the journal.",
        "feedback_known": "Feedback that had come before.",
    }.items()
}
_ANSWERED = {(route, status): _REQUESTS.labels(route, status) for route in ROUTES for status in STATUSES}
_TOOK = {route: _SECONDS.labels(route) for route in ROUTES}


def answered(route: str, status: int, seconds: float) -> None:
    """Count an answer of a group of routes."""
    _ANSWERED[route, STATUSES[0 if status < 400 else 1 if status < 500 else 2]].inc()
    _TOOK[route].observe(seconds)


class HeadNumbers:
    """What this worker counts of one head."""

    def __init__(self, head: str) -> None:
        self._counts = {name: counter.labels(head) for name, counter in _OF_HEAD.items()}
        self.version = VERSION.labels(head)

    def add(self, name: str, amount: float = 1.0) -> None:
        """Count something."""
        self._counts[name].inc(amount)

    def count_rows(self, number: int, unseen: int) -> None:
        """Count predictions, and how many of them had a field value that the model does not know."""
        self._counts["predictions"].inc(number)
        if unseen:
            self._counts["unseen_rows"].inc(unseen)


def _of_all_workers() -> CollectorRegistry:
    """Return the numbers of all workers, those that have ended included, but what these serve."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class Totals:
    """The numbers of all workers at a moment."""

    def __init__(self) -> None:
        families = _of_all_workers().collect()
        self._samples = [sample for family in families for sample in family.samples]

    def each(self, name: str, **labels: str) -> list[float]:
        """Return the samples of a name that have these labels; one per worker of what is not added up."""
        own = labels.items()
        return [one.value for one in self._samples if one.name == name and own <= one.labels.items()]

    def sum(self, name: str, **labels: str) -> float:
        """Return their sum."""
        return sum(self.each(name, **labels))


def served_by_workers(head: str) -> list[str]:
    """Return the version of a head that each living worker serves; "0" of one that serves none."""
    return [str(int(number)) for number in Totals().each("mcnet_worker_version", head=head)]


def metrics_text(heads: "ServedHeads", statuses: Mapping[str, dict[str, Any] | None]) -> bytes:
    """Return the metrics of the whole service, with what the update job wrote last of each head."""
    totals = Totals()
    families: dict[str, GaugeMetricFamily] = {}
    for metric, labels, value in _present(totals, heads, statuses):
        if metric not in families:
            families[metric] = GaugeMetricFamily(f"mcnet_{metric}", PRESENT[metric], labels=list(labels))
        families[metric].add_metric(list(labels.values()), value)
    registry = _of_all_workers()
    registry.register(_Known(families))
    return generate_latest(registry)


@dataclass(eq=False)
class _Known(Collector):
    """Metrics whose values are known."""

    families: dict[str, GaugeMetricFamily]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics."""
        return self.families.values()


Sample = tuple[str, dict[str, str], float]
"""The name of a metric, its labels, and its value."""

PRESENT = {
    "info": "The version of mcnet.",
    "workers": "Processes that answer.",
    "store_reachable": "0 while the store cannot be reached.",
    "model_version": "The version served.",
    "model_versions_served": "Different versions served by the workers now.",
    "model_age_seconds": "Time since the served version was added.",
    "model_held": "1 while the current version is held and updates publish nothing.",
    "update_age_seconds": "Time since the last run of the update job that did not fail.",
    "update_failed": "1 if the last run of the update job failed.",
    "update_refused": "1 while the gate has refused the last new model.",
    "suspect_periods": "Suspect periods that are kept and not learnt.",
    "alerts_waiting": "Alerts that the webhook was sent and has not taken.",
    "monitor_pcoc": "Predicted over observed positives since the most probable change.",
    "monitor_e_value": "Evidence against calibration, weighted by its share of alpha.",
    "monitor_alarms": "Alarms that stand: of all rows, their slope, and field values.",
    "value_pcoc": "Predicted over observed positives of a field value since it is served.",
    "value_pcoc_low": "The lower end of its 95 % interval.",
    "value_pcoc_high": "The upper end of its 95 % interval.",
    "value_rows": "The rows of a field value since the version is served.",
}
"""What is known when Prometheus asks, and not counted: what is served, and what the update job found."""
_VALUES = {"value_pcoc": "pcoc", "value_pcoc_low": "low", "value_pcoc_high": "high", "value_rows": "rows"}


def _present(totals: Totals, heads: "ServedHeads", statuses: Mapping[str, dict[str, Any] | None]) -> Iterator[Sample]:
    yield "info", {"version": __version__}, 1
    yield "workers", {}, len(totals.each("mcnet_looked_at"))
    yield "store_reachable", {}, heads.unreachable is None
    for name, head in heads.by_name.items():
        of_head = {"head": name}
        yield "model_versions_served", of_head, len(set(totals.each("mcnet_worker_version", head=name)))
        yield "model_held", of_head, head.held is not None
        if head.current is not None:
            yield "model_version", of_head, head.current.version.number
            yield "model_age_seconds", of_head, _age(head.current.version.added)
        for metric, labels, value in _of_update(statuses.get(name)):
            yield metric, of_head | labels, value


def _of_update(status: dict[str, Any] | None) -> Iterator[Sample]:
    """Yield what the update job found: evidence of all rows and their slope, alarms, the values that matter most."""
    if status is None or status["last_run"] is None:
        return
    if isinstance(ended := status.get("last_ended"), str):
        yield "update_age_seconds", {}, _age(ended)
    yield "update_failed", {}, status["last_run"].get("outcome") == "failed"
    yield "update_refused", {}, (status.get("decision") or {}).get("outcome") == "refused"
    yield "suspect_periods", {}, sum(one.get("state") == "waiting" for one in status.get("suspects") or [])
    yield "alerts_waiting", {}, status["alerts"]["waiting"]
    monitor = status.get("monitor")
    if not monitor:
        return
    yield "monitor_alarms", {}, monitor.get("alarms", math.nan)
    for one in monitor.get("values", []):
        field, _, value = one["what"].partition("=")
        for metric, name in _VALUES.items():
            unknown = math.nan if name == "rows" else math.inf  # JSON has no infinite ends
            yield metric, {"field": field, "value": value}, unknown if one.get(name) is None else one[name]
    for line in monitor.get("table", []):
        if line["what"] == "level":
            yield "monitor_pcoc", {}, math.nan if line.get("pcoc") is None else line["pcoc"]
        if "=" not in line["what"] and line.get("log_evidence") is not None:
            yield "monitor_e_value", {"what": line["what"]}, math.exp(min(line["log_evidence"], 700.0))


def _age(timestamp: str) -> float:
    try:
        return max(time.time() - datetime.fromisoformat(timestamp).timestamp(), 0.0)
    except ValueError:
        return math.nan
