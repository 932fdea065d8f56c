"""Run a service: its workers, and what each does with a request."""

import asyncio
import multiprocessing
import os
import re
import shutil
import signal
import socket
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import quote

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError
from mcnet.operations.service.board import BOARD_PREFIX, ROUTES, Board, has_served, remove_abandoned_boards
from mcnet.operations.service.calibrate import answer_json
from mcnet.operations.service.feedback import present
from mcnet.operations.service.handlers import Handlers
from mcnet.operations.service.http import (
    JSON,
    LARGE_BODY,
    BodyReader,
    ClientGone,
    Problem,
    Request,
    Response,
    RouteTable,
    check_token,
    problem_of,
)
from mcnet.operations.service.schedule import Learning
from mcnet.operations.service.served import ServedHeads, default_head, load_served
from mcnet.operations.service.settings import LOGGING, TOKEN_VARIABLE, ServiceSettings, log_event, log_warning
from mcnet.store.store import Store

# The service of one worker: reads a request, has it answered, and counts it.

_PARENT_SECONDS = 1.0
"""How often a worker looks whether the process that started it is there."""

_CALIBRATE, _OTHER = ROUTES.index("calibrate"), ROUTES.index("other")


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
        self.heads = ServedHeads(Store(settings.store), settings.head, self.board, log_event)
        self.handlers = Handlers(settings, self.board, self.heads)
        self.bodies = BodyReader(settings.limits)
        self.table = RouteTable(self.handlers.routes())
        self._tasks: list[asyncio.Task[None]] = []

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to follow the store."""
        self._tasks = [
            loop.create_task(self.heads.follow(self.settings.poll_seconds)),
            loop.create_task(self.bodies.watch()),
            loop.create_task(_end_with_parent()),
        ]
        served = {name: head.current and head.current.name for name, head in self.heads.by_name.items()}
        log_event("worker started", versions=served)

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
            head = self.heads.by_path.get(scope.path)
            if head is not None and scope.method == "POST":
                route = _CALIBRATE
                headers = scope.headers
                body = await self.bodies.read(headers, protocol)
                # The usual request: short, and JSON. It takes its own way past the route table.
                if len(body) <= LARGE_BODY and headers.get("content-type") in _JSON and not scope.query_string:
                    most = self.settings.limits.rows
                    body = answer_json(head.answering, body, most, head.numbers)
                    # Counted before it is sent: whoever has an answer finds it in the metrics of every worker.
                    self.board.own.answered(_CALIBRATE, 200, perf_counter() - begin)
                    protocol.response_bytes(200, JSON, body)
                    return
                request = Request("POST", scope.path, scope.query_string, headers, body, {"head": quote(head.name)})
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
        route, matched = self.table.find(scope.method, scope.path)
        counted = ROUTES.index(route.counted)
        request = Request(scope.method, scope.path, scope.query_string, scope.headers, b"", matched)
        try:
            if route.changes:
                # Before a byte of the body is read, and before anything tells whether there is such a head.
                head = request.head or self.heads.default
                check_token(request, self.settings.tokens, head)
            if scope.method not in ("GET", "HEAD"):
                body = await self.bodies.read(scope.headers, protocol)
                request = Request(scope.method, scope.path, scope.query_string, scope.headers, body, matched)
            return counted, await route.handler(request)
        except ClientGone:
            raise
        except Exception as error:
            return counted, self._failed(error, scope)

    def _failed(self, error: Exception, scope: Any) -> Response:
        """Return the answer to a request that failed; what is not the client's doing is logged."""
        problem = problem_of(error)
        if isinstance(error, StoreUnavailableError | BusyError):
            self.heads.count_error(error)
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


# Start a service: check what it needs, then run its workers until a signal ends them.

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_STOP_SECONDS = 30
"""How long requests in flight may take to finish once the service was asked to stop."""

_QUEUED_CONNECTIONS = 4_096
"""Connections that wait in the queue of the system to be taken by a worker."""

_OTHER_FILES = 256
"""File descriptors of a worker for everything but connections."""

_EARLY_SECONDS = 10.0
"""A worker that dies within this time may do so again at once, so the next one waits."""

_LONGEST_WAIT_SECONDS = 10.0


def run_service(settings: ServiceSettings) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are finished first.

    Parameters
    ----------
    settings : the store, the address and the limits.
    """
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels

    store = Store(settings.store)
    settings = replace(settings, head=default_head(store, settings.head))
    _check_versions(store, settings)
    if not _NAME.fullmatch(settings.name):
        raise InputError(
            f"the name {settings.name!r} is part of an address; make it of letters, digits, '.', '_' and '-'"
        )
    _check_times(store, settings)
    store.close()
    _check_free(settings.host, settings.port)
    # A fork would copy threads of other libraries half; a fresh process has none.
    multiprocessing.set_start_method("spawn", force=True)
    learning = Learning(settings) if settings.learn else None
    remove_abandoned_boards(Path(tempfile.gettempdir()))
    board = Path(tempfile.mkdtemp(prefix=BOARD_PREFIX))
    try:
        server = _server_class()(
            "mcnet.operations.service",
            address=settings.host,
            port=settings.port,
            interface=Interfaces.RSGI,
            workers=settings.workers,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(
                header_read_timeout=round(1000 * settings.limits.header_seconds),
                max_buffer_size=settings.limits.header_bytes,
            ),
            websockets=False,
            backlog=_QUEUED_CONNECTIONS,
            backpressure=_allow_connections(settings.limits.connections),
            log_dictconfig=LOGGING,
            log_level=LogLevels.warning,
            respawn_failed_workers=True,
            respawn_interval=0.5,
            workers_kill_timeout=_STOP_SECONDS,
        )
        _say_hello(settings)
        if learning is not None:
            learning.start()
        server.board, server.early_deaths = board, Counter()
        loader: Callable[..., Any] = partial(_load_worker, replace(settings, board=board))
        server.serve(target_loader=loader, wrap_loader=False)
    finally:
        if learning is not None:
            learning.stop()
        shutil.rmtree(board, ignore_errors=True)
    log_event("service stopped")


def _load_worker(settings: ServiceSettings) -> Service:
    """Return what answers in a process of its own, whose warnings are lines of the log."""
    warnings.showwarning = log_warning
    return Service(settings)


def _server_class() -> Any:
    """Return granian's server, changed so that a worker that dies again soon does not end the service."""
    from granian.server import Server

    class PatientServer(Server):  # type: ignore[misc, valid-type]
        board: Path
        early_deaths: Counter[int]

        def _respawn_workers(self, workers: list[int], *target: Any, delay: float = 0.0) -> None:
            for index in workers:
                lived = time.monotonic() - self.wrks[index].birth
                self.early_deaths[index] = self.early_deaths[index] + 1 if lived < _EARLY_SECONDS else 0
                wait = seconds_before_start(self.early_deaths[index])
                log_event("worker died", "error", worker=index + 1, lived_seconds=round(lived, 1), next_in_seconds=wait)
                until = time.monotonic() + wait
                while time.monotonic() < until and not self.interrupt_signal:
                    time.sleep(0.05)
            super()._respawn_workers(workers, *target, delay=delay)
            if has_served(self.board):
                # granian ends if a worker dies within seconds of its start; that is right only where none ever served.
                self.respawned_wrks.clear()

    return PatientServer


def seconds_before_start(early_deaths: int) -> float:
    """Return how long to wait before a worker is started again, by how often in a row it died soon after its start.

    >>> [seconds_before_start(deaths) for deaths in (0, 1, 2, 3, 4, 9)]
    [0.0, 0.0, 0.5, 1.0, 2.0, 10.0]
    """
    return 0.0 if early_deaths < 2 else min(0.25 * 2.0 ** (early_deaths - 1), _LONGEST_WAIT_SECONDS)


def _allow_connections(wanted: int) -> int:
    """Let this process and its workers have so many connections each, as far as the system lets them; return how many.

    A connection needs a file descriptor, of which many systems give a process 1,024 unless it asks for more.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted + _OTHER_FILES if hard == resource.RLIM_INFINITY else min(wanted + _OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most - _OTHER_FILES, most // 2)


def _check_versions(store: Store, settings: ServiceSettings) -> None:
    """Refuse a store of which no head can be served, and one whose periods are others; tell what is wrong, once."""
    problems: list[McnetError] = []
    there = store.heads
    if not there:
        store.require_head(settings.head or "")
    for name in there:
        try:
            load_served(store.versions(name))
        except (StoreUnavailableError, BusyError):
            raise
        except McnetError as error:
            log_event("head not served", "warning", head=name, reason=settings.public(str(error)))
            problems.append(error)
    if len(problems) == len(there):
        raise problems[0]


def _check_times(store: Store, settings: ServiceSettings) -> None:
    """Refuse periods that are none or others than a head has, and learning without what it needs."""
    if settings.every is not None:
        present(settings.every)
    for about in store.read_heads():
        own = about.settings.get("every")
        if settings.every is not None and own not in (None, settings.every):
            raise InputError(f"the head {about.name} has periods of {own}, not of {settings.every}; leave --every out")
        if settings.learn and settings.every_of(about.settings) is None:
            raise InputError("learning needs the length of a period: --learn --every 1h")
    for token in settings.tokens:
        for name in sorted((token.heads or frozenset()) - set(store.heads)):
            log_event("token for a head that is not there", "warning", head=name)


def _check_free(host: str, port: int) -> None:
    """Refuse an address that another process listens on: two services would share its requests at random."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InputError(f"{host} is not an address of this machine ({error})") from None
    with socket.socket(family, kind, protocol) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(address)
        except OSError as error:
            raise InputError(f"cannot listen on {host}:{port} ({error.strerror}); name another with --port") from None


def _say_hello(settings: ServiceSettings) -> None:
    log_event(
        "service starting",
        url=f"http://{settings.host}:{settings.port}/",
        store=Store(settings.store).name,
        workers=settings.workers,
        learns=settings.learn,
    )
    if not settings.tokens:
        log_event(
            "read-only",
            "warning",
            reason=f"no token was given (--token-file or {TOKEN_VARIABLE})",
            off="feedback, promote, rollback, hold, release, reload",
        )
