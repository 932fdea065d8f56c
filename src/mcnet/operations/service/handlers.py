"""What answers each route: thin functions from a request to an answer."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError, in_words
from mcnet.operations.service.arrow import ARROW
from mcnet.operations.service.board import METRICS_TYPE, Board, metrics_text
from mcnet.operations.service.calibrate import Answer, Question, Record, answer_arrow, answer_json
from mcnet.operations.service.feedback import FEEDBACK_QUERY, SKETCH, Feedback, Inbox, Taken
from mcnet.operations.service.http import (
    JSON,
    JSON_TYPES,
    LARGE_BODY,
    RETRY,
    Problem,
    Request,
    Response,
    Route,
    check_score_type,
    number_in,
)
from mcnet.operations.service.inference import (
    BINARY_HEADER,
    Inference,
    answer_inference,
    model_metadata,
    server_metadata,
)
from mcnet.operations.service.openapi import dashboard, describe, docs
from mcnet.operations.service.served import Served, ServedHeads, ServedVersions
from mcnet.operations.service.settings import ServiceSettings, log_event
from mcnet.operations.service.state import ServiceState, curves_document
from mcnet.store.versions import DamagedVersion, Registry, Version
from mcnet.version import __version__

BYTES = "application/octet-stream"
_ROWS_QUERY = ("interval", "score_type")

_EVERYWHERE_SECONDS = 10.0
"""How long a change waits for the other workers to serve it."""


class Moved(msgspec.Struct, omit_defaults=True):
    """What each worker serves after a change; `late` ones have not looked at the store yet."""

    version: str
    workers: list[str]
    held: bool
    late: int = 0


class HeadAbout(msgspec.Struct):
    """A model of the store; `default` is that of requests which name none."""

    head: str
    version: str | None
    default: bool


class Versions(msgspec.Struct):
    """The versions of a head, and those that cannot be read."""

    current: str | None
    served: str | None
    held: dict[str, Any] | None
    versions: list[dict[str, Any]]
    damaged: list[dict[str, Any]]


class Handlers:
    """The handlers of one worker, with what they share."""

    def __init__(self, settings: ServiceSettings, board: Board, heads: ServedHeads) -> None:
        self.settings = settings
        self.board = board
        self.heads = heads
        self.inbox = Inbox(settings, heads, board.own)
        self.state = ServiceState(settings, board, heads)
        self._description = describe(self.routes())
        self._docs = docs(self._description)

    def close(self) -> None:
        """Finish what was taken in."""
        self.inbox.close()

    def routes(self) -> list[Route]:
        """Return the route table; the description of the service is made of it."""
        moved = {200: Moved, 202: Moved}
        change: dict[str, Any] = {"changes": True, "answers": moved, "parameters": ("note",)}
        rows = """-d '{"score": [0.1], "field": {"country": ["NL"]}}'"""
        infer: dict[str, Any] = {"body": (Inference, BYTES), "answers": {200: (dict, BYTES)}}
        of_a_head = [
            Route(
                "POST", "/calibrate", "calibrate", self.calibrate,
                body=(Question, Record, list[Record], ARROW), answers={200: (Answer, ARROW)}, parameters=_ROWS_QUERY,
                example=rows,
            ),
            Route(
                "POST", "/feedback", "feedback", self.feedback, changes=True,
                body=(Feedback, ARROW, SKETCH), answers={201: Taken, 200: Taken},
                parameters=(*FEEDBACK_QUERY, "Idempotency-Key"), example="-d @rows.json",
            ),
            Route("GET", "/versions", "versions", self.list_versions, answers={200: Versions}),
            Route("POST", "/versions/{version}/promote", "versions", self.promote, **change),
            Route("POST", "/rollback", "versions", self.rollback, **change),
            Route("POST", "/hold", "versions", self.hold, **change),
            Route("POST", "/release", "versions", self.release, **change),
            Route("POST", "/reload", "versions", self.reload, changes=True, answers=moved),
            Route("GET", "/", "dashboard", self.dashboard, answers={200: "text/html"}),
            Route("GET", "/status", "dashboard", self.show_state),
            Route("GET", "/curves", "dashboard", self.curves),
        ]  # fmt: skip
        return [
            *of_a_head,
            *(replace(route, path=f"/heads/{{head}}{route.path}") for route in of_a_head),
            Route("GET", "/heads", "versions", self.list_heads, answers={200: list[HeadAbout]}),
            Route("GET", "/docs", "dashboard", self.docs, answers={200: "text/html"}),
            Route("GET", "/openapi.json", "dashboard", self.openapi),
            Route("GET", "/metrics", "metrics", self.metrics, answers={200: "text/plain"}),
            Route("GET", "/v2", "health", self.server),
            Route("GET", "/v2/health/live", "health", self.live),
            Route("GET", "/v2/health/ready", "health", self.ready),
            Route("GET", "/v2/models/{name}", "health", self.model),
            Route("GET", "/v2/models/{name}/ready", "health", self.model_ready),
            Route("POST", "/v2/models/{name}/infer", "infer", self.infer, **infer),
            Route("GET", "/v2/models/{name}/versions/{version}", "health", self.model),
            Route("GET", "/v2/models/{name}/versions/{version}/ready", "health", self.model_ready),
            Route("POST", "/v2/models/{name}/versions/{version}/infer", "infer", self.infer, **infer),
        ]  # fmt: skip

    # -- predictions ----------------------------------------------------------------------------------------------

    async def calibrate(self, request: Request) -> Response:
        """Calibrate scores.

        Columns of rows, one row, a record, or a list of records; or an Arrow IPC stream with the columns score and one
        per field. A record has the score and every field of the model under its name; other keys are ignored and
        counted. All rows of an answer are from one version.
        """
        # A short JSON document, the usual request, is answered by the service itself, and not here.
        head = self.heads.head(request.head)
        served, most = head.answering, self.settings.limits.rows
        kind = request.media_type
        if kind == ARROW:
            query = request.query(*_ROWS_QUERY)
            score_type = check_score_type(query.get("score_type"))
            work = partial(answer_arrow, score_type=score_type, interval=number_in(query, "interval"))
            body = await asyncio.to_thread(work, served, request.body, most, head.numbers)
            return Response(200, [("content-type", ARROW), ("mcnet-version", served.name)], body)
        request.query()
        if kind not in JSON_TYPES:
            raise Problem(415, f"the body is of type {kind[:80]!r}; send application/json or {ARROW}")
        body = await asyncio.to_thread(answer_json, served, request.body, most, head.numbers)
        return Response(200, JSON, body)

    async def infer(self, request: Request) -> Response:
        """Infer.

        Open Inference Protocol, with its binary tensors. Inputs are score and one per field; outputs are calibrated,
        and low and high if they are asked for.
        """
        head, served = await self._served(request)
        name = request.matched["name"]
        work = (served, name, request.body, request.header(BINARY_HEADER), self.settings.limits.rows, head.numbers)
        if len(request.body) > LARGE_BODY:
            body, headers = await asyncio.to_thread(answer_inference, *work)
        else:
            body, headers = answer_inference(*work)
        return Response(200, headers, body)

    # -- feedback -------------------------------------------------------------------------------------------------

    async def feedback(self, request: Request) -> Response:
        """Send labelled rows.

        Rows with labels, or a saved sketch of them, for the journal. Answered when they are on disk; the same key and
        rows again change nothing.
        """
        taken = await self.inbox.take(request, self.heads.head(request.head))
        return Response.json(taken, 200 if taken.known else 201)

    # -- versions -------------------------------------------------------------------------------------------------

    async def list_heads(self, request: Request) -> Response:
        """List the heads.

        Every model of the store by its name, with the version that is served.
        """
        request.query()
        listed = [
            HeadAbout(name, None if head.current is None else head.current.name, name == self.heads.default)
            for name, head in self.heads.by_name.items()
        ]
        return Response.json(listed)

    async def list_versions(self, request: Request) -> Response:
        """List the versions.

        Those of a head, oldest first.
        """
        request.query()
        return Response.json(await asyncio.to_thread(self._versions, self.heads.head(request.head)))

    def _versions(self, head: ServedVersions) -> Versions:
        registry = head.registry
        served, known = None if head.current is None else head.current.name, registry.looked_at()
        told = ("added", "method", "fields", "rows", "note", "digest")
        whole = [version for version in known if isinstance(version, Version)]
        listed = [{"version": version.name, **{name: getattr(version, name) for name in told}} for version in whole]
        damaged = [{"version": v.name, "reason": v.reason} for v in known if isinstance(v, DamagedVersion)]
        current, held = registry.current_number, None if registry.held is None else asdict(registry.held)
        public = self.settings.public
        return Versions(
            None if current is None else str(current), served, public(held), public(listed), public(damaged)
        )

    async def promote(self, request: Request) -> Response:
        """Serve another version.

        Make a version the current one. Answered when every worker serves it. A version that is not the latest is held,
        as after a rollback.
        """
        name = request.matched["version"]
        _note(request)  # a parameter that is not taken is refused before anything is looked up
        await _known(self.heads.head(request.head), name)
        try:
            return await self._move(request, "promoted", Registry.promote, name)
        except InputError as error:  # it takes other requests than the current version
            raise Problem(409, in_words(error, "service")) from None

    async def rollback(self, request: Request) -> Response:
        """Go back.

        Make the version current that was current before, and hold it: updates publish nothing until it is released, or
        the latest version is promoted.
        """
        try:
            return await self._move(request, "rolled back", Registry.rollback)
        except InputError as error:
            raise Problem(409, str(error)) from None

    async def hold(self, request: Request) -> Response:
        """Keep the current version.

        Updates learn and judge, but publish nothing until it is released, or the latest version is promoted.
        """
        return await self._move(request, "held", Registry.hold)

    async def release(self, request: Request) -> Response:
        """Let updates publish again.

        End the hold that a rollback, or the promotion of an older version, has set. The current version stays until an
        update publishes another one.
        """
        return await self._move(request, "released", Registry.release)

    async def _move(self, request: Request, event: str, act: Callable[..., Any], *words: str) -> Response:
        """Change the versions of a head; say what is current if the disk is full or cannot be written to."""
        note, head = _note(request), self.heads.head(request.head)
        try:
            done = await asyncio.to_thread(act, head.registry, *words, note)
        except (OSError, StoreUnavailableError, BusyError) as error:
            self.heads.count_error(error)
            reason = str(error)
            if isinstance(error, OSError):
                reason = f"the store cannot be written ({error.strerror or type(error).__name__})"
            raise Problem(503, f"{reason}; {await asyncio.to_thread(_pointed, head)}", headers=RETRY) from None
        chosen = {"version": done.name} if isinstance(done, Version) else {}
        log_event(event, head=head.name, **chosen, note=note)
        return await self._moved(head, chosen.get("version"))

    async def reload(self, request: Request) -> Response:
        """Look at the store now.

        Every worker looks for versions that have become current, instead of waiting for its next poll.
        """
        request.query()
        return await self._moved(self.heads.head(request.head), None)

    async def _moved(self, head: ServedVersions, wanted: str | None) -> Response:
        served, late = await self.heads.everywhere(head, _EVERYWHERE_SECONDS)
        current = "none" if head.current is None else head.current.name
        if head.refused is not None:
            reason = f"the current version of {head.name} was refused, and {current} serves on: "
            raise Problem(409, reason + head.refused["reason"])
        return Response.json(Moved(wanted or current, served, head.held is not None, late), 202 if late else 200)

    # -- for people -----------------------------------------------------------------------------------------------

    async def dashboard(self, request: Request) -> Response:
        """Show the dashboard.

        A page for people: what is served, how well it is calibrated, the versions, and buttons that change them.
        """
        request.query()
        document = await asyncio.to_thread(self.state.document, self.heads.head(request.head))
        return await asyncio.to_thread(dashboard, document, "../../" if request.head else "")

    async def docs(self, request: Request) -> Response:
        """Show the list of requests.

        This page.
        """
        return self._docs

    async def openapi(self, request: Request) -> Response:
        """Describe the service for programs.

        OpenAPI 3.1.
        """
        return Response.json(self._description)

    async def show_state(self, request: Request) -> Response:
        """Tell the state of a head.

        What the dashboard shows, and what the page of `mcnet update --status` shows.
        """
        request.query()
        return Response.json(await asyncio.to_thread(self.state.document, self.heads.head(request.head)))

    async def curves(self, request: Request) -> Response:
        """Tell the curves that are served.

        The pooled curve and those of the largest contexts, as points; with the name and value of every field in the
        query, the curve of that context with its 95 % interval.
        """
        served = self.heads.head(request.head).answering
        asked = request.query(*served.fields)
        return Response.json(await asyncio.to_thread(curves_document, served, asked))

    # -- health ---------------------------------------------------------------------------------------------------

    async def metrics(self, request: Request) -> Response:
        """Tell metrics for Prometheus.

        Summed over all workers.
        """
        statuses = await asyncio.to_thread(self.state.loop_statuses)
        metrics = metrics_text(self.board, self.heads, statuses)
        return Response(200, [("content-type", METRICS_TYPE)], metrics.encode())

    async def server(self, request: Request) -> Response:
        """Tell what this server is.

        Open Inference Protocol.
        """
        return Response.json(server_metadata(__version__))

    async def model(self, request: Request) -> Response:
        """Tell what the model takes and gives.

        Open Inference Protocol.
        """
        head, served = await self._served(request)
        numbers = await asyncio.to_thread(lambda: head.registry.numbers)
        versions = [str(number) for number in numbers]
        return Response.json(model_metadata(served, request.matched["name"], versions))

    async def model_ready(self, request: Request) -> Response:
        """Say that the model, or a version of it, is ready.

        Open Inference Protocol.
        """
        _, served = await self._served(request)
        return Response.json({"name": request.matched["name"], "version": served.name, "ready": True})

    async def _served(self, request: Request) -> tuple[ServedVersions, Served]:
        """Return the head and the version that a path of the Open Inference Protocol names."""
        name = unquote(request.matched["name"])
        head = self.heads.by_name.get(name)
        if head is None:
            if name != self.settings.name:
                listed = ", ".join([*self.heads.by_name, self.settings.name])
                raise Problem(404, f"there is no such model; there are {listed}")
            head = self.heads.head()
        version = request.matched.get("version")
        if version is None:
            return head, head.answering
        await _known(head, version)
        return head, await head.version(version)

    async def live(self, request: Request) -> Response:
        """Say that this process lives.

        Open Inference Protocol.
        """
        return Response.json({"live": True})

    async def ready(self, request: Request) -> Response:
        """Say that the service is ready.

        Open Inference Protocol.
        """
        return Response.json({"ready": True})


async def _known(head: ServedVersions, name: str) -> None:
    """Refuse the name of a version that a head does not have."""
    try:
        await asyncio.to_thread(head.registry.version, name)
    except InputError as error:
        raise Problem(404, str(error)) from None


def _pointed(head: ServedVersions) -> str:
    try:
        current = f"version {head.registry.current_number} is current"
        return current if head.registry.held is None else f"{current}, held"
    except McnetError:
        return "GET /versions tells later what is current"


def _note(request: Request) -> str:
    note = request.query("note").get("note", "")
    if len(note) > 1_000:
        raise Problem(400, f"the note has {len(note):,} characters; at most 1,000 are kept")
    if not note.isprintable():
        raise Problem(400, "the note has characters that cannot be printed; write it in one line of plain text")
    return note
