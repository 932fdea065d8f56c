"""What answers each route: thin functions from a request to an answer."""

import asyncio

from mcnet.errors import FileFormatError, InputError, McnetError
from mcnet.serve.board import Board
from mcnet.serve.calibrate import answer_json
from mcnet.serve.problem import Problem
from mcnet.serve.request import JSON, Request, Response
from mcnet.serve.routes import Route
from mcnet.serve.settings import Settings
from mcnet.serve.versions import ServedVersions

__all__ = ["Handlers"]

_EVERYWHERE_SECONDS = 10.0
"""How long a change waits for the other workers to serve it."""


class Handlers:
    """The handlers of one worker, with what they share."""

    def __init__(self, settings: Settings, board: Board, versions: ServedVersions) -> None:
        self.settings = settings
        self.board = board
        self.versions = versions

    def close(self) -> None:
        """Release what the handlers have open."""

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            Route("POST", "/calibrate", "calibrate", self.calibrate),
            Route("GET", "/versions", "versions", self.list_versions),
            Route("POST", "/versions/{version}/promote", "versions", self.promote, changes=True),
            Route("POST", "/rollback", "versions", self.rollback, changes=True),
            Route("POST", "/reload", "versions", self.reload, changes=True),
            Route("GET", "/v2/health/live", "health", self.live),
            Route("GET", "/v2/health/ready", "health", self.ready),
        ]

    # -- predictions ----------------------------------------------------------------------------------------------

    async def calibrate(self, request: Request) -> Response:
        """Answer rows that are not a short JSON document: a long one, or Arrow."""
        served, most = self.versions.current, self.settings.limits.rows
        request.query()
        body = await asyncio.to_thread(answer_json, served, request.body, most, self.board.own)
        return Response(200, JSON, body)

    # -- versions -------------------------------------------------------------------------------------------------

    async def list_versions(self, request: Request) -> Response:
        """List the versions of the registry."""
        request.query()
        return Response.json(await asyncio.to_thread(self._versions))

    def _versions(self) -> dict[str, object]:
        registry = self.versions.registry
        served = self.versions.current.name
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
            for version in registry.versions
        ]
        return {"current": registry.current.name, "served": served, "versions": listed}

    async def promote(self, request: Request) -> Response:
        """Make a version the current one, everywhere."""
        name = request.matched["version"]
        note = _note(request)
        registry = self.versions.registry
        await self._known(name)
        try:
            chosen = await asyncio.to_thread(registry.promote, name, note)
        except FileFormatError as error:
            raise Problem(409, self._said(error)) from None
        return await self._moved(chosen.name)

    async def rollback(self, request: Request) -> Response:
        """Go back to the version that was current before."""
        note = _note(request)
        try:
            chosen = await asyncio.to_thread(self.versions.registry.rollback, note)
        except McnetError as error:
            raise Problem(409, self._said(error)) from None
        return await self._moved(chosen.name)

    async def _known(self, name: str) -> None:
        """Refuse the name of a version that is not in the registry."""
        try:
            await asyncio.to_thread(self.versions.registry.version, name)
        except InputError as error:
            raise Problem(404, self._said(error)) from None

    def _said(self, error: object) -> str:
        """Return a message without the path of the registry, which is nobody's business outside."""
        return str(error).replace(str(self.versions.registry.path), "the registry")

    async def reload(self, request: Request) -> Response:
        """Look at the registry now, in every worker."""
        request.query()
        return await self._moved(None)

    async def _moved(self, wanted: str | None) -> Response:
        served = await self.versions.everywhere(_EVERYWHERE_SECONDS)
        refused = self.versions.refused
        if refused is not None:
            said = f"the current version of the registry was refused, and {self.versions.current.name} serves on: "
            raise Problem(409, said + self._said(refused["reason"]))
        return Response.json({"version": wanted or self.versions.current.name, "workers": served})

    # -- health ---------------------------------------------------------------------------------------------------

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
    return note
