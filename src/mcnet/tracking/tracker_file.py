"""A tracker as a folder: one JSON file, and a Parquet sketch for each memory.

Sketches are written first, under names made from their contents; then the JSON file that names them takes the place of
the last one in a single step; then sketches that it does not name are removed. Whatever kills the writer, the folder
has the old tracker or the new one.

A tracker may also follow a journal: what it has learnt is compared with the journal, and the rest is learnt.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.files import checksum, disk_path, write_json
from mcnet._shared.messages import warn
from mcnet.errors import FileFormatError, InputError, McnetError
from mcnet.rows.periods import periods_between
from mcnet.sketch.sketch import Sketch
from mcnet.store.entries import past_digests, sketch_digest
from mcnet.store.journal import Journal
from mcnet.tracking.forecast import Forecast, Stack
from mcnet.tracking.learner import Clock, Judgement, Learner
from mcnet.tracking.memories import Expert, Memory, PeriodEffects, Seasons, expert_from_state
from mcnet.tracking.suspect import Look
from mcnet.tracking.value_changes import Runs, ValueChanges

DOCUMENT = "tracker.json"
_FORMAT = "mcnet tracker"
_VERSION = 4
_NUMBERS = ("position", "learnt", "usual_rows", "journal_digest")


def save_tracker(learner: Learner, folder: str | PathLike[str]) -> None:
    """Save the state of a tracker, whole or not at all."""
    folder = disk_path(folder, "a tracker")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a tracker is saved as a folder")
    if folder.is_dir() and not (folder / DOCUMENT).exists() and any(_foreign(path) for path in folder.iterdir()):
        raise InputError(f"the folder {folder} has other files and no tracker; name a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    document, sketches = tracker_state(learner)
    for name, sketch in sketches.items():
        if not (folder / name).exists():
            sketch.save(folder / name)
    write_json(folder / DOCUMENT, document)
    for path in folder.glob("memory-*.parquet"):
        if path.name not in sketches:
            path.unlink(missing_ok=True)


def tracker_state(learner: Learner) -> tuple[dict[str, Any], dict[str, Sketch]]:
    """Return the state of a tracker as JSON-able values, and the sketches that they name."""
    sketches: dict[str, Sketch] = {}

    def named(sketch: Sketch | None) -> str | None:
        if sketch is None:
            return None
        name = f"memory-{sketch_digest(sketch)}.parquet"
        sketches[name] = sketch
        return name

    files = [named(memory.sketch) for memory in learner.memories]
    suspect = [named(one.rows) for one in learner.look.suspects]
    document = {**_document(learner, files), "look": {**learner.look.state(), "rows": suspect}}
    return {**document, "checksum": checksum(document)}, sketches


def _foreign(path: Path) -> bool:
    """Tell whether a file is none that saving a tracker, interrupted at any moment, may have left."""
    return not (path.name.startswith(".") or (path.name.startswith("memory-") and path.suffix == ".parquet"))


def _document(learner: Learner, files: list[str | None]) -> dict[str, Any]:
    forecasts = [*learner.forecasts, *([] if learner.previous is None else [learner.previous])]
    held = [memory.expert for memory in learner.memories if memory.expert is not None]
    experts = list(dict.fromkeys([*held, *(expert for forecast in forecasts for expert in forecast.experts)]))
    indices = {expert: index for index, expert in enumerate(experts)}
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "method": learner.method,
        "given_memories": learner.given_memories,
        "delay": learner.delay,
        "memories": [
            {
                **vars(memory),
                "half_life": memory.half_life if np.isfinite(memory.half_life) else None,
                "sketch": file,
                "expert": None if memory.expert is None else indices[memory.expert],
            }
            for memory, file in zip(learner.memories, files, strict=True)
        ],
        **{name: getattr(learner, name) for name in _NUMBERS},
        **{name: getattr(learner, name).state() for name in ("stack", "seasons", "clock", "changes", "level")},
        "belief": learner.belief.tolist(),
        "effects": asdict(learner.effects),
        "experts": [expert.state() for expert in experts],
        "forecasts": [forecast.state(indices) for forecast in learner.forecasts],
        "previous": None if learner.previous is None else learner.previous.state(indices),
        "judgement": None if learner.judgement is None else asdict(learner.judgement),
    }


def load_tracker(folder: str | PathLike[str]) -> Learner:
    """Load the state of a tracker.

    Raises
    ------
    InputError : there is none in this folder.
    FileFormatError : its files were altered, are damaged, or are of a later version.
    """
    folder = disk_path(folder, "a tracker")
    path = folder / DOCUMENT
    if not path.is_file():
        raise InputError(f"there is no tracker in {folder}; Tracker.save(folder) makes one")
    advice = "restore the folder from a copy, or replay the journal with Tracker.from_journal"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise FileFormatError(f"{path} is not complete JSON: it is damaged; {advice}") from None
    return tracker_of_state(document, lambda name: Sketch.load(folder / name), str(path), advice)


def tracker_of_state(document: Any, load: Callable[[str], Sketch], path: str, advice: str) -> Learner:
    """Return the tracker that `tracker_state` described.

    Parameters
    ----------
    document : the state.
    load : returns the sketch of a name.
    path, advice : what messages call the state, and what they advise if it is damaged.
    """
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise FileFormatError(f"{path} is not the state of a tracker; {advice}")
    version = document.get("version")
    if version != _VERSION:
        raise FileFormatError(f"{path} is of version {version}, and this mcnet reads {_VERSION}; {advice}")
    if document.get("checksum") != checksum(document):
        raise FileFormatError(f"{path} does not match its checksum: it was altered or damaged; {advice}")
    try:
        return _learner(document, load)
    except (McnetError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileFormatError(f"{path} is not a valid tracker ({error}); {advice}") from None


def _learner(document: Mapping[str, Any], load: Callable[[str], Sketch]) -> Learner:
    experts, given = [expert_from_state(state) for state in document["experts"]], document["given_memories"]
    memories = [_memory(state, load, experts) for state in document["memories"]]
    learner = Learner(document["method"], None if given is None else tuple(given), document["delay"], memories)
    for name in _NUMBERS:
        setattr(learner, name, document[name])
    learner.stack = Stack.restored(document["stack"])
    learner.seasons = Seasons.restored(document["seasons"])
    learner.clock = Clock.restored(document["clock"])
    learner.changes = ValueChanges.restored(document["changes"])
    learner.level = Runs.restored(document["level"], 1)
    learner.belief = np.array(document["belief"], dtype=np.float64)
    learner.effects = PeriodEffects.restored(document["effects"])
    learner.look = Look.restored(document["look"], [_sketch(name, load) for name in document["look"]["rows"]])
    learner.judgement = None if document["judgement"] is None else Judgement(**document["judgement"])

    def forecast(state: Mapping[str, Any]) -> Forecast:
        return Forecast.restored(state, experts, learner.changes.restored_offsets(state["offsets"]))

    learner.forecasts = [forecast(state) for state in document["forecasts"]]
    learner.previous = None if document["previous"] is None else forecast(document["previous"])
    return learner


def _memory(state: Mapping[str, Any], load: Callable[[str], Sketch], experts: list[Expert]) -> Memory:
    half_life = np.inf if state["half_life"] is None else state["half_life"]
    expert = None if state["expert"] is None else experts[state["expert"]]
    sketch = _sketch(state["sketch"], load)
    return Memory(**{**state, "half_life": half_life, "sketch": sketch, "expert": expert})


def _sketch(name: str | None, load: Callable[[str], Sketch]) -> Sketch | None:
    if name is None:
        return None
    sketch = load(name)
    if name != f"memory-{sketch_digest(sketch)}.parquet":
        raise InputError(f"{name} has other rows than were saved")
    return sketch


# Bring a tracker up to date with a journal.


def follow_journal(journal: Journal, learner: Learner, afresh: Callable[[], Learner]) -> Learner:
    """Return a learner that knows every period of a journal, as if they had been learnt in their order.

    What was learnt so far is known by a digest that each period continues, so that it is found out whether the periods
    learnt are still the same ones in the journal. If so, only those after them are read; otherwise all are, unless the
    journal lacks periods that were learnt: these would be forgotten.
    """
    journal = journal.snapshot()  # others may add to it meanwhile
    digests = past_digests(journal)
    periods = list(digests)
    known = 0
    if learner.journal_digest is not None and learner.clock.last in digests:
        place = periods.index(learner.clock.last)
        known = place + 1 if digests[learner.clock.last] == learner.journal_digest else 0
    if known == 0 and learner.learnt:
        _refuse_to_forget(learner, journal, periods)
        learner = afresh()
    released = journal.released
    for period, sketch in journal.sketches(since=periods[known]) if known < len(periods) else ():
        learner.clock.check(period)
        suspect = learner.learn(sketch, period, look=period not in released)
        if suspect is not None:
            warn(f"{learner.look.told(suspect)}; Journal.release learns it all the same")
        learner.journal_digest = digests[period]
    return learner


def _refuse_to_forget(learner: Learner, journal: Journal, periods: Sequence[str]) -> None:
    """Refuse a journal that has fewer periods until the last one learnt than were learnt."""
    last = learner.clock.last
    anew = "to start anew from this journal alone, make a tracker with Tracker.from_journal(journal)"
    if last is None:
        raise InputError(
            f"this tracker has learnt {learner.learnt:,} periods without names, so they cannot be found in the journal "
            f"{journal.path}; {anew}"
        )
    there = len(periods_between(periods, None, last)) if periods else 0
    if there < learner.learnt:
        raise InputError(
            f"this tracker has learnt {learner.learnt:,} periods until {last}, but the journal {journal.path} has "
            f"{there:,} until then: following it would forget the others; is it the right journal? If periods were "
            f"removed from it or merged: {anew}"
        )
