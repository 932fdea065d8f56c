"""The files of a journal: immutable batches of sketches, each committed by one rename, found by listing a folder.

A batch is a folder with one Parquet sketch per period and a manifest. It is written under a hidden name and renamed, so
it is there whole or not at all, whatever kills the writer. What counts is decided by reading the manifests: of several
batches with the same source and period the newest counts, and what a compacted batch includes counts no more by itself.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcnet._shared.atomic_files import flush
from mcnet._shared.file_lock import exclusive_lock
from mcnet._shared.json_files import checksum
from mcnet.errors import FileFormatError, InputError, McnetError
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.journal_entries import Entry, EntryBatch, sketch_digest
from mcnet.tracking.journal_readers import ReaderLock, delete_retired, load_sketch_of_batch

__all__ = [
    "Entry",
    "EntryBatch",
    "batch_folders",
    "commit_batch",
    "file_name",
    "is_journal",
    "journal_problems",
    "locked",
    "read_batch",
    "remove_leftovers",
    "require_journal",
]

MANIFEST = "manifest.json"
MARKER = "journal.json"
"""The file by which a folder is known as a journal."""
_FORMAT = "mcnet journal batch"
_VERSION = 1
_HIDDEN = ".writing-"


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Let one writer at a time decide what to commit; the lock goes with its process, however that ends."""
    with exclusive_lock(root / ".lock"):
        yield


def file_name(period: str) -> str:
    """Return the name of a period's file: the period itself, with what a file name cannot have escaped.

    >>> file_name("2026-11-16T13:00"), file_name("a/b")
    ('2026-11-16T1300.parquet', 'a%2Fb.parquet')
    """
    return quote(period.replace(":", "") if period[:4].isdigit() else period, safe=" +=@,") + ".parquet"


def batch_folders(root: Path) -> list[Path]:
    """Return the folders of the committed batches, oldest first."""
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def commit_batch(
    root: Path,
    serial: int,
    parts: Iterable[tuple[Entry, Sketch]],
    includes: Sequence[tuple[str, str, str, float | None]] = (),
) -> EntryBatch:
    """Write entries as a new batch and make it part of the journal by one rename."""
    name = f"{serial:010d}-{uuid.uuid4().hex[:8]}"
    writing = root / f"{_HIDDEN}{os.getpid()}-{name}"
    writing.mkdir()
    try:
        entries = []
        for entry, sketch in parts:  # one in memory at a time, if it is a generator
            sketch.save(writing / entry.file)
            entries.append(entry)
        document: dict[str, Any] = {
            "format": _FORMAT,
            "version": _VERSION,
            "entries": [_described(entry) for entry in entries],
            "includes": [list(item) for item in includes],
        }
        document["checksum"] = checksum(document)
        (writing / MANIFEST).write_text(json.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
        for path in writing.iterdir():
            flush(path)
        flush(writing)
        writing.rename(root / name)
        flush(root)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return EntryBatch(root / name, serial, tuple(entries), tuple(includes))


def _described(entry: Entry) -> dict[str, Any]:
    found = asdict(entry)
    if entry.largest_weight is None:
        del found["largest_weight"]  # so that an earlier mcnet reads the journal, too
    return found


def read_batch(folder: Path) -> EntryBatch | None:
    """Return a batch from its manifest; None if the folder vanished meanwhile."""
    path = folder / MANIFEST
    advice = "restore the folder from a copy, or remove it and add its sources again"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not folder.exists():
            return None
        raise FileFormatError(f"{folder} has no {MANIFEST}; {advice}") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); {advice}") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise FileFormatError(f"{path} is not a manifest of a journal; {advice}")
    if document.get("checksum") != checksum(document):
        raise FileFormatError(f"{path} was altered: its checksum does not fit; {advice}")
    if document["version"] > _VERSION:
        raise FileFormatError(f"{path} is of version {document['version']}; upgrade mcnet to read it")
    entries = tuple(Entry(**entry) for entry in document["entries"])
    includes = tuple((source, period, digest, age) for source, period, digest, age in document["includes"])
    return EntryBatch(folder, int(folder.name.split("-")[0]), entries, includes)


def remove_leftovers(root: Path) -> None:
    """Delete what writers that were killed have left behind, and what nobody reads any more."""
    delete_retired(root)
    for path in root.glob(f"{_HIDDEN}*"):
        owner = path.name.removeprefix(_HIDDEN).split("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_journal(path: Any) -> bool:
    """Tell whether something is the path of a journal's folder."""
    return isinstance(path, str | os.PathLike) and (Path(path) / MARKER).is_file()


def require_journal(root: Path, *, create: bool) -> None:
    """Make the folder of a journal, or refuse one that is something else."""
    marker = root / MARKER
    if marker.is_file():
        try:
            about = json.loads(marker.read_text(encoding="utf-8"))
        except ValueError:
            about = None
        if not isinstance(about, dict) or about.get("format") != "mcnet journal":
            raise FileFormatError(f"{marker} does not describe a journal of mcnet; name another folder")
        if about.get("version", 0) > _VERSION:
            raise FileFormatError(f"{root} is a journal of version {about['version']}; upgrade mcnet to read it")
        return
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file; a journal is a folder")
    if root.is_dir() and any(not path.name.startswith(".") for path in root.iterdir()):
        if not marker.is_file():  # else another process has just made it
            raise InputError(f"the folder {root} holds other things and is not a journal; name a new or empty folder")
        require_journal(root, create=create)
        return
    if not create:
        raise InputError(f"there is no journal in {root}; `mcnet journal add` or Journal.add makes one")
    root.mkdir(parents=True, exist_ok=True)
    part = root / f".journal.{uuid.uuid4().hex[:8]}"
    part.write_text(json.dumps({"format": "mcnet journal", "version": _VERSION}) + "\n", encoding="utf-8")
    part.replace(marker)


def journal_problems(root: Path) -> list[str]:
    """Read every file of a journal and return what is wrong, in sentences."""
    problems = []
    with ReaderLock(root):
        for folder in batch_folders(root):
            try:
                batch = read_batch(folder)
            except FileFormatError as error:
                problems.append(str(error))
                continue
            problems += _batch_problems(batch) if batch is not None else []
    return problems


def _batch_problems(batch: EntryBatch) -> list[str]:
    problems = []
    for entry in batch.entries:
        path = batch.folder / entry.file
        try:
            if sketch_digest(load_sketch_of_batch(path)) != entry.digest:
                problems.append(f"{path} holds other rows than were added; add {entry.source} anew")
        except McnetError as error:
            problems.append(str(error))
    return problems
