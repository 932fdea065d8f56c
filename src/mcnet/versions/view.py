"""Read a registry: its versions, the current one, the hold, and the history."""

from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from mcnet._shared.disk_paths import disk_path
from mcnet._shared.json_lines import last_json_lines, read_json_lines
from mcnet.errors import FileFormatError, InputError
from mcnet.model.model import CalibrationModel
from mcnet.versions.folder import require_registry
from mcnet.versions.pointer import Hold, Pointer
from mcnet.versions.store import VersionStore
from mcnet.versions.version import DamagedVersion, Version

__all__ = ["CURRENT", "HISTORY", "RegistryView"]

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
        return [found for found in self.looked_at(most) if isinstance(found, Version)]

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
        found = []
        for number in earlier:
            with suppress(FileFormatError):
                found.append(self._store.read(number))
        return [*found, self._store.read(last)]

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
        return Pointer.read(self.path / CURRENT)

    def _require(self) -> None:
        require_registry(self.path)
