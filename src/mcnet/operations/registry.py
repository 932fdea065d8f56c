"""The registry: a folder of immutable model versions and a pointer to the one that is served."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from mcnet._shared.files import append_json_line, disk_path, exclusive_lock, last_json_lines, read_json_lines
from mcnet._shared.messages import warn
from mcnet.errors import FileFormatError, InputError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import as_model
from mcnet.operations.versions import VersionStore, make_registry, read_pointer, require_registry, write_pointer
from mcnet.store.versions import DamagedVersion, Hold, Pointer, Version, now

# Read a registry: its versions, the current one, the hold, and the history.

CURRENT, HISTORY = "current.json", "history.jsonl"


class RegistryView:
    """A registry to look at; `Registry` changes it.

    Parameters
    ----------
    path : the folder.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Name the folder; nothing is read or written yet."""
        self.path = disk_path(path, "a registry")
        if self.path.is_file():
            raise InputError(f"{self.path} is a file; a registry is a folder")
        self._store = VersionStore(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({fspath(self.path)!r})"

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all versions, oldest first, whether they can be read or not."""
        return self._store.numbers()

    @property
    def versions(self) -> list[Version]:
        """Return every version that can be read, oldest first; `looked_at` has the others, too."""
        return self.newest(None)

    def newest(self, most: int | None) -> list[Version]:
        """Return the versions that can be read among the newest ones, oldest first.

        Parameters
        ----------
        most : how many to look at; all if None.
        """
        return [version for version in self.looked_at(most) if isinstance(version, Version)]

    def looked_at(self, most: int | None = None) -> list[Version | DamagedVersion]:
        """Return the newest versions, oldest first, those that cannot be read among them: they are in nobody's way.

        Parameters
        ----------
        most : how many to look at; all if None.
        """
        numbers = self._store.numbers()
        return list(map(self._read, numbers if most is None else numbers[-most:]))

    def _read(self, number: int) -> Version | DamagedVersion:
        try:
            return self._store.read(number)
        except FileFormatError as error:
            return DamagedVersion(number, str(error))

    @property
    def promoted(self) -> list[Version]:
        """Return the versions that were current one after the other, the current one last; at most the last 100.

        Earlier ones that were pruned, or cannot be read any more, are left out.
        """
        self._require()
        *earlier, last = self._pointer().versions or (None,)
        if last is None:
            return []
        result = []
        for number in earlier:
            with suppress(FileFormatError):
                result.append(self._store.read(number))
        return [*result, self._store.read(last)]

    @property
    def current(self) -> Version:
        """Return the version that is served."""
        number = self.current_number
        if number is None:
            raise InputError(f"no version of {self.path} is current; promote one")
        return self._store.read(number)

    @property
    def current_number(self) -> int | None:
        """Return the number of the version that is served, even if it cannot be read; None before the first one."""
        self._require()
        return self._pointer().current

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
        name : the number, "latest" (of those that can be read) or "current".
        """
        self._require()
        if name == "current":
            return self.current
        numbers = self._store.numbers()
        if name == "latest" and numbers:
            return next((v for v in map(self._read, reversed(numbers)) if isinstance(v, Version)), None) or (
                self._store.read(numbers[-1])  # none can be read: this says why
            )
        # A name is compared with the numbers that are there and never becomes part of a path.
        known = {str(number): number for number in numbers}
        if str(name) not in known:
            listed = ", ".join(list(known)[-10:]) or "none"
            raise InputError(f"{self.path} has no version {str(name)!r}; it has {listed}")
        return self._store.read(known[str(name)])

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
        path = self.path / HISTORY
        return read_json_lines(path) if last is None else last_json_lines(path, last)

    def _pointer(self) -> Pointer:
        return read_pointer(self.path / CURRENT)

    def _require(self) -> None:
        require_registry(self.path)


# The registry: a folder of immutable model versions and a pointer to the one that is served.


class Registry(RegistryView):
    """A folder of model versions with a pointer to the current one, safe for several processes at once.

    A version never changes after it was added. The pointer moves by one atomic rename, so a reader always finds one
    whole version, and a process killed at any moment leaves a registry that opens. Every act is a line in
    `history.jsonl`. Who goes back to an older version holds it: updates publish nothing until the hold is released.

    Parameters
    ----------
    path : the folder; it is made when the first version is added.

    >>> import tempfile
    >>> from mcnet.calibrators.parametric import Platt
    >>> registry = Registry(tempfile.mkdtemp())
    >>> first = registry.add(Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).model_)
    >>> registry.current.name
    '1'
    """

    def create(self) -> None:
        """Make the folder of the registry, unless it is there already."""
        make_registry(self.path, self._store.path)

    def add(self, model: Any, note: str = "") -> Version:
        """Add a model as a new version; the first one becomes current.

        The model is loaded and checked as a whole before it is added. Adding the model of the newest version again
        changes nothing and returns that version.

        Parameters
        ----------
        model : a model, a fitted calibrator, or the path of a model file.
        note : words for the history.

        Returns
        -------
        Version : the new version.
        """
        if not isinstance(model, str | PathLike):
            model = as_model(model, "a version")
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
            newest = self.version("latest").number
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

    def prune(self, keep: int) -> list[int]:
        """Delete old versions, for good; a registry that is updated every hour grows by 8,760 of them a year.

        The current version and the one that a rollback leads to stay, however old they are.

        Parameters
        ----------
        keep : how many of the newest versions stay; at least 1.

        Returns
        -------
        list : the numbers of the versions that were deleted.
        """
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise InputError(f"keep is {keep!r}; it must be the number of versions to keep, at least 1")
        self._require()
        with self._locked():
            pointer = self._pointer()
            numbers = self._store.numbers()
            gone = sorted(set(numbers[:-keep]) - set(pointer.versions[-2:]))
            if gone:
                self._point(pointer.without(gone))
                self._record("pruned", None, versions=len(gone), until=gone[-1])
                for number in gone:
                    self._store.delete(number)
        return gone

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

    def _point(self, pointer: Pointer) -> None:
        write_pointer(pointer, self.path / CURRENT)

    def _record(self, event: str, version: int | None, **details: Any) -> None:
        line = {"time": now(), "event": event, "version": version} | {k: v for k, v in details.items() if v != ""}
        append_json_line(self.path / HISTORY, line)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with exclusive_lock(self.path / ".lock"):
            yield
        self._refresh_status()

    def _refresh_status(self) -> None:
        """Let the status page of `mcnet update`, if there is one, show what is current and held now."""
        if not (self.path / "loop").is_dir():
            return
        # By name: the loop is built on registries, and a registry without a loop never loads it.
        loop = import_module("mcnet.operations.status")
        try:
            loop.refresh_status(self)
        except Exception as error:  # a full disk, a damaged status: the change of the registry itself is done
            warn(f"{self.path / 'loop'} still shows an earlier status, since it could not be written: {error!r}")
