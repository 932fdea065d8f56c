"""A tracker as a folder: one JSON file, and a Parquet sketch for each memory.

Sketches are written first, under names made from their contents; then the JSON file that names them takes the place of
the last one in a single step; then sketches that it does not name are removed. Whatever kills the writer, the folder
has the old tracker or the new one.

A tracker may also follow a journal: what it has learnt is compared with the journal, and the rest is learnt.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mcnet._shared.files import checksum, disk_path, write_json
from mcnet._shared.messages import warn
from mcnet.bayes.posterior import BayesFit
from mcnet.errors import FileFormatError, InputError, McnetError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document, model_of
from mcnet.rows.contexts import Contexts
from mcnet.rows.periods import periods_between
from mcnet.sketch.sketch import Sketch
from mcnet.store.entries import past_digests, sketch_digest
from mcnet.store.journal import Journal
from mcnet.tracking.forecast import Forecast, Stack
from mcnet.tracking.learner import Clock, Judgement, Learner
from mcnet.tracking.memories import (
    EffectVariance,
    FamilyExpert,
    LevelExpert,
    Memory,
    ModelExpert,
    PeriodEffects,
    Seasons,
)
from mcnet.tracking.suspect import Counts, Look, Suspect
from mcnet.tracking.value_changes import Runs, ValueChanges, ValueOffsets

DOCUMENT = "tracker.json"
_FORMAT = "mcnet tracker"
_VERSION = 4

# Everything that a learner consists of, as JSON-able values, exact to the bit.

_PARTS: tuple[type, ...] = (
    *(Learner, Clock, Memory, FamilyExpert, ModelExpert, LevelExpert, Contexts, Stack, Seasons, Forecast, Judgement),
    *(EffectVariance, PeriodEffects, Runs, ValueChanges, ValueOffsets, Look, Suspect, Counts),
)
_KINDS = {kind.__name__: kind for kind in _PARTS}


class Writer:
    """Writes objects as JSON-able values: what is met again is named by its number, sketches by their contents."""

    def __init__(self) -> None:
        """Start with nothing written."""
        self.sketches: dict[str, Sketch] = {}
        self._known: dict[int, tuple[int, Any]] = {}
        """The number of each object by its identity, and the object itself, so that none takes its place."""

    def written(self, value: Any) -> Any:
        """Return a value as JSON has it."""
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [self.written(one) for one in value]}
        if id(value) in self._known:
            return {"known": self._known[id(value)][0]}
        found = self._written_object(value)
        self._known[id(value)] = len(self._known), value
        return found

    def _written_object(self, value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            return {"array": base64.b64encode(value.tobytes()).decode(), "type": value.dtype.str, "shape": value.shape}
        if isinstance(value, dict):
            return {"dict": [[self.written(one) for one in pair] for pair in value.items()]}
        if isinstance(value, Sketch):
            name = f"memory-{sketch_digest(value)}.parquet"
            self.sketches[name] = value
            return {"sketch": name}
        if isinstance(value, BayesFit):
            return {"fit": self.written(value.arrays())}
        if isinstance(value, CalibrationModel):
            return {"model": model_document(value)}
        kind = type(value).__name__
        if _KINDS.get(kind) is not type(value) or not is_dataclass(value):
            raise TypeError(f"a tracker has no {kind}")
        return {kind: {one.name: self.written(getattr(value, one.name)) for one in fields(value)}}


class Reader:
    """Makes the objects that a `Writer` has written; `load` returns the sketch of a name."""

    def __init__(self, load: Callable[[str], Sketch]) -> None:
        """Start with nothing read."""
        self._load = load
        self._known: list[Any] = []

    def read(self, value: Any) -> Any:
        """Return what a value describes."""
        if not isinstance(value, dict):
            return value
        kind, content = next(iter(value.items()))
        if kind == "float":
            return float(content)
        if kind in ("list", "tuple"):
            found = [self.read(one) for one in content]
            return found if kind == "list" else tuple(found)
        if kind == "known":
            return self._known[content]
        made = self._read_object(kind, content, value)
        self._known.append(made)
        return made

    def _read_object(self, kind: str, content: Any, value: Mapping[str, Any]) -> Any:
        if kind == "array":
            numbers = np.frombuffer(base64.b64decode(content, validate=True), dtype=value["type"])
            return numbers.reshape(value["shape"]).copy()
        if kind == "dict":
            return {self.read(key): self.read(one) for key, one in content}
        if kind == "sketch":
            sketch = self._load(content)
            if content != f"memory-{sketch_digest(sketch)}.parquet":
                raise InputError(f"{content} has other rows than were saved")
            return sketch
        if kind == "fit":
            return BayesFit.from_arrays(self.read(content))
        if kind == "model":
            return model_of(content)
        if set(content) != {one.name for one in fields(_KINDS[kind])}:
            raise ValueError(f"{kind} has other parts")
        made: object = object.__new__(_KINDS[kind])
        vars(made).update({name: self.read(one) for name, one in content.items()})
        return made


# A tracker as a document and its sketches.


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
    writer = Writer()
    document = {"format": _FORMAT, "version": _VERSION, "tracker": writer.written(learner)}
    return {**document, "checksum": checksum(document)}, writer.sketches


def _foreign(path: Path) -> bool:
    """Tell whether a file is none that saving a tracker, interrupted at any moment, may have left."""
    return not (path.name.startswith(".") or (path.name.startswith("memory-") and path.suffix == ".parquet"))


def load_tracker(folder: str | PathLike[str]) -> Learner:
    """Load the state of a tracker; files that were altered, are damaged or of another version are refused."""
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
    """Return the tracker that `tracker_state` described; messages call the state `path`, and give the advice."""
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise FileFormatError(f"{path} is not the state of a tracker; {advice}")
    version = document.get("version")
    if version != _VERSION:
        raise FileFormatError(f"{path} is of version {version}, and this mcnet reads {_VERSION}; {advice}")
    if document.get("checksum") != checksum(document):
        raise FileFormatError(f"{path} does not match its checksum: it was altered or damaged; {advice}")
    try:
        learner = Reader(load).read(document["tracker"])
        if not isinstance(learner, Learner):
            raise TypeError(f"it has a {type(learner).__name__}")
        return learner
    except (McnetError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileFormatError(f"{path} is not a valid tracker ({error}); {advice}") from None


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
