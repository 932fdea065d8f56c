"""The service: requests per second beside the same server answering a constant, bulk, reloads under load."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.service.running import free_port, running

import mcnet
from benchmarks import report
from benchmarks.service_fuzz import ARROW
from benchmarks.service_load import most_requests, start_constant, tail_latency
from mcnet.store.versions import Registry

COUNTRIES = ["NL", "FR", "US", "DE"]


def make_registry(folder: Path, versions: int = 3) -> tuple[Registry, list[Any]]:
    """Return a registry of models that differ."""
    rng, registry, models = np.random.default_rng(1), Registry(folder / "ads.db"), []
    for place in range(versions):
        score = 1.0 / (1.0 + np.exp(3.0 - rng.normal(size=40_000)))
        country = rng.choice(COUNTRIES, len(score))
        label = rng.random(len(score)) < score * np.where(country == "NL", 0.4 + 0.1 * place, 0.9)
        models.append(mcnet.BayesMCNet().fit(score, label, field={"country": country}).model_)
        registry.add(models[-1])
    return registry, models


@contextlib.contextmanager
def constant_server(folder: Path) -> Iterator[tuple[int, int]]:
    """Run the server that answers a constant, and give its port and its process."""
    port = free_port()
    process = start_constant(folder, port)
    try:
        until = time.monotonic() + 60.0
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < until
            time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and of those it started."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout.split()[2:]
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    family, total, ticks = {root}, 0.0, os.sysconf("SC_CLK_TCK")
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def throughput(folder: Path, registry: Registry, rounds: int, seconds: int) -> list[list[str]]:
    """Compare one worker with the constant server, in turns: requests per second, CPU, 99 % latency at half load."""
    rates: dict[str, list[float]] = {"constant": [], "service": []}
    late: dict[str, list[float]] = {"constant": [], "service": []}
    each: dict[str, list[float]] = {"constant": [], "service": []}
    with constant_server(folder) as (port, process), running(registry.path, folder) as service:
        ports, processes = (
            {"constant": port, "service": service.port},
            {"constant": process, "service": service.process.pid},
        )
        for _ in range(rounds):
            for name in ports:
                before = cpu_seconds(processes[name])
                rates[name].append(most_requests(ports[name], seconds))
                each[name].append((cpu_seconds(processes[name]) - before) / (rates[name][-1] * seconds))
        half = statistics.median(rates["service"]) / 2.0
        for _ in range(rounds):
            for name in ports:
                late[name].append(tail_latency(ports[name], half, seconds))
    ratios = [ours / theirs for ours, theirs in zip(rates["service"], rates["constant"], strict=True)]
    slower = [ours / theirs for ours, theirs in zip(late["service"], late["constant"], strict=True)]
    dearer = [theirs / ours for ours, theirs in zip(each["service"], each["constant"], strict=True)]
    middle = {name: statistics.median(found) for name, found in rates.items()}
    cpu = {name: statistics.median(found) for name, found in each.items()}
    tail = {name: statistics.median(found) for name, found in late.items()}
    spread = f"{min(ratios):.0%} … {max(ratios):.0%}"
    return [
        [
            "one-row `/calibrate`, requests/s",
            f"{middle['service']:,.0f}; constant {middle['constant']:,.0f}",
            f"{statistics.median(ratios):.0%} of the constant's ({spread})",
            "75 % or more",
        ],
        [
            "the same, by the CPU of the server per request",
            f"{report.seconds(cpu['service'])}; constant {report.seconds(cpu['constant'])}",
            f"{statistics.median(dearer):.0%} of the constant's requests per CPU second",
            "",
        ],
        [
            f"99 % latency at half load ({half:,.0f} requests/s)",
            f"{report.seconds(tail['service'])}; constant {report.seconds(tail['constant'])}",
            f"{statistics.median(slower):.1f}× ({min(slower):.1f} … {max(slower):.1f})",
            "below 5×",
        ],
    ]


def bulk(folder: Path, registry: Registry, models: list[Any], rounds: int) -> list[str]:
    """Send a million rows as Arrow, and read the answer: rows per second end to end."""
    import pyarrow as pa

    rng, rows = np.random.default_rng(2), 1_000_000
    score, country = rng.random(rows), rng.choice(COUNTRIES, rows)
    encoded = pa.array(country.tolist()).dictionary_encode()
    times = []
    with running(registry.path, folder) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        for _ in range(rounds + 2):
            start = time.perf_counter()
            sink = pa.BufferOutputStream()
            table = pa.table({"score": score, "country": encoded})
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            connection.request("POST", "/calibrate", sink.getvalue().to_pybytes(), {"Content-Type": ARROW})
            found = pa.ipc.open_stream(connection.getresponse().read()).read_all()["calibrated"].to_numpy()
            times.append(time.perf_counter() - start)
        assert (found == models[0].predict(score, {"country": country})).all()
    fastest, middle = rows / min(times[2:]) / 1e6, rows / statistics.median(times[2:]) / 1e6
    return ["Arrow, 1 M rows, end to end", f"{middle:.1f} M rows/s", f"fastest {fastest:.1f} M rows/s", "5 M rows/s"]


def reloads(folder: Path, registry: Registry, models: list[Any], requests: int, moves: int, backs: int) -> list[str]:
    """Ask under load while versions change; every answer must be one of a published version."""
    rng = np.random.default_rng(3)
    score, country = rng.random(5).tolist(), ["NL", "FR", "US", "DE", "other"]
    expected = {str(1 + n): m.predict(score, {"country": country}).tolist() for n, m in enumerate(models)}
    body = json.dumps({"score": score, "field": {"country": country}})
    wrong, failed, counted, moved = [], [], [0], threading.Event()
    seen: set[str] = set()

    with running(registry.path, folder, "--workers", "2", "--poll", "0.05") as service:

        def ask() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            while counted[0] < requests or not moved.is_set():
                try:
                    connection.request("POST", "/calibrate", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    found = json.loads(answer.read())
                except (OSError, http.client.HTTPException) as error:
                    failed.append(repr(error))
                    connection.close()
                    continue
                counted[0] += 1
                if answer.status != 200:
                    failed.append(str(found))
                elif found["calibrated"] != expected[found["version"]]:
                    wrong.append(found["version"])
                else:
                    seen.add(found["version"])

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            step = max(1, (moves + backs) // max(backs, 1))
            for move in range(moves + backs):
                path = "/rollback" if move % step == step - 1 else f"/versions/{1 + move % len(models)}/promote"
                assert service.change(path).status == 200
            moved.set()
            for each in asking:
                each.result()
    said = f"{counted[0]:,} requests, {moves} reloads, {backs} rollbacks, {len(seen)} versions seen"
    return ["requests while versions change", said, f"{len(failed)} failed, {len(wrong)} of no version", "0 and 0"]


def main(full: bool = False) -> None:
    lines: list[list[str]] = []

    def told(*more: list[str]) -> None:
        for line in more:
            print("  ".join(line), flush=True)
            lines.append(line)

    with tempfile.TemporaryDirectory(prefix="mcnet-benchmark-") as name:
        folder = Path(name)
        registry, models = make_registry(folder)
        told(*throughput(folder, registry, 15 if full else 5, 3 if full else 2))
        told(bulk(folder, registry, models, 20 if full else 8))
        told(reloads(folder, registry, models, *((10_000, 50, 10) if full else (1_000, 10, 2))))
    text = (
        "## Service\n\nOne worker unless said otherwise, client and server on the same machine. The constant is the "
        "same server (uvicorn) with an application that always answers the same; the two are measured in turns, "
        f"and the ratio is the median over the turns.\n\n{report.table(['what', 'figure', 'found', 'asked'], lines)}"
    )
    report.keep("service", text, full, {"lines": lines})
