"""What the update job wrote last: `loop/status.json` in the registry."""

import json
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
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._stamp:
                document = json.loads(self.path.read_text(encoding="utf-8"))
                self._document = document if isinstance(document, dict) else None
                self._stamp = stamp
        except (OSError, ValueError):
            self._stamp, self._document = None, None
        return self._document
