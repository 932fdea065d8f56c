"""Run a service: check what it needs, then keep its workers running until a signal ends them."""

import multiprocessing
import os
import re
import resource
import shutil
import signal
import socket
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import SpawnProcess

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError
from mcnet.operations.service.feedback import present
from mcnet.operations.service.schedule import Learning
from mcnet.operations.service.settings import LOGGING, TOKEN_VARIABLE, ServiceSettings, log_event, log_warning
from mcnet.store.store import Store

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_STOP_SECONDS = 30
"""How long requests in flight may take to finish once the service was asked to stop."""
_QUEUED_CONNECTIONS = 2_048
_EARLY_SECONDS, _LONGEST_WAIT_SECONDS, _LOOK_SECONDS = 5.0, 10.0, 0.1


def run_service(settings: ServiceSettings) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are finished first."""
    from mcnet.operations.service.metrics import FOLDER_VARIABLE

    settings = _checked(settings)
    with tempfile.TemporaryDirectory(prefix="mcnet-serve-") as numbers, _reserved(settings):
        os.environ[FOLDER_VARIABLE] = numbers  # for the workers
        learning = Learning(settings) if settings.learn else None
        url, store = f"http://{settings.host}:{settings.port}/", Store(settings.store).name
        log_event("service starting", url=url, store=store, workers=settings.workers, learns=settings.learn)
        if not settings.tokens:
            reason = f"no token was given (--token-file or {TOKEN_VARIABLE})"
            log_event("read-only", "warning", reason=reason, off="feedback, promote, rollback, hold, release, reload")
        if learning is not None:
            learning.start()
        try:
            _keep_workers(settings)
        finally:
            if learning is not None:
                learning.stop()
    log_event("service stopped")


# The processes that answer.


def _keep_workers(settings: ServiceSettings) -> None:
    """Run the workers, start another one in the place of each that dies, and end all of them on a signal."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: asked.append(number))
    workers = [_Worker(index + 1, settings) for index in range(settings.workers)]
    while not asked:
        for worker in workers:
            worker.keep()
        time.sleep(_LOOK_SECONDS)
    for worker in workers:
        worker.terminate()
    until = time.monotonic() + _STOP_SECONDS + 5.0
    for worker in workers:
        worker.end(until)


class _Worker:
    """One process that answers, and the one that follows when it has died."""

    def __init__(self, number: int, settings: ServiceSettings) -> None:
        self._number, self._settings = number, settings
        self._process: SpawnProcess | None = None
        self._born = self._due = 0.0
        self._early_deaths = 0

    def keep(self) -> None:
        """Start the process if there is none; where it has died early more than once, after a while.

        What a dead one counted stays in the sums; what it served is forgotten.
        """
        from prometheus_client.multiprocess import mark_process_dead

        now = time.monotonic()
        if self._process is not None and not self._process.is_alive():
            mark_process_dead(self._process.pid)  # type: ignore[no-untyped-call]
            lived = now - self._born
            self._early_deaths = self._early_deaths + 1 if lived < _EARLY_SECONDS else 0
            wait = seconds_before_start(self._early_deaths)
            told = {"worker": self._number, "code": self._process.exitcode, "lived_seconds": round(lived, 1)}
            log_event("worker died", "error", **told, next_in_seconds=wait)
            self._process, self._due = None, now + wait
        if self._process is None and now >= self._due:
            # A fork would copy threads of other libraries half; a fresh process has none.
            self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._settings,))
            self._process.start()
            self._born = now

    def terminate(self) -> None:
        """Ask the process to finish the requests in flight, and to end."""
        if self._process is not None:
            self._process.terminate()

    def end(self, until: float) -> None:
        """Wait for its end; kill it if that takes too long."""
        if self._process is not None:
            self._process.join(max(until - time.monotonic(), 0.0))
            self._process.kill()
            self._process.join()


def seconds_before_start(early_deaths: int) -> float:
    """Return how long to wait before a worker is started again, by how often in a row it died soon after its start.

    >>> [seconds_before_start(deaths) for deaths in (0, 1, 2, 3, 4, 9)]
    [0.0, 0.0, 0.5, 1.0, 2.0, 10.0]
    """
    return 0.0 if early_deaths < 2 else min(0.25 * 2.0 ** (early_deaths - 1), _LONGEST_WAIT_SECONDS)


def _work(settings: ServiceSettings) -> None:
    """Answer until a signal; also where the process that started this one is gone."""
    import uvicorn

    from mcnet.operations.service.app import make_app
    from mcnet.operations.service.protocol import Connection

    warnings.showwarning = log_warning
    threading.Thread(target=_end_with_parent, daemon=True).start()
    config = uvicorn.Config(
        make_app(settings),
        http=Connection,
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=LOGGING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_QUEUED_CONNECTIONS,
        timeout_keep_alive=round(settings.limits.header_seconds),
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    with suppress(KeyboardInterrupt):  # uvicorn raises it again, once everything is finished
        uvicorn.Server(config).run([_bound(settings)])


def _end_with_parent() -> None:
    from mcnet.operations.service.metrics import FOLDER_VARIABLE

    parent = multiprocessing.parent_process()
    while parent is None or os.getppid() == parent.pid:
        time.sleep(1.0)
    log_event("worker left alone", "warning", reason="the process of the service is gone")
    shutil.rmtree(os.environ[FOLDER_VARIABLE], ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


# What is checked before the first worker starts.


def _reserved(settings: ServiceSettings) -> socket.socket:
    """Refuse an address that another process listens on; return what keeps it for the workers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each worker may have as many connections as that
    try:
        socket.create_server((settings.host, settings.port), family=_family(settings)).close()
        return _bound(settings)
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        raise InputError(f"cannot listen on {address} ({error.strerror}); name another with --port") from None


def _bound(settings: ServiceSettings) -> socket.socket:
    """Return a socket that shares the address: the system deals connections out to all that listen."""
    shared = socket.socket(_family(settings))
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind((settings.host, settings.port))
    return shared


def _family(settings: ServiceSettings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.host else socket.AF_INET


def _checked(settings: ServiceSettings) -> ServiceSettings:
    """Refuse what cannot be served, such as periods of other lengths; return the settings with the default head."""
    from mcnet.operations.service.served import default_head, load_served

    store = Store(settings.store)
    settings = replace(settings, head=default_head(store, settings.head))
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
    if not _NAME.fullmatch(settings.name):
        raise InputError(f"the name {settings.name!r} is part of an address; use letters, digits, '.', '_' and '-'")
    if settings.every is not None:
        present(settings.every)
    for about in store.read_heads():
        own = about.settings.every
        if settings.every is not None and own not in (None, settings.every):
            raise InputError(f"the head {about.name} has periods of {own}, not of {settings.every}; leave --every out")
        if settings.learn and settings.every_of(about.settings) is None:
            raise InputError("learning needs the length of a period: --learn --every 1h")
    for token in settings.tokens:
        for name in sorted((token.heads or frozenset()) - set(there)):
            log_event("token for a head that is not there", "warning", head=name)
    store.close()
    return settings
