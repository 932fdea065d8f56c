"""Readers beside writers: files that a journal no longer needs are kept while they are read.

A reader has a shared lock for as long as it reads. A writer that takes a batch out of the journal renames its folder,
and deletes it if nobody has that lock; otherwise a later writer does. A reader that listed the batch before finds its
files under the new name.
"""

import os
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.journal_entries import EntryBatch

__all__ = ["ReaderLock", "delete_retired", "load_sketch_of_batch", "retire_batch"]

_READERS = ".readers"
_RETIRED = ".retired-"


class ReaderLock:
    """The right to find every file that was part of a journal when it began, until `close` or the end of this object.

    A folder in which nothing can be written is read without a lock.
    """

    def __init__(self, root: Path) -> None:
        """Wait for writers that are deleting files at this moment, and keep them from doing so."""
        import fcntl

        self.close: Any = lambda: None
        for flags in (os.O_RDONLY | os.O_CREAT, os.O_RDONLY):
            try:
                file = os.open(root / _READERS, flags, 0o666)
            except OSError:
                continue
            self.close = weakref.finalize(self, os.close, file)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_SH)
            return

    def __enter__(self) -> "ReaderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def retire_batch(batch: EntryBatch) -> None:
    """Take a batch out of the journal by one rename; its files are deleted once nobody reads them."""
    try:
        batch.folder.rename(batch.folder.with_name(_RETIRED + batch.folder.name))
    except FileNotFoundError:
        return
    delete_retired(batch.folder.parent)


def delete_retired(root: Path) -> None:
    """Delete the files of batches that are no longer part of a journal, unless somebody reads."""
    retired = list(root.glob(f"{_RETIRED}*"))
    if not retired:
        return
    import fcntl

    file = os.open(root / _READERS, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        for path in retired:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(file)


def load_sketch_of_batch(path: Path) -> Sketch:
    """Load a file of a batch, also of one that was taken out of the journal since it was listed."""
    try:
        return Sketch.load(path)
    except InputError:
        retired = path.parent.with_name(_RETIRED + path.parent.name) / path.name
        if path.exists() or not retired.exists():
            raise
        return Sketch.load(retired)
