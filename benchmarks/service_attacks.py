"""The service under attack: kill -9 while feedback arrives, requests that no client should send, slow connections."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.loop_kills import many_loop_kills
from tests.service.running import TOKEN, Running, running

from benchmarks import report
from benchmarks.service import make_registry
from benchmarks.service_fuzz import fuzz
from benchmarks.service_kills import feedback_kills
from mcnet.store.versions import Registry


def memory_mb(service: Running) -> float:
    """Return the resident memory of the workers."""
    total = 0.0
    for pid in service.workers():
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return total


def fuzzed(folder: Path, registry: Registry, number: int) -> list[str]:
    """Send requests that no client should, and look at the memory meanwhile."""
    parts, total, memory = 20, Counter[str](), []
    with running(registry.path, folder, "--timeout", "2") as service:
        for part in range(parts):
            total += fuzz(service.port, max(number // parts, 1), TOKEN, seed=part)
            memory.append(memory_mb(service))
            print(f"{(part + 1) * number // parts:,} requests: {memory[-1]:.0f} MB", flush=True)
        errors = len(service.events("unexpected error"))
        alive = len(service.workers()) == 1 and service.process.poll() is None
    said = ", ".join(f"{status}: {times:,}" for status, times in sorted(total.items()))
    half = memory[parts // 2 - 1]
    found = f"{errors} answers of 5xx, {'no' if alive else 'a'} worker lost, memory {memory[-1] - half:+.0f} MB "
    found += f"over the second half ({half:.0f} MB)"
    return [f"{number:,} fuzzed requests", said, found, "no 5xx, memory flat"]


def described(folder: Path, registry: Registry, examples: int) -> list[str]:
    """Let schemathesis make requests from the OpenAPI page, for every route, and check the answers by it."""
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance"
    words = ["--checks", checks, "--phases", "examples,fuzzing", "--max-examples", str(examples), "--no-color"]
    words += ["--suppress-health-check", "all", "-H", f"Authorization: Bearer {TOKEN}"]  # slow is no failure here
    with running(registry.path, folder) as service:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        asked = sum(
            int(float(line.rpartition(" ")[2]))
            for line in service.get("/metrics").body.decode().splitlines()
            if line.startswith("mcnet_requests_total")
        )
        errors = len(service.events("unexpected error"))
    said = "no answer against the description" if done.returncode == 0 else done.stdout[-500:]
    return ["requests made from the OpenAPI page (schemathesis)", f"{asked:,}", f"{errors} answers of 5xx, {said}", "0"]


SLOW = {
    "one byte of a head": b"P",
    "one byte of a body": b"POST /calibrate HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
}


def slow_connections(folder: Path, registry: Registry, number: int, what: str) -> list[str]:
    """Open connections that send too little and then nothing; let another client ask on a new connection each time."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(number + 1_000, limits[1]), limits[1]))
    row, slow, waits = {"score": [0.1], "field": {"country": ["NL"]}}, [], []
    try:
        with running(registry.path, folder, "--workers", "2") as service:
            for _ in range(number):
                one = socket.create_connection(("127.0.0.1", service.port), 60)
                one.sendall(SLOW[what])
                slow.append(one)
            opened = time.monotonic()
            while time.monotonic() < opened + 12.0:
                begin = time.monotonic()
                assert service.post("/calibrate", row, timeout=120.0).status == 200
                waits.append(time.monotonic() - begin)
            for one in slow:
                one.settimeout(60.0)
                while one.recv(4_096):
                    pass
    finally:
        for one in slow:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    waits.sort()
    found = (
        f"{len(waits):,} requests of another client answered meanwhile: median {report.seconds(waits[len(waits) // 2])}"
    )
    found += f", longest {report.seconds(waits[-1])}; all slow connections closed by the service"
    return [f"connections that send {what}", f"{number:,}, two workers", found, "nobody waits"]


def killed_loops(kills: int) -> list[str]:
    """Kill `mcnet update` and `mcnet journal add` at random moments; every loop is checked at its end."""
    met, rows, versions = many_loop_kills(kills)
    cut = ", ".join(f"{number} {what}" for what, number in met.most_common())
    figure = f"{sum(met.values())} kills ({cut}), {rows:,} rows, {versions} versions"
    return ["kill -9 of update and journal add", figure, "0 lost, 0 counted twice, 0 unreadable files", "0, 0 and 0"]


def main(full: bool = False) -> None:
    lines: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="mcnet-benchmark-") as name:
        folder = Path(name)
        registry, _ = make_registry(folder)
        (folder / "kills").mkdir()
        alone, _ = make_registry(folder / "kills")  # fuzzed requests leave feedback behind
        for line in (
            fuzzed(folder, registry, 100_000 if full else 3_000),
            feedback_kills(folder, alone, 200 if full else 4),
            killed_loops(200 if full else 20),
            *(slow_connections(folder, registry, 2_600, what) for what in SLOW),
            described(folder, registry, 300 if full else 5),
        ):
            print("  ".join(line), flush=True)
            lines.append(line)
    report.keep("service_attacks", section(lines), full, {"lines": lines})


def section(lines: list[list[str]], remark: str = "") -> str:
    """Return the section of the page; a remark says what was not run as the form of the section has it."""
    return (
        "## Service under attack\n\nFuzzed requests have wrong types, damaged JSON and Arrow, random bytes, huge "
        "bodies and slow clients, all on one worker. A client whose feedback was not answered sends it again "
        f"under the same key.\n\n{report.table(['what', 'figure', 'found', 'asked'], lines)}\n\n{remark}"
    )
