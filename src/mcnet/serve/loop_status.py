"""What the update job wrote last: `loop/status.json` in the registry."""

import json
import stat
from pathlib import Path
from typing import Any

__all__ = ["LoopStatus"]


class LoopStatus:
    """Reads the status when it has changed.

    Parameters
    ----------
    registry : the folder of the registry.
    """

    def __init__(self, registry: Path) -> None:
        self.path = registry / "loop" / "status.json"
        self._stamp: tuple[int, int] | None = None
        self._document: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        """Return the status; None if the job never ran, or its file cannot be read."""
        try:
            found = self.path.lstat()
            if not stat.S_ISREG(found.st_mode):  # a link may lead out of the registry
                return None
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._stamp:
                document = json.loads(self.path.read_text(encoding="utf-8"))
                self._document = document if _is_status(document) else None
                self._stamp = stamp
        except (OSError, ValueError):
            self._stamp, self._document = None, None
        return self._document


_SHAPE: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "last_run": (dict,),
    "alarms": (list,),
    "periods": (list,),
    "monitor": (dict, type(None)),
}


def _is_status(document: Any) -> bool:
    """Tell whether a document has the parts that are shown."""
    if not isinstance(document, dict) or document.get("format") != "mcnet status":
        return False
    if not all(name in document and isinstance(document[name], kinds) for name, kinds in _SHAPE.items()):
        return False
    table = (document["monitor"] or {}).get("table", [])
    return all(isinstance(line, dict) for line in [*document["periods"], *document["alarms"], *table])
