"""Run a service: check what it needs, then run its workers until a signal ends them."""

import multiprocessing
import os
import re
import signal
import socket
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError
from mcnet.operations.service.feedback import present
from mcnet.operations.service.schedule import Learning
from mcnet.operations.service.settings import LOGGING, TOKEN_VARIABLE, ServiceSettings, log_event, log_warning
from mcnet.store.store import Store

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_STOP_SECONDS = 30
"""How long requests in flight may take to finish once the service was asked to stop."""


def run_service(settings: ServiceSettings) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are finished first.

    Parameters
    ----------
    settings : the store, the address and the limits.
    """
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels
    from granian.server import Server

    settings = _checked(settings)
    with tempfile.TemporaryDirectory(prefix="mcnet-serve-") as numbers:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = numbers  # for the workers
        # A fork would copy threads of other libraries half; a fresh process has none.
        multiprocessing.set_start_method("spawn", force=True)
        learning = Learning(settings) if settings.learn else None
        server = Server(
            "mcnet.operations.service",
            address=settings.host,
            port=settings.port,
            interface=Interfaces.ASGI,
            workers=settings.workers,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=round(1000 * settings.limits.header_seconds)),
            websockets=False,
            log_dictconfig=LOGGING,
            log_level=LogLevels.warning,
            respawn_failed_workers=True,
            workers_kill_timeout=_STOP_SECONDS,
        )
        url, store = f"http://{settings.host}:{settings.port}/", Store(settings.store).name
        log_event("service starting", url=url, store=store, workers=settings.workers, learns=settings.learn)
        if not settings.tokens:
            reason = f"no token was given (--token-file or {TOKEN_VARIABLE})"
            log_event("read-only", "warning", reason=reason, off="feedback, promote, rollback, hold, release, reload")
        if learning is not None:
            learning.start()
        try:
            server.serve(target_loader=partial(_load_worker, settings), wrap_loader=False)
        finally:
            if learning is not None:
                learning.stop()
    log_event("service stopped")


def _load_worker(settings: ServiceSettings) -> Any:
    """Return what answers in a process of its own, which ends with the one that started it."""
    from mcnet.operations.service.app import counted, make_app

    warnings.showwarning = log_warning
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return counted(make_app(settings))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    while parent is None or os.getppid() == parent.pid:
        time.sleep(1.0)
    log_event("worker left alone", "warning", reason="the process of the service is gone")
    os.kill(os.getpid(), signal.SIGTERM)


def _checked(settings: ServiceSettings) -> ServiceSettings:
    """Refuse what cannot be served: no head, other periods, a taken address; return the settings with the head."""
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
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((settings.host, settings.port))  # two services would share its requests at random
        except OSError as error:
            address = f"{settings.host}:{settings.port}"
            raise InputError(f"cannot listen on {address} ({error.strerror}); name another with --port") from None
    return settings
