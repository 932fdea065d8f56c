"""The state of a service for people: versions, PCOC per period, curves, alarms, traffic."""

import threading
from collections import defaultdict
from contextlib import suppress
from typing import Any

import numpy as np

from mcnet.errors import McnetError
from mcnet.metrics.evaluation import predict_cells
from mcnet.model.drawing import largest_lines, lines_of, score_range
from mcnet.operations.learning import period_pcoc
from mcnet.operations.service.metrics import BUCKETS, Totals
from mcnet.operations.service.problems import Problem
from mcnet.operations.service.served import Served, ServedHeads, ServedVersions
from mcnet.operations.service.settings import ServiceSettings
from mcnet.operations.status import status_of
from mcnet.plots.figures import Line, draw_curves
from mcnet.plots.style import as_svg, numbers
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import MISSING_LABEL
from mcnet.rows.periods import sorted_periods
from mcnet.store.entries import Entry
from mcnet.store.journal import Journal
from mcnet.store.store import DEFAULT_HEAD
from mcnet.version import __version__

# The document of the state, as the written page has it, with what a service adds.

_PERIODS, _MOST_CURVES, _MOST_VALUES = 30, 6, 500
_WIDTHS = (560, 340)
"""Of pictures, in pixels: for a wide screen and for a phone."""


class ServiceState:
    """Puts the state together; what it takes from the journal is computed once per period and version."""

    def __init__(self, settings: ServiceSettings, heads: ServedHeads) -> None:
        self._settings = settings
        self._heads = heads
        self._computed: dict[str, dict[tuple[str, str, int], dict[str, Any]]] = defaultdict(dict)
        self._lock = threading.Lock()

    def loop_statuses(self) -> dict[str, dict[str, Any] | None]:
        """Return the state of each head, with field values as metrics may name them; None where it cannot be read."""
        if self._heads.unreachable is not None:
            return {}
        statuses: dict[str, dict[str, Any] | None] = {}
        for name in list(self._heads.by_name):
            statuses[name] = None
            with suppress(McnetError):
                statuses[name] = status = status_of(self._heads.store, name)
                if status["monitor"] and self._settings.field_values == "hide":
                    status["monitor"]["values"] = []
        return statuses

    def told(self, document: Any) -> Any:
        """Return a document as this service may tell it: without field values, if these are to be hidden."""
        hidden = self._settings.field_values == "hide"
        return self._settings.public(without_values(document) if hidden else document)

    def document(self, head: ServedVersions) -> dict[str, Any]:
        """Return the state of a head as JSON-able values."""
        served = head.current
        totals = Totals()
        result: dict[str, Any] = self.told(status_of(self._heads.store, head.name))
        with self._lock:
            journal = self._heads.store.journal(head.name)
            measured = self._read_periods(journal, served, self._computed[head.name])
        known = {one["period"]: one for one in result["periods"]}
        result["periods"] = [one | known.get(one["period"], {}) for one in measured]
        result["journal"]["rows"] = sum(entry.rows for entry in journal.entries())
        result["service"] = {
            "mcnet": __version__,
            "name": self._settings.name if head.name == DEFAULT_HEAD else head.name,
            "may_change": bool(self._settings.tokens),
            "served": None if served is None else self.told(_about(served)),
            "refused": head.refused,
            "unreachable": self._heads.unreachable,
            "workers": [str(int(number)) for number in totals.each("mcnet_worker_version", head=head.name)],
            "traffic": _traffic(totals, head.name),
            "feedback": {
                part: totals.sum(f"mcnet_feedback_{part}_total", head=head.name) for part in ("rows", "known")
            },
        }
        public: dict[str, Any] = self._settings.public(result)
        return public

    def curves(self, served: Served, asked: dict[str, str]) -> dict[str, Any]:
        """Return curves as points: of the context whose field values are asked for, else of the largest contexts."""
        if self._settings.field_values == "hide":
            if asked:
                raise Problem(403, "this service hides field values (--field-values); ask for the curves without them")
            return _curves_document(served, lines_of(served.model, None, score_range(served.model), pooled=True), {})
        model = served.model
        asked = model.contexts.by_field(asked) if asked else asked
        if asked and not set(model.needed_fields) <= set(asked) <= set(model.fields):
            needed = ", ".join(model.needed_fields) or "no field"
            raise Problem(400, f"fields given: {', '.join(asked)}; needed: {needed}")
        known = {
            name: [MISSING_LABEL if value is None else value for value in values[:_MOST_VALUES]]
            for name, values in zip(model.fields, model.contexts.values, strict=True)
        }
        if not asked:
            return _curves_document(served, largest_lines(model, _MOST_CURVES), known)
        values = {name: [None if asked.get(name) == MISSING_LABEL else asked.get(name)] for name in model.fields}
        contexts = Contexts.of(model.contexts.given(values), 1)[0]
        return _curves_document(served, lines_of(model, contexts, score_range(model)), known)

    def _read_periods(
        self, journal: Journal, served: Served | None, computed: dict[tuple[str, str, int], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the last periods of the journal, and the PCOC in each of the scores and of what serves now."""
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
                whole = sketch.unfolded()
                ratios = (period_pcoc(whole, p) for p in (whole.score, predict_cells(served.model, whole)))
                base, now = (numbers(np.array(ratio, dtype=np.float64)) for ratio in ratios)
                computed[keys[period]] = {"base_pcoc": base, "now_pcoc": now}
        for key in set(computed) - set(keys.values()):
            del computed[key]
        unknown = {"base_pcoc": [None] * 3, "now_pcoc": None, "served_pcoc": None}
        return [
            {
                "period": period,
                "rows": sum(entry.rows for entry in entries[period]),
                "positives": sum(entry.positives for entry in entries[period]),
                **computed.get(keys[period], unknown),
            }
            for period in shown
        ]


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


def _traffic(totals: Totals, head: str) -> dict[str, Any]:
    names = ("predictions", "unseen_rows", "reloads", "reload_failures")
    ends = [*map(str, BUCKETS), "+Inf"]
    took = [totals.sum("mcnet_request_seconds_bucket", route="calibrate", le=end) for end in ends]
    return {
        **{name: totals.sum(f"mcnet_{name}_total", head=head) for name in names},
        "requests": totals.sum("mcnet_requests_total"),
        "client_errors": totals.sum("mcnet_requests_total", status="4xx"),
        "server_errors": totals.sum("mcnet_requests_total", status="5xx"),
        "median_seconds": _quantile(took, 0.5),
        "p99_seconds": _quantile(took, 0.99),
    }


def _quantile(so_far: list[float], share: float) -> float | None:
    """Return the upper end of the bucket that has a quantile; None without requests."""
    if so_far[-1] == 0:
        return None
    return (*BUCKETS, 2 * BUCKETS[-1])[int(np.searchsorted(so_far, share * so_far[-1]))]


def without_values(part: Any) -> Any:
    """Return a part of a status that names no field value: neither in figures of one, nor in sentences."""
    if isinstance(part, dict):
        shown = {name: None if name in _PARTS else without_values(value) for name, value in part.items()}
        if part.get("outcome") != "failed":  # what failed, and why, is told
            shown |= {name: _HIDDEN for name in _SENTENCES if part.get(name)}
        return shown | {name: [] for name in _LISTS if isinstance(part.get(name), list)}
    if isinstance(part, list):
        return [without_values(one) for one in part if not (isinstance(one, dict) and "=" in str(one.get("what")))]
    return part


_HIDDEN = "(hidden)"
_SENTENCES = frozenset(("reason", "note", "changed", "cause", "advice"))
_LISTS = frozenset(("values", "served"))
_PARTS = frozenset(("following", "money", "decision", "gate"))


def _curves_document(served: Served, lines: list[Line], known: dict[str, list[str]]) -> dict[str, Any]:
    figure = draw_curves(lines)  # the page brings the style
    pictures = [as_svg(figure, "Calibration curves", width=width, height=300, style="") for width in _WIDTHS]
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
