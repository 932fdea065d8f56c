"""The immutable versions of a registry on disk: one folder each, checked whenever it is read."""

import errno
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

from mcnet._shared.atomic_files import flush, is_disk_full
from mcnet._shared.disk_paths import disk_path
from mcnet.errors import FileFormatError
from mcnet.model.file import load, save_model
from mcnet.model.model import CalibrationModel
from mcnet.versions.version import Version, described

__all__ = ["VersionStore"]

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
        writing.mkdir()
        try:
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
        except OSError as error:
            if is_disk_full(error):  # the file it names may well be the model that was read
                full = "no space left on the disk, nothing was added"
                raise OSError(errno.ENOSPC, full, str(self._registry)) from None
            raise
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
