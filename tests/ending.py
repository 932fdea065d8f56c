"""Processes that end with the tests that started them, also if these are killed."""

import ctypes
import signal
import sys
from collections.abc import Callable

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> Callable[[], None] | None:
    """Return what a child runs before its program (`preexec_fn`): the system kills it when its parent ends."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # found before the fork, after which little is safe

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask
