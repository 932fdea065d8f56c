"""The registry: a folder of immutable model versions and a pointer to the one that is served."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from mcnet._shared.atomic_files import flush, whole_file
from mcnet._shared.file_lock import exclusive_lock
from mcnet._shared.json_lines import append_json_line, read_json_lines
from mcnet.errors import FileFormatError, InputError
from mcnet.model.file import load, save_model
from mcnet.model.model import CalibrationModel

__all__ = ["Registry", "Version"]

_FORMAT = "mcnet registry"
_MODEL, _ABOUT, _CURRENT, _HISTORY = "model.json", "about.json", "current.json", "history.jsonl"


@dataclass(frozen=True)
class Version:
    """One immutable version of a model.

    Attributes
    ----------
    number : counts up from 1.
    method, fields, rows : what the model was fitted with, and on how many rows.
    note : what was said when it was added.
    """

    number: int
    added: str
    """When, in UTC."""
    digest: str
    """SHA-256 of the model file."""
    method: str
    fields: tuple[str, ...]
    rows: int | None
    note: str = ""
    fitted_until: str | None = None
    """The last period that the model was fitted on, if it tells."""
    rows_digest: str | None = None
    """A digest of the journal that the model was fitted on, if it tells."""

    @property
    def name(self) -> str:
        """Return the name that commands take."""
        return str(self.number)


class Registry:
    """A folder of model versions with a pointer to the current one, safe for several processes at once.

    A version never changes after it was added. The pointer moves by one atomic rename, so a reader always finds one
    whole version, and a process killed at any moment leaves a registry that opens. Every act is a line in
    `history.jsonl`.

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
        self.path = Path(path)

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
            self._remove_leftovers()
            writing = self.path / f".writing-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            writing.mkdir()
            try:
                if isinstance(model, CalibrationModel):
                    save_model(model, writing / _MODEL)
                else:
                    load(model)  # refuses what is damaged, before anything is copied
                    shutil.copyfile(model, writing / _MODEL)
                checked = load(writing / _MODEL)
                digest = hashlib.sha256((writing / _MODEL).read_bytes()).hexdigest()
                latest = self._latest()
                if latest is not None and latest.digest == digest:
                    version = latest
                else:
                    version = _described(1 + (0 if latest is None else latest.number), digest, checked, note)
                    (writing / _ABOUT).write_text(json.dumps(asdict(version), indent=1), encoding="utf-8")
                    flush(writing / _MODEL)
                    flush(writing / _ABOUT)
                    flush(writing)
                    writing.rename(self._folder(version.number))
                    flush(self.path / "versions")
                    self._record("added", version.number, note=note)
            finally:
                shutil.rmtree(writing, ignore_errors=True)
            if not self._stack():  # the first one, or a process was killed before it could point to it
                self._point([version.number])
                self._record("promoted", version.number, note="the first version")
        return version

    def promote(self, version: int | str, note: str = "") -> Version:
        """Make a version, or the "latest", the current one.

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
            stack = self._stack()
            if stack and stack[-1] == chosen.number:
                return chosen
            self._point([*stack, chosen.number])
            self._record("promoted", chosen.number, note=note)
        return chosen

    def rollback(self, note: str = "") -> Version:
        """Make the version that was current before the current one.

        Parameters
        ----------
        note : words for the history.

        Returns
        -------
        Version : the current version.
        """
        self._require()
        with self._locked():
            stack = self._stack()
            if len(stack) < 2:
                raise InputError(f"no version of {self.path} was current before this one; promote one by number")
            chosen = self.version(stack[-2])
            self.load(chosen.number)
            self._point(stack[:-1])
            self._record("rolled back", chosen.number, note=note, was=stack[-1])
        return chosen

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
        if not (self.path / "versions").is_dir():
            return []
        return [self._read(number) for number in self._numbers()]

    @property
    def promoted(self) -> list[Version]:
        """Return the versions that were current one after the other, the current one last; at most the last 100."""
        self._require()
        return [self._read(number) for number in self._stack()]

    @property
    def current(self) -> Version:
        """Return the version that is served."""
        self._require()
        stack = self._stack()
        if not stack:
            raise InputError(f"no version of {self.path} is current; promote one")
        return self._read(stack[-1])

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
        return self._folder(self.version(version).number) / _MODEL

    def load(self, version: int | str = "current") -> CalibrationModel:
        """Load the model of a version, checked against the digest that it was added with.

        Parameters
        ----------
        version : its number, "latest" or "current".

        Returns
        -------
        CalibrationModel : the model.
        """
        chosen = self.version(version)
        path = self._folder(chosen.number) / _MODEL
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FileFormatError(f"{path} cannot be read ({error}); promote another version") from None
        if hashlib.sha256(content).hexdigest() != chosen.digest:
            raise FileFormatError(f"{path} was altered after it was added; promote another version")
        return load(path)

    def history(self) -> list[dict[str, Any]]:
        """Return what was done, oldest first."""
        path = self.path / _HISTORY
        return read_json_lines(path)

    # -- files ----------------------------------------------------------------------------------------------------

    def _remove_leftovers(self) -> None:
        """Delete what writers that were killed have left; nobody else writes while the lock is held."""
        for path in self.path.glob(".writing-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in (self.path / "versions").iterdir() if path.name.isdigit())

    def _latest(self) -> Version | None:
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def _folder(self, number: int) -> Path:
        return self.path / "versions" / f"{number:06d}"

    def _read(self, number: int) -> Version:
        folder = self._folder(number)
        try:
            if folder.is_symlink() or (folder / _MODEL).is_symlink():
                raise FileFormatError(f"{folder} is a link; versions are folders of the registry itself")
            document = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            version = Version(**{**document, "fields": tuple(document["fields"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FileFormatError(f"{folder} is not a version that can be read ({error})") from None
        if version.number != number:
            raise FileFormatError(f"{folder} says that it is version {version.number}; it was moved or altered")
        return version

    def _stack(self) -> list[int]:
        path = self.path / _CURRENT
        if not path.is_file():
            return []
        try:
            return [int(number) for number in json.loads(path.read_text(encoding="utf-8"))["versions"]]
        except (ValueError, KeyError, TypeError) as error:
            raise FileFormatError(f"{path} cannot be read ({error}); promote a version to write it anew") from None

    def _point(self, stack: list[int]) -> None:
        """Write the pointer: the current version last, those it followed before it."""
        with whole_file(self.path / _CURRENT) as part:
            part.write_text(json.dumps({"versions": stack[-100:], "since": _now()}), encoding="utf-8")

    def _record(self, event: str, version: int | None, **details: Any) -> None:
        line = {"time": _now(), "event": event, "version": version} | {k: v for k, v in details.items() if v != ""}
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
            (self.path / "versions").mkdir(parents=True, exist_ok=True)
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


def _described(number: int, digest: str, model: CalibrationModel, note: str) -> Version:
    told = model.provenance
    periods = told.get("fitted_periods") or {}
    until, rows = periods.get("last") or told.get("last_period"), told.get("journal_digest")
    return Version(
        number,
        _now(),
        digest,
        model.method,
        model.fields,
        told.get("rows"),
        note,
        until if isinstance(until, str) else None,
        rows if isinstance(rows, str) else None,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
