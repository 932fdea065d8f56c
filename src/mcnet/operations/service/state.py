"""The state of a service for people: versions, PCOC per period, curves, alarms, traffic."""

import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from mcnet.errors import McnetError
from mcnet.model.drawing import largest_lines, lines_of, score_range
from mcnet.operations.alerts import find_key, name_of
from mcnet.operations.service.board import BUCKETS, ROUTES, Board, HeadNumbers, Numbers
from mcnet.operations.service.http import Problem
from mcnet.operations.service.served import Served, ServedHeads, ServedVersions
from mcnet.operations.service.settings import ServiceSettings
from mcnet.operations.status import status_of
from mcnet.plots.figures import Line, draw_curves
from mcnet.plots.style import Spec, as_svg, numbers
from mcnet.plots.timeline import Drift, draw_drift, draw_rows
from mcnet.report.monitor_page import following_lines, headline, watched_lines
from mcnet.report.page_figures import drift_by_period
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import shown_periods, sorted_periods
from mcnet.store.entries import Entry
from mcnet.store.journal import Journal
from mcnet.store.store import DEFAULT_HEAD, Store
from mcnet.store.versions import DamagedVersion, Registry, Version
from mcnet.version import __version__

# What the update job wrote last, and what is served now.


def loop_status(store: Store, head: str) -> dict[str, Any] | None:
    """Return the status of the loop of a head; None if the update job never ran, or it cannot be read."""
    try:
        document = status_of(store, head)
    except McnetError:
        return None
    return document if _is_status(document) else None


_SHAPE: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "last_run": (dict,),
    "alarms": (list,),
    "periods": (list,),
    "monitor": (dict, type(None)),
}


def _is_status(document: Any) -> bool:
    """Tell whether a document has the parts that are shown."""
    if not isinstance(document, dict) or document.get("format") != "mcnet status":
        return False
    if not all(name in document and isinstance(document[name], kinds) for name, kinds in _SHAPE.items()):
        return False
    table = (document["monitor"] or {}).get("table", [])
    return all(isinstance(line, dict) for line in [*document["periods"], *document["alarms"], *table])


# The state of the service for people: versions, curves, PCOC per period, alarms, traffic and feedback.

_VERSIONS, _EVENTS, _PERIODS, _ALARMS = 25, 12, 30, 10
_MOST_CURVES, _MOST_VALUES = 6, 500
_PCOC_AND_INTERVAL = 3
_WIDTHS = (560, 340)
"""Of pictures, in pixels: for a wide screen and for a phone."""


class ServiceState:
    """Puts the state together; what it takes from the journal is computed once per period and version.

    Parameters
    ----------
    settings, board, heads : of the service.
    """

    def __init__(self, settings: ServiceSettings, board: Board, heads: ServedHeads) -> None:
        self._settings = settings
        self._board = board
        self._heads = heads
        self._computed: dict[str, dict[tuple[str, str, int], dict[str, Any]]] = defaultdict(dict)
        self._lock = threading.Lock()

    def loop_statuses(self) -> dict[str, dict[str, Any] | None]:
        """Return what the update job of each head wrote last, with field values as metrics may name them."""
        if self._heads.unreachable is not None:
            return {}
        statuses = {name: loop_status(self._heads.store, name) for name in list(self._heads.by_name)}
        for name, status in statuses.items():
            if status is not None and status["monitor"]:
                status["monitor"]["values"] = self._told_values(name, status["monitor"].get("values") or [])
        return statuses

    def _told_values(self, head: str, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return field values as they are, with hashes in the place of their names, or none."""
        how = self._settings.field_values
        key = find_key(self._heads.store.state(head)) if how == "hash" else ""
        if how == "hide" or key is None:
            return []
        return [one | {"what": name_of(one["what"], how, key)} for one in values]

    def document(self, head: ServedVersions) -> dict[str, Any]:
        """Return the state of a head as JSON-able values."""
        served = head.current
        total, of_head = self._board.total(), self._board.total_of(head.number)
        status = loop_status(self._heads.store, head.name) or {}
        result: dict[str, Any] = {
            "time": time.time(),
            "mcnet": __version__,
            "name": self._settings.name if head.name == DEFAULT_HEAD else head.name,
            "head": head.name,
            "heads": sorted(self._heads.by_name),
            "may_change": bool(self._settings.tokens),
            "served": None if served is None else _about(served),
            "refused": head.refused,
            "unreachable": self._heads.unreachable,
            **_registry(head.registry),
            "workers": self._board.served(head.number),
            "traffic": _traffic(total, of_head),
            "feedback": {"rows": of_head["feedback_rows"], "known": of_head["feedback_known"]},
            "journal": self._periods(head, status),
            "monitor": _monitor(status),
            "alarms": (status.get("alarms") or [])[:_ALARMS],
            "last_run": _last_run(status),
            **_followed(status),
        }
        public: dict[str, Any] = self._settings.public(result)
        return public

    def _periods(self, head: ServedVersions, status: dict[str, Any]) -> dict[str, Any] | None:
        """Return the last periods of the journal, and the PCOC in each: of what served then, or of what serves now."""
        with self._lock:
            try:
                journal = self._heads.store.journal(head.name)
                result = self._read_periods(journal, head.current, self._computed[head.name])
            except McnetError as error:
                return {"problem": str(error), "periods": []}
        then = {one.get("period"): one for one in status.get("periods") or []}
        for one in result["periods"]:
            measured = then.get(one["period"], {}).get("served_pcoc")
            if isinstance(measured, list) and len(measured) == _PCOC_AND_INTERVAL:
                one |= dict(zip(("pcoc", "low", "high"), measured, strict=True))
                one["version"] = then[one["period"]].get("served_version")
        return result | {"pictures": _pictures(result["periods"])}

    def _read_periods(
        self, journal: Journal, served: Served | None, computed: dict[tuple[str, str, int], dict[str, Any]]
    ) -> dict[str, Any]:
        entries: dict[str, list[Entry]] = defaultdict(list)
        for entry in journal.entries():
            entries[entry.period].append(entry)
        shown = sorted_periods(list(entries))[-_PERIODS:]
        name = served.name if served else ""
        keys = {
            period: (name, period, hash(frozenset((e.source, e.digest, e.age) for e in entries[period])))
            for period in shown
        }
        wanted = [period for period in shown if keys[period] not in computed] if served else []
        sketches = journal.sketches(wanted[0], wanted[-1]) if wanted else ()
        for period, sketch in sketches:
            if period in wanted and served is not None:
                drift = drift_by_period(served.model, {period: sketch.unfolded()})
                series = [numbers(part[:, 0]) for part in (drift.pcoc, drift.low, drift.high)]
                computed[keys[period]] = {
                    "period": period,
                    "raw": series[0][0],
                    "pcoc": series[0][1],
                    "low": series[1][1],
                    "high": series[2][1],
                }
        for key in set(computed) - set(keys.values()):
            del computed[key]
        counted = [
            computed.get(keys[period], {"period": period})
            | {
                "rows": sum(entry.rows for entry in entries[period]),
                "positives": sum(entry.positives for entry in entries[period]),
                "sources": len(entries[period]),
            }
            for period in shown
        ]
        return {"problem": None, "periods": counted}


def _registry(registry: Registry) -> dict[str, Any]:
    """Return what is known of the versions, as far as they can be read: `refused` says why one is not served."""
    result: dict[str, Any] = {"current": None, "held": None, "versions": [], "damaged": []}
    with suppress(McnetError):
        newest = registry.looked_at(_VERSIONS)
        result["versions"] = [
            {"version": v.name, "added": v.added, "method": v.method, "rows": v.rows, "note": v.note}
            for v in reversed(newest)
            if isinstance(v, Version)
        ]
        result["damaged"] = [asdict(v) for v in newest if isinstance(v, DamagedVersion)]
    with suppress(McnetError):
        held = registry.held
        number = registry.current_number
        result["current"] = None if number is None else str(number)
        result["held"] = None if held is None else str(held)
    return result | {"events": list(reversed(registry.history(_EVENTS)))}


def _pictures(periods: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the PCOC and the rows of the last periods as pictures, for a wide screen and for a phone."""
    if not periods:
        return {}
    names = tuple(shown_periods([one["period"] for one in periods]))
    pictures = {
        "feedback": _drawn(
            draw_rows(names, *([one[name] for one in periods] for name in ("rows", "positives"))),
            "Rows of each period",
            190,
        )
    }
    unknown = [None] * _PCOC_AND_INTERVAL
    known = [[one.get(end) for end in ("pcoc", "low", "high")] for one in periods]
    then = [bool(one.get("version")) for one in periods]
    series = {
        "raw": [[one.get("raw"), None, None] for one in periods],
        "served then": [one if served else unknown for one, served in zip(known, then, strict=True)],
        "served now": [unknown if served else one for one, served in zip(known, then, strict=True)],
    }
    ratios = np.array(list(series.values()), dtype=np.float64)
    if not np.isfinite(ratios[1:]).any():
        return pictures
    pcoc, low, high = np.moveaxis(ratios, 2, 0)
    drift = Drift(names, tuple(series), pcoc, low, high, np.full(len(names), np.nan))
    return pictures | {"pcoc": _drawn(draw_drift(drift), "PCOC of each period", 260)}


def _drawn(figure: Spec, label: str, height: int) -> list[str]:
    """Return a figure as drawings for a wide screen and for a phone; the page brings their style."""
    return [as_svg(figure, label, width=width, height=height, style="") for width in _WIDTHS]


def _monitor(status: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the monitor says, in the words of the status page."""
    monitor = status.get("monitor")
    lines: list[dict[str, Any]] = []
    with suppress(KeyError, TypeError, ValueError):  # a status of another version; the numbers are shown without lines
        lines = watched_lines(status) if monitor else []
    return None if not monitor else monitor | {"watched_lines": lines}


def _followed(status: dict[str, Any]) -> dict[str, list[str]]:
    """Return in sentences what the tracker follows, and which periods wait as suspect."""
    result: dict[str, list[str]] = {"following": [], "suspects": []}
    with suppress(KeyError, TypeError, ValueError):  # a status of another version
        result["following"] = following_lines(status)
        waiting = [one for one in status.get("suspects", []) if one["state"] == "waiting"]
        names = shown_periods([one["period"] for one in waiting])
        pairs = zip(names, waiting, strict=True)
        result["suspects"] = [f"{name} is kept and not learnt: {one['cause']}" for name, one in pairs]
    return result


def _about(served: Served) -> dict[str, Any]:
    model, version = served.model, served.version
    return {
        "version": served.name,
        "method": model.method,
        "fields": model.fields,
        "contexts": model.context_count,
        "score_type": model.score_type,
        "added": version.added,
        "loaded": served.loaded,
        "rows": version.rows,
        "note": version.note,
    }


def _last_run(status: dict[str, Any]) -> dict[str, Any] | None:
    run = status.get("last_run")
    if not isinstance(run, dict):
        return None
    shown = {name: run.get(name) for name in ("time", "outcome", "reason", "version", "until")}
    with suppress(KeyError, TypeError):  # a status of another version
        shown["headline"] = headline(status)
    return shown


def _traffic(total: Numbers, of_head: HeadNumbers) -> dict[str, Any]:
    counts, _ = total.latencies(ROUTES.index("calibrate"))
    answered = [sum(column) for column in zip(*(total.statuses(p) for p in range(len(ROUTES))), strict=True)]
    return {
        "predictions": of_head["rows"],
        "unseen_rows": of_head["unseen_rows"],
        "requests": sum(answered),
        "client_errors": answered[1],
        "server_errors": answered[2],
        "median_seconds": _quantile(counts, 0.5),
        "p99_seconds": _quantile(counts, 0.99),
        "reloads": of_head["reloads"],
        "reload_failures": of_head["reload_failures"],
    }


def _quantile(counts: list[float], share: float) -> float | None:
    """Return the upper end of the bucket that has a quantile; None without requests."""
    so_far = np.cumsum(counts)
    if so_far[-1] == 0:
        return None
    return (*BUCKETS, 2 * BUCKETS[-1])[int(np.searchsorted(so_far, share * so_far[-1]))]


def curves_document(served: Served, asked: dict[str, str]) -> dict[str, Any]:
    """Return curves as points: those of the largest contexts, or of the context that is asked for, with its interval.

    Parameters
    ----------
    served : the version.
    asked : the value of every field; empty for the pooled curve and the largest contexts.
    """
    model = served.model
    asked = model.contexts.by_field(asked) if asked else asked
    if asked and set(asked) != set(model.fields):
        raise Problem(400, f"fields given: {', '.join(asked)}; needed: {', '.join(model.fields) or 'no field'}")
    if asked:
        values = {name: [None if asked[name] == MISSING_LABEL else asked[name]] for name in model.fields}
        contexts = Contexts.of(model.contexts.given(values), 1)[0]
        lines = lines_of(model, contexts, score_range(model))
    else:
        lines = largest_lines(model, _MOST_CURVES)
    known = {
        name: [MISSING_LABEL if value is None else value for value in values[:_MOST_VALUES]]
        for name, values in zip(model.fields, model.contexts.values, strict=True)
    }
    pictures = _drawn(draw_curves(lines), "Calibration curves", 300)
    return {"version": served.name, "fields": known, "lines": [_points(line) for line in lines], "pictures": pictures}


def _points(line: Line) -> dict[str, Any]:
    result: dict[str, Any] = {
        "label": line.label,
        "score": numbers(line.score),
        "probability": numbers(line.probability),
    }
    if line.low is not None and line.high is not None:
        result |= {"low": numbers(line.low), "high": numbers(line.high)}
    return result
