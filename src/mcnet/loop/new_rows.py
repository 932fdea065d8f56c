"""The new rows of a run: log files or sketches that go into the journal; files known from earlier runs are not read."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from mcnet._shared.json_files import write_json
from mcnet._shared.user_warnings import warn
from mcnet.data.files import ChangedFileError, expand_paths
from mcnet.data.locations import Location, Locations, file_state, fingerprint
from mcnet.errors import InputError
from mcnet.loop.folder import LoopFolder
from mcnet.sketch.read import are_sketches, sketch_files
from mcnet.tracking.journal import Journal
from mcnet.tracking.journal_additions import Added, OtherRowsError, add_apart
from mcnet.tracking.journal_ages import check_recount
from mcnet.tracking.journal_entries import counted_entries
from mcnet.tracking.journal_files import require_journal

__all__ = ["NewRows", "Reading", "add_one_period", "add_rows", "files_to_add"]


@dataclass(frozen=True)
class NewRows:
    """What a run has added to the journal."""

    rows: int = 0
    periods: tuple[str, ...] = ()
    files: int = 0
    """Files that were read."""
    unchanged: int = 0
    """Files that an earlier run had added, and that were not read again."""
    left_out: tuple[str, ...] = ()
    """Why files were left out: they changed while they were read, or have other rows than when they were added."""


@dataclass(frozen=True)
class Reading:
    """How logs are read."""

    columns: dict[str, Any]
    """The arguments of `mcnet.scan`: score, label, field, weight …"""
    time: str | None
    every: str | None
    period: str | None
    source: str | None
    age: float | None
    counted: Any
    replace: bool
    allow: tuple[str, ...] = ()
    """What is added although it is implausible."""

    @property
    def digest(self) -> str:
        """A digest of everything that says what becomes of a file."""
        options = (sorted(self.columns.items()), self.time, self.every, self.period, self.age, self.counted)
        return hashlib.sha256(repr(options).encode()).hexdigest()[:16]


def files_to_add(logs: Any, reading: Reading) -> Locations:
    """Return the files that were named; refuse options that do not fit them."""
    named = [logs] if isinstance(logs, str | PathLike) else list(logs)
    if not named:
        return Locations()
    paths = expand_paths(named)
    finished = are_sketches(paths)
    if finished and (reading.time is not None or reading.every is not None):
        raise InputError(f"{named[0]} is a sketch and has no rows to split by time; name its period with period=")
    if (reading.time is None) == (reading.period is None) or (reading.time is None) != (reading.every is None):
        raise InputError(
            "name the column of time and the length of a period (time and every), or one period of all rows (period)"
        )
    if not finished:
        for name in ("score", "label"):
            if reading.columns[name] is None:
                raise InputError(f"{named[0]} is a log: name its column of {name}s")
    check_recount(reading.source, reading.age, reading.counted)
    if reading.counted is not None and reading.time is None:
        raise InputError(
            "counted gives the age of each period of a column of time; give the age of one period with age"
        )
    if reading.source is not None and len(paths) > 1:
        raise InputError(f"source names one file, but {len(paths)} were given; leave it out, or add one at a time")
    return paths


def add_rows(
    journal: Journal,
    folder: LoopFolder,
    paths: Sequence[Location],
    reading: Reading,
    progress: Callable[[int], Any] | None,
) -> NewRows:
    """Add the rows of files to a journal; the files that it has already, and that are as they were, are not read.

    A file that changes while it is read, or that has other rows than when it was added, is left out with a warning.
    """
    memory = folder.path / "files.json"
    known = _remembered(memory)
    sources = _sources(journal) if known else set()
    rows, unchanged = 0, 0
    periods: list[str] = []
    left_out: list[str] = []
    for path in paths:
        name, look = reading.source or fspath(path), _look(path, reading)
        if known.get(name) == look and name in sources:
            unchanged += 1
            continue
        try:
            added = _add(journal, path, reading, progress)
        except (ChangedFileError, OtherRowsError) as error:
            left_out.append(str(error))
            warn(f"a file is left out: {error}")
            continue
        rows += added.rows
        periods += added.periods
        known[name] = look
    if unchanged < len(paths):
        _remember(memory, known)
    if left_out:
        require_journal(
            journal.path, create=True
        )  # where every file was left out, as in a first run, it is still empty
    read = len(paths) - unchanged - len(left_out)
    return NewRows(rows, tuple(sorted(set(periods))), read, unchanged, tuple(left_out))


def add_one_period(
    journal: Journal,
    paths: Sequence[Location],
    period: str,
    columns: dict[str, Any],
    source_options: dict[str, Any],
    progress: Any,
) -> Added:
    """Add logs or saved sketches, all rows of which lie in one period; each file is a source."""
    check_recount(source_options["source"], source_options["age"])

    def add(path: Location) -> Added:
        made = sketch_files(Locations([path]), **columns, progress=progress)
        source = source_options["source"] or fspath(path)
        return journal.add(made, period, **{**source_options, "source": source})

    return add_apart(paths, add)


def _add(journal: Journal, path: Location, reading: Reading, progress: Callable[[int], Any] | None) -> Added:
    source_options: dict[str, Any] = {"source": reading.source, "age": reading.age, "replace": reading.replace}
    source_options |= {"allow": reading.allow}
    if reading.period is not None:
        return add_one_period(journal, [path], reading.period, reading.columns, source_options, progress)
    cut: dict[str, Any] = {"time": str(reading.time), "every": str(reading.every)}
    source_options |= {"counted": reading.counted}
    return journal.add_files([path], **reading.columns, **cut, **source_options, progress=progress)


def _look(path: Location, reading: Reading) -> list[Any]:
    """Return what tells whether a file is as it was."""
    if not isinstance(path, Path):
        return [fingerprint(path), reading.digest]  # read each time; the journal knows rows that it has
    return [*file_state(path), reading.digest]


def _sources(journal: Journal) -> set[str]:
    """Return every source that the journal has rows of, also those that were merged by compacting."""
    batches = journal.batches() if journal.path.is_dir() else []
    merged = {source for batch in batches for source, *_ in batch.includes}
    return merged | {entry.source for entry in counted_entries(batches).values()}


def _remembered(memory: Path) -> dict[str, list[Any]]:
    try:
        found = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # all files are read again, which changes nothing
    return found if isinstance(found, dict) else {}


def _remember(memory: Path, known: dict[str, list[Any]]) -> None:
    write_json(memory, known)
