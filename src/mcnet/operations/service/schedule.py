"""`--learn`: the update job at the end of every period, in a separate process, so that answers do not wait for it."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from mcnet.errors import McnetError
from mcnet.operations.alerts import ADDRESS_VARIABLE
from mcnet.operations.service.feedback import present
from mcnet.operations.service.settings import ServiceSettings, log_event
from mcnet.operations.update import record_failed_run
from mcnet.store.store import Store

_BUSY = 75
"""The exit code of an update that found another one at work."""

_LONGEST_SLEEP_SECONDS = 60.0
"""The clock of a machine may be set; it is looked at this often."""


class Learning:
    """Runs `mcnet update` for every head when the service starts, and after the end of every period.

    The job may be killed at any time and run twice at once, so nothing else is needed here: what it publishes, the
    workers find in the store.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._store = Store(settings.store)
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
        wait = timedelta(seconds=self._settings.learn_after_seconds)
        done: dict[str, str] = {}
        while not self._stop.is_set():
            left = _LONGEST_SLEEP_SECONDS
            for head, every in self._heads():
                at = present(every, _now() - wait)
                if done.get(head) != at.previous and self._update(head, at.previous):
                    done[head] = at.previous
                # One that failed, on a full disk or beside another run, is tried again after the longest sleep.
                left = min(left, max((at.end + wait - _now()).total_seconds(), 0.0))
            self._stop.wait(left)

    def _heads(self) -> list[tuple[str, str]]:
        """Return the heads, and the length of their periods; none while the store cannot be reached."""
        try:
            known = self._store.read_heads()
        except McnetError as error:
            log_event("update failed", "error", reason=str(error))
            return []
        lengths = ((about.name, self._settings.every_of(about.settings)) for about in known)
        return [(name, every) for name, every in lengths if every is not None]

    def _update(self, head: str, until: str) -> bool:
        """Run the job of a head once, over all periods that have ended; tell whether it need not be tried again."""
        try:
            if not self._store.journal(head).periods:
                return True  # no feedback yet
            before = self._store.state(head).runs(1)
        except McnetError as error:
            log_event("update failed", "error", head=head, until=until, reason=str(error))
            return False
        webhook = self._settings.webhook
        words = ["update", self._settings.store, "--head", head, "--until", until, "--json"]
        words += ["--field-values", self._settings.field_values]
        with self._lock:
            if self._stop.is_set():
                return True
            self._job = subprocess.Popen(
                [sys.executable, "-m", "mcnet", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | ({} if webhook is None else {ADDRESS_VARIABLE: webhook.url}),
            )
        out, errors = self._job.communicate()
        if self._stop.is_set():
            return True
        done: dict[str, Any] = {}
        with suppress(ValueError):  # a job that was killed has printed nothing
            done = json.loads(out)
        if not done:
            code, reason = self._job.returncode, errors.strip()[-1000:]
            log_event("update failed", "error", head=head, until=until, code=code, reason=reason)
            with suppress(McnetError, OSError):
                if code != _BUSY and self._store.state(head).runs(1) == before:  # it could not write its line
                    why = f"the update was ended by signal {-code}" if code < 0 else reason
                    record_failed_run(self._store, why, head=head)
            return False
        summary = {name: done.get(name) for name in ("outcome", "reason", "version", "replaced")}
        alarms = [alarm.get("what") for alarm in done.get("alarms") or []]
        log_event("update finished", "warning" if alarms else "info", head=head, until=until, **summary, alarms=alarms)
        return True


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
