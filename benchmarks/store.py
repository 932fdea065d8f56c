"""Feedback over HTTP into a store: requests per second and CPU per request, beside a loop that only commits.

One worker of a real service, twenty labelled rows per request, sixteen connections, SQLite with full synchronisation.
What arrives while a group is being written is the next group. The loop commits the same bytes in groups of the same
size into a table of keys and bytes with the same settings of SQLite, in turn with the service.
"""

import asyncio
import json
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from tests.service.running import TOKEN, Running, running

from benchmarks import report
from benchmarks.service import cpu_seconds, make_registry
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import stored_bytes

CLIENTS, ROWS, PARTS, BODIES = 16, 20, 10, 64
VALUES = ["NL", "FR", "DE", "US"]


def main(full: bool = False) -> None:
    requests = 20_000 if full else 4_000
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as made:  # on the disk of the clone, not in memory
        folder = Path(made)
        registry, _ = make_registry(folder, 1)
        registry.store.configure(every="1h")
        with closing(_plain(folder / "plain.db")) as plain, running(registry.path, folder) as service:
            _send(service.port, "warm", 200)
            lines = [_part(service, plain, part, requests // PARTS) for part in range(PARTS)]
        journal = registry.store.journal()
        assert journal.sketch().rows == (requests + 200) * ROWS
        begin = time.process_time()
        journal.compact_feedback(now=datetime.now(UTC) + timedelta(days=2))
        closing_ms = 1e3 * (time.process_time() - begin) / requests
    rate, cpu = (statistics.median(line[name] for line in lines) for name in ("rate", "cpu"))
    share = statistics.median(line["rate"] / line["loop"] for line in lines)
    quarter = PARTS // 4
    first, last = (statistics.median(line["cpu"] for line in some) for some in (lines[:quarter], lines[-quarter:]))
    table = report.table(
        ["requests so far", "requests/s", "CPU per request", "requests per commit", "loop that only commits"],
        [
            [
                f"{line['until']:,.0f}",
                f"{line['rate']:,.0f}/s",
                f"{line['cpu']:.2f} ms",
                f"{line['group']:.1f}",
                f"{line['loop']:,.0f}/s",
            ]
            for line in lines
        ],
    )
    text = (
        f"## Feedback into a store\n\n{requests:,} requests of {ROWS} rows over HTTP by {CLIENTS} connections, one "
        f"worker, SQLite with full synchronisation: {rate:,.0f} requests/s, {share:.0%} of a loop that only commits "
        f"the same bytes in groups of the same size; CPU {cpu:.2f} ms per request, {last / first - 1:+.0%} from the "
        f"first quarter to the last. Merging them when the period is closed takes {closing_ms:.2f} ms per request.\n\n"
        f"{table}"
    )
    print(text)
    report.keep("store", text, full)


def _part(service: Running, plain: sqlite3.Connection, part: int, requests: int) -> dict[str, float]:
    cpu, commits = cpu_seconds(service.process.pid), _commits(service)
    took = _send(service.port, f"part-{part}", requests)
    cpu, commits = cpu_seconds(service.process.pid) - cpu, _commits(service) - commits
    group, done, begin = requests / commits, 0, 0.0
    content = [stored_bytes(_sketch(*_columns(number))) for number in range(BODIES)]
    begin = time.perf_counter()
    for number in range(1, commits + 1):
        until = round(number * group)
        plain.execute("BEGIN IMMEDIATE")
        rows = [(f"feedback {part}/{one}", content[one % BODIES]) for one in range(done, until)]
        plain.executemany("INSERT INTO blobs VALUES (?, ?)", rows)
        plain.execute("COMMIT")
        done = until
    return {
        "until": (part + 1) * requests,
        "rate": requests / took,
        "cpu": 1e3 * cpu / requests,
        "group": group,
        "loop": requests / (time.perf_counter() - begin),
    }


def _commits(service: Running) -> int:
    return int(re.search(r"\nmcnet_feedback_commits_total (\d+)\n", service.get("/metrics").body.decode())[1])  # type: ignore[index]


def _columns(number: int) -> tuple[list[float], list[float], list[str]]:
    rng = np.random.default_rng(number)
    score = rng.random(ROWS)
    return score.tolist(), (rng.random(ROWS) < 0.3 * score).astype(float).tolist(), rng.choice(VALUES, ROWS).tolist()


def _sketch(score: list[float], label: list[float], country: list[str]) -> Sketch:
    return Sketch.from_rows(score, label, field={"country": country})


def _plain(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE blobs (name TEXT PRIMARY KEY, content BLOB)")
    return connection


# The clients, in a process of their own.


def _send(port: int, name: str, requests: int) -> float:
    """Send requests over all connections, each after the answer to the one before; return the seconds."""
    command = [sys.executable, "-m", "benchmarks.store", str(port), name, str(requests)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def _clients(port: int, name: str, requests: int) -> float:
    period = datetime.now(UTC).strftime("%Y-%m-%dT00:00")
    bodies = []
    for number in range(BODIES):
        score, label, country = _columns(number)
        rows = {"score": score, "label": label, "field": {"country": country}, "period": period}
        bodies.append(json.dumps(rows).encode())
    left = iter(range(requests))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            body = bodies[number % BODIES]
            head = (
                f"POST /feedback HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json"
            )
            head += f"\r\nIdempotency-Key: {name}/{number}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", answer.lower())[1]))  # type: ignore[index]
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return time.perf_counter() - begin


if __name__ == "__main__":
    print(asyncio.run(_clients(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
