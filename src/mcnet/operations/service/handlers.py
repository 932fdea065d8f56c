"""What answers each request: thin functions, whose docstrings describe them to clients."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from mcnet.errors import BusyError, InputError, McnetError, StoreUnavailableError, in_words
from mcnet.operations.service import metrics
from mcnet.operations.service.arrow import ARROW
from mcnet.operations.service.calibrate import Answer, Question, Record, answer_arrow, answer_json
from mcnet.operations.service.endpoints import JSON_TYPE, Call, Json, Service, of_heads, operation
from mcnet.operations.service.feedback import SKETCH, About, Feedback, Sent, Taken
from mcnet.operations.service.inference import Inference, answer_inference, model_metadata, server_metadata
from mcnet.operations.service.problems import RETRY, Problem
from mcnet.operations.service.served import Served, ServedVersions
from mcnet.operations.service.settings import LARGE_BODY, log_event
from mcnet.store.versions import Registry, Version
from mcnet.version import __version__

_EVERYWHERE_SECONDS = 10.0
"""How long a change waits for the other workers to serve it."""


class RowsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a request with Arrow; JSON has them in the body."""

    interval: Annotated[float | None, msgspec.Meta(description="Arrow only: the level of the interval to add.")] = None
    score_type: Annotated[
        Literal["probability", "logit"] | None, msgspec.Meta(description="Arrow only: what the scores are.")
    ] = None


class Note(msgspec.Struct, forbid_unknown_fields=True):
    """Why something is changed."""

    note: Annotated[str, msgspec.Meta(max_length=1000, description="Why; goes into the history.")] = ""


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
    """The versions of a head."""

    current: str | None
    served: str | None
    held: dict[str, Any] | None
    versions: list[dict[str, Any]]


# Predictions.


@operation(
    "POST",
    *of_heads("/calibrate"),
    group="calibrate",
    query=RowsQuery,
    body=(Question, list[Record], ARROW),
    answers=(Answer, ARROW),
)
async def calibrate(service: Service, call: Call) -> Response:
    """Calibrate scores: columns of rows, or records; or an Arrow IPC stream with the columns score and one per field.

    A record has the score and every field of the model under its name; other keys are ignored and counted. All rows
    of an answer are from one version.
    """
    head, body, kind = call.served_head(service), call.content, call.media_type(ARROW)
    served, most = head.answering, service.settings.limits.rows
    work: Callable[[], bytes] = partial(answer_json, served, body, most, head.numbers)
    if kind == ARROW:
        work = partial(answer_arrow, served, body, most, head.numbers, call.query.score_type, call.query.interval)
    elif call.scope["query_string"]:
        raise Problem(400, "the query is for Arrow; in JSON interval and score_type are in the body", at="query")
    found = await asyncio.to_thread(work) if len(body) > LARGE_BODY else work()
    return Response(found, media_type=kind, headers={"mcnet-version": served.name} if kind == ARROW else None)


_MODEL = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


@operation("POST", *(f"{path}/infer" for path in _MODEL), group="infer", body=(Inference,))
async def infer(service: Service, call: Call) -> Response:
    """Infer by the Open Inference Protocol, with tensors in JSON.

    Inputs are score and one per field; outputs are calibrated, and low and high if they are asked for.
    """
    head, served = await _named(service, call)
    call.media_type()
    if "inference-header-content-length" in call.headers:
        raise Problem(400, "binary tensors are not read here; send them as JSON (binary_data=False), or use Arrow")
    name, most = call.path_params["name"], service.settings.limits.rows
    work = partial(answer_inference, served, name, call.content, most, head.numbers)
    found = await asyncio.to_thread(work) if len(call.content) > LARGE_BODY else work()
    return Response(found, media_type=JSON_TYPE)


# Feedback.


@operation(
    "POST",
    *of_heads("/feedback"),
    group="feedback",
    query=About,
    body=(Feedback, ARROW, SKETCH),
    answers=(Taken,),
    status=(200, 201),
    changes=True,
)
async def feedback(service: Service, call: Call) -> Response:
    """Send rows with labels, or a saved sketch of them, for the journal; answered when they are on disk.

    The same key and rows again change nothing. The key may be in the header Idempotency-Key, too.
    """
    kind = call.media_type(ARROW, SKETCH)
    sent = Sent(call.content, kind, call.query, call.headers.get("idempotency-key", ""))
    taken = await service.inbox.take(sent, call.served_head(service))
    return Json(taken, 200 if taken.known else 201)


# Versions.


@operation("GET", "/heads", group="versions", answers=(list[HeadAbout],))
async def list_heads(service: Service, call: Call) -> Response:
    """List every model of the store by its name, with the version that is served."""
    heads, default = service.heads.by_name, service.heads.default
    named = {name: None if head.current is None else head.current.name for name, head in heads.items()}
    return Json([HeadAbout(name, version, name == default) for name, version in named.items()])


@operation("GET", *of_heads("/versions"), group="versions", answers=(Versions,))
async def list_versions(service: Service, call: Call) -> Response:
    """List the versions of a head, oldest first."""
    versions = await asyncio.to_thread(_versions, call.served_head(service))
    return Json(service.people.told(msgspec.to_builtins(versions)))


def _versions(head: ServedVersions) -> Versions:
    registry = head.registry
    told = ("added", "method", "fields", "rows", "note", "digest")
    current, held = registry.current_number, registry.held
    return Versions(
        None if current is None else str(current),
        None if head.current is None else head.current.name,
        None if held is None else asdict(held),
        [{"version": version.name, **{name: getattr(version, name) for name in told}} for version in registry.versions],
    )


_change = partial(operation, "POST", group="versions", answers=(Moved,), status=(200, 202), changes=True)


@_change(*of_heads("/versions/{version}/promote"), query=Note)
async def promote(service: Service, call: Call) -> Response:
    """Make a version the current one, and answer when every worker serves it; one that is not the latest is held."""
    version = call.path_params["version"]
    await _known(call.served_head(service), version)
    return await _move(service, call, "promoted", Registry.promote, version)


@_change(*of_heads("/rollback"), query=Note)
async def rollback(service: Service, call: Call) -> Response:
    """Go back to the version that was current before, and hold it."""
    return await _move(service, call, "rolled back", Registry.rollback)


@_change(*of_heads("/hold"), query=Note)
async def hold(service: Service, call: Call) -> Response:
    """Keep the current version: updates publish nothing until it is released, or the latest version is promoted."""
    return await _move(service, call, "held", Registry.hold)


@_change(*of_heads("/release"), query=Note)
async def release(service: Service, call: Call) -> Response:
    """Let updates publish again; the current version stays until one does."""
    return await _move(service, call, "released", Registry.release)


@_change(*of_heads("/reload"))
async def reload(service: Service, call: Call) -> Response:
    """Let every worker look at the store now, instead of waiting for its next poll."""
    return await _moved(service, call.served_head(service), None)


async def _move(service: Service, call: Call, event: str, act: Callable[..., Any], *words: str) -> Response:
    """Change the versions of a head; say what is current if the disk is full or cannot be written to."""
    head, note = call.served_head(service), call.query.note
    if not note.isprintable():
        raise Problem(400, "the note has characters that cannot be printed; write it in one line of plain text")
    try:
        done = await asyncio.to_thread(act, head.registry, *words, note)
    except InputError as error:  # it takes other requests than the current version, or there is none before it
        raise Problem(409, in_words(error, "service")) from None
    except (OSError, StoreUnavailableError, BusyError) as error:
        service.heads.count_error(error)
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"the store cannot be written ({error.strerror or type(error).__name__})"
        raise Problem(503, f"{reason}; {await asyncio.to_thread(_pointed, head)}", headers=RETRY) from None
    chosen = {"version": done.name} if isinstance(done, Version) else {}
    log_event(event, head=head.name, **chosen, note=note)
    return await _moved(service, head, chosen.get("version"))


async def _moved(service: Service, head: ServedVersions, wanted: str | None) -> Response:
    served, late = await service.heads.everywhere(head, _EVERYWHERE_SECONDS)
    current = "none" if head.current is None else head.current.name
    if head.refused is not None:
        reason = f"the current version of {head.name} was refused, and {current} serves on: "
        raise Problem(409, reason + head.refused["reason"])
    return Json(Moved(wanted or current, served, head.held is not None, late), 202 if late else 200)


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


# The state, for programs; `pages` has it for people.


@operation("GET", *of_heads("/status"), group="dashboard")
async def status(service: Service, call: Call) -> Response:
    """Tell the state of a head: what the dashboard and the page of `mcnet update --status` show."""
    return Json(await asyncio.to_thread(service.people.document, call.served_head(service)))


@operation("GET", *of_heads("/curves"), group="dashboard", query=dict[str, str])
async def curves(service: Service, call: Call) -> Response:
    """Tell the curves that are served, as points: the pooled one and those of the largest contexts.

    With the name and value of every field in the query: the curve of that context with its 95 % interval.
    """
    served = call.served_head(service).answering
    return Json(await asyncio.to_thread(service.people.curves, served, call.query))


# Health.


@operation("GET", "/metrics", group="metrics", answers=("text/plain",))
async def told_metrics(service: Service, call: Call) -> Response:
    """Tell metrics for Prometheus, summed over all workers."""
    statuses = await asyncio.to_thread(service.people.loop_statuses)
    told = await asyncio.to_thread(metrics.metrics_text, service.heads, statuses)
    return Response(told, media_type="text/plain; version=0.0.4; charset=utf-8")


@operation("GET", "/v2", group="health")
async def server(service: Service, call: Call) -> Response:
    """Tell what this server is."""
    return Json(server_metadata(__version__))


@operation("GET", "/v2/health/live", group="health")
async def live(service: Service, call: Call) -> Response:
    """Say that this process lives."""
    return Json({"live": True})


@operation("GET", "/v2/health/ready", group="health", status=(200, 503))
async def ready(service: Service, call: Call) -> Response:
    """Say whether this process can answer: once it has read the store, also while the store is gone."""
    is_ready = service.heads.has_read
    return Json({"ready": is_ready}, 200 if is_ready else 503)


@operation("GET", *_MODEL, group="health")
async def model(service: Service, call: Call) -> Response:
    """Tell what the model takes and gives."""
    head, served = await _named(service, call)
    numbers = await asyncio.to_thread(lambda: head.registry.numbers)
    return Json(model_metadata(served, call.path_params["name"], list(map(str, numbers))))


@operation("GET", *(f"{path}/ready" for path in _MODEL), group="health")
async def model_ready(service: Service, call: Call) -> Response:
    """Say that the model, or a version of it, is ready."""
    _, served = await _named(service, call)
    return Json({"name": call.path_params["name"], "version": served.name, "ready": True})


async def _named(service: Service, call: Call) -> tuple[ServedVersions, Served]:
    """Return the head and the version that a path of the Open Inference Protocol names."""
    name, version = call.path_params["name"], call.path_params.get("version")
    head = service.heads.by_name.get(name)
    if head is None:
        if name != service.settings.name:
            listed = ", ".join([*service.heads.by_name, service.settings.name])
            raise Problem(404, f"there is no such model; there are {listed}")
        head = service.heads.head()
    if version is None:
        return head, head.answering
    await _known(head, version)
    return head, await head.version(version)
