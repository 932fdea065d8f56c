"""Take journals and registries of mcnet 0.1, which were folders, into a store; the folders stay as they are."""

import fcntl
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from mcnet._shared.files import checksum, disk_path, read_json_lines
from mcnet.errors import BusyError, FileFormatError, InputError, McnetError
from mcnet.model.model_file import parse_model
from mcnet.rows.periods import sorted_periods
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import sketch_of_bytes, stored_bytes
from mcnet.store.additions import Shape, entry_row, shape_of, shape_text, sketch_shape, summarise
from mcnet.store.entries import COMPACTED, Entry, EntryKey, entry_key, entry_of, sketch_digest
from mcnet.store.schema import entries, heads, history, keys, runs, versions
from mcnet.store.store import Head, Store
from mcnet.store.versions import Pointer, Version, version_row

_IMPORTED = "imported"
"""The kind of the documents that tell what was imported before."""


@dataclass(frozen=True)
class Imported:
    """What was taken into a store from one folder; what was there already is not counted."""

    folder: str
    kind: str
    """ "journal" or "registry"."""
    head: str
    sources: int = 0
    """Counts of a source for a period."""
    rows: int = 0
    merged: int = 0
    """Sources that are known to be part of compacted periods."""
    versions: int = 0
    runs: int = 0
    checkpoints: int = 0
    left_out: tuple[str, ...] = ()
    """What cannot be read, in sentences."""


def import_folder(store: Store, folder: str | PathLike[str], head: str | None = None) -> Imported:
    """Take a journal or a registry in a folder into a store, as a whole or not at all.

    The folder is not changed. Importing it again adds what is new in it. Every sketch and every model is compared with
    the digest that it was written with, and at the end the store with the folder.

    Parameters
    ----------
    store : where to; it is made if it is not there.
    folder : the folder of the journal, or of the registry.
    head : the name of the head that gets it; the only or the default one if None.

    Raises
    ------
    BusyError : another process is using the folder.
    InputError : it is neither, or does not go together with what the head has.
    FileFormatError : a part of a journal is damaged; nothing was imported.
    """
    path = disk_path(folder, "what is imported")
    name = store.chosen_head(head)
    if (path / "journal.json").is_file():
        _require_format(path / "journal.json", "mcnet journal")
        with _unused(path, ".lock"), store.writing_head("journal", name) as (connection, found):
            return _Journal(store, path, connection, found).imported()
    if (path / "registry.json").is_file():
        _require_format(path / "registry.json", "mcnet registry")
        with _unused(path, ".lock", "loop/.lock"), store.writing_head("versions", name) as (connection, found):
            return _registry(store, path, connection, found)
    what = "is neither a journal nor a registry of mcnet" if path.is_dir() else "is no folder"
    raise InputError(f"{path} {what}; name the folder of a journal or of a registry")


@contextmanager
def _unused(folder: Path, *locks: str) -> Iterator[None]:
    """Refuse a folder that another process is changing, and keep others from changing it meanwhile."""
    with ExitStack() as stack:
        for lock in (folder / name for name in locks):
            if lock.is_file():  # nobody has changed a folder without it; it must not be made here
                handle = os.open(lock, os.O_RDONLY)
                stack.callback(os.close, handle)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise BusyError(f"another process is using {folder}; end it, and import the folder then") from None
        yield


def _require_format(marker: Path, kind: str) -> None:
    """Refuse a folder of a later mcnet, or of something else."""
    about = _json(marker, []) or {}
    if not isinstance(about, dict) or about.get("format") != kind or about.get("version") != 1:
        raise FileFormatError(f"{marker} does not describe a folder that this mcnet can read")


# A journal: folders of sketches, each with a manifest that names its entries and what was merged into them.

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class _Batch:
    """A folder of entries, by the names of their files."""

    folder: Path
    serial: int
    entries: tuple[tuple[str, Entry], ...]
    includes: tuple[tuple[str, str, str, float | None], ...]
    """(source, period, digest, age) of what was merged into them."""

    @staticmethod
    def read(folder: Path) -> "_Batch":
        path = folder / _MANIFEST
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{path} cannot be read ({error}); restore the folder from a copy") from None
        if not isinstance(document, dict) or document.get("checksum") != checksum(document):
            raise FileFormatError(f"{path} was altered: its checksum does not fit; restore the folder from a copy")
        if document["version"] > 1:
            raise FileFormatError(f"{path} is of version {document['version']}; upgrade mcnet to read it")
        entries = ((entry.pop("file"), Entry(**entry)) for entry in document["entries"])
        includes = tuple((source, period, digest, age) for source, period, digest, age in document["includes"])
        return _Batch(folder, int(folder.name.split("-")[0]), tuple(entries), includes)


def _counted(batches: Sequence[_Batch]) -> list[tuple[_Batch, str, Entry]]:
    """Return what counts, with its batch and its file: the newest of each key, unless it was merged later."""
    newest: dict[EntryKey, tuple[_Batch, str, Entry]] = {}
    compacted: dict[tuple[int, str], tuple[_Batch, str, Entry]] = {}
    merged: dict[EntryKey, int] = {}
    for batch in sorted(batches, key=lambda batch: batch.serial):
        for file, entry in batch.entries:
            if batch.includes:
                compacted[batch.serial, file] = (batch, file, entry)
            else:
                newest[entry_key(entry)] = (batch, file, entry)
        for source, period, _, age in batch.includes:
            merged[source, period, age] = batch.serial
    counting = [*newest.values(), *compacted.values()]
    return [found for found in counting if merged.get(entry_key(found[2]), -1) <= found[0].serial]


@dataclass(frozen=True)
class _Journal:
    store: Store
    folder: Path
    connection: Connection
    head: Head

    def imported(self) -> Imported:
        folders = (path for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        batches = [_Batch.read(path) for path in sorted(folders)]
        state = self.store.state(self.head.name)
        known = state.all(_IMPORTED)
        new = [batch for batch in batches if f"batch {batch.folder.name}" not in known]
        there = self._there(entries)
        merged = self._there(keys)
        given = {entry_key(e): e.digest for _, _, e in _counted(batches) if e.source != COMPACTED}
        self._refuse_other_rows(new, there, given)
        parts = [p for p in self._parts(batches, new) if p[0].source == COMPACTED or entry_key(p[0]) not in merged]
        fresh = [part for part in parts if there.get(entry_key(part[0])) != part[0].digest]
        self._write(fresh)
        included = {(s, p, a): d for batch in new for s, p, d, a in batch.includes if s != COMPACTED}
        lacking = {key: digest for key, digest in included.items() if key not in merged}
        if lacking:
            rows = ((self.head.id, *key, digest) for key, digest in lacking.items())
            self.connection.execute(keys.insert(), [dict(zip(keys.columns.keys(), row, strict=True)) for row in rows])
        for period, digest in (_json(self.folder / "released.json", []) or {}).items():
            if period not in state.all("released"):
                state.put("released", digest, period)
        for batch in new:
            state.put(_IMPORTED, {"entries": len(batch.entries)}, f"batch {batch.folder.name}")
        self._compare(fresh, given, lacking)
        number = sum(entry.rows for entry, *_ in fresh)
        return Imported(str(self.folder), "journal", self.head.name, len(fresh), number, len(lacking))

    def _there(self, table: sa.Table) -> dict[Any, str]:
        columns = (table.c.source, table.c.period, table.c.age, table.c.digest)
        found = self.connection.execute(sa.select(*columns).where(table.c.head == self.head.id))
        return {(source, period, age): digest for source, period, age, digest in found}

    def _refuse_other_rows(self, new: Sequence[_Batch], there: Mapping[Any, str], given: Mapping[Any, str]) -> None:
        """Refuse a folder that says other things of what the head has already."""
        again = "import it into a head of its own, or into a new store"
        for batch in new:
            for source, period, _, age in batch.includes:
                if (source, period, age) in there:
                    raise InputError(f"{self.folder} was compacted since it was imported ({source}, {period}); {again}")
        for key, digest in given.items():
            if there.get(key, digest) != digest:
                raise InputError(
                    f"{self.folder} has other rows of {key[0]} for {key[1]} than the head {self.head.name!r}; {again}"
                )

    def _parts(self, batches: Sequence[_Batch], new: Sequence[_Batch]) -> Iterator[tuple[Entry, Sketch, bytes]]:
        """Yield what counts of the new batches, each compared with its digest; compacted ones of a period as one."""
        compacted: dict[str, list[tuple[Entry, Sketch, bytes]]] = defaultdict(list)
        for batch, file, entry in _counted(batches):
            if batch not in new:
                continue
            path = batch.folder / file
            try:
                content = path.read_bytes()
            except OSError as error:
                raise FileFormatError(f"{path} cannot be read ({error.strerror}); restore it from a copy") from None
            sketch = sketch_of_bytes(content, str(path))
            if sketch_digest(sketch) != entry.digest or sketch.rows != entry.rows:
                raise FileFormatError(f"{path} has other rows than were added; restore it from a copy")
            part = (replace(entry, merged_periods=_merged_periods(batch, entry)), sketch, content)
            if entry.source == COMPACTED:
                compacted[entry.period].append(part)
            else:
                yield part
        for period, parts in compacted.items():
            if len(parts) == 1:
                yield parts[0]
                continue
            total = Sketch.merged([sketch for _, sketch, _ in parts])
            heaviest, longest = (max(getattr(e, name) for e, *_ in parts) for name in ("heaviest", "merged_periods"))
            merged, _ = entry_of(total, period, None, None, heaviest)
            yield replace(merged, source=COMPACTED, merged_periods=longest), total, stored_bytes(total)

    def _write(self, fresh: Sequence[tuple[Entry, Sketch, bytes]]) -> None:
        shape: Shape | None = shape_of(self.head)
        for entry, sketch, content in fresh:
            own = sketch_shape(sketch)
            if shape is not None and (own[:3] != shape[:3] or shape[3] not in (None, own[3])):
                raise InputError(
                    f"{self.folder} has rows of {own[0]} with resolution {own[1]}, the head {self.head.name!r} of "
                    f"{shape[0]} with {shape[1]}; import it into a head of its own"
                )
            shape = own
            self.connection.execute(entries.insert(), [entry_row(self.head.id, entry, content)])
        if fresh:
            one = heads.c.id == self.head.id
            self.connection.execute(heads.update().where(one).values(shape=shape_text(own)))
            summarise(self.connection, self.head.id)

    def _compare(self, fresh: Sequence[tuple[Any, ...]], given: Mapping[Any, str], lacking: Mapping[Any, str]) -> None:
        """Compare what the store has now with the folder, by counts and digests."""
        there, merged = self._there(entries), self._there(keys)
        lost = [key for key, digest in given.items() if digest not in (there.get(key), merged.get(key))]
        lost += [entry_key(entry) for entry, *_ in fresh if there.get(entry_key(entry)) != entry.digest]
        lost += [key for key, digest in lacking.items() if merged.get(key) != digest]
        if lost:
            raise FileFormatError(
                f"the store lacks {lost[0][0]} for {lost[0][1]} of {self.folder}; nothing was imported"
            )


def _merged_periods(batch: _Batch, entry: Entry) -> int:
    """Return of how many periods a compacted entry was merged."""
    longer = sorted_periods([one.period for _, one in batch.entries if batch.includes])
    if entry.source != COMPACTED:
        return 1
    short = {period for source, period, *_ in batch.includes if source != COMPACTED}
    order = sorted_periods(list({*longer, *short}))
    begins = order.index(entry.period)
    later = [order.index(period) for period in longer if order.index(period) > begins]
    end = min(later, default=len(order))
    return max(sum(begins <= order.index(period) < end for period in short), 1)


# A registry, with its loop.


def _registry(store: Store, folder: Path, connection: Connection, head: Head) -> Imported:
    state = store.state(head.name)
    left_out: list[str] = []
    added = _versions(folder, connection, head, left_out)
    if head.pointer == "{}":
        pointer = _json(folder / "current.json", left_out)
        if pointer is not None:
            text = json.dumps({**msgspec.convert(pointer, Pointer).document(), "since": pointer.get("since")})
            one = heads.c.id == head.id
            connection.execute(heads.update().where(one).values(pointer=text, moves=heads.c.moves + 1))
            store.database.tell(connection, head.name)
    _lines(connection, head, history, read_json_lines(folder / "history.jsonl"), state)
    number = _lines(connection, head, runs, read_json_lines(folder / "loop" / "runs.jsonl"), state)
    for kind in ("monitor", "refused", "files"):
        document = _json(folder / "loop" / f"{kind}.json", left_out)
        if document is not None and state.get(kind) is None:
            state.put(kind, document)
    saved = 0
    known = {ticks for ticks, *_ in state.checkpoints()}
    for path in sorted((folder / "loop").glob("tracker-*")):
        ticks = int(path.name.removeprefix("tracker-"))
        document, judged = _json(path / "tracker.json", left_out), _json(path / "judged.json", left_out)
        if document is None or judged is None or ticks <= max(known, default=-1):
            continue  # a cache: whatever is lost is learnt again
        sketches = {file.name: file.read_bytes() for file in sorted(path.glob("memory-*.parquet"))}
        state.save_checkpoint(ticks, {"tracker": document, "judged": judged}, sketches)
        saved += 1
    return Imported(
        str(folder), "registry", head.name, versions=added, runs=number, checkpoints=saved, left_out=tuple(left_out)
    )


def _versions(folder: Path, connection: Connection, head: Head, left_out: list[str]) -> int:
    query = sa.select(versions.c.number, versions.c.digest).where(versions.c.head == head.id)
    known = {found.number: found.digest for found in connection.execute(query)}
    added = 0
    for path in sorted((folder / "versions").glob("[0-9]*")):
        about = _json(path / "about.json", left_out)
        if about is None:
            continue
        try:
            version = Version(**{**about, "fields": tuple(about["fields"])})
            content = (path / "model.json").read_bytes()
            if version.number != int(path.name) or hashlib.sha256(content).hexdigest() != version.digest:
                raise ValueError("it was altered after it was added")
            parse_model(content.decode(), str(path / "model.json"))
        except (OSError, ValueError, TypeError, KeyError, McnetError) as error:
            left_out.append(f"{path} is left out: {error}")
            continue
        if known.get(version.number, version.digest) != version.digest:
            raise InputError(
                f"{folder} has another version {version.name} than the head {head.name!r}; import it into a head of "
                "its own"
            )
        if version.number not in known:
            connection.execute(versions.insert().values(**version_row(head.id, version, content)))
            added += 1
    stored = sa.select(versions.c.digest, versions.c.model).where(versions.c.head == head.id)
    for digest, content in connection.execute(stored):
        if hashlib.sha256(content).hexdigest() != digest:
            raise FileFormatError(f"a version of {folder} is not the same in the store; nothing was imported")
    return added


def _lines(connection: Connection, head: Head, table: sa.Table, lines: list[dict[str, Any]], state: Any) -> int:
    """Add the lines that were not imported before, and return how many."""
    before = int(state.get(_IMPORTED, table.name) or 0)
    new = [{"head": head.id, "line": json.dumps(line)} for line in lines[before:]]
    if new:
        connection.execute(table.insert(), new)
        state.put(_IMPORTED, before + len(new), table.name)
    return len(new)


def _json(path: Path, left_out: list[str]) -> Any:
    """Return a document; None if there is none, or none that can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        left_out.append(f"{path} is left out: {error}")
        return None
