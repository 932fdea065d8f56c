"""The application: what answers each path, who may change something, and the pages for people."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.resources import files
from time import perf_counter
from typing import Annotated, Any, Literal

import msgspec
from jinja2 import Environment
from litestar import Litestar, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, OpenAPIMediaType, Operation, RequestBody, Schema, SecurityScheme
from litestar.params import Parameter
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError, in_words
from mcnet.operations.service import metrics
from mcnet.operations.service.arrow import ARROW
from mcnet.operations.service.calibrate import Answer, Question, Record, answer_arrow, answer_json
from mcnet.operations.service.feedback import SKETCH, Feedback, Inbox, Sent, Taken
from mcnet.operations.service.inference import (
    BINARY_HEADER,
    Inference,
    answer_inference,
    model_metadata,
    server_metadata,
)
from mcnet.operations.service.problems import RETRY, Problem, answer
from mcnet.operations.service.served import Served, ServedHeads, ServedVersions
from mcnet.operations.service.settings import ServiceSettings, check_token, log_event
from mcnet.operations.service.state import ServiceState, curves_document
from mcnet.report.page import read_asset
from mcnet.report.status_page import status_html
from mcnet.store.store import Store
from mcnet.store.versions import DamagedVersion, Registry, Version
from mcnet.version import __version__

LARGE_BODY = 100_000
"""Bodies of more bytes than this are computed in a thread, so that short requests need not wait for them."""
_EVERYWHERE_SECONDS = 10.0
"""How long a change waits for the other workers to serve it."""
_JSON = frozenset(("application/json", "", "application/x-www-form-urlencoded"))
"""Types under which clients send JSON; the last one is what curl sends with `-d` by default."""

Note = Annotated[str, Parameter(max_length=1000, description="Why; goes into the history.")]
ScoreType = Literal["probability", "logit"]
BYTES = "application/octet-stream"


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


def _of_heads(path: str) -> list[str]:
    """Return a path for the default head, and for one by its name."""
    return [path, f"/heads/{{head:str}}{path}"]


_FORMS: dict[str, Any] = {}
"""The forms of bodies, as the description of the service has them."""


def _takes(*forms: Any) -> type[Operation]:
    """Return how a body is described that its handler decodes: types, sent as JSON, and other media types."""
    types = [form for form in forms if not isinstance(form, str)]
    made, named = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    _FORMS.update(named)
    content: dict[str, Any] = {"application/json": OpenAPIMediaType(schema={"anyOf": list(made)})}  # type: ignore[arg-type]
    binary = {form: OpenAPIMediaType(schema=Schema(format="binary")) for form in forms if isinstance(form, str)}

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.request_body = RequestBody(content | binary, required=True)

    return Described


def _needs_token(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    state = connection.app.state
    head = connection.path_params.get("head") or state.heads.default
    check_token(connection.headers.get("authorization", ""), state.settings.tokens, head)


async def _whole(request: Request[Any, Any, Any]) -> None:
    await request.body()  # a client that ends in the middle of its body changes nothing


_change: dict[str, Any] = {"guards": [_needs_token], "status_code": 200, "security": [{"token": []}]}
_change |= {"before_request": _whole}


# -- predictions ------------------------------------------------------------------------------------------------------


@post(
    _of_heads("/calibrate"),
    status_code=200,
    operation_class=_takes(Question, Record, list[Record], ARROW),
    responses={200: ResponseSpec(Answer)},
)
async def calibrate(
    request: Request[Any, Any, Any],
    state: State,
    head: str | None = None,
    score_type: ScoreType | None = None,
    interval: float | None = None,
) -> Response[bytes]:
    """Calibrate scores.

    Columns of rows, one row, a record, or a list of records; or an Arrow IPC stream with the columns score and one per
    field, and score_type and interval in the query. All rows of an answer are from one version.
    """
    chosen, body, kind = state.heads.head(head), await request.body(), request.content_type[0]
    served, most, headers = chosen.answering, state.settings.limits.rows, {}
    work = partial(answer_json, served, body, most, chosen.numbers)
    if kind == ARROW:
        headers = {"mcnet-version": served.name}
        work = partial(answer_arrow, served, body, most, chosen.numbers, score_type=score_type, interval=interval)
    elif kind not in _JSON:
        raise Problem(415, f"the body is of type {kind[:80]!r}; send application/json or {ARROW}")
    found = await asyncio.to_thread(work) if len(body) > LARGE_BODY else work()
    return Response(found, media_type=ARROW if kind == ARROW else "application/json", headers=headers)


@post(
    ["/v2/models/{name:str}/infer", "/v2/models/{name:str}/versions/{version:str}/infer"],
    status_code=200,
    operation_class=_takes(Inference, BYTES),
)
async def infer(
    request: Request[Any, Any, Any], state: State, name: str, version: str | None = None
) -> Response[bytes]:
    """Infer by the Open Inference Protocol, with its binary tensors.

    Inputs are score and one per field; outputs are calibrated, and low and high if they are asked for.
    """
    head, served = await _named(state, name, version)
    body, length = await request.body(), request.headers.get(BINARY_HEADER, "")
    work = partial(answer_inference, served, name, body, length, state.settings.limits.rows, head.numbers)
    found, headers = await asyncio.to_thread(work) if len(body) > LARGE_BODY else work()
    return Response(found, media_type=headers.pop("content-type"), headers=headers)


# -- feedback ---------------------------------------------------------------------------------------------------------


@post(_of_heads("/feedback"), operation_class=_takes(Feedback, ARROW, SKETCH), **(_change | {"status_code": 201}))
async def feedback(
    request: Request[Any, Any, Any],
    state: State,
    head: str | None = None,
    period: str | None = None,
    key: str | None = None,
    age: float | None = None,
    score_type: ScoreType | None = None,
    allow: str | None = None,
) -> Response[Taken]:
    """Send labelled rows.

    Rows with labels, or a saved sketch of them, for the journal; parameters in the query are those of Arrow and of
    sketches. Answered when they are on disk; the same key and rows again change nothing.
    """
    chosen, kind = state.heads.head(head), request.content_type[0]
    if kind not in (*_JSON, ARROW, SKETCH):
        raise Problem(415, f"the body is of type {kind[:80]!r}; send application/json, {ARROW} or {SKETCH}")
    about = {"period": period, "key": key, "age": age, "score_type": score_type}
    about["allow"] = allow.split(",") if allow else None
    sent = Sent(await request.body(), kind, about, request.headers.get("idempotency-key", ""))
    taken = await state.inbox.take(sent, chosen)
    return Response(taken, status_code=200 if taken.known else 201)


# -- versions ---------------------------------------------------------------------------------------------------------


@get("/heads")
async def list_heads(state: State) -> list[HeadAbout]:
    """List every model of the store by its name, with the version that is served."""
    named = {name: None if head.current is None else head.current.name for name, head in state.heads.by_name.items()}
    return [HeadAbout(name, version, name == state.heads.default) for name, version in named.items()]


@get(_of_heads("/versions"), sync_to_thread=True)
def list_versions(state: State, head: str | None = None) -> Versions:
    """List the versions of a head, oldest first."""
    chosen, public = state.heads.head(head), state.settings.public
    registry = chosen.registry
    served, known = None if chosen.current is None else chosen.current.name, registry.looked_at()
    told = ("added", "method", "fields", "rows", "note", "digest")
    whole = [version for version in known if isinstance(version, Version)]
    listed = [{"version": version.name, **{name: getattr(version, name) for name in told}} for version in whole]
    damaged = [{"version": v.name, "reason": v.reason} for v in known if isinstance(v, DamagedVersion)]
    current, held = registry.current_number, None if registry.held is None else asdict(registry.held)
    return Versions(None if current is None else str(current), served, public(held), public(listed), public(damaged))


@post(_of_heads("/versions/{version:str}/promote"), **_change)
async def promote(state: State, version: str, head: str | None = None, note: Note = "") -> Response[Moved]:
    """Serve another version.

    Answered when every worker serves it. A version that is not the latest is held, as after a rollback.
    """
    await _known(state.heads.head(head), version)
    return await _move(state, head, "promoted", Registry.promote, version, note)


@post(_of_heads("/rollback"), **_change)
async def rollback(state: State, head: str | None = None, note: Note = "") -> Response[Moved]:
    """Go back to the version that was current before, and hold it: updates publish nothing until it is released."""
    return await _move(state, head, "rolled back", Registry.rollback, note)


@post(_of_heads("/hold"), **_change)
async def hold(state: State, head: str | None = None, note: Note = "") -> Response[Moved]:
    """Keep the current version: updates learn and judge, but publish nothing until it is released."""
    return await _move(state, head, "held", Registry.hold, note)


@post(_of_heads("/release"), **_change)
async def release(state: State, head: str | None = None, note: Note = "") -> Response[Moved]:
    """Let updates publish again; the current version stays until one does."""
    return await _move(state, head, "released", Registry.release, note)


@post(_of_heads("/reload"), **_change)
async def reload(state: State, head: str | None = None) -> Response[Moved]:
    """Look at the store now, in every worker, instead of waiting for its next poll."""
    return await _moved(state, state.heads.head(head), None)


async def _move(state: State, name: str | None, event: str, act: Callable[..., Any], *words: str) -> Response[Moved]:
    """Change the versions of a head; say what is current if the disk is full or cannot be written to."""
    head, note = state.heads.head(name), words[-1]
    if not note.isprintable():
        raise Problem(400, "the note has characters that cannot be printed; write it in one line of plain text")
    try:
        done = await asyncio.to_thread(act, head.registry, *words)
    except InputError as error:  # it takes other requests than the current version, or there is none before it
        raise Problem(409, in_words(error, "service")) from None
    except (OSError, StoreUnavailableError, BusyError) as error:
        state.heads.count_error(error)
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"the store cannot be written ({error.strerror or type(error).__name__})"
        raise Problem(503, f"{reason}; {await asyncio.to_thread(_pointed, head)}", headers=RETRY) from None
    chosen = {"version": done.name} if isinstance(done, Version) else {}
    log_event(event, head=head.name, **chosen, note=note)
    return await _moved(state, head, chosen.get("version"))


async def _moved(state: State, head: ServedVersions, wanted: str | None) -> Response[Moved]:
    served, late = await state.heads.everywhere(head, _EVERYWHERE_SECONDS)
    current = "none" if head.current is None else head.current.name
    if head.refused is not None:
        reason = f"the current version of {head.name} was refused, and {current} serves on: "
        raise Problem(409, reason + head.refused["reason"])
    return Response(Moved(wanted or current, served, head.held is not None, late), status_code=202 if late else 200)


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


# -- for people -------------------------------------------------------------------------------------------------------

_DOCS_STYLE = """
pre { background: var(--raised); padding: .7rem .9rem; border-radius: .5rem; overflow-x: auto; font-size: .85rem; }
h2 code { font-size: 1.05rem; overflow-wrap: anywhere; } a { color: var(--accent); }
"""


@cache
def _asset(name: str) -> str:
    return files("mcnet.operations.service").joinpath(name).read_text(encoding="utf-8")


def _page(content: str, style: str, script: str = "") -> Response[str]:
    """Return a page that may run its own script and style, talk to its own service, and nothing else."""
    hashes = [
        f"{name} 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for name, text in (("style-src", style), ("script-src", script))
        if text
    ]
    rest = ("default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'")
    policy = "; ".join([*rest, "frame-ancestors 'none'", *hashes])
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
    return Response(content, media_type="text/html", headers=headers)


@get(["/", "/heads/{head:str}"])
async def dashboard(state: State, head: str | None = None) -> Response[str]:
    """Show what is served, how well it is calibrated, the versions, and buttons that change them."""
    style, script = read_asset("page.css") + read_asset("status.css"), _asset("dashboard.js")
    status = await asyncio.to_thread(state.people.document, state.heads.head(head))
    page = await asyncio.to_thread(status_html, status, style, script, "../../" if head else "")
    return _page(page, style, script)


@get("/docs", sync_to_thread=False)
def docs(request: Request[Any, Any, Any]) -> Response[str]:
    """List the requests: this page."""
    described, style = _description(request.app), read_asset("page.css") + _DOCS_STYLE
    template = Environment(autoescape=True).from_string(_asset("docs.html.j2"))
    forms = msgspec.json.decode(msgspec.json.encode(described["components"]["schemas"], enc_hook=str))
    return _page(template.render(info=described["info"], paths=described["paths"], schemas=forms, style=style), style)


@get("/openapi.json", sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Describe the service for programs."""
    return _description(request.app)


def _description(app: Litestar) -> dict[str, Any]:
    described = app.openapi_schema.to_schema()
    described["components"]["schemas"] |= _FORMS
    return described


@get(_of_heads("/status"), sync_to_thread=True)
def status(state: State, head: str | None = None) -> dict[str, Any]:
    """Tell what the dashboard shows, and what the page of `mcnet update --status` shows."""
    found: dict[str, Any] = state.people.document(state.heads.head(head))
    return found


@get(_of_heads("/curves"), sync_to_thread=True)
def curves(request: Request[Any, Any, Any], state: State, head: str | None = None) -> dict[str, Any]:
    """Tell the curves that are served, as points.

    The pooled curve and those of the largest contexts; with the name and value of every field in the query, the curve
    of that context with its 95 % interval.
    """
    return curves_document(state.heads.head(head).answering, dict(request.query_params))


# -- health -----------------------------------------------------------------------------------------------------------


@get("/metrics", sync_to_thread=True, media_type="text/plain; version=0.0.4")
def told_metrics(state: State) -> bytes:
    """Tell metrics for Prometheus, summed over all workers."""
    return metrics.metrics_text(state.heads, state.people.loop_statuses())


@get("/v2")
async def server() -> dict[str, Any]:
    """Tell what this server is."""
    return server_metadata(__version__)


@get(["/v2/health/live", "/v2/health/ready"])
async def healthy() -> dict[str, bool]:
    """Say that this process lives, and is ready."""
    return {"live": True, "ready": True}


_MODEL = ["/v2/models/{name:str}", "/v2/models/{name:str}/versions/{version:str}"]


@get(_MODEL)
async def model(state: State, name: str, version: str | None = None) -> dict[str, Any]:
    """Tell what the model takes and gives."""
    head, served = await _named(state, name, version)
    numbers = await asyncio.to_thread(lambda: head.registry.numbers)
    return model_metadata(served, name, list(map(str, numbers)))


@get([f"{path}/ready" for path in _MODEL])
async def model_ready(state: State, name: str, version: str | None = None) -> dict[str, Any]:
    """Say that the model, or a version of it, is ready."""
    _, served = await _named(state, name, version)
    return {"name": name, "version": served.name, "ready": True}


async def _named(state: State, name: str, version: str | None) -> tuple[ServedVersions, Served]:
    """Return the head and the version that a path of the Open Inference Protocol names."""
    head = state.heads.by_name.get(name)
    if head is None:
        if name != state.settings.name:
            listed = ", ".join([*state.heads.by_name, state.settings.name])
            raise Problem(404, f"there is no such model; there are {listed}")
        head = state.heads.head()
    if version is None:
        return head, head.answering
    await _known(head, version)
    return head, await head.version(version)


# -- the application --------------------------------------------------------------------------------------------------

_HANDLERS = [calibrate, infer, feedback, list_heads, list_versions, promote, rollback, hold, release, reload]
_HANDLERS += [dashboard, docs, openapi, status, curves, told_metrics, server, healthy, model, model_ready]
_GROUPS = {"status": "dashboard", "curves": "dashboard", "docs": "dashboard", "": "dashboard", "v2": "health"}
_GROUPS |= dict.fromkeys(("rollback", "hold", "release", "reload", "heads"), "versions")


def make_app(settings: ServiceSettings) -> Litestar:
    """Return the application of one worker, which follows the store while it runs."""
    heads = ServedHeads(Store(settings.store), settings.head, log_event)
    inbox, people = Inbox(settings, heads), ServiceState(settings, heads)

    @asynccontextmanager
    async def following(_: Litestar) -> AsyncIterator[None]:
        task = asyncio.create_task(heads.follow(settings.poll_seconds))
        served = {name: head.current and head.current.name for name, head in heads.by_name.items()}
        log_event("worker started", versions=served)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        inbox.close()
        log_event("worker stopped")

    about = "Calibrated probabilities of ranking scores, by the current versions of a store."
    return Litestar(
        _HANDLERS,
        lifespan=[following],
        state=State({"settings": settings, "heads": heads, "inbox": inbox, "people": people}, deep_copy=False),
        exception_handlers={Exception: answer},
        request_max_body_size=settings.limits.body_bytes,
        response_headers={"x-content-type-options": "nosniff", "cache-control": "no-store"},
        openapi_config=OpenAPIConfig(
            "mcnet",
            __version__,
            description=about,
            use_handler_docstrings=True,
            components=Components(security_schemes={"token": SecurityScheme("http", scheme="bearer")}),
            render_plugins=[JsonRenderPlugin()],
        ),
        logging_config=None,
    )


def counted(app: ASGIApp) -> ASGIApp:
    """Return an application whose answers are counted before they are sent: whoever has one finds it in the metrics."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        begin = perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = str(scope.get("path_template", "/other")).removeprefix("/heads/{head:str}").split("/")
                group = "infer" if path[-1] == "infer" else _GROUPS.get(path[1] if path[1:] else "", path[-1])
                known = group if group in metrics.ROUTES else "versions" if "versions" in path else "other"
                metrics.answered(known, message["status"], perf_counter() - begin)
            await send(message)

        await app(scope, receive, sending if scope["type"] == "http" else send)

    return call
