"""The registry: a folder of immutable model versions and a pointer to the one that is served."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.disk_paths import disk_path
from mcnet._shared.file_lock import exclusive_lock
from mcnet._shared.json_lines import append_json_line, last_json_lines, read_json_lines
from mcnet.errors import FileFormatError, InputError
from mcnet.model.model import CalibrationModel
from mcnet.versions.pointer import Hold, Pointer
from mcnet.versions.store import VersionStore
from mcnet.versions.version import Version, now

__all__ = ["Registry"]

_FORMAT = "mcnet registry"
_CURRENT, _HISTORY = "current.json", "history.jsonl"


class Registry:
    """A folder of model versions with a pointer to the current one, safe for several processes at once.

    A version never changes after it was added. The pointer moves by one atomic rename, so a reader always finds one
    whole version, and a process killed at any moment leaves a registry that opens. Every act is a line in
    `history.jsonl`. Who goes back to an older version holds it: updates publish nothing until the hold is released.

    Parameters
    ----------
    path : the folder; it is made when the first version is added.

    >>> import tempfile
    >>> from mcnet.calibrators.platt import Platt
    >>> registry = Registry(tempfile.mkdtemp())
    >>> first = registry.add(Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_)
    >>> registry.current.name
    '1'
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Name the folder; nothing is read or written yet."""
        self.path = disk_path(path, "a registry")
        self._store = VersionStore(self.path)

    def __repr__(self) -> str:
        return f"Registry({fspath(self.path)!r})"

    # -- adding and pointing --------------------------------------------------------------------------------------

    def add(self, model: CalibrationModel | str | PathLike[str], note: str = "") -> Version:
        """Add a model, or a model file, as a new version; the first one becomes current.

        The model is loaded and checked as a whole before it is added. Adding the model of the newest version again
        changes nothing and returns that version.

        Parameters
        ----------
        model : a model, or the path of its file.
        note : words for the history.

        Returns
        -------
        Version : the new version.
        """
        self.create()
        with self._locked():
            version, new = self._store.put(model, note)
            if new:
                self._record("added", version.number, note=note)
            if self._pointer().current is None:  # the first one, or a process was killed before it could point to it
                self._point(Pointer((version.number,)))
                self._record("promoted", version.number, note="the first version")
        return version

    def promote(self, version: int | str, note: str = "") -> Version:
        """Make a version, or the "latest", the current one.

        The newest version is free to be replaced by the next update; an older one is held.

        Parameters
        ----------
        version : its number, or "latest".
        note : words for the history.

        Returns
        -------
        Version : the current version.
        """
        self._require()
        with self._locked():
            chosen = self.version(version)
            self.load(chosen.number)  # a version that cannot be served is never pointed to
            try:
                pointer = self._pointer()
            except FileFormatError:
                pointer = Pointer()  # damaged: it is written anew
            newest = self._store.numbers()[-1]
            held = pointer.held
            if chosen.number == newest:
                held = None
            elif chosen.number != pointer.current:
                held = Hold(now(), f"version {chosen.name} was promoted, older than version {newest}", note)
            moved = pointer.promoted(chosen.number, held)
            if moved != pointer:
                self._point(moved)
                event = "released" if chosen.number == pointer.current else "promoted"
                self._record(event, chosen.number, note=note)
        return chosen

    def publish(self, version: Version, note: str = "", *, after: Version | None) -> bool:
        """Make a version current, unless somebody has held or moved the pointer meanwhile; tell whether it is.

        Parameters
        ----------
        version : the version to publish.
        note : words for the history.
        after : what was current when it was decided to publish; None if nothing was.

        Returns
        -------
        bool : whether the version is current now.
        """
        self._require()
        with self._locked():
            pointer = self._pointer()
            if pointer.held is not None or pointer.current != (None if after is None else after.number):
                return False
            self.load(version.number)
            self._point(pointer.promoted(version.number, None))
            self._record("promoted", version.number, note=note)
        return True

    def rollback(self, note: str = "") -> Version:
        """Make the version that was current before the current one, and hold it there.

        Parameters
        ----------
        note : words for the history.

        Returns
        -------
        Version : the current version.
        """
        self._require()
        with self._locked():
            pointer = self._pointer()
            if len(pointer.versions) < 2:
                raise InputError(f"no version of {self.path} was current before this one; promote one by number")
            chosen = self.version(pointer.versions[-2])
            self.load(chosen.number)
            self._point(pointer.rolled_back(note))
            self._record("rolled back", chosen.number, note=note, was=pointer.current)
        return chosen

    def hold(self, note: str = "") -> Hold:
        """Keep the current version: updates publish nothing until `release`, or until the latest is promoted.

        Parameters
        ----------
        note : words for the history, and for whoever wonders.

        Returns
        -------
        Hold : since when and why it is held; an earlier hold stays as it is.
        """
        self._require()
        with self._locked():
            current, pointer = self.current, self._pointer()
            if pointer.held is not None:
                return pointer.held
            held = Hold(now(), f"version {current.name} was held", note)
            self._point(pointer.with_hold(held))
            self._record("held", current.number, note=note)
        return held

    def release(self, note: str = "") -> bool:
        """Let updates publish again; tell whether the current version was held.

        A version that was rolled back from does not come back by this: the next one is made of newer rows.

        Parameters
        ----------
        note : words for the history.

        Returns
        -------
        bool : whether there was a hold.
        """
        self._require()
        with self._locked():
            pointer = self._pointer()
            if pointer.held is None:
                return False
            self._point(pointer.with_hold(None))
            self._record("released", pointer.current, note=note)
        return True

    def record(self, event: str, version: int | None = None, **details: Any) -> None:
        """Add a line to the history, such as why a version was not published.

        Parameters
        ----------
        event : what happened.
        version : the number of the version that it concerns.
        details : further entries of the line.
        """
        self._require()
        with self._locked():
            self._record(event, version, **details)

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        """Return every version, oldest first."""
        return [self._store.read(number) for number in self._store.numbers()]

    @property
    def promoted(self) -> list[Version]:
        """Return the versions that were current one after the other, the current one last; at most the last 100."""
        self._require()
        return [self._store.read(number) for number in self._pointer().versions]

    @property
    def current(self) -> Version:
        """Return the version that is served."""
        self._require()
        number = self._pointer().current
        if number is None:
            raise InputError(f"no version of {self.path} is current; promote one")
        return self._store.read(number)

    @property
    def held(self) -> Hold | None:
        """Return why updates must leave the current version as it is; None if they need not."""
        self._require()
        return self._pointer().held

    @property
    def withdrawn(self) -> tuple[int, ...]:
        """Return the numbers of versions that were rolled back from, and not promoted since."""
        self._require()
        return self._pointer().withdrawn

    def version(self, name: int | str) -> Version:
        """Return a version by its number, or the "latest" or the "current" one.

        Parameters
        ----------
        name : the number, "latest" or "current".
        """
        self._require()
        if name == "current":
            return self.current
        there = self.versions
        if name == "latest" and there:
            return there[-1]
        known = {version.name: version for version in there}
        # A name is compared with the versions that are there and never becomes part of a path.
        if str(name) not in known:
            listed = ", ".join(list(known)[-10:]) or "none"
            raise InputError(f"{self.path} has no version {str(name)!r}; it has {listed}")
        return known[str(name)]

    def model_file(self, version: int | str = "current") -> Path:
        """Return the model file of a version, for reading: a version never changes.

        Parameters
        ----------
        version : its number, "latest" or "current".
        """
        return self._store.model_file(self.version(version).number)

    def load(self, version: int | str = "current") -> CalibrationModel:
        """Load the model of a version, checked against the digest that it was added with.

        Parameters
        ----------
        version : its number, "latest" or "current".

        Returns
        -------
        CalibrationModel : the model.
        """
        return self._store.load(self.version(version))

    def history(self, last: int | None = None) -> list[dict[str, Any]]:
        """Return what was done, oldest first.

        Parameters
        ----------
        last : how many lines, the latest; all if None.
        """
        path = self.path / _HISTORY
        return read_json_lines(path) if last is None else last_json_lines(path, last)

    # -- files ----------------------------------------------------------------------------------------------------

    def _pointer(self) -> Pointer:
        return Pointer.read(self.path / _CURRENT)

    def _point(self, pointer: Pointer) -> None:
        pointer.write(self.path / _CURRENT)

    def _record(self, event: str, version: int | None, **details: Any) -> None:
        line = {"time": now(), "event": event, "version": version} | {k: v for k, v in details.items() if v != ""}
        append_json_line(self.path / _HISTORY, line)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with exclusive_lock(self.path / ".lock"):
            yield

    def create(self) -> None:
        """Make the folder of the registry, unless it is there already."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; a registry is a folder")
        if not (self.path / "registry.json").is_file():
            if self.path.is_dir() and any(not path.name.startswith(".") for path in self.path.iterdir()):
                raise InputError(f"the folder {self.path} holds other things and is not a registry; name a new folder")
            self._store.path.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path / "registry.json") as part:
                part.write_text(json.dumps({"format": _FORMAT, "version": 1}) + "\n", encoding="utf-8")
        self._require()

    def _require(self) -> None:
        marker = self.path / "registry.json"
        if not marker.is_file():
            raise InputError(f"there is no registry in {self.path}; `mcnet versions add` makes one")
        try:
            about = json.loads(marker.read_text(encoding="utf-8"))
            fine = about["format"] == _FORMAT and about["version"] == 1
        except (ValueError, KeyError, TypeError):
            fine = False
        if not fine:
            raise FileFormatError(f"{marker} does not describe a registry that this mcnet can read")
