"""A journal as it was at one moment, while other processes add to it."""

from mcnet.tracking.journal import Journal
from mcnet.tracking.journal_entries import EntryBatch
from mcnet.tracking.journal_files import require_journal
from mcnet.tracking.journal_readers import ReaderLock

__all__ = ["JournalSnapshot"]


class JournalSnapshot(Journal):
    """The rows that a journal has now: those added later are not seen, so that several readings agree."""

    def __init__(self, journal: Journal) -> None:
        """List what is there; batches never change, so their files are read when they are needed, and kept so long."""
        super().__init__(journal.path)
        require_journal(self.path, create=False)
        self._lock = ReaderLock(self.path)
        self._batches = journal.batches()

    def batches(self) -> list[EntryBatch]:
        """Return the batches of that moment, oldest first."""
        return list(self._batches)
