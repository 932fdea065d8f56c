"""A service as a real process on a free port of this machine, and a client of the standard library."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ending import end_with_parent

TOKEN = "a-token-of-tests-0123456789"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A service that runs, and how to speak to it."""

    process: subprocess.Popen
    port: int
    log_file: Path
    token: str | None = TOKEN
    waiting: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        **headers: str,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if isinstance(body, dict | list):
            body, sent["Content-Type"] = json.dumps(body), sent.get("Content-Type", "application/json")
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def change(self, path: str, body: Any = None, **more: Any) -> Answer:
        """Post with the token."""
        return self.ask("POST", path, body, token=TOKEN, **more)

    def calibrate(self, score: Any, field: Any = None, **more: Any) -> Any:
        answer = self.post("/calibrate", {"score": score, **({"field": field} if field else {}), **more})
        assert answer.status == 200, answer.body
        return answer.document

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines() if line.startswith("{")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.log() if line["event"] == name]

    def wait_for(self, what: str, condition: Any, seconds: float = 200.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"waited in vain for {what}: {self.log_file.read_text()[-3000:]}"
            time.sleep(0.02)

    def workers(self) -> list[int]:
        return [line["pid"] for line in self.events("worker started")]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def begin(store: str | Path, folder: Path, *words: str, token: str | None = TOKEN, **environment: str) -> Running:
    """Start a service and return at once."""
    port = free_port()
    known = {name: value for name, value in os.environ.items() if name != "MCNET_TOKEN"}
    if token is not None:
        known["MCNET_TOKEN"] = token
    log_file = folder / f"log-{port}.jsonl"
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcnet", "serve", str(store), "--port", str(port), *words],
            stdout=log,
            stderr=log,
            env={**known, "OMP_NUM_THREADS": "1", **environment},
            process_group=0,  # so that all its processes can be ended at once
            preexec_fn=end_with_parent(),
        )
    return Running(process, port, log_file, token)


def is_ready(service: Running) -> bool:
    assert service.process.poll() is None, service.log_file.read_text()
    try:
        return service.get("/v2/health/ready").status == 200
    except OSError:
        return False


@contextlib.contextmanager
def running(
    store: str | Path, folder: Path, *words: str, token: str | None = TOKEN, **environment: str
) -> Iterator[Running]:
    """Start a service, wait until it answers, and end it with all its processes."""
    service = begin(store, folder, *words, token=token, **environment)
    try:
        wanted = int(words[words.index("--workers") + 1]) if "--workers" in words else 1
        service.wait_for("all workers", lambda: len(service.workers()) >= wanted)
        service.wait_for("the service to answer", lambda: is_ready(service))
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.process.pid, signal.SIGKILL)
        service.process.wait()
