"""The status of the loop: what the last run knew, what is served now, and what people did."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import polars as pl

from mcnet._shared.files import finite
from mcnet.difference import diff
from mcnet.errors import McnetError
from mcnet.model.model import CalibrationModel
from mcnet.operations.alerts import TRIED_FOR
from mcnet.operations.gate import MOVES, SHOWN_MOVES
from mcnet.operations.learning import Learnt
from mcnet.operations.watch import SERVED_READ, SHOWN_VALUES, Watched
from mcnet.store.journal import Journal
from mcnet.store.state import STATUS
from mcnet.store.store import Head, Store
from mcnet.store.versions import Registry, Version, now
from mcnet.tracking.monitor import Monitor
from mcnet.tracking.tracker import followed_values

# The one document of the state: what is served, what each version changed, what the last runs decided and why, and
# whether it is calibrated. The written page and the dashboard show it; `docs/serving.md` describes it.

SHOWN_PERIODS, SHOWN_RUNS, SHOWN_VERSIONS, SHOWN_EVENTS = 60, 12, 10, 12
TOLD_VALUES = 50
"""So many field values have metrics of their own: those with the most rows times error."""
SHOWN_SENTENCES = 4
"""Of what is miscalibrated since its version is served, so many are said in words, the costliest."""
_OVERALL = ("level", "slope")
_RUNS_READ = 200
_EVENTS_READ = 200
_MOST_CONTEXTS = 2_000
"""Models of more contexts are not compared only to show what a version changed."""
_moved: dict[tuple[str, str], list[tuple[str, float]]] = {}
"""What changed between two models, by their digests."""


def run_document(journal: Journal, learnt: Learnt | None, watched: Watched | None) -> dict[str, Any]:
    """Return what a run knows as JSON-able values; `status_of` adds what may change without a run."""
    entries, suspects = journal.entries(), [] if learnt is None else learnt.learner.look.suspects[::-1]
    document: dict[str, Any] = finite(
        {
            "journal": {
                "periods": len({entry.period for entry in entries}),
                "last_period": journal.periods[-1] if entries else None,
                "rows": sum(entry.rows for entry in entries),
            },
            "periods": [] if learnt is None else _periods(learnt),
            "monitor": None if watched is None else _monitor(watched.monitor),
            "suspects": [{"period": one.period, "cause": one.cause, "state": one.state} for one in suspects],
            "following": None if learnt is None else _following(learnt),
            "money": None if watched is None else watched.money,
        }
    )
    return document


def status_of(store: Store, head: str | None = None) -> dict[str, Any]:
    """Return the state of a head as JSON-able values; `last_run` is None before the first run of the update job."""
    name = store.chosen_head(head)
    state, registry = store.state(name), store.versions(name)
    runs = state.runs(_RUNS_READ)
    known = state.get(STATUS) or run_document(store.journal(name), None, None)
    served = state.served(SERVED_READ)
    for period in known["periods"]:
        one = served.get(period["period"])
        period["served_pcoc"] = None if one is None else [one.pcoc, one.low, one.high]
        period["served_version"] = None if one is None else str(one.version)
    return {
        "format": "mcnet status",
        "version": 3,
        "time": now(),
        "store": store.name,
        "head": name,
        "heads": [_head_line(one) for one in store.read_heads()],
        "service": None,
        **known,
        **_versions(registry, runs),
        "last_run": runs[-1] if runs else None,
        "last_ended": next((run["time"] for run in reversed(runs) if run["outcome"] != "failed"), None),
        "runs": _folded(map(_shown, reversed(runs)), _kind_of_run)[:SHOWN_RUNS],
        "decision": next((run for run in reversed(runs) if run["gate"] is not None), None),
        **_told(state.told(_EVENTS_READ)),
    }


def _head_line(head: Head) -> dict[str, Any]:
    """Return the name of a head, and the number of the version that it serves."""
    with suppress(ValueError, KeyError, TypeError, IndexError):
        return {"head": head.name, "version": json.loads(head.pointer)["versions"][-1]}
    return {"head": head.name, "version": None}


def _told(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last alarms, each with whether it still stands, and how many alerts the webhook has not taken."""
    alarms = [one for one in events if one["type"] == "alarm" and one["source"] == "update"][:SHOWN_RUNS]
    oldest = (datetime.now(UTC) - TRIED_FOR).isoformat(timespec="seconds")
    problems = [one["problem"] for one in events if one["problem"] and one["sent"] is None and one["time"] >= oldest]
    return {
        "alarms": [one["data"] | {"told": one["time"], "standing": one["standing"]} for one in alarms],
        "alerts": {"waiting": len(problems), "problem": problems[0] if problems else ""},
    }


def _folded(lines: Iterable[dict[str, Any]], kind: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Return lines, the latest first, of which those of one kind in a row are one: how often, and since when."""
    runs = [list(same) for _, same in groupby(lines, kind)]
    return [{**same[0], "times": len(same), "first": same[-1]["time"]} for same in runs]


def _versions(registry: Registry, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is served and since when, whether it is held, the newest versions, and who moved the pointer."""
    found: dict[str, Any] = {"current": None, "held": None, "versions": [], "problem": ""}
    history = registry.history(_EVENTS_READ)
    published = {run["version"]: run for run in runs if run["outcome"] == "published"}
    newest = registry.newest(SHOWN_VERSIONS + 1)
    for before, version in zip([None, *newest], newest, strict=False):
        run = published.get(version.name)
        changed = _changed(registry, before, version, run)
        notes = [] if run is None or run["forced"] else (run["gate"] or {}).get("notes") or []
        reason = "; ".join(note for note in notes if not note.startswith(MOVES)) or version.note
        found["versions"].insert(0, asdict(version) | {"reason": reason, "changed": changed})
    del found["versions"][SHOWN_VERSIONS:]
    try:
        number, held = registry.current_number, registry.held
        moved = [
            one["time"] for one in history if one["version"] == number and one["event"] in ("promoted", "rolled back")
        ]
        if number is not None:
            version = registry.version(number)
            found["current"] = asdict(version) | {"since": moved[-1] if moved else version.added}
        found["held"] = None if held is None else str(held)
    except McnetError as error:  # a damaged pointer
        found["problem"] = str(error)
    notes = tuple(run["reason"] for run in published.values())
    by_people = [one for one in reversed(history) if one["event"] not in ("added", "refused")]
    by_people = [one for one in by_people if one["event"] != "promoted" or not str(one.get("note")).endswith(notes)]
    folded = _folded(by_people, lambda one: [one.get(name) for name in ("event", "note", "version", "who")])
    return found | {"events": folded[:SHOWN_EVENTS]}


def _changed(registry: Registry, before: Version | None, version: Version, run: dict[str, Any] | None) -> str:
    """Return by how much a version changed mean probabilities: "DE +12 %, FR −3 %"."""
    moves: list[tuple[str, float]] = []
    if run is not None and run["gate"] is not None:
        moves = [(name, move) for name, move in (run["gate"]["shift"] or {}).get("moves", [])]
    if not moves and before is not None:
        key = (before.digest, version.digest)
        if key not in _moved:
            with suppress(McnetError):
                _moved[key] = _difference(registry.load(before.number), registry.load(version.number))
        moves = _moved.get(key, [])
    return changes_text(moves, len(version.fields) == 1)


def _difference(old: CalibrationModel, new: CalibrationModel) -> list[tuple[str, float]]:
    """Compare two models that no run has compared."""
    if max(len(old.contexts), len(new.contexts)) > _MOST_CONTEXTS:
        return []
    table = diff(old, new).table.sort(pl.col("shift").abs(), descending=True).head(SHOWN_MOVES)
    return [(str(name), float(shift)) for name, shift in table.select("context", "shift").iter_rows()]


def changes_text(moves: Sequence[tuple[str, float]], one_field: bool) -> str:
    """Return how far mean probabilities moved, the farthest first; the name of an only field is left out.

    >>> changes_text([("country=DE", 0.12), ("country=FR", -0.031), ("country=NL", 0.001)], True)
    'DE +12\xa0%, FR −3\xa0%'
    >>> changes_text([("slot=1", 0.12)], True)
    'slot=1 +12\xa0%'
    """
    told = [(_told_value(name) if one_field else name, move) for name, move in moves]
    shown = [f"{name} {100.0 * move:+.0f}\N{NO-BREAK SPACE}%" for name, move in told if abs(move) >= LEAST_MOVE]
    return ", ".join(shown).replace("-", "−") if shown else f"no value by {LEAST_MOVE:.1%} or more" if moves else ""


def _told_value(name: str) -> str:
    """Return the value of the only field without its name, unless it would be taken for a figure."""
    value = name.partition("=")[2]
    return name if not value or value[0].isdigit() else value


LEAST_MOVE = 0.005
"""Smaller changes of a mean probability are not told."""


def _kind_of_run(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return what runs in a row have in common that are told as one, with the reason of the latest."""
    return run["outcome"], run["forced"], run["reason"] if run["outcome"] == "failed" else "", bool(run["alarms"])


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    names = ("time", "seconds", "outcome", "reason", "version", "replaced", "forced", "until", "note")
    return {name: run[name] for name in names} | {
        "rows": run["added"]["rows"],
        "learnt": len(run["learnt"]),
        "alarms": len(run["alarms"]),
    }


def _periods(learnt: Learnt) -> list[dict[str, Any]]:
    """Return the last periods: their rows, and the PCOC of the scores and of the tracker's forecast."""
    return [
        {
            "period": one.period,
            "rows": one.rows,
            "weight": one.weight,
            "positives": one.positives,
            "base_pcoc": one.base_pcoc,
            "tracker_pcoc": one.tracker_pcoc,
            "base_log_loss": one.base_loss / one.weight,
            "tracker_log_loss": one.tracker_loss / one.weight,
        }
        for one in learnt.judged[-SHOWN_PERIODS:]
    ]


def _following(learnt: Learnt) -> dict[str, Any]:
    """Return which memory is used, and which field values move by themselves, the farthest first."""
    level, shape = learnt.learner.followed_ages()
    values = followed_values(learnt.learner)
    moving = values.filter(pl.col("since").is_not_null()).sort(pl.col("offset").abs(), descending=True)
    others = values.filter(pl.col("since").is_null())["memory"].to_list()
    return {
        "level_age": level,
        "shape_age": shape,
        "moving": moving.height,
        "values": moving.head(SHOWN_VALUES).to_dicts(),
        "others": len(others),
        "others_age": [min(others), max(others)] if others else None,
    }


def _monitor(monitor: Monitor) -> dict[str, Any]:
    table = monitor.table()
    if table.height:  # all rows first, then the values with most evidence
        table = table.sort(~pl.col("what").is_in(_OVERALL), maintain_order=True)
    shown = table.head(SHOWN_VALUES).to_dicts()
    served = {one.what: one for one in monitor.served([line["what"] for line in shown])}
    values = monitor.served(most=TOLD_VALUES + len(_OVERALL))
    return {
        "alpha": monitor.alpha,
        "last_period": monitor.last_period,
        "watched": table.height,
        "alarms": table.filter(pl.col("alarm")).height if table.height else 0,
        "table": [
            {**line, "served": asdict(served[what]) if (what := line["what"]) in served else None} for line in shown
        ],
        "served": [str(one) for one in served.values() if not one.includes_one][:SHOWN_SENTENCES],
        "values": [asdict(one) for one in values if one.what not in _OVERALL][:TOLD_VALUES],
    }
