"""HTTP: requests and their bodies, answers, problems as documents, the route table, the check of the token."""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import is_disk_full
from mcnet.errors import BusyError, FileFormatError, McnetError, StoreUnavailableError, in_words
from mcnet.operations.service.settings import TOKEN_VARIABLE, Limits, Token

# Problems: errors as RFC 9457 problem details, which say what was found, where, and what to do.

PROBLEM_TYPE = "application/problem+json"

RETRY = (("retry-after", "10"),)
"""A header for answers of 503: somebody has to make room on the disk, or to start the database, first."""


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """What is wrong, where, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    """The detail again, where clients of the Open Inference Protocol look for it."""
    at: str | None = None
    """Where in the request, as a JSON path."""
    column: str | None = None
    row: int | None = None
    limit: int | None = None


class Problem(Exception):
    """An answer that is not the one asked for.

    Parameters
    ----------
    status : of HTTP.
    detail : what was found, where, and what to do.
    headers : more headers of the answer.
    where : further members of the document: `at`, `column`, `row`, `limit`.
    """

    def __init__(self, status: int, detail: str, *, headers: tuple[tuple[str, str], ...] = (), **where: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.where = where

    def document(self) -> ProblemDetails:
        """Return the problem details."""
        title = HTTPStatus(self.status).phrase
        return ProblemDetails("about:blank", title, self.status, self.detail, self.detail, **self.where)


def check_score_type(given: Any, at: str = "score_type") -> ScoreType | None:
    """Return what a client says that the scores are, or say what is possible."""
    if given not in (None, "probability", "logit"):
        raise Problem(400, f"score_type is {given!r}; it must be probability or logit", at=at)
    return given  # type: ignore[no-any-return]


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
    if isinstance(error, StoreUnavailableError | BusyError):
        return Problem(503, str(error), headers=RETRY)
    if isinstance(error, McnetError):
        at = None if error.column is None else f"$.{error.column}" + ("" if error.row is None else f"[{error.row}]")
        return Problem(400, in_words(error, "service"), at=at, column=error.column, row=error.row)
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
        meant = name.rstrip("s")
        if meant in ("score", "field", "weight", "label"):
            return f"unknown field `{name}`; did you mean `{meant}`?" if name != meant else f"unknown field `{name}`"
        return f'unknown field `{name}`; the column of a field of the model belongs under "field": {{"{name}": [...]}}'
    expected = _EXPECTED.fullmatch(detail)
    if expected is None:
        return detail[:1].lower() + detail[1:]
    wanted, got = ([_KINDS.get(kind, kind) for kind in side.split(" | ")] for side in expected.groups())
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

    @property
    def head(self) -> str | None:
        """The name of the head in the path; None if it names none."""
        given = self.matched.get("head")
        return None if given is None else unquote(given)

    def header(self, name: str) -> str:
        """Return a header in lower case, without spaces around it; an empty string if there is none."""
        return str(self.headers.get(name) or "").strip()

    @property
    def media_type(self) -> str:
        """Return the type of the body without its parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def query(self, *known: str) -> dict[str, str]:
        """Return the parameters behind the question mark; refuse unknown ones."""
        try:
            given = dict(parse_qsl(self.query_string, keep_blank_values=True, max_num_fields=20))
        except ValueError as error:
            raise Problem(400, f"the query cannot be read: {error}") from None
        for name in given:
            if name not in known:
                raise Problem(400, f"the query has {name!r}; known: {', '.join(known) or 'none'}")
        return given


def number_in(query: Mapping[str, str], name: str) -> float | None:
    """Return a parameter of the query that is a number; None if it is not given."""
    try:
        return float(query[name]) if name in query else None
    except ValueError:
        raise Problem(400, f"{name} is {query[name]!r}, not a number", at=name) from None


@dataclass(frozen=True)
class Response:
    """What a client is answered."""

    status: int
    headers: Headers
    body: bytes

    @staticmethod
    def json(document: Any, status: int = 200) -> "Response":
        """Return a document as JSON."""
        return Response(status, JSON, msgspec.json.encode(document))

    @staticmethod
    def problem(problem: Problem) -> "Response":
        """Return problem details."""
        headers = [("content-type", PROBLEM_TYPE), *_SAFE, *problem.headers]
        return Response(problem.status, headers, msgspec.json.encode(problem.document()))


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
        self._reading: dict[asyncio.Task[Any], tuple[float, int]] = {}
        """The requests whose bodies are being read: since when, and how many bytes are expected or have come."""
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
            expected = 0
        elif not length.isdecimal():
            raise Problem(400, f"content-length is {length!r}, not a number")
        elif (expected := int(length)) > self._limits.body_bytes:
            raise self._too_large()
        elif not expected:
            return b""
        task = asyncio.current_task()
        assert task is not None
        if expected > LARGE_BODY:
            self._hold(task, expected)
        begin = monotonic()
        self._reading[task] = begin, expected
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
                self._reading[task] = begin, total
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
            for task, (begin, size) in tuple(self._reading.items()):
                if begin + self._limits.seconds_for(size) < now and task not in self._late:
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
    """What answers it; its docstring describes the route to clients."""
    changes: bool = False
    """Whether it changes state, and so needs the token."""
    body: tuple[Any, ...] = ()
    """What the body may be: types, sent as JSON, and names of other media types."""
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: dict})
    """What is answered, by status: types, sent as JSON, or names of other media types (several in a tuple)."""
    parameters: tuple[str, ...] = ()
    """The parameters behind the question mark, and headers."""
    example: str = ""
    """What curl is given besides the address and the token."""


_LEFT_OPEN = re.compile(r"{(\w+)}")


class RouteTable:
    """Find the route of a request.

    A part of a path in braces matches one part of the request's path, whatever it is. Handlers compare it with names
    they know, and never make a path of a file of it.
    """

    def __init__(self, routes: list[Route]) -> None:
        self._exact = {(route.method, route.path): route for route in routes if "{" not in route.path}
        patterns = (re.compile(_LEFT_OPEN.sub(r"(?P<\1>[^/]*)", route.path)) for route in routes)
        self._open = [(route, pattern) for route, pattern in zip(routes, patterns, strict=True) if pattern.groups]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route, and the parts of the path that it leaves open."""
        asked = "GET" if method == "HEAD" else method
        exact = self._exact.get((asked, path))
        if exact is not None:
            return exact, {}
        for route, pattern in self._open:
            if route.method == asked and (matched := pattern.fullmatch(path)) is not None:
                return route, matched.groupdict()
        allowed = {m for m, p in self._exact if p == path}
        allowed |= {route.method for route, pattern in self._open if pattern.fullmatch(path)}
        if allowed:
            if "GET" in allowed:
                allowed.add("HEAD")
            allow = ", ".join(sorted(allowed))
            raise Problem(405, f"{method} is not for this path; it takes {allow}", headers=(("allow", allow),))
        raise Problem(404, "there is nothing at this path; GET /docs lists what there is")


# Changes need the bearer token.


def check_token(request: Request, tokens: Sequence[Token], head: str | None) -> None:
    """Refuse a request that does not have a token for a head."""
    if not tokens:
        raise Problem(
            403,
            "this service was started without a token, so nothing can be changed; start it with --token-file or "
            f"{TOKEN_VARIABLE}",
        )
    scheme, _, given = request.header("authorization").partition(" ")
    # Digests of equal length are compared in constant time, whatever was given.
    digest = hashlib.sha256(given.strip().encode()).digest()
    same = [token for token in tokens if hmac.compare_digest(digest, token.digest)]
    if scheme.lower() == "bearer" and same and not any(one.heads is None or head in one.heads for one in same):
        raise Problem(403, "this token is for other heads; ask for one that is for this head, or for all")
    if scheme.lower() != "bearer" or not same:
        problem = "the token is wrong" if given else "this needs a token"
        challenge = ("www-authenticate", 'Bearer realm="mcnet"')
        raise Problem(401, f"{problem}; send the header Authorization: Bearer TOKEN", headers=(challenge,))
