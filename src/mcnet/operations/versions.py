"""Immutable versions of a model in a registry, and the pointer to the one that is served."""

import hashlib
import json
import os
import re
import shutil
import uuid
from contextlib import suppress
from dataclasses import asdict
from os import PathLike
from pathlib import Path

from mcnet._shared.files import disk_path, flush, named_if_full, write_json
from mcnet.errors import FileFormatError, InputError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import load, save_model
from mcnet.store.versions import Pointer, Version, described

# The folder of a registry: created once, and recognised by a marker file.

_MARKER, _FORMAT = "registry.json", {"format": "mcnet registry", "version": 1}


def make_registry(path: Path, versions: Path) -> None:
    """Make the folder of a registry and the one of its versions, unless they are there already."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; a registry is a folder")
    if not (path / _MARKER).is_file():
        others = path.is_dir() and any(not _is_unfinished(other, versions) for other in path.iterdir())
        if others and not (path / _MARKER).is_file():  # else another process has just made it
            raise InputError(f"the folder {path} holds other things and is not a registry; name a new folder")
        versions.mkdir(parents=True, exist_ok=True)
        write_json(path / _MARKER, _FORMAT, durable=True)
    require_registry(path)


def _is_unfinished(entry: Path, versions: Path) -> bool:
    """Tell whether something in the folder is what a process that was cut off left while it made a registry."""
    return entry.name.startswith(".") or (entry == versions and not any(entry.iterdir()))


def require_registry(path: Path) -> None:
    """Refuse a folder that is not a registry, or one of a later mcnet."""
    marker = path / _MARKER
    if not marker.is_file():
        raise InputError(f"there is no registry in {path}; `mcnet versions add` makes one")
    try:
        fine = json.loads(marker.read_text(encoding="utf-8")) == _FORMAT
    except ValueError:
        fine = False
    if not fine:
        raise FileFormatError(f"{marker} does not describe a registry that this mcnet can read")


# The pointer of a registry in its file.


def read_pointer(path: Path) -> Pointer:
    """Read the pointer; there is none before the first version."""
    if not path.is_file():
        return Pointer()
    try:
        return Pointer.of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} cannot be read ({error}); promote a version to write it again") from None


def write_pointer(pointer: Pointer, path: Path) -> None:
    """Write the pointer by one atomic rename."""
    write_json(path, pointer.document(), durable=True)


# The immutable versions of a registry on disk: one folder each, checked whenever it is read.

_MODEL, _ABOUT, _HIDDEN = "model.json", "about.json", ".writing-"
_NUMBER = re.compile(r"(?!0+$)[0-9]{6,12}", re.ASCII)


class VersionStore:
    """The folder `versions` of a registry; whoever adds to it holds the registry's lock.

    Parameters
    ----------
    registry : the folder of the registry.
    """

    def __init__(self, registry: Path) -> None:
        self._registry = registry
        self.path = registry / "versions"

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, the oldest first."""
        if not self.path.is_dir():
            return []
        return sorted(int(path.name) for path in self.path.iterdir() if _NUMBER.fullmatch(path.name))

    def put(self, model: CalibrationModel | str | PathLike[str], note: str) -> tuple[Version, bool]:
        """Add a model as a whole, or nothing; tell whether it is a new version, not the newest one again."""
        self._remove_leftovers()
        writing = self._registry / f"{_HIDDEN}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            # The file that the error names may well be the model that was read.
            with named_if_full(self._registry, "nothing was added"):
                writing.mkdir()
                if isinstance(model, CalibrationModel):
                    save_model(model, writing / _MODEL)
                else:
                    load(model)  # refuses what is damaged, before anything is copied
                    shutil.copyfile(disk_path(model, "a model"), writing / _MODEL)
                checked = load(writing / _MODEL)
                digest = hashlib.sha256((writing / _MODEL).read_bytes()).hexdigest()
                newest = max(self.numbers(), default=0)
                with suppress(FileFormatError):  # one that cannot be read is another model
                    if newest and (latest := self.read(newest)).digest == digest:
                        return latest, False
                version = described(1 + newest, digest, checked, note)
                (writing / _ABOUT).write_text(json.dumps(asdict(version), indent=1), encoding="utf-8")
                flush(writing / _MODEL)
                flush(writing / _ABOUT)
                flush(writing)
                writing.rename(self._folder(version.number))
                flush(self.path)
                return version, True
        finally:
            shutil.rmtree(writing, ignore_errors=True)

    def read(self, number: int) -> Version:
        """Return the description of a version."""
        folder = self._folder(number)
        if any(path.is_symlink() for path in (self.path, folder, folder / _MODEL, folder / _ABOUT)):
            raise FileFormatError(f"{folder} is a link, or has one; versions are folders of the registry itself")
        try:
            document = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            version = Version(**{**document, "fields": tuple(document["fields"])})
        except OSError as error:
            raise FileFormatError(f"{folder} cannot be read ({error.strerror}); promote another version") from None
        except (ValueError, TypeError, KeyError):
            raise FileFormatError(
                f"{folder} is not a version that can be read ({_ABOUT} is damaged); promote another version"
            ) from None
        if version.number != number:
            raise FileFormatError(f"{folder} says that it is version {version.number}; it was moved or altered")
        return version

    def delete(self, number: int) -> None:
        """Delete a version; it is gone at once, or not at all."""
        gone = self._registry / f"{_HIDDEN}gone-{number}-{uuid.uuid4().hex[:8]}"
        self._folder(number).rename(gone)
        if gone.is_symlink():
            gone.unlink()
        else:
            shutil.rmtree(gone, ignore_errors=True)  # what is left is removed by the next writer

    def model_file(self, number: int) -> Path:
        """Return the model file of a version."""
        return self._folder(number) / _MODEL

    def load(self, version: Version) -> CalibrationModel:
        """Load the model of a version, checked against the digest that it was added with."""
        path = self.model_file(version.number)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FileFormatError(f"{path} cannot be read ({error}); promote another version") from None
        if hashlib.sha256(content).hexdigest() != version.digest:
            raise FileFormatError(f"{path} was altered after it was added; promote another version")
        return load(path)

    def _folder(self, number: int) -> Path:
        return self.path / f"{number:06d}"

    def _remove_leftovers(self) -> None:
        """Delete what writers that were killed have left; nobody else writes while the lock is held."""
        for path in self._registry.glob(f"{_HIDDEN}*"):
            shutil.rmtree(path, ignore_errors=True)
