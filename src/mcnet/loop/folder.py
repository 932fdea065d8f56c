"""The files of the loop, in the folder `loop` of a registry: lock, history of runs, status, monitor, saved trackers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcnet._shared.file_lock import exclusive_lock
from mcnet._shared.json_lines import append_json_line, last_json_lines, read_json_lines
from mcnet.loop.checkpoints import Checkpoints

__all__ = ["LoopFolder"]


class LoopFolder:
    """Where the job keeps what it needs from run to run, and what it tells.

    The line of a run in `runs.jsonl` is written last: a run without its line has not ended, and the next one does again
    what it may have left undone. Everything else is a cache, or made anew by every run.
    """

    def __init__(self, registry: Path) -> None:
        """Name the folder; it is made by `locked`."""
        self.path = registry / "loop"

    @property
    def status_page(self) -> Path:
        """The status for people."""
        return self.path / "status.html"

    @property
    def status_file(self) -> Path:
        """The status for programs."""
        return self.path / "status.json"

    @property
    def monitor_file(self) -> Path:
        """The evidence of the monitor."""
        return self.path / "monitor.json"

    @property
    def refused_model(self) -> Path:
        """The last candidate that was refused, to look at."""
        return self.path / "refused.json"

    @property
    def checkpoints(self) -> Checkpoints:
        """The saved trackers."""
        return Checkpoints(self.path)

    @contextmanager
    def locked(self, wait_seconds: float) -> Iterator[None]:
        """Let one run at a time work here; the lock goes with its process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.path / ".lock", wait_seconds):
            self.checkpoints.remove_leftovers()
            yield

    def add_run(self, run: dict[str, Any]) -> None:
        """Add the line of a run."""
        append_json_line(self.path / "runs.jsonl", run)

    def runs(self) -> list[dict[str, Any]]:
        """Return every run, oldest first."""
        return read_json_lines(self.path / "runs.jsonl")

    def last_runs(self, number: int) -> list[dict[str, Any]]:
        """Return the last runs, oldest first."""
        return last_json_lines(self.path / "runs.jsonl", number)
