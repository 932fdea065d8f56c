"""Load on a service: as much as it takes (wrk), or at a fixed rate, with the time that each answer took."""

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.ending import end_with_parent

BODY = b'{"score": [0.1], "field": {"country": ["NL"]}}'
CONSTANT = """
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"35")]
async def constant(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": b'{"calibrated":[0.05],"version":"1"}'})
"""


def start_constant(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the same server, with the same options, on an application that always answers the same."""
    (folder / "constant_app.py").write_text(CONSTANT)
    words = ["--http", "httptools", "--ws", "none", "--lifespan", "off", "--no-access-log", "--no-proxy-headers"]
    words += ["--no-server-header", "--log-level", "error", "--port", str(port)]
    command = [sys.executable, "-m", "uvicorn", *words, "constant_app:constant"]
    return subprocess.Popen(command, cwd=folder, preexec_fn=end_with_parent())


def most_requests(port: int, seconds: int, connections: int = 16) -> float:
    """Return how many one-row requests per second a server answers when it is asked as fast as it can."""
    if shutil.which("wrk") is None:
        raise SystemExit("the load comes from wrk, which is not installed: apt install wrk")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(
            f"wrk.method = 'POST'\nwrk.body = '{BODY.decode()}'\nwrk.headers['Content-Type'] = 'application/json'\n"
        )
        script.flush()
        words = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", script.name, f"http://127.0.0.1:{port}/calibrate"]
        text = subprocess.run(["wrk", *words], capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in text, text
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])  # type: ignore[index]


def tail_latency(port: int, rate: float, seconds: float, connections: int = 16) -> float:
    """Return the time within which 99 % of the answers come when requests are due at a fixed rate.

    A request that had to wait for its turn counts from when it was due: a server that stalls is not spared.
    """
    words = [str(port), str(rate), str(seconds), str(connections)]
    command = [sys.executable, "-m", "benchmarks.service_load", *words]  # a process of its own
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def _send(port: int, rate: float, seconds: float, connections: int) -> list[float]:
    head = (
        f"POST /calibrate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    request, found = head.encode() + BODY, []
    begin, number = time.perf_counter() + 0.2, int(rate * seconds)

    async def one(place: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in range(place, number, connections):
            due = begin + turn / rate
            wait = due - time.perf_counter()
            if wait > 0.0:
                await asyncio.sleep(wait)
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", answer.lower())[1])  # type: ignore[index]
            await reader.readexactly(length)
            found.append(time.perf_counter() - due)
        writer.close()

    await asyncio.gather(*map(one, range(connections)))
    return found


if __name__ == "__main__":
    port, rate, seconds, connections = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    times = sorted(run(_send(port, rate, seconds, connections)))
    print(times[int(0.99 * (len(times) - 1))])
