"""A lock that one process at a time can have; it goes with its process, however that ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["exclusive_lock"]


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait until no other process has the lock of this file, and have it until the end of the block."""
    import fcntl

    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
