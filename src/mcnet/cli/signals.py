"""Signals that end a command: the temporary files are removed, and the exit code is 128 plus the signal's number."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "orderly_termination", "plain_interrupts"]

_GRACE_SECONDS = 5.0
"""How long the main thread has to end by itself before the process is ended."""


class Terminated(BaseException):
    """The process was asked to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Raise Terminated in the main thread on SIGTERM and SIGHUP, unless they are ignored (as under nohup).

    Python runs its handlers between two instructions, and one call into a library may last minutes. So a thread hears
    of the signal, too: if the main thread has not ended after a few seconds, it cleans up and ends the process. This
    does not apply to a command that has set its own handler, such as a service, which finishes its requests first.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = {number: before for number in numbers if (before := signal.getsignal(number)) is signal.SIG_DFL}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, frozenset(heard)), daemon=True).start()
    try:
        for number in heard:
            signal.signal(number, _raise)
        yield
    finally:
        for number, before in heard.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(earlier)
        os.close(writer)  # the watching thread reads the end and stops


def _raise(number: int, _: FrameType | None) -> None:
    raise Terminated(number)


def _watch(reader: int, numbers: frozenset[int]) -> None:
    try:
        while heard := os.read(reader, 1):
            if heard[0] in numbers and signal.getsignal(heard[0]) is _raise:
                _end_later(reader, heard[0])
                return
    finally:
        os.close(reader)


def _end_later(reader: int, number: int) -> None:
    import select

    # The other end is closed when the command has ended in good order.
    while select.select([reader], [], [], _GRACE_SECONDS)[0]:
        if not os.read(reader, 1):
            return
    from mcnet._shared.atomic_files import remove_unfinished_files

    remove_unfinished_files()
    os._exit(128 + number)


def plain_interrupts() -> None:
    """Let Python alone hear Ctrl-C: Polars hears it too, and aborts its threads with a page of backtraces."""
    if threading.current_thread() is threading.main_thread():
        import polars  # noqa: F401  (it listens from when it is imported)

        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
