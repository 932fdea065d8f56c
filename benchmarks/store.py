"""Feedback over HTTP into a store: requests per second and CPU per request, beside a loop that only commits.

One worker of a real service, twenty labelled rows per request, sixteen connections, SQLite with full synchronisation.
What arrives while a group is being written is the next group. The loop commits the same bytes in groups of the same
size into a table of keys and bytes with the same settings of SQLite, in turn with the service. Then both again on disks
whose synchronisation takes longer: a library that is loaded first lets `fsync` and `fdatasync` of both wait.
"""

import asyncio
import json
import os
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
WAITS_MS = (2, 5)
"""How much longer a synchronisation of the slower disks takes."""

WAITING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static int wait_and_call(const char *name, int file) {
    usleep(atoi(getenv("SYNC_MICROSECONDS")));
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}
int fsync(int file) { return wait_and_call("fsync", file); }
int fdatasync(int file) { return wait_and_call("fdatasync", file); }
"""


def main(full: bool = False) -> None:
    requests = 20_000 if full else 4_000
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as made:  # on the disk of the clone, not in memory
        folder = Path(made)
        lines, closing_ms = _measure(folder / "disk", requests, PARTS, {})
        (folder / "waiting.c").write_text(WAITING)
        library = str(folder / "waiting.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(folder / "waiting.c"), "-ldl"], check=True)
        waiting = [
            (
                wait,
                _measure(
                    folder / str(wait),
                    requests // 5,
                    4,
                    {"LD_PRELOAD": library, "SYNC_MICROSECONDS": f"{1e3 * wait:.0f}"},
                )[0],
            )
            for wait in WAITS_MS
        ]
    quarter = PARTS // 4
    first, last = (_median(some, "cpu") for some in (lines[:quarter], lines[-quarter:]))
    table = report.table(
        ["requests so far", "requests/s", "CPU per request", "requests per commit", "loop that only commits"],
        [[f"{line['until']:,.0f}", *_cells(line), f"{line['loop']:,.0f}/s"] for line in lines],
    )
    disks = report.table(
        [
            "a synchronisation takes",
            "requests/s",
            "CPU per request",
            "requests per commit",
            "loop that only commits",
            "share",
        ],
        [
            [name, *_cells(middle), f"{middle['loop']:,.0f}/s", f"{middle['share']:.0%}"]
            for name, middle in [("as long as this disk does", _middle(lines))]
            + [(f"{wait} ms longer", _middle(found)) for wait, found in waiting]
        ],
    )
    middle = _middle(lines)
    text = (
        f"## Feedback into a store\n\n{requests:,} requests of {ROWS} rows over HTTP by {CLIENTS} connections, one "
        f"worker, SQLite with full synchronisation: {middle['rate']:,.0f} requests/s, {middle['share']:.0%} of a loop "
        f"that only commits the same bytes in groups of the same size; CPU {middle['cpu']:.2f} ms per request, "
        f"{last / first - 1:+.0%} from the first quarter to the last. Merging them when the period is closed takes "
        f"{closing_ms:.2f} ms per request.\n\n{table}\n\nThe share of the loop depends on the disk: the service "
        "reads requests while the disk works, and a disk that answers at once leaves it no time for that. Medians, "
        f"with {requests // 5:,} requests each where the disk was made to wait longer, for the service and the loop "
        f"alike:\n\n{disks}\n\nAsked: 300 requests/s or more, 60 % of the loop or more, at most 2.5 ms of CPU, flat "
        "within 20 %."
    )
    print(text)
    report.keep("store", text, full)


def _measure(
    folder: Path, requests: int, parts: int, environment: dict[str, str]
) -> tuple[list[dict[str, float]], float]:
    """Return the figures of each part, and the CPU per request, in ms, of merging them in the end."""
    folder.mkdir()
    registry, _ = make_registry(folder, 1)
    registry.store.configure(every="1h")
    with running(registry.path, folder, **environment) as service:
        _send(service.port, "warm", 200)
        lines = [_part(service, folder / "plain.db", part, requests // parts, environment) for part in range(parts)]
    journal = registry.store.journal()
    assert journal.sketch().rows == (requests + 200) * ROWS
    begin = time.process_time()
    journal.compact_feedback(now=datetime.now(UTC) + timedelta(days=2))
    return lines, 1e3 * (time.process_time() - begin) / requests


def _median(lines: list[dict[str, float]], name: str) -> float:
    return statistics.median(line[name] for line in lines)


def _middle(lines: list[dict[str, float]]) -> dict[str, float]:
    return {name: _median(lines, name) for name in lines[0]}


def _cells(line: dict[str, float]) -> list[str]:
    return [f"{line['rate']:,.0f}/s", f"{line['cpu']:.2f} ms", f"{line['group']:.1f}"]


def _part(service: Running, plain: Path, part: int, requests: int, environment: dict[str, str]) -> dict[str, float]:
    cpu, commits = cpu_seconds(service.process.pid), _commits(service)
    took = _send(service.port, f"part-{part}", requests)
    cpu, commits = cpu_seconds(service.process.pid) - cpu, _commits(service) - commits
    words = [sys.executable, "-m", "benchmarks.store", "loop", str(plain), str(part), str(requests), str(commits)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    rate, loop = requests / took, requests / float(done.stdout)
    return {
        "until": (part + 1) * requests,
        "rate": rate,
        "cpu": 1e3 * cpu / requests,
        "group": requests / commits,
        "loop": loop,
        "share": rate / loop,
    }


def _loop(path: Path, part: str, requests: int, commits: int) -> float:
    """Commit the bytes of requests in so many groups, and return the seconds."""
    content = [stored_bytes(_sketch(*_columns(number))) for number in range(BODIES)]
    with closing(_plain(path)) as plain:
        done, begin = 0, time.perf_counter()
        for number in range(1, commits + 1):
            until = round(number * requests / commits)
            plain.execute("BEGIN IMMEDIATE")
            rows = [(f"feedback {part}/{one}", content[one % BODIES]) for one in range(done, until)]
            plain.executemany("INSERT INTO blobs VALUES (?, ?)", rows)
            plain.execute("COMMIT")
            done = until
        return time.perf_counter() - begin


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
    connection.execute("CREATE TABLE IF NOT EXISTS blobs (name TEXT PRIMARY KEY, content BLOB)")
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
    if sys.argv[1] == "loop":
        print(_loop(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
    else:
        print(asyncio.run(_clients(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
