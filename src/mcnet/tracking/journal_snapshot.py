"""A journal as it was at one moment, while others go on adding to it."""

from mcnet.tracking.journal import Journal
from mcnet.tracking.journal_entries import Batch

__all__ = ["JournalSnapshot"]


class JournalSnapshot(Journal):
    """The rows that a journal has now: those added later are not seen, so that several readings agree."""

    def __init__(self, journal: Journal) -> None:
        """List what is there; batches never change, so their files are read when they are needed."""
        super().__init__(journal.path)
        self._batches = journal.batches() if journal.path.is_dir() else []

    def batches(self) -> list[Batch]:
        """Return the batches of that moment, oldest first."""
        return list(self._batches)
