"""Saved states of the tracker, also older ones, so that rows which arrive late do not cost a replay of everything."""

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcnet._shared.atomic_files import flush
from mcnet.errors import McnetError
from mcnet.loop.judged import Judged
from mcnet.tracking.learner import Learner
from mcnet.tracking.tracker_file import load_tracker, save_tracker

__all__ = ["Checkpoints"]

_PREFIX, _HIDDEN, _JUDGED = "tracker-", ".writing-", "judged.json"


class Checkpoints:
    """A folder of trackers, each with the periods that were judged on the way to it.

    A state is of use as long as the periods that it learnt are the same in the journal. Of the older ones those are
    kept that are about 1, 2, 4, 8 … periods behind, so that a late row costs about as many periods as it is late.
    They are a cache: whatever is lost is learnt again from the journal.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder."""
        self.folder = folder

    def latest(
        self, digests: Mapping[str, str], settings: tuple[str, tuple[float, ...] | None, int]
    ) -> tuple[Learner, list[Judged]] | None:
        """Return the latest state that has learnt what the journal still has, with these settings."""
        for path in sorted(self.folder.glob(f"{_PREFIX}*"), reverse=True):
            try:
                learner = load_tracker(path)
                judged = [Judged.restored(one) for one in json.loads((path / _JUDGED).read_text(encoding="utf-8"))]
            except (McnetError, OSError, ValueError, TypeError, KeyError):
                continue
            if (learner.method, learner.given_memories, learner.delay) != settings:
                continue
            if learner.clock.last is not None and digests.get(learner.clock.last) == learner.journal_digest:
                return learner, judged
        return None

    def save(self, learner: Learner, judged: Sequence[Judged]) -> None:
        """Save a state as a whole, and drop those that are needed no more."""
        target = self.folder / f"{_PREFIX}{learner.clock.ticks:08d}"
        writing = self.folder / f"{_HIDDEN}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            save_tracker(learner, writing)
            text = json.dumps([one.to_dict() for one in judged], allow_nan=False)
            (writing / _JUDGED).write_text(text, encoding="utf-8")
            for path in writing.iterdir():
                flush(path)
            if target.exists():  # a state of the same length that late rows have made useless
                target.rename(writing.with_name(f"{writing.name}-old"))
            writing.rename(target)
        finally:
            self.remove_leftovers()
        self._drop_needless(learner.clock.ticks)

    def remove_leftovers(self) -> None:
        """Delete what was not finished; whoever calls this holds the lock of the folder."""
        for path in self.folder.glob(f"{_HIDDEN}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _drop_needless(self, newest: int) -> None:
        """Keep the newest, and the oldest of each range of ages: 1, 2 to 3, 4 to 7 … periods behind."""
        kept: set[int] = set()
        for path in sorted(self.folder.glob(f"{_PREFIX}*")):  # oldest first
            behind = newest - int(path.name.removeprefix(_PREFIX))
            if behind < 0 or behind.bit_length() in kept:
                shutil.rmtree(path, ignore_errors=True)
            kept.add(behind.bit_length())
