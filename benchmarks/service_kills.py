"""Kill -9 at random moments of a service that takes in feedback, while its clients send again what was not answered."""

import contextlib
import http.client
import os
import random
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.service.running import Running, begin, is_ready

from mcnet.store.journal import Journal
from mcnet.store.versions import Registry

WORKERS = CLIENTS = 3
ROWS = 3
"""Rows per request."""


class Client(threading.Thread):
    """Sends feedback under one key after the other, each until it is acknowledged, whichever service answers."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.acknowledged: dict[str, str] = {}
        """The key and the period of each request that was answered."""
        self.asked = 0
        self.day = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
        self.sent_again = 0
        self.found_known = 0
        """Requests that were sent again and had been added the first time."""
        self.wrong: list[str] = []
        self.service: Running | None = None
        """Whom to ask; None while there is no service."""
        self.stopping = threading.Event()

    def run(self) -> None:
        """Send until told to stop."""
        while not self.stopping.is_set():
            self._send(f"{self.number}-{self.asked}")
            self.asked += 1

    def _send(self, key: str) -> None:
        # A few hundred keys per period: the journal of a real service is compacted by the update job.
        period = f"{self.day}T{self.asked // 200 % 24:02}"
        columns = {"score": [0.1, 0.2, 0.3], "label": [0, 1, 0], "field": {"country": ["NL", "FR", "US"]}}
        tries = 0
        while not self.stopping.is_set():
            service = self.service
            if service is not None:
                tries += 1
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = service.change("/feedback", {**columns, "period": period, "key": key}, timeout=30)
                    if answer.status not in (200, 201):
                        self.wrong.append(f"{answer.status} {answer.body!r}")
                    self.found_known += answer.status == 200
                    self.sent_again += tries > 1
                    self.acknowledged[key] = period
                    return
            self.stopping.wait(0.02)


def feedback_kills(folder: Path, registry: Registry, number: int, seed: int = 5) -> list[str]:
    """Kill workers and whole services, and return a line of the table of results: what was lost, or counted twice."""
    rng, path = random.Random(seed), registry.path
    clients = [Client(place) for place in range(CLIENTS)]
    for client in clients:
        client.start()
    killed = services = unreadable = 0
    try:
        while killed < number:
            service = begin(registry.path, folder, "--workers", str(WORKERS))
            service.wait_for("the service to answer", lambda one=service: is_ready(one))
            service.wait_for("all workers", lambda one=service: len(one.workers()) == WORKERS)
            for client in clients:
                client.service = service
            # Each worker once: the supervisor gives up on a worker that dies again at once. The last kill takes all.
            for victim in (*service.workers(), None):
                enough = sum(len(client.acknowledged) for client in clients) + 3
                service.wait_for(
                    "feedback", lambda least=enough: sum(len(client.acknowledged) for client in clients) >= least
                )
                time.sleep(rng.uniform(0.0, 0.1))
                if victim is None:
                    os.killpg(service.process.pid, signal.SIGKILL)
                    service.process.wait()
                    services += 1
                else:
                    os.kill(victim, signal.SIGKILL)
                killed += 1
            for client in clients:
                client.service = None
            unreadable += len(Journal(path).verify())
            print(f"{killed} kills, {sum(len(client.acknowledged) for client in clients):,} acknowledged", flush=True)
    finally:
        for client in clients:
            client.stopping.set()
            client.join()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.process.pid, signal.SIGKILL)
        service.process.wait()
    counted: Counter[tuple[str, str]] = Counter()
    for entry in Journal(path).entries():
        counted[entry.source.removeprefix("feedback "), entry.period] += entry.rows
    asked = {f"{client.number}-{place}" for client in clients for place in range(client.asked + 1)}
    assert {key for key, _ in counted} <= asked, "rows that nobody sent"
    assert not [said for client in clients for said in client.wrong]
    acknowledged = {key for client in clients for key in client.acknowledged}
    lost = acknowledged - {key for key, _ in counted}
    keys = Counter(key for key, _ in counted)
    twice = sum(rows != ROWS for rows in counted.values()) + sum(times > 1 for times in keys.values())
    again, known = (sum(getattr(client, name) for client in clients) for name in ("sent_again", "found_known"))
    figures = (
        f"{killed} kills ({services} of the whole service), {len(acknowledged):,} acknowledged, {again} of them sent "
        f"again ({known} had been added by the request that was cut off)"
    )
    found = f"{len(lost)} lost, {twice} counted twice, {unreadable} unreadable files"
    return ["kill -9 while feedback arrives", figures, found, "0, 0 and 0"]
