"""Structured logs: one JSON object per line on stderr."""

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = ["LOGGING", "log_event"]

_encode = msgspec.json.Encoder().encode


def log_event(event: str, level: str = "info", **details: Any) -> None:
    """Write what happened, when, in which process, and its details."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": moment, "level": level, "event": event, "pid": os.getpid(), **details}
    with suppress(OSError):  # a full disk under the log is no reason to refuse a request
        # One write per line, so that the lines of several workers do not mix.
        sys.stderr.write(_encode(line).decode() + "\n")
        sys.stderr.flush()


class EventHandler(logging.Handler):
    """Writes what libraries log in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        log_event(record.getMessage(), record.levelname.lower(), logger=record.name.strip("_"))


LOGGING: dict[str, Any] = {
    "handlers": {"console": {"()": "mcnet.serve.logs.EventHandler"}, "access": {"()": "mcnet.serve.logs.EventHandler"}},
    "formatters": {},
}
"""How the server logs, as `logging.config.dictConfig` takes it."""
