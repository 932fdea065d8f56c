"""Requests that no client should send: wrong types, damaged streams, random bytes, huge bodies, slow clients."""

import http.client
import json
import random
import socket
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

ARROW = "application/vnd.apache.arrow.stream"
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, -(2**70), 10**400, 1e308, -0.0, 0.5, 1e-320, "", "NL", "0.1", "\x00", "\ud800",
    "x" * 5000, "💥", [], [[]], {}, {"": {}}, [None] * 50, ["NL"] * 3, [0.1] * 3, [0.1, "a"], {"country": ["NL"]},
    {"country": "NL"}, {"country": [["NL"]]}, {"score": [0.1]}, "logit", "probability", "FP64", "BYTES", [1], [-1],
]  # fmt: skip
PATHS = [
    "/",
    "/calibrate",
    "/feedback",
    "/versions",
    "/versions/1/promote",
    "/versions/9/promote",
    "/rollback",
    "/reload",
]
PATHS += ["/status", "/curves", "/metrics", "/docs", "/openapi.json", "/v2", "/v2/health/live", "/v2/health/ready"]
PATHS += [
    "/v2/models/calibration",
    "/v2/models/calibration/infer",
    "/v2/models/calibration/versions/2/infer",
    "/v2/models/x",
]
GOOD: dict[str, Any] = {"score": [0.1, 0.2], "field": {"country": ["NL", "FR"]}}
INFER: dict[str, Any] = {
    "inputs": [
        {"name": "score", "datatype": "FP64", "shape": [2], "data": [0.1, 0.2]},
        {"name": "country", "datatype": "BYTES", "shape": [2], "data": ["NL", "FR"]},
    ]
}
FEEDBACK: dict[str, Any] = {**GOOD, "label": [0, 1], "period": f"{datetime.now(UTC):%Y-%m-%dT%H}", "key": "fuzz"}

Asked = tuple[str, str, bytes, dict[str, str]]


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a document with one part of it replaced, removed, added or repeated."""
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return rng.choice(ODD)
    if isinstance(value, dict):
        name = rng.choice(list(value))
        what = rng.random()
        if what < 0.1:
            return {k: v for k, v in value.items() if k != name}
        if what < 0.2:
            return {**value, rng.choice(["", "x", "interval", "score_type", "age", "parameters"]): rng.choice(ODD)}
        return {**value, name: mutated(value[name], rng)}
    place = rng.randrange(len(value))
    if rng.random() < 0.2:
        return value * rng.choice([0, 2, 30])
    return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with some of them changed, or cut off."""
    found = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        if found:
            found[rng.randrange(len(found))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    return bytes(found[: rng.randrange(len(found) + 1)] if rng.random() < 0.3 else found)


def _json(path: str, document: Any) -> Callable[[random.Random], Asked]:
    def ask(rng: random.Random) -> Asked:
        found = mutated(document, rng)
        for _ in range(rng.choice([0, 0, 1, 3])):
            found = mutated(found, rng)
        body = json.dumps(found).encode()
        return "POST", path, damaged(body, rng) if rng.random() < 0.2 else body, {}

    return ask


def _stream() -> bytes:
    import pyarrow as pa

    table = pa.table({"score": [0.1, 0.2] * 20, "country": pa.array(["NL", "FR"] * 20).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _arrow(path: str, content: bytes) -> Callable[[random.Random], Asked]:
    return lambda rng: ("POST", path, damaged(content, rng), {"Content-Type": ARROW})


def _binary(rng: random.Random) -> Asked:
    head = json.dumps(mutated(INFER, rng)).encode()
    length = rng.choice([str(len(head)), "0", "-1", "x", str(10**30), str(rng.randrange(2 * len(head)))])
    return "POST", "/v2/models/calibration/infer", head + rng.randbytes(20), {"Inference-Header-Content-Length": length}


def _anything(rng: random.Random) -> Asked:
    path = rng.choice(PATHS)
    if rng.random() < 0.3:
        path = "".join(rng.choice("/.%2fetcAZ0_-~?=&:@\\") for _ in range(rng.randrange(1, 60)))
        path = "/" + path.lstrip("/")
    if rng.random() < 0.3:
        path += "?" + "".join(rng.choice("abcnote=&%20ké;+") for _ in range(rng.randrange(30))).encode().hex()
    headers = {}
    if rng.random() < 0.5:
        name = rng.choice(
            ["Content-Type", "Accept", "Authorization", "Idempotency-Key", "Content-Encoding", "Expect", "X"]
        )
        headers[name] = "".join(rng.choice("abc/;=*,. Bearer01~") for _ in range(rng.randrange(40))).strip()
    method = rng.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
    return method, path, rng.randbytes(rng.randrange(200)) if rng.random() < 0.5 else b"", headers


def raw_request(port: int, rng: random.Random) -> str:
    """Send bytes that may be no request at all, and return the first line that comes back."""
    head = b"POST /calibrate HTTP/1.1\r\nHost: x\r\n"
    sent = rng.choice(
        [
            rng.randbytes(rng.randrange(1, 300)),
            head + b"Content-Length: 99999999999\r\n\r\n{}",
            head + b"Content-Length: -5\r\n\r\n",
            head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
            head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n{}",
            head + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            head + b"X: " + b"y" * 500_000 + b"\r\n\r\n",
            head + b"\r\n" * 3,
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(50),
        ]
    )
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as one:
            one.settimeout(0.05)
            one.sendall(sent)
            return one.recv(100).split(b"\r\n")[0].decode("latin-1")
    except OSError:
        return ""


def fuzz(port: int, number: int, token: str, seed: int = 0) -> Counter[str]:
    """Send requests, and return how many were answered with each status; "closed" where none was answered.

    Raises
    ------
    AssertionError : an answer has a status of 500 or above, or the service no longer answers as it should.
    """
    rng = random.Random(seed)
    kinds: list[tuple[float, Callable[[random.Random], Asked]]] = [
        (0.4, _json("/calibrate", GOOD)),
        (0.2, _json("/v2/models/calibration/infer", INFER)),
        (0.05, _binary),
        (0.1, _arrow("/calibrate", _stream())),
        (0.05, _json("/feedback", FEEDBACK)),
        (0.15, _anything),
    ]
    found: Counter[str] = Counter()
    failed: list[str] = []
    slow = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(10)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for place in range(number):
        if rng.random() < 0.04:
            line = raw_request(port, rng)
            found[line.split(" ")[1] if line.startswith("HTTP/") else "closed"] += 1
            if " 5" in line[:12]:
                failed.append(line)
            continue
        if place % 500 == 0:
            for old in slow:
                old.close()
            slow = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(10)]
        for one in slow[:1]:  # a client that sends a byte now and then
            try:
                one.sendall(b"P")
            except OSError:
                one.close()
                slow.remove(one)
        ask = rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        method, path, body, headers = ask(rng)
        if path.startswith("/feedback") and rng.random() < 0.8:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        if place % 2_000 == 100:
            body = b" " * 30_000_000  # within the limit, and nothing but blanks
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException, ValueError):
            found["closed"] += 1
            connection.close()
            continue
        found[str(answer.status)] += 1
        if answer.status >= 500:
            failed.append(f"{method} {path} {body[:300]!r} {headers}: {answer.status} {content[:300]!r}")
        if answer.will_close:
            connection.close()
    connection.close()
    for one in slow:
        one.close()
    assert not failed, "\n".join([f"{len(failed)} answers of 500 or above", *failed[:5]])
    return found
