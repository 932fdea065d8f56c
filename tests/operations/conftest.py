"""Days of a simulated stream as log files, sketches and journals."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mcnet.sketch.sketch import Sketch
from mcnet.store.journal import Journal

ROWS = 4000


def day_name(day: int) -> str:
    return f"2026-11-{day:02}"


def day_rows(day: int, ratio: float = 0.7, rows: int = ROWS) -> pl.DataFrame:
    """Return the rows of a day: the truth is `ratio` times the score, and a third less in FR."""
    rng = np.random.default_rng(day)
    score, country = rng.uniform(0.02, 0.4, rows), rng.choice(["NL", "FR", "US"], rows)
    truth = ratio * score * np.where(country == "FR", 2 / 3, 1.0)
    moment = np.datetime64(f"{day_name(day)}T00:00") + np.arange(rows).astype("timedelta64[ms]")
    click = (rng.random(rows) < truth).astype(np.int8)
    return pl.DataFrame({"pctr": score, "click": click, "country": country, "ts": moment})


@pytest.fixture
def add_days(tmp_path: Path) -> Callable[..., Journal]:
    """Add days to the journal of the test, from the first to the last."""
    journal = Journal(tmp_path / "ads.db")

    def add(first: int, last: int, **world: float) -> Journal:
        for day in range(first, last + 1):
            rows = day_rows(day, **world)
            sketch = Sketch.from_rows(rows["pctr"], rows["click"], field={"country": rows["country"]}, resolution=64)
            journal.add(sketch, day_name(day), source=f"day {day} {world}")
        return journal

    return add


class Receiver(ThreadingHTTPServer):
    """A webhook on this machine: it keeps what it was sent, and answers with a status that can be changed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.slowly = threading.Event()
        """While it is set, an answer is sent byte by byte."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/ads"

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


class _Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        while self.server.slowly.is_set():
            self.wfile.write(b"H")
            time.sleep(0.05)
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiving(certificate: Path | None = None) -> Iterator[Receiver]:
    """Run a webhook until the end of the block; with TLS if it has a certificate."""
    server = Receiver()
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.slowly.clear()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
