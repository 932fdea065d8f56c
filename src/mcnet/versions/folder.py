"""The folder of a registry: created once, and recognised by a marker file."""

import json
from pathlib import Path

from mcnet._shared.json_files import write_json
from mcnet.errors import FileFormatError, InputError

__all__ = ["make_registry", "require_registry"]

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


def _is_unfinished(found: Path, versions: Path) -> bool:
    """Tell whether something in the folder is what a process that was cut off left while it made a registry."""
    return found.name.startswith(".") or (found == versions and not any(found.iterdir()))


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
