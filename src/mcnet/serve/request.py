"""A request with its body, and the answer to it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from mcnet.serve.problem import PROBLEM_TYPE, Problem
from mcnet.serve.settings import Limits

__all__ = ["HTML", "JSON", "Headers", "Request", "Response", "read_body"]

Headers = list[tuple[str, str]]

_SAFE: Headers = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
JSON: Headers = [("content-type", "application/json"), *_SAFE]
HTML: Headers = [("content-type", "text/html; charset=utf-8"), ("referrer-policy", "no-referrer"), *_SAFE]

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


async def read_body(headers: Any, protocol: Any, limits: Limits) -> bytes:
    """Return the body of a request; refuse one that is too large, or comes too slowly.

    A body of known length is refused before it is read, one of unknown length as soon as it is too large.
    """
    length = headers.get("content-length")
    if length is None and headers.get("transfer-encoding") is None:
        return b""
    if length is not None:
        if not length.isdigit():
            raise Problem(400, f"content-length is {length!r}, not a number")
        if int(length) > limits.body_bytes:
            raise _too_large(limits)
        if int(length) == 0:
            return b""
    try:
        async with asyncio.timeout(limits.body_seconds):
            if length is not None:
                body: bytes = await protocol()
                return body
            parts, total = [], 0
            async for part in protocol:
                total += len(part)
                if total > limits.body_bytes:
                    raise _too_large(limits)
                parts.append(part)
            return b"".join(parts)
    except TimeoutError:
        seconds = limits.body_seconds
        raise Problem(408, f"the body did not arrive within {seconds:g} seconds", headers=_CLOSE) from None


_CLOSE = (("connection", "close"),)


def _too_large(limits: Limits) -> Problem:
    most = limits.body_bytes
    detail = f"the body is larger than {most:,} bytes, the most that this service takes; send fewer rows at once"
    return Problem(413, detail, headers=_CLOSE, limit=most)
