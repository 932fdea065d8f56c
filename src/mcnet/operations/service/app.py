"""The application of one worker: an endpoint for every path, and what runs beside them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from mcnet.operations.service import handlers, openapi  # noqa: F401  (they add to OPERATIONS)
from mcnet.operations.service.endpoints import OPERATIONS, Endpoint, Operation, Service
from mcnet.operations.service.feedback import Inbox
from mcnet.operations.service.served import ServedHeads
from mcnet.operations.service.settings import ServiceSettings, log_event
from mcnet.operations.service.state import ServiceState
from mcnet.store.store import Store


def make_app(settings: ServiceSettings) -> ASGIApp:
    """Return the application of one worker, which follows the store while it runs."""
    heads = ServedHeads(Store(settings.store), settings.head)
    service = Service(settings, heads, Inbox(settings, heads), ServiceState(settings, heads))

    @asynccontextmanager
    async def following(_: Router) -> AsyncIterator[None]:
        task = asyncio.create_task(heads.follow(settings.poll_seconds))
        served = {name: head.current and head.current.name for name, head in heads.by_name.items()}
        log_event("worker started", versions=served)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        service.inbox.close()
        log_event("worker stopped")

    by_path: defaultdict[str, dict[str, Operation]] = defaultdict(dict)
    for one in OPERATIONS:
        by_path[one.path][one.method] = one
    endpoints = {path: Endpoint(service, methods) for path, methods in by_path.items()}
    routes = [Route(path, endpoint) for path, endpoint in endpoints.items()]
    router = Router(routes, redirect_slashes=False, default=Endpoint(service, {}), lifespan=following)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Most requests are for a path without a name in it, which needs no search.
        await endpoints.get(scope.get("path", ""), router)(scope, receive, send)

    return app
