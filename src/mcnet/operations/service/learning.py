"""`--learn`: the update job at the end of every period, in a separate process, so that answers do not wait for it."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from mcnet.errors import McnetError
from mcnet.operations.service.feedback import present
from mcnet.operations.service.settings import ServiceSettings, log_event
from mcnet.operations.update import record_failed_run
from mcnet.store.store import Store

_BUSY = 75
"""The exit code of an update that found another one at work."""

_LONGEST_SLEEP_SECONDS = 60.0
"""The clock of a machine may be set; it is looked at this often."""


class Learning:
    """Runs `mcnet update` when the service starts, and after the end of every period.

    The job may be killed at any time and run twice at once, so nothing else is needed here: what it publishes, the
    workers find in the registry.

    Parameters
    ----------
    settings : the store, the length of a period, and how long to wait for late rows.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._job: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End a job that runs, and run no more."""
        self._stop.set()
        with self._lock:
            if self._job is not None and self._job.poll() is None:
                self._job.terminate()
        self._thread.join(10.0)

    def _run(self) -> None:
        assert self._settings.every is not None
        wait = timedelta(seconds=self._settings.learn_after_seconds)
        while not self._stop.is_set():
            now = datetime.now(UTC).replace(tzinfo=None)
            at = present(self._settings.every, now - wait)
            done = self._update(at.previous)
            while not self._stop.is_set():
                left = (at.end + wait - datetime.now(UTC).replace(tzinfo=None)).total_seconds()
                if left <= 0.0:
                    break
                self._stop.wait(min(left, _LONGEST_SLEEP_SECONDS))
                if not done and not self._stop.is_set():
                    done = self._update(at.previous)  # a disk that was full, or another run that was at work

    def _update(self, until: str) -> bool:
        """Run the job once, over all periods that have ended; tell whether it need not be tried again."""
        store = Store(self._settings.store)
        head = store.chosen_head(self._settings.head)
        if not store.journal(head).periods:
            return True  # no feedback yet
        before = store.state(head).runs(1)
        words = ["update", self._settings.store, "--head", head, "--until", until, "--json"]
        with self._lock:
            if self._stop.is_set():
                return True
            self._job = subprocess.Popen(
                [sys.executable, "-m", "mcnet", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        out, errors = self._job.communicate()
        if self._stop.is_set():
            return True
        done = _document(out)
        if done is None:
            code, reason = self._job.returncode, errors.strip()[-1000:]
            log_event("update failed", "error", until=until, code=code, reason=reason)
            if code != _BUSY and store.state(head).runs(1) == before:  # it could not write its line
                why = f"the update was ended by signal {-code}" if code < 0 else reason
                with suppress(McnetError, OSError):
                    record_failed_run(store, why, head=head)
            return False
        summary = {name: done.get(name) for name in ("outcome", "reason", "version", "replaced")}
        alarms = [alarm.get("what") for alarm in done.get("alarms") or []]
        log_event("update finished", "warning" if alarms else "info", until=until, **summary, alarms=alarms)
        return True


def _document(printed: str) -> dict[str, Any] | None:
    try:
        document = json.loads(printed)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
