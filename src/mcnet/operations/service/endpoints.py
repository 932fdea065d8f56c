"""From a request to its answer: what a path takes and gives, reading the body, the token, problems, and the count."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcnet.errors import BusyError, StoreUnavailableError
from mcnet.operations.service import metrics
from mcnet.operations.service.feedback import Inbox
from mcnet.operations.service.problems import CLOSE, Problem, document_of, problem_of
from mcnet.operations.service.served import ServedHeads, ServedVersions
from mcnet.operations.service.settings import Limits, ServiceSettings, check_token
from mcnet.operations.service.state import ServiceState

PROBLEM_TYPE = "application/problem+json"
JSON_TYPE = "application/json"
_JSON_TYPES = frozenset((JSON_TYPE, "", "application/x-www-form-urlencoded"))
"""Types under which clients send JSON; the last one is what curl sends with `-d` by default."""
_SAFE = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


@dataclass(frozen=True)
class Service:
    """What the handlers of one worker share."""

    settings: ServiceSettings
    heads: ServedHeads
    inbox: Inbox
    people: ServiceState


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters behind the question mark."""


class Call(Request):
    """A request, with its body and the parameters behind the question mark as its endpoint has read them."""

    content = b""
    query: Any = None

    def served_head(self, service: Service) -> ServedVersions:
        """Return the head that the path names, or the default one."""
        return service.heads.head(self.path_params.get("head"))

    def media_type(self, *others: str) -> str:
        """Return the type of the body, JSON or one of some others; refuse what is neither."""
        given = ""
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                given = value.decode("latin-1").partition(";")[0].strip().lower()
        if given in _JSON_TYPES:
            return JSON_TYPE
        if given not in others:
            raise Problem(415, f"the body is of type {given[:80]!r}; send {' or '.join((JSON_TYPE, *others))}")
        return given


class Json(Response):
    """A document as JSON."""

    media_type = JSON_TYPE

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return msgspec.json.encode(content)


Handler = Callable[[Service, Call], Awaitable[Response]]


@dataclass(frozen=True)
class Operation:
    """A method of a path, and what answers it; the docstring of its handler describes it to clients."""

    method: str
    path: str
    group: str
    """The group of routes that it is counted in."""
    handler: Handler
    query: Any = NoQuery
    """The type of the parameters behind the question mark."""
    body: tuple[Any, ...] = ()
    """What the body may be: types, sent as JSON, and names of other media types."""
    answers: tuple[Any, ...] = (dict,)
    """What is answered, likewise."""
    status: tuple[int, ...] = (200,)
    changes: bool = False
    """Whether it changes state, and so needs the token."""


OPERATIONS: list[Operation] = []
"""Everything that the service answers; the modules of handlers add to it."""


def operation(method: str, *paths: str, group: str, **more: Any) -> Callable[[Handler], Handler]:
    """Let a function answer a method of some paths."""

    def add(handler: Handler) -> Handler:
        if not handler.__doc__:
            raise ValueError(f"{method} {paths[0]} is not described: its handler needs a docstring")
        OPERATIONS.extend(Operation(method, path, group, handler, **more) for path in paths)
        return handler

    return add


def of_heads(path: str) -> tuple[str, str]:
    """Return a path for the default head, and for one by its name."""
    return path, f"/heads/{{head}}{path}"


class Endpoint:
    """What answers one path: an ASGI application.

    Every answer is counted before it is sent: whoever has one finds it in the metrics of any worker.
    """

    def __init__(self, service: Service, operations: Mapping[str, Operation]) -> None:
        self._service = service
        self._operations = dict(operations)
        if "GET" in operations:
            self._operations["HEAD"] = operations["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        begin, call, group = perf_counter(), Call(scope, receive), "other"
        try:
            chosen = self._operations.get(scope["method"])
            if chosen is None:
                raise self._not_here(scope)
            group = chosen.group
            if chosen.changes:
                head = call.path_params.get("head") or self._service.heads.default
                check_token(call.headers.get("authorization", ""), self._service.settings.tokens, head)
            call.query = _query(scope["query_string"], chosen.query)
            if chosen.method == "POST":
                call.content = await read_body(scope, receive, self._service.settings.limits)
            response = await chosen.handler(self._service, call)
        except Exception as error:
            response = self._problem(call, error)
        response.raw_headers += _SAFE
        metrics.answered(group, response.status_code, perf_counter() - begin)
        await response(scope, receive, send)

    def _not_here(self, scope: Scope) -> Problem:
        if not self._operations:
            return Problem(404, "there is nothing at this path; GET /docs lists what there is")
        allowed = ", ".join(self._operations)
        return Problem(
            405, f"{scope['method'][:20]} is not for this path; it takes {allowed}", headers={"allow": allowed}
        )

    def _problem(self, call: Call, error: Exception) -> Response:
        if isinstance(error, StoreUnavailableError | BusyError):
            self._service.heads.count_error(error)
        problem = problem_of(error)
        encoding = call.headers.get("content-encoding", "identity")
        if encoding != "identity":
            problem = Problem(415, f"the body is encoded as {encoding[:40]!r}; send it as it is")
        document = document_of(problem, self._service.settings.public(problem.detail))
        return Response(msgspec.json.encode(document), problem.status, problem.headers, PROBLEM_TYPE)


def _query(given: bytes, kind: Any) -> Any:
    """Return the parameters behind the question mark; refuse unknown ones."""
    if not given:
        return kind()
    try:
        found = dict(parse_qsl(given.decode("latin-1"), keep_blank_values=True, max_num_fields=20))
        return msgspec.convert(found, kind, strict=False)
    except ValueError as error:
        known = ", ".join(getattr(kind, "__struct_fields__", ())) or "none"
        raise Problem(400, f"the query cannot be read: {error}; known parameters: {known}", at="query") from None


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the body of a request as a whole; refuse one that is too large, incomplete, or comes too slowly."""
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limits.body_bytes:
            raise _too_large(limits)
    message = await receive()
    if not message.get("more_body"):
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        whole: bytes = message["body"]
        return whole
    parts, size = [message["body"]], len(message["body"])
    try:
        async with asyncio.timeout(limits.body_seconds):
            while message.get("more_body"):
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message["body"])
                size += len(message["body"])
                if size > limits.body_bytes:
                    raise _too_large(limits)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.body_seconds:g} seconds; nothing was done"
        raise Problem(408, detail, headers=CLOSE) from None
    return b"".join(parts)


def _too_large(limits: Limits) -> Problem:
    most = limits.body_bytes
    detail = f"the body is larger than {most:,} bytes, the most that this service takes; send fewer rows at once"
    return Problem(413, detail, headers=CLOSE, limit=most)
