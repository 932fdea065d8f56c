"""HTTP: settings, requests, answers, the route table, the token, problems as documents, logs."""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from mcnet._shared.files import is_disk_full
from mcnet.errors import FileFormatError, InputError, McnetError, in_words

__all__ = [
    "HTML",
    "JSON",
    "JSON_TYPES",
    "LARGE_BODY",
    "LOGGING",
    "PROBLEM_TYPE",
    "RETRY",
    "TOKEN_VARIABLE",
    "BodyReader",
    "ClientGone",
    "Headers",
    "Limits",
    "Problem",
    "Request",
    "Response",
    "Route",
    "RouteTable",
    "ServiceSettings",
    "check_token",
    "log_event",
    "problem_of",
    "read_token",
]

# Structured logs: one JSON object per line on stderr.

_encode = msgspec.json.Encoder().encode


def log_event(event: str, level: str = "info", **details: Any) -> None:
    """Write what happened, when, in which process, and its details."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": moment, "level": level, "event": event, "pid": os.getpid(), **details}
    with suppress(OSError):  # a full disk under the log is no reason to refuse a request
        # One write per line, so that the lines of several workers do not mix.
        sys.stderr.write(_encode(line).decode() + "\n")
        sys.stderr.flush()


class EventHandler(logging.Handler):
    """Writes what libraries log in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        log_event(record.getMessage(), record.levelname.lower(), logger=record.name.strip("_"))


LOGGING: dict[str, Any] = {
    "handlers": {
        "console": {"()": "mcnet.operations.service.http.EventHandler"},
        "access": {"()": "mcnet.operations.service.http.EventHandler"},
    },
    "formatters": {},
}
"""How the server logs, as `logging.config.dictConfig` takes it."""


# The settings of a service: its folders, its limits, and the token for changes.


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    body_bytes: int = 64_000_000
    rows: int = 2_000_000
    body_seconds: float = 30.0
    """How long a client may take to send its body."""
    short_body_seconds: float = 5.0
    """How long it may take for a body of a few bytes."""
    body_bytes_per_second: float = 20_000.0
    """How much longer a larger body may take, up to `body_seconds`."""
    header_seconds: float = 5.0
    """How long a client may take to send the head of a request; as long a connection may stay unused."""
    header_bytes: int = 65_536
    bytes_at_once: int = 512_000_000
    """Of all large bodies that a worker has in memory at the same time; further ones are to be sent again."""
    connections: int = 8_192
    """Connections of a worker at the same time; further ones wait in the queue of the system."""

    def seconds_for(self, body_bytes: int) -> float:
        """Return how long a client may take to send a body of this size.

        >>> Limits().seconds_for(100), Limits().seconds_for(100_000), Limits().seconds_for(10_000_000)
        (5.005, 10.0, 30.0)
        """
        return min(self.body_seconds, self.short_body_seconds + body_bytes / self.body_bytes_per_second)


@dataclass(frozen=True)
class ServiceSettings:
    """Everything a worker needs to know; it is sent to each of them."""

    registry: Path
    journal: Path | None = None
    name: str = "calibration"
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    every: str | None = None
    """The length of a period, such as "1h": rows of feedback without a period belong to the present one."""
    learn: bool = False
    """Whether the update job is run at the end of every period."""
    learn_after_seconds: float = 60.0
    """How long after the end of a period its rows may arrive."""
    poll_seconds: float = 0.5
    token_digest: bytes | None = field(default=None, repr=False)
    """SHA-256 of the token that changes of state need; without one nothing can be changed."""
    limits: Limits = Limits()
    board: Path = Path()
    """The folder in which the workers count what they do."""

    def public(self, value: Any) -> Any:
        """Return texts, in whatever lists and documents, without the paths of this machine's folders."""
        if isinstance(value, str):
            folders = {str(self.registry): "the registry", str(self.journal or ""): "the journal"}
            for folder in sorted(filter(None, folders), key=len, reverse=True):  # one may lie inside the other
                value = value.replace(folder, folders[folder])
            return value
        if isinstance(value, dict):
            return {name: self.public(entry) for name, entry in value.items()}
        return [self.public(entry) for entry in value] if isinstance(value, list | tuple) else value


# Problems: errors as RFC 9457 problem details, which say what was found, where, and what to do.

PROBLEM_TYPE = "application/problem+json"

RETRY = (("retry-after", "30"),)
"""A header for answers of 503: somebody has to make room on the disk first."""


class Problem(Exception):
    """An answer that is not the one asked for.

    Parameters
    ----------
    status : of HTTP.
    detail : what was found, where, and what to do.
    at : the place in the request, as a JSON path.
    headers : more headers of the answer.
    more : further members of the document.
    """

    def __init__(
        self, status: int, detail: str, *, at: str | None = None, headers: tuple[tuple[str, str], ...] = (), **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.at = at
        self.headers = headers
        self.more = more

    def document(self) -> dict[str, Any]:
        """Return the problem details; `error` repeats them for clients of the Open Inference Protocol."""
        found: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.at is not None:
            found["at"] = self.at
        return found | self.more | {"error": self.detail}


def problem_of(error: Exception) -> Problem | None:
    """Return what an error means to a client; None for one that is not the client's doing."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, msgspec.ValidationError):
        detail, _, where = str(error).partition(" - at ")
        return Problem(400, _plain(detail), at=where.strip("`") or "$")
    if isinstance(error, msgspec.DecodeError):
        return Problem(400, f"the body is not JSON: {error}")
    if isinstance(error, UnicodeDecodeError):
        return Problem(400, f"the body is not JSON: a text in it is not UTF-8 ({error.reason})")
    if isinstance(error, RecursionError):
        return Problem(400, "the body is not JSON that can be read: it is nested too deeply")
    if isinstance(error, FileFormatError):
        return Problem(409, str(error))  # a version or a period on disk is damaged; the request is not at fault
    if is_disk_full(error):
        reason = getattr(error, "strerror", None) or "no space left on the disk"
        return Problem(
            503, f"the disk of the service is full ({reason}); make room, and send this again", headers=RETRY
        )
    if isinstance(error, McnetError):
        parts: dict[str, Any] = {
            name: part for name, part in (("column", error.column), ("row", error.row)) if part is not None
        }
        at = None if error.column is None else f"$.{error.column}" + ("" if error.row is None else f"[{error.row}]")
        return Problem(400, in_words(error, "service"), at=at, **parts)
    return None


_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)


def _plain(detail: str) -> str:
    """Return what msgspec says of a wrong type in plain words.

    >>> _plain("Expected `float | array`, got `str`")
    'expected a number or a list, found a text'
    """
    unknown = _UNKNOWN.fullmatch(detail)
    if unknown is not None:
        name = unknown[1][:80]
        return f'unknown field `{name}`; the column of a field of the model belongs under "field": {{"{name}": [...]}}'
    found = _EXPECTED.fullmatch(detail)
    if found is None:
        return detail[:1].lower() + detail[1:]
    wanted, got = ([_KINDS.get(kind, kind) for kind in side.split(" | ")] for side in found.groups())
    return f"expected {' or '.join(wanted)}, found {' or '.join(got)}"


# A request with its body, and the answer to it.

LARGE_BODY = 100_000
"""Bodies of more bytes than this are counted together, and computed in a thread, so that short requests need not wait
for them."""

Headers = list[tuple[str, str]]

_SAFE: Headers = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
JSON: Headers = [("content-type", "application/json"), *_SAFE]
HTML: Headers = [("content-type", "text/html; charset=utf-8"), ("referrer-policy", "no-referrer"), *_SAFE]

JSON_TYPES = frozenset(("application/json", "", "application/x-www-form-urlencoded"))
"""Types under which clients send JSON; the last one is what curl sends with `-d` by default."""

_encode_body = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    method: str
    path: str
    query_string: str
    headers: Any
    body: bytes
    matched: dict[str, str] = field(default_factory=dict)
    """The parts of the path that its route leaves open."""

    def header(self, name: str) -> str:
        """Return a header in lower case, without spaces around it; an empty text if there is none."""
        return str(self.headers.get(name) or "").strip()

    @property
    def media_type(self) -> str:
        """Return the type of the body without its parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def query(self, *known: str) -> dict[str, str]:
        """Return the parameters behind the question mark; refuse unknown ones."""
        try:
            found = dict(parse_qsl(self.query_string, keep_blank_values=True, max_num_fields=20))
        except ValueError as error:
            raise Problem(400, f"the query cannot be read: {error}") from None
        for name in found:
            if name not in known:
                raise Problem(400, f"the query has {name!r}; known: {', '.join(known) or 'none'}")
        return found


@dataclass(frozen=True)
class Response:
    """What a client is answered."""

    status: int
    headers: Headers
    body: bytes

    @staticmethod
    def json(document: Any, status: int = 200) -> "Response":
        """Return a document as JSON."""
        return Response(status, JSON, _encode_body(document))

    @staticmethod
    def problem(problem: Problem) -> "Response":
        """Return problem details."""
        headers = [("content-type", PROBLEM_TYPE), *_SAFE, *problem.headers]
        return Response(problem.status, headers, _encode_body(problem.document()))


class ClientGone(Exception):
    """The client ended the connection, or sent something that is not HTTP, before its body was complete."""


class BodyReader:
    """Reads bodies, and refuses those that are too large, too many at once, incomplete, or come too slowly.

    A timer for each request would cost more than the usual request itself. So the requests whose bodies are being read
    are in one table, and one task looks at it now and then.

    Parameters
    ----------
    limits : the largest body, and how long it may take.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reading: dict[asyncio.Task[Any], float] = {}
        """The requests whose bodies are being read, and when each body must be there."""
        self._late: set[asyncio.Task[Any]] = set()
        self._held_bytes = 0

    async def read(self, headers: Any, protocol: Any) -> bytes:
        """Return the body of a request.

        A body of known length is refused before it is read, one of unknown length as soon as it is too large.

        Raises
        ------
        Problem : the body is refused.
        ClientGone : the connection was closed, or sent bytes that are not HTTP, before the body was complete.
        """
        length = headers.get("content-length")
        if length is None:
            if headers.get("transfer-encoding") is None:
                return b""
        elif not length.isdecimal():
            raise Problem(400, f"content-length is {length!r}, not a number")
        elif int(length) > self._limits.body_bytes:
            raise self._too_large()
        elif length == "0":
            return b""
        task = asyncio.current_task()
        assert task is not None
        expected = 0 if length is None else int(length)
        if expected > LARGE_BODY:
            self._hold(task, expected)
        begin = monotonic()
        self._reading[task] = begin + self._limits.seconds_for(expected)
        try:
            if length is not None:
                body: bytes = await protocol()
                return body
            parts: list[bytes] = []
            total = 0
            async for part in protocol:
                # granian yields an empty part at the end of the body. One before that stands for an error, which it
                # does not raise here (the client closed the connection, a chunk has no valid size), or for trailers.
                if parts and not parts[-1]:
                    raise ClientGone
                total += len(part)
                if total > self._limits.body_bytes:
                    raise self._too_large()
                if total > LARGE_BODY:
                    self._hold(task, len(part))
                parts.append(part)
                self._reading[task] = begin + self._limits.seconds_for(total)
            return b"".join(parts)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            detail = f"the body did not arrive within {monotonic() - begin:.0f} seconds; a body of this size must"
            raise Problem(408, detail, headers=_CLOSE) from None
        except RuntimeError as error:
            if type(error).__name__ != "RSGIProtocolClosed":
                raise
            raise ClientGone from None
        finally:
            del self._reading[task]
            self._late.discard(task)

    def _hold(self, task: asyncio.Task[Any], amount: int) -> None:
        """Count the bytes of a large body until its request is answered."""
        most = self._limits.bytes_at_once
        if self._held_bytes + amount > most:
            detail = f"large requests of {most:,} bytes together are being answered; send this one again in a moment"
            raise Problem(429, detail, headers=(*_CLOSE, ("retry-after", "1")))
        self._held_bytes += amount
        task.add_done_callback(lambda _: self._let_go(amount))

    def _let_go(self, amount: int) -> None:
        self._held_bytes -= amount

    async def watch(self) -> None:
        """Look again and again for bodies that take too long."""
        while True:
            await asyncio.sleep(min(self._limits.body_seconds / 4.0, 1.0))
            now = monotonic()
            for task, latest in tuple(self._reading.items()):
                if latest < now and task not in self._late:
                    self._late.add(task)
                    task.cancel()

    def _too_large(self) -> Problem:
        most = self._limits.body_bytes
        detail = f"the body is larger than {most:,} bytes, the most that this service takes; send fewer rows at once"
        return Problem(413, detail, headers=_CLOSE, limit=most)


_CLOSE = (("connection", "close"),)


# The route table: which handler answers which method and path.

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One method and path, such as `POST /versions/{version}/promote`, and what answers it."""

    method: str
    path: str
    counted: str
    """The group of routes that it is counted in."""
    handler: Handler
    changes: bool = False
    """Whether it changes state, and so needs the token."""


class RouteTable:
    """Find the route of a request.

    A part of a path in braces matches one part of the request's path, whatever it is. Handlers compare it with names
    they know, and never make a path of a file of it.
    """

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._exact = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._open = [(route, route.path.split("/")) for route in routes if "{" in route.path]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route, and the parts of the path that it leaves open."""
        asked = "GET" if method == "HEAD" else method
        exact = self._exact.get((asked, path))
        if exact is not None:
            return exact, {}
        parts = path.split("/")
        for route, pattern in self._open:
            if route.method == asked and (found := _matched(pattern, parts)) is not None:
                return route, found
        allowed = {m for m, p in self._exact if p == path}
        allowed |= {route.method for route, pattern in self._open if _matched(pattern, parts) is not None}
        if allowed:
            if "GET" in allowed:
                allowed.add("HEAD")
            allow = ", ".join(sorted(allowed))
            raise Problem(405, f"{method} is not for this path; it takes {allow}", headers=(("allow", allow),))
        raise Problem(404, "there is nothing at this path; GET /docs lists what there is")


def _matched(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            found[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return found


# The bearer token that is needed to change anything.

TOKEN_VARIABLE = "MCNET_TOKEN"
_FEWEST_CHARACTERS = 16


def read_token(file: Path | None) -> bytes | None:
    """Return the SHA-256 of the token in a file, or in the environment; None if there is none.

    A worker needs to compare tokens and never to know one, so only the digest is kept.
    """
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8").strip()
            mode = stat.S_IMODE(file.stat().st_mode)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token file {file} cannot be read ({error})") from None
        where = f"the file {file}"
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            reason = f"{file} has mode {mode:03o}: other users of this machine can read or change the token"
            log_event("token file open to others", "warning", reason=reason, advice=f"chmod 600 {file}")
    else:
        text, where = os.environ.get(TOKEN_VARIABLE, "").strip(), f"the variable {TOKEN_VARIABLE}"
        if not text:
            return None
    if len(text) < _FEWEST_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(
            f"the token in {where} is not at least {_FEWEST_CHARACTERS} printable ASCII characters without spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return hashlib.sha256(text.encode()).digest()


def check_token(request: Request, digest: bytes | None) -> None:
    """Refuse a request that does not have the token."""
    if digest is None:
        raise Problem(
            403,
            "this service was started without a token, so nothing can be changed; start it with --token-file or "
            f"{TOKEN_VARIABLE}",
        )
    scheme, _, given = request.header("authorization").partition(" ")
    # Digests of equal length are compared in constant time, whatever was given.
    same = hmac.compare_digest(hashlib.sha256(given.strip().encode()).digest(), digest)
    if scheme.lower() != "bearer" or not same:
        problem = "the token is wrong" if given else "this needs a token"
        challenge = ("www-authenticate", 'Bearer realm="mcnet"')
        raise Problem(401, f"{problem}; send the header Authorization: Bearer TOKEN", headers=(challenge,))
