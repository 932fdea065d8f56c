"""Feedback into a store: requests per second and CPU per request, beside a loop that only commits the same bytes.

Sixteen clients send twenty labelled rows each and wait for the answer, as those of the service do. What arrives while a
group is being written is the next group. The loop commits the same sketches, in the same groups, into a table of keys
and bytes with the same settings of SQLite, in turn with the store.
"""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks import report
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import stored_bytes
from mcnet.store import additions
from mcnet.store.additions import Feedback, FeedbackWriter
from mcnet.store.store import Store

CLIENTS, ROWS, PARTS = 16, 20, 10
VALUES = ["NL", "FR", "DE", "US"]


def main(full: bool = False) -> None:
    requests = 20_000 if full else 4_000
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:  # on the disk of the clone, not in memory
        store = Store(Path(folder) / "ads.db")
        store.configure("ctr", every="1h")
        with closing(_plain(Path(folder) / "plain.db")) as plain:
            lines = [_part(store, plain, part, requests // PARTS) for part in range(PARTS)]
        begin = time.process_time()
        store.journal("ctr").compact_feedback(before="2099-01-01T00:00")
        closing_ms = 1e3 * (time.process_time() - begin) / requests
        assert store.journal("ctr").sketch().rows == requests * ROWS
        store.close()
    rate, cpu = (statistics.median(line[name] for line in lines) for name in ("rate", "cpu"))
    share = statistics.median(line["rate"] / line["loop"] for line in lines)
    quarter = PARTS // 4
    first, last = (statistics.median(line["cpu"] for line in some) for some in (lines[:quarter], lines[-quarter:]))
    table = report.table(
        ["requests so far", "requests/s", "CPU per request", "requests per commit", "loop that only commits"],
        [
            [
                f"{line['until']:,}",
                f"{line['rate']:,.0f}/s",
                f"{line['cpu']:.2f} ms",
                f"{line['group']:.1f}",
                f"{line['loop']:,.0f}/s",
            ]
            for line in lines
        ],
    )
    text = (
        f"## Feedback into a store\n\n{requests:,} requests of {ROWS} rows by {CLIENTS} clients, SQLite with full "
        f"synchronisation, making the sketches included: {rate:,.0f} requests/s, {share:.0%} of a loop that only "
        f"commits the same bytes in the same groups; CPU {cpu:.2f} ms per request, {last / first - 1:+.0%} from the "
        f"first quarter to the last. Merging them when the period is closed takes {closing_ms:.2f} ms of CPU per "
        f"request.\n\n"
        f"{table}"
    )
    print(text)
    report.keep("store", text, full)


def _part(store: Store, plain: sqlite3.Connection, part: int, requests: int) -> dict[str, float]:
    groups: list[list[Feedback]] = []
    add = additions.add_feedback
    additions.add_feedback = lambda store, group: groups.append(list(group)) or add(store, group)  # type: ignore[func-returns-value, assignment]
    writer = FeedbackWriter(store)
    try:
        cpu, begin = time.process_time(), time.perf_counter()
        asyncio.run(_clients(writer, part, requests))
        took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    finally:
        writer.close()
        additions.add_feedback = add
    content = [[(one.key, stored_bytes(one.sketch)) for one in group] for group in groups]
    begin = time.perf_counter()
    for group in content:
        plain.execute("BEGIN IMMEDIATE")
        plain.executemany("INSERT INTO blobs VALUES (?, ?)", group)
        plain.execute("COMMIT")
    loop = time.perf_counter() - begin
    return {
        "until": (part + 1) * requests,
        "rate": requests / took,
        "cpu": 1e3 * cpu / requests,
        "group": requests / len(groups),
        "loop": requests / loop,
    }


async def _clients(writer: FeedbackWriter, part: int, requests: int) -> None:
    period = datetime.now(UTC).strftime("%Y-%m-%dT00:00")
    rng = np.random.default_rng(part)
    left = iter(range(requests))

    async def client() -> None:
        for number in left:
            score, country = rng.random(ROWS), rng.choice(VALUES, ROWS)
            sketch = Sketch.from_rows(score, rng.random(ROWS) < 0.3 * score, field={"country": country})
            sent = writer.submit(Feedback("ctr", period, f"client/{part}/{number}", sketch, "1h"))
            assert (await asyncio.wrap_future(sent)).rows == ROWS

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def _plain(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE blobs (name TEXT PRIMARY KEY, content BLOB)")
    return connection
