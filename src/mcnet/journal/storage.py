"""The files of a journal: immutable batches of sketches, committed by one rename, read beside writers."""

import json
import os
import shutil
import uuid
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from mcnet._shared.files import checksum, exclusive_lock, flush, named_if_full, write_json
from mcnet.errors import FileFormatError, InputError, McnetError
from mcnet.journal.entries import COMPACTED, Entry, EntryBatch, counted_entries, counted_files, sketch_digest
from mcnet.rows.periods import cut_to_periods, elapsed_periods, period_text, periods_between, sorted_periods
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.journal.arrival import ArrivalCurve

# Readers beside writers: files that a journal no longer needs are kept while they are read.
#
# A reader has a shared lock for as long as it reads. A writer that takes a batch out of the journal renames its folder,
# and deletes it if nobody has that lock; otherwise a later writer does. A reader that listed the batch before finds its
# files under the new name.

_READERS = ".readers"
_RETIRED = ".retired-"


class ReaderLock:
    """The right to find every file that was part of a journal when it began, until `close` or the end of this object.

    A folder in which nothing can be written is read without a lock.
    """

    def __init__(self, root: Path) -> None:
        """Wait for writers that are deleting files at this moment, and keep them from doing so."""
        import fcntl

        self.close: Any = lambda: None
        for flags in (os.O_RDONLY | os.O_CREAT, os.O_RDONLY):
            try:
                file = os.open(root / _READERS, flags, 0o666)
            except OSError:
                continue
            self.close = weakref.finalize(self, os.close, file)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_SH)
            return

    def __enter__(self) -> "ReaderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def retire_batch(batch: EntryBatch) -> None:
    """Take a batch out of the journal by one rename; its files are deleted once nobody reads them."""
    try:
        batch.folder.rename(batch.folder.with_name(_RETIRED + batch.folder.name))
    except FileNotFoundError:
        return
    delete_retired(batch.folder.parent)


def delete_retired(root: Path) -> None:
    """Delete the files of batches that are no longer part of a journal, unless somebody reads."""
    retired = list(root.glob(f"{_RETIRED}*"))
    if not retired:
        return
    import fcntl

    file = os.open(root / _READERS, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        for path in retired:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(file)


def load_sketch_of_batch(path: Path) -> Sketch:
    """Load a file of a batch, also of one that was taken out of the journal since it was listed."""
    try:
        return Sketch.load(path)
    except InputError:
        retired = path.parent.with_name(_RETIRED + path.parent.name) / path.name
        if path.exists() or not retired.exists():
            raise
        return Sketch.load(retired)


# The files of a journal: immutable batches of sketches, each committed by one rename, found by listing a folder.
#
# A batch is a folder with one Parquet sketch per period and a manifest. It is written under a hidden name and renamed,
# so it is there whole or not at all, whatever kills the writer. What counts is decided by reading the manifests: of
# several batches with the same source and period the newest counts, and what a compacted batch includes counts no more
# by itself.

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
    try:
        with named_if_full(root, "nothing was added"):
            writing.mkdir()
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
    part = root / f".journal.{uuid.uuid4().hex[:8]}"
    try:
        with named_if_full(root, "nothing was added"):
            root.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"format": "mcnet journal", "version": _VERSION}) + "\n", encoding="utf-8")
            part.replace(marker)
    finally:
        part.unlink(missing_ok=True)


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


# Periods that were suspect when they were learnt, and that somebody has released.
#
# One document beside the batches. A release is of the rows that the period had then: rows that take their place are
# looked at again.

RELEASED = "released.json"


def released_periods(root: Path, entries: Iterable[Entry]) -> set[str]:
    """Return the periods that were released, and have the same rows as then."""
    rows = _rows_of_periods(entries)
    return {period for period, digest in _read_released(root).items() if rows.get(period) == digest}


def release_period(root: Path, period: str, entries: Iterable[Entry]) -> None:
    """Write down that a period is to be learnt whatever a look finds."""
    rows = _rows_of_periods(entries)
    if period not in rows:
        raise InputError(f"the journal {root} has no period {period}; `mcnet journal list {root}` shows them")
    write_json(root / RELEASED, {**_read_released(root), period: rows[period]})


def _rows_of_periods(entries: Iterable[Entry]) -> dict[str, str]:
    digests: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        digests[entry.period].append(entry.digest)
    return {period: " ".join(sorted(found)) for period, found in digests.items()}


def _read_released(root: Path) -> dict[str, str]:
    try:
        found = json.loads((root / RELEASED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise FileFormatError(f"{root / RELEASED} is damaged; delete it, and release the periods again")
    return {str(period): str(digest) for period, digest in found.items()}


# Compaction: the sources of old periods merged into one file per period, or per longer period.


def compact(root: Path, batches: Sequence[EntryBatch], before: Any, every: str | None) -> int:
    """Merge the sources of periods earlier than `before`; return how many files that saves.

    The merged batch names what it includes and is committed first; only then are the batches it replaces removed. A
    process killed in between leaves both, and readers let the merged one alone count.
    """
    files = counted_files(batches)
    periods = sorted_periods(list({entry.period for entry in files.values()}))
    limit = period_text(before) if before is not None else (periods[-1] if periods else None)
    old = set(periods_between(periods, None, limit)) - {limit}
    groups: dict[str, list[tuple[Path, Entry]]] = defaultdict(list)
    for path, entry in files.items():
        if entry.period in old and entry.age is None:
            groups[_longer(entry.period, every)].append((path, entry))
    groups = {period: group for period, group in groups.items() if len(group) > 1}
    if not groups:
        return 0
    by_folder = {batch.folder: batch for batch in batches}
    includes = []
    for period, group in groups.items():
        for path, entry in group:
            inner = by_folder[path.parent].includes if entry.source == COMPACTED else ()
            includes += [item for item in inner if _longer(item[1], every) == period]
            includes.append((entry.source, entry.period, entry.digest, entry.age))
    parts = (_merged(period, dict(group)) for period, group in groups.items())
    made = commit_batch(root, 1 + max(batch.serial for batch in batches), parts, includes)
    counting = {place[0] for place in counted_entries([*batches, made])}
    for batch in batches:
        if batch.serial not in counting:
            retire_batch(batch)
    return sum(len(group) for group in groups.values()) - len(groups)


def _merged(period: str, files: dict[Path, Entry]) -> tuple[Entry, Sketch]:
    total = Sketch.merged([Sketch.load(path) for path in files])
    sums = (total.rows, total.total_weight, total.total_positives)
    known = [entry.largest_weight for entry in files.values() if entry.largest_weight is not None]
    entry = Entry(period, COMPACTED, sketch_digest(total), file_name(period), *sums)
    return replace(entry, largest_weight=max(known, default=None)), total


def _longer(period: str, every: str | None) -> str:
    """Return the longer period that a period lies in."""
    if every is None:
        return period
    import polars as pl

    return period_text(cut_to_periods(pl.Series("period", [period]), every)[0])


# Read a journal: the sketch of each period, and the weighted sum of many.


def period_sketches(
    batches: Sequence[EntryBatch], since: Any, until: Any, arrival: "ArrivalCurve | None"
) -> Iterator[tuple[str, Sketch]]:
    """Yield (period, sketch) in order, one period in memory at a time; with `arrival`, late positives corrected."""
    files: dict[str, list[tuple[Path, float | None]]] = defaultdict(list)
    for path, entry in counted_files(batches).items():
        files[entry.period].append((path, entry.age))
    for period in periods_between(sorted_periods(list(files)), since, until):
        parts = [load_sketch_of_batch(path) for path, _ in files[period]]
        if arrival is not None:
            from mcnet.journal.arrival import corrected_sketch

            ages = [age for _, age in files[period]]
            parts = [corrected_sketch(part, age, arrival) for part, age in zip(parts, ages, strict=True)]
        yield period, Sketch.merged(parts)


def period_factors(
    periods: Sequence[str], half_life: float | None, weights: Mapping[Any, float], known: Collection[str]
) -> dict[str, float]:
    """Return by how much the rows of each period count: the weight given, decayed from the last period backwards.

    Weights of periods that are not among `known` are refused.
    """
    if half_life is not None and not (isinstance(half_life, int | float | np.number) and half_life > 0.0):
        raise InputError(f"half_life is {half_life!r}; it must be a number of periods above 0")
    given = {period_text(period): _factor(period, factor) for period, factor in weights.items()}
    unknown = [period for period in given if period not in known]
    if unknown:
        raise InputError(f"weights has the period {unknown[0]}, of which the journal has no rows; leave it out")
    decay = np.ones(len(periods)) if half_life is None else 0.5 ** (elapsed_periods(periods) / half_life)
    return {period: given.get(period, 1.0) * float(factor) for period, factor in zip(periods, decay, strict=True)}


def _factor(period: Any, factor: Any) -> float:
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0.0 <= factor < np.inf:
        raise InputError(f"the weight of {period} is {factor!r}; it must be a number, 0 or more")
    return float(factor)


def weighted_sum(sketches: Iterable[tuple[str, Sketch]], factors: Mapping[str, float]) -> Sketch:
    """Return the sum of sketches, each times the factor of its period; those of factor 0 are left out."""
    total: Sketch | None = None
    for period, sketch in sketches:
        factor = factors[period]
        if factor > 0.0:
            part = sketch if factor == 1.0 else factor * sketch
            total = part if total is None else total + part
    if total is None:
        raise InputError("every period has weight 0; leave at least one in")
    return total
