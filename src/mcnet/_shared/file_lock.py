"""A lock that one process at a time can have; it is released when the process ends, however it ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mcnet.errors import BusyError

__all__ = ["exclusive_lock"]

_SECONDS_BETWEEN_TRIES = 0.05


@contextmanager
def exclusive_lock(path: Path, wait_seconds: float | None = None) -> Iterator[None]:
    """Wait until no other process has the lock of this file, and have it until the end of the block.

    Parameters
    ----------
    path : the file to lock; it is made if it is not there, and stays.
    wait_seconds : how long to wait; None for as long as it takes.

    Raises
    ------
    BusyError : another process still had the lock after that time.
    """
    import fcntl

    with path.open("a") as file:
        if wait_seconds is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        else:
            _lock_within(file, path, wait_seconds)
        yield


def _lock_within(file: IO[str], path: Path, wait_seconds: float) -> None:
    import fcntl

    until = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0.0:
                raise BusyError(
                    f"another process is using {path.parent} and has not ended after {wait_seconds:g} s; "
                    "try again later, or wait longer"
                ) from None
            time.sleep(min(_SECONDS_BETWEEN_TRIES, left))
