"""What answers each route: thin functions from a request to an answer."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from mcnet.errors import FileFormatError, InputError
from mcnet.operations.service.board import Board
from mcnet.operations.service.calibrate import ARROW, answer_arrow, answer_json
from mcnet.operations.service.feedback import Inbox
from mcnet.operations.service.http import (
    JSON,
    JSON_TYPES,
    LARGE_BODY,
    RETRY,
    Problem,
    Request,
    Response,
    Route,
    ServiceSettings,
    log_event,
)
from mcnet.operations.service.inference import BINARY_HEADER, answer_inference, model_metadata, server_metadata
from mcnet.operations.service.openapi import dashboard, describe, docs
from mcnet.operations.service.served import Served, ServedVersions
from mcnet.operations.service.state import METRICS_TYPE, LoopStatus, ServiceState, curves_document, metrics_text
from mcnet.operations.versions import DamagedVersion, Version
from mcnet.version import __version__

__all__ = ["Handlers"]

T = TypeVar("T")

_EVERYWHERE_SECONDS = 10.0
"""How long a change waits for the other workers to serve it."""


class Handlers:
    """The handlers of one worker, with what they share."""

    def __init__(self, settings: ServiceSettings, board: Board, versions: ServedVersions) -> None:
        self.settings = settings
        self.board = board
        self.versions = versions
        self.inbox = Inbox(settings, board.own)
        self.status = LoopStatus(settings.registry)
        self.state = ServiceState(settings, board, versions, self.status)

    def close(self) -> None:
        """Finish what was taken in."""
        self.inbox.close()

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            Route("POST", "/calibrate", "calibrate", self.calibrate),
            Route("POST", "/feedback", "feedback", self.feedback, changes=True),
            Route("GET", "/versions", "versions", self.list_versions),
            Route("POST", "/versions/{version}/promote", "versions", self.promote, changes=True),
            Route("POST", "/rollback", "versions", self.rollback, changes=True),
            Route("POST", "/hold", "versions", self.hold, changes=True),
            Route("POST", "/release", "versions", self.release, changes=True),
            Route("POST", "/reload", "versions", self.reload, changes=True),
            Route("GET", "/", "dashboard", self.dashboard),
            Route("GET", "/docs", "dashboard", self.docs),
            Route("GET", "/openapi.json", "dashboard", self.openapi),
            Route("GET", "/status", "dashboard", self.show_state),
            Route("GET", "/curves", "dashboard", self.curves),
            Route("GET", "/metrics", "metrics", self.metrics),
            Route("GET", "/v2", "health", self.server),
            Route("GET", "/v2/health/live", "health", self.live),
            Route("GET", "/v2/health/ready", "health", self.ready),
            Route("GET", "/v2/models/{name}", "health", self.model),
            Route("GET", "/v2/models/{name}/ready", "health", self.model_ready),
            Route("POST", "/v2/models/{name}/infer", "infer", self.infer),
            Route("GET", "/v2/models/{name}/versions/{version}", "health", self.model),
            Route("GET", "/v2/models/{name}/versions/{version}/ready", "health", self.model_ready),
            Route("POST", "/v2/models/{name}/versions/{version}/infer", "infer", self.infer),
        ]

    # -- predictions ----------------------------------------------------------------------------------------------

    async def calibrate(self, request: Request) -> Response:
        """Answer rows that are not a short JSON document: a long one, or Arrow."""
        served, most = self.versions.current, self.settings.limits.rows
        kind = request.media_type
        if kind == ARROW:
            query = request.query("interval", "score_type")
            work = partial(answer_arrow, score_type=_score_type(query), interval=_interval(query))
            body = await asyncio.to_thread(work, served, request.body, most, self.board.own)
            return Response(200, [("content-type", ARROW), ("mcnet-version", served.name)], body)
        request.query()
        if kind not in JSON_TYPES:
            raise Problem(415, f"the body is of type {kind[:80]!r}; send application/json or {ARROW}")
        body = await asyncio.to_thread(answer_json, served, request.body, most, self.board.own)
        return Response(200, JSON, body)

    async def infer(self, request: Request) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        served = await self._served(request)
        work = (served, self.settings.name, request.body, request.header(BINARY_HEADER), self.settings.limits.rows)
        if len(request.body) > LARGE_BODY:
            body, headers = await asyncio.to_thread(answer_inference, *work, self.board.own)
        else:
            body, headers = answer_inference(*work, self.board.own)
        return Response(200, headers, body)

    # -- feedback -------------------------------------------------------------------------------------------------

    async def feedback(self, request: Request) -> Response:
        """Take labelled rows into the journal."""
        found = await self.inbox.take(request, self.versions.current)
        return Response.json(found, 200 if found["known"] else 201)

    # -- versions -------------------------------------------------------------------------------------------------

    async def list_versions(self, request: Request) -> Response:
        """List the versions of the registry."""
        request.query()
        return Response.json(await asyncio.to_thread(self._versions))

    def _versions(self) -> dict[str, object]:
        registry = self.versions.registry
        served, found = self.versions.current.name, registry.looked_at()
        listed = [
            {
                "version": version.name,
                "added": version.added,
                "method": version.method,
                "fields": version.fields,
                "rows": version.rows,
                "note": version.note,
                "digest": version.digest,
            }
            for version in found
            if isinstance(version, Version)
        ]
        damaged = [{"version": v.name, "reason": v.reason} for v in found if isinstance(v, DamagedVersion)]
        held, current = registry.held, registry.current_number
        shown: dict[str, object] = self.settings.public(
            {
                "current": None if current is None else str(current),
                "served": served,
                "held": None if held is None else asdict(held),
                "versions": listed,
                "damaged": damaged,
            }
        )
        return shown

    async def promote(self, request: Request) -> Response:
        """Make a version the current one, everywhere."""
        name = request.matched["version"]
        note = _note(request)
        await self._known(name)
        chosen = await self._change(self.versions.registry.promote, name, note)
        log_event("promoted", version=chosen.name, note=note)
        return await self._moved(chosen.name)

    async def rollback(self, request: Request) -> Response:
        """Go back to the version that was current before."""
        note = _note(request)
        try:
            chosen = await self._change(self.versions.registry.rollback, note)
        except InputError as error:
            raise Problem(409, str(error)) from None
        log_event("rolled back", version=chosen.name, note=note)
        return await self._moved(chosen.name)

    async def hold(self, request: Request) -> Response:
        """Keep the current version, whatever updates find."""
        note = _note(request)
        await self._change(self.versions.registry.hold, note)
        log_event("held", note=note)
        return await self._moved(None)

    async def release(self, request: Request) -> Response:
        """Let updates publish again."""
        note = _note(request)
        await self._change(self.versions.registry.release, note)
        log_event("released", note=note)
        return await self._moved(None)

    async def _change(self, act: Callable[..., T], *words: str) -> T:
        """Change the registry; say what it is like now if its disk is full or cannot be written to."""
        before = await asyncio.to_thread(self._pointed)
        try:
            return await asyncio.to_thread(act, *words)
        except OSError as error:
            now = await asyncio.to_thread(self._pointed)
            found = f"version {now[0]} is current{', held' if now[1] else ''}"
            what = f"nothing was changed: {found}" if now == before else f"{found} now, but the history lacks a line"
            reason = error.strerror or type(error).__name__
            raise Problem(503, f"the registry cannot be written ({reason}); {what}", headers=RETRY) from None

    def _pointed(self) -> tuple[int | None, bool]:
        registry = self.versions.registry
        try:
            return registry.current_number, registry.held is not None
        except FileFormatError:
            return None, False  # a damaged pointer, which a promotion writes again

    async def _known(self, name: str) -> None:
        """Refuse the name of a version that is not in the registry."""
        try:
            await asyncio.to_thread(self.versions.registry.version, name)
        except InputError as error:
            raise Problem(404, str(error)) from None

    async def reload(self, request: Request) -> Response:
        """Look at the registry now, in every worker."""
        request.query()
        return await self._moved(None)

    async def _moved(self, wanted: str | None) -> Response:
        served, late = await self.versions.everywhere(_EVERYWHERE_SECONDS)
        refused = self.versions.refused
        if refused is not None:
            reason = f"the current version of the registry was refused, and {self.versions.current.name} serves on: "
            raise Problem(409, reason + refused["reason"])
        held = await asyncio.to_thread(lambda: self.versions.registry.held is not None)
        found = {"version": wanted or self.versions.current.name, "workers": served, "held": held}
        return Response.json(found | ({"late": late} if late else {}), 202 if late else 200)

    # -- for people -----------------------------------------------------------------------------------------------

    async def dashboard(self, request: Request) -> Response:
        """Show the dashboard."""
        return dashboard()

    async def docs(self, request: Request) -> Response:
        """Show the list of requests."""
        return docs()

    async def openapi(self, request: Request) -> Response:
        """Describe the service for programs."""
        return Response.json(describe())

    async def show_state(self, request: Request) -> Response:
        """Tell what the dashboard shows."""
        request.query()
        return Response.json(await asyncio.to_thread(self.state.document))

    async def curves(self, request: Request) -> Response:
        """Tell the curves that are served."""
        served = self.versions.current
        asked = request.query(*served.fields)
        return Response.json(await asyncio.to_thread(curves_document, served, asked))

    # -- health ---------------------------------------------------------------------------------------------------

    async def metrics(self, request: Request) -> Response:
        """Tell Prometheus what all workers counted."""
        text = metrics_text(self.board, self.versions, self.status.read())
        return Response(200, [("content-type", METRICS_TYPE)], text.encode())

    async def server(self, request: Request) -> Response:
        """Tell what this server is."""
        return Response.json(server_metadata(__version__))

    async def model(self, request: Request) -> Response:
        """Tell what the model takes and gives."""
        served = await self._served(request)
        numbers = await asyncio.to_thread(lambda: self.versions.registry.numbers)
        versions = [str(number) for number in numbers]
        return Response.json(model_metadata(served, self.settings.name, versions))

    async def model_ready(self, request: Request) -> Response:
        """Say that a version can be served."""
        served = await self._served(request)
        return Response.json({"name": self.settings.name, "version": served.name, "ready": True})

    async def _served(self, request: Request) -> Served:
        """Return the version that a path of the Open Inference Protocol names."""
        if request.matched["name"] != self.settings.name:
            raise Problem(404, f"there is no such model; the model is called {self.settings.name!r}")
        version = request.matched.get("version")
        if version is None:
            return self.versions.current
        await self._known(version)
        return await self.versions.version(version)

    async def live(self, request: Request) -> Response:
        """Say that this process answers."""
        return Response.json({"live": True})

    async def ready(self, request: Request) -> Response:
        """Say that a version is served."""
        return Response.json({"ready": True})


def _note(request: Request) -> str:
    note = request.query("note").get("note", "")
    if len(note) > 1_000:
        raise Problem(400, f"the note has {len(note):,} characters; at most 1,000 are kept")
    if not note.isprintable():
        raise Problem(400, "the note has characters that cannot be printed; write it in one line of plain text")
    return note


def _score_type(query: dict[str, str]) -> Any:
    given = query.get("score_type")
    if given not in (None, "probability", "logit"):
        raise Problem(400, f"score_type is {given!r}; it must be probability or logit", at="score_type")
    return given


def _interval(query: dict[str, str]) -> float | None:
    given = query.get("interval")
    try:
        return None if given is None else float(given)
    except ValueError:
        raise Problem(400, f"interval is {given!r}, not a number", at="interval") from None
