"""A request with its body, and the answer to it."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from mcnet.serve.problem import PROBLEM_TYPE, Problem
from mcnet.serve.settings import Limits

__all__ = ["HTML", "JSON", "JSON_TYPES", "LARGE_BODY", "BodyReader", "ClientGone", "Headers", "Request", "Response"]

LARGE_BODY = 100_000
"""Bodies of more bytes than this are counted together, and computed in a thread, so that short requests need not wait
for them."""

Headers = list[tuple[str, str]]

_SAFE: Headers = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
JSON: Headers = [("content-type", "application/json"), *_SAFE]
HTML: Headers = [("content-type", "text/html; charset=utf-8"), ("referrer-policy", "no-referrer"), *_SAFE]

JSON_TYPES = frozenset(("application/json", "", "application/x-www-form-urlencoded"))
"""Types under which clients send JSON; the last one is what curl sends with `-d` by default."""

_encode = msgspec.json.Encoder().encode


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
        return Response(status, JSON, _encode(document))

    @staticmethod
    def problem(problem: Problem) -> "Response":
        """Return problem details."""
        headers = [("content-type", PROBLEM_TYPE), *_SAFE, *problem.headers]
        return Response(problem.status, headers, _encode(problem.document()))


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
