"""The service of one worker: reads a request, has it answered, and counts it."""

import asyncio
import multiprocessing
import os
import signal
import traceback
from time import perf_counter
from typing import Any

from mcnet.serve.board import ROUTES, Board
from mcnet.serve.calibrate import answer_json
from mcnet.serve.handlers import Handlers
from mcnet.serve.logs import log_event
from mcnet.serve.problem import Problem, problem_of
from mcnet.serve.request import JSON, LARGE_BODY, BodyReader, ClientGone, Request, Response
from mcnet.serve.route_table import RouteTable
from mcnet.serve.settings import ServiceSettings
from mcnet.serve.tokens import check_token
from mcnet.serve.versions import ServedVersions

__all__ = ["Service", "make_service"]

_PARENT_SECONDS = 1.0
"""How often a worker looks whether the process that started it is there."""

_CALIBRATE, _OTHER = ROUTES.index("calibrate"), ROUTES.index("other")


def make_service(settings: ServiceSettings) -> "Service":
    """Return the service of one worker; called in the worker's process."""
    return Service(settings)


async def _end_with_parent() -> None:
    """End this worker, as a signal would, once the process that started it is gone: nobody else could stop it."""
    parent = multiprocessing.parent_process()
    while parent is None or os.getppid() == parent.pid:
        await asyncio.sleep(_PARENT_SECONDS)
    log_event("worker left alone", "warning", reason="the process of the service is gone")
    os.kill(os.getpid(), signal.SIGTERM)


class Service:
    """An application for servers that speak RSGI (granian)."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.board = Board(settings.board)
        self.versions = ServedVersions(settings.registry, self.board, log_event)
        self.handlers = Handlers(settings, self.board, self.versions)
        self.bodies = BodyReader(settings.limits)
        self.table = RouteTable(self.handlers.routes())
        self._tasks: list[asyncio.Task[None]] = []

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to follow the registry."""
        self._tasks = [
            loop.create_task(self.versions.follow(self.settings.poll_seconds)),
            loop.create_task(self.bodies.watch()),
            loop.create_task(_end_with_parent()),
        ]
        log_event("worker started", version=self.versions.current.name)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the tasks in the background."""
        for task in self._tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self.handlers.close()
        log_event("worker stopped")

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""
        begin = perf_counter()
        route = _OTHER
        try:
            if scope.path == "/calibrate" and scope.method == "POST":
                route = _CALIBRATE
                headers = scope.headers
                body = await self.bodies.read(headers, protocol)
                # The usual request: short, and JSON. It takes its own way past the route table.
                if len(body) <= LARGE_BODY and headers.get("content-type") in _JSON and not scope.query_string:
                    most = self.settings.limits.rows
                    body = answer_json(self.versions.current, body, most, self.board.own)
                    # Counted before it is sent: whoever has an answer finds it in the metrics of every worker.
                    self.board.own.answered(_CALIBRATE, 200, perf_counter() - begin)
                    protocol.response_bytes(200, JSON, body)
                    return
                request = Request("POST", "/calibrate", scope.query_string, headers, body)
                response = await self.handlers.calibrate(request)
            else:
                route, response = await self._by_table(scope, protocol)
        except asyncio.CancelledError:
            raise
        except ClientGone:
            # Nothing was done, and in general nobody reads an answer. A client that still listens learns why.
            self.board.own.add("incomplete_bodies")
            response = _INCOMPLETE
            protocol.response_bytes(response.status, response.headers, response.body)
            return
        except Exception as error:
            response = self._failed(error, scope)
        self.board.own.answered(route, response.status, perf_counter() - begin)
        if scope.method == "HEAD":
            protocol.response_empty(response.status, response.headers)
        else:
            protocol.response_bytes(response.status, response.headers, response.body)

    async def _by_table(self, scope: Any, protocol: Any) -> tuple[int, Response]:
        if scope.proto != "http":
            raise Problem(400, "this service speaks plain HTTP")
        found, matched = self.table.find(scope.method, scope.path)
        counted = ROUTES.index(found.counted)
        request = Request(scope.method, scope.path, scope.query_string, scope.headers, b"", matched)
        try:
            if found.changes:
                check_token(request, self.settings.token_digest)  # before a byte of the body is read
            if scope.method not in ("GET", "HEAD"):
                body = await self.bodies.read(scope.headers, protocol)
                request = Request(scope.method, scope.path, scope.query_string, scope.headers, body, matched)
            return counted, await found.handler(request)
        except ClientGone:
            raise
        except Exception as error:
            return counted, self._failed(error, scope)

    def _failed(self, error: Exception, scope: Any) -> Response:
        """Return the answer to a request that failed; what is not the client's doing is logged."""
        problem = problem_of(error)
        encoding = scope.headers.get("content-encoding")
        if encoding not in (None, "identity"):
            problem = Problem(415, f"the body is encoded as {encoding[:40]!r}; send it as it is")
        if problem is None:
            where = "".join(traceback.format_exception(error)[-6:])
            log_event("unexpected error", "error", path=scope.path[:200], error=repr(error), traceback=where)
            problem = Problem(500, "an unexpected error; the log of the service has it")
        problem.detail = self.settings.public(problem.detail)
        return Response.problem(problem)


_INCOMPLETE = Response.problem(
    Problem(
        400,
        "the connection ended, or sent bytes that are not HTTP (or trailers), before the body was complete; nothing "
        "was done: send the request again",
        headers=(("connection", "close"),),
    )
)

_JSON = frozenset(("application/json", "application/json; charset=utf-8", None, "application/x-www-form-urlencoded"))
"""How most clients name JSON; the others go through the handler, which reads the type more closely."""
