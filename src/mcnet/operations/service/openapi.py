"""The description of the service as OpenAPI 3.1, and the pages for people: the dashboard and the list of requests."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from mcnet.operations.service.calibrate import ARROW
from mcnet.operations.service.feedback import SKETCH
from mcnet.operations.service.http import HTML, PROBLEM_TYPE, Response
from mcnet.operations.service.state import METRICS_TYPE
from mcnet.report.page import read_asset
from mcnet.version import __version__

__all__ = ["dashboard", "describe", "docs"]

# The description of the service as OpenAPI 3.1: `GET /openapi.json`, and as a page `GET /docs`.

Schema = dict[str, Any]

_NUMBER: Schema = {"type": "number"}
_NUMBERS: Schema = {"type": "array", "items": _NUMBER}
_ONE_OR_MANY: Schema = {"oneOf": [_NUMBER, _NUMBERS]}
_VALUE: Schema = {"type": ["string", "number", "boolean", "null"]}
_VALUES: Schema = {"type": "array", "items": _VALUE}
_SCORE_TYPE: Schema = {"type": "string", "enum": ["probability", "logit"]}
_BYTES: Schema = {"type": "string", "format": "binary"}


def _object(required: list[str], closed: bool = True, **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties, "required": required}
    return found | ({"additionalProperties": False} if closed else {})


_SCHEMAS: dict[str, Schema] = {
    "Columns": _object(
        ["score"],
        score=_ONE_OR_MANY,
        field={"type": ["object", "null"], "additionalProperties": {"anyOf": [_VALUE, _VALUES]}},
        score_type={"type": ["string", "null"], "enum": ["probability", "logit", None]},
        interval={"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ),
    "Record": {"type": "object", "properties": {"score": _NUMBER}, "required": ["score"]},
    "Records": {"type": "array", "items": {"$ref": "#/components/schemas/Record"}},
    "Calibrated": _object(
        ["calibrated", "version"],
        calibrated=_ONE_OR_MANY,
        version={"type": "string"},
        low=_ONE_OR_MANY,
        high=_ONE_OR_MANY,
    ),
    "Feedback": _object(
        ["score", "label", "period", "key"],
        score=_NUMBERS,
        label={"type": "array", "items": {"type": ["number", "boolean"]}},
        field={"type": ["object", "null"], "additionalProperties": _VALUES},
        weight={"oneOf": [_NUMBERS, {"type": "null"}]},
        period={"type": ["string", "integer", "null"]},
        key={"type": ["string", "null"], "maxLength": 200},
        age={"type": ["number", "null"], "minimum": 0},
        score_type={"type": ["string", "null"], "enum": ["probability", "logit", None]},
        allow={"oneOf": [{"type": "array", "items": {"enum": ["weight", "period"]}}, {"type": "null"}]},
    ),
    "Added": _object(
        ["rows", "period", "key", "known"],
        rows={"type": "integer"},
        period={"type": "string"},
        key={"type": "string"},
        known={"type": "boolean"},
    ),
    "Moved": _object(
        ["version", "workers", "held"],
        version={"type": "string"},
        workers={"type": "array", "items": {"type": "string"}},
        held={"type": "boolean"},
        late={"type": "integer", "description": "Workers that have not looked at the registry yet."},
    ),
    "Versions": _object(
        ["current", "served", "held", "versions", "damaged"],
        current={"type": ["string", "null"]},
        served={"type": "string"},
        held={"type": ["object", "null"]},
        versions={"type": "array", "items": {"type": "object"}},
        damaged={"type": "array", "items": {"type": "object"}},
    ),
    "Inference": _object(
        ["inputs"],
        closed=False,
        id={"type": ["string", "null"]},
        parameters={"type": "object"},
        inputs={
            "type": "array",
            "items": _object(
                ["name", "shape", "datatype"],
                closed=False,
                name={"type": "string"},
                shape={"type": "array", "items": {"type": "integer"}},
                datatype={"type": "string"},
                parameters={"type": "object"},
                data={"type": "array"},
            ),
        },
        outputs={"type": "array", "items": _object(["name"], closed=False, name={"type": "string"})},
    ),
    "Problem": _object(
        ["type", "title", "status", "detail"],
        closed=False,
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        at={"type": "string"},
    ),
}


def _schema(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _body(content: dict[str, Schema]) -> Schema:
    return {"required": True, "content": {kind: {"schema": schema} for kind, schema in content.items()}}


def _parameter(name: str, place: str, text: str, schema: Schema) -> Schema:
    return {"name": name, "in": place, "description": text, "required": place == "path", "schema": schema}


def _route(
    summary: str,
    description: str,
    answers: dict[str, tuple[str, dict[str, Schema]]],
    *,
    body: Schema | None = None,
    parameters: tuple[Schema, ...] = (),
    changes: bool = False,
    example: str = "",
) -> Schema:
    responses = {
        status: {"description": text, "content": {kind: {"schema": schema} for kind, schema in content.items()}}
        for status, (text, content) in answers.items()
    }
    responses["default"] = {
        "description": "What is wrong, where, and what to do.",
        "content": {PROBLEM_TYPE: {"schema": _schema("Problem")}},
    }
    found: Schema = {"summary": summary, "description": description, "responses": responses}
    if body is not None:
        found["requestBody"] = body
    if parameters:
        found["parameters"] = list(parameters)
    if changes:
        found["security"] = [{"token": []}]
    if example:
        found["x-example"] = example
    return found


def _answer(text: str, name: str | None = None) -> dict[str, tuple[str, dict[str, Schema]]]:
    return {"200": (text, {"application/json": _schema(name) if name else {"type": "object"}})}


_MOVED = {
    "200": ("What each worker serves.", {"application/json": _schema("Moved")}),
    "202": ("The pointer has moved; `late` workers follow when they answer again.",
            {"application/json": _schema("Moved")}),
}  # fmt: skip
_VERSION = _parameter("version", "path", "The number of a version.", {"type": "string"})
_NAME = _parameter("name", "path", "What the model is called (--name).", {"type": "string"})
_NOTE = _parameter("note", "query", "Why; goes into the history.", {"type": "string", "maxLength": 1000})
_INFER = {
    "body": _body({"application/json": _schema("Inference"), "application/octet-stream": _BYTES}),
    "answers": _answer("The probabilities, as tensors."),
}
_ROWS_IN_QUERY = (
    _parameter("interval", "query", "Arrow only: the level of the interval to add, as 0.9.", _NUMBER),
    _parameter("score_type", "query", "Arrow only: what the scores are.", _SCORE_TYPE),
)
_FEEDBACK_IN_QUERY = (
    _parameter("period", "query", "Streams and sketches: the period of the rows.", {"type": "string"}),
    _parameter("key", "query", "Streams and sketches: the key.", {"type": "string"}),
    _parameter("age", "query", "Streams and sketches: how many periods later the labels were counted.", _NUMBER),
    _parameter("score_type", "query", "Streams and sketches: what the scores are.", _SCORE_TYPE),
    _parameter("allow", "query", "Streams and sketches: implausible rows to add: weight, period.", {"type": "string"}),
    _parameter("Idempotency-Key", "header", "The key, instead of `key`.", {"type": "string", "maxLength": 200}),
)


def describe() -> Schema:
    """Return the description of every route."""
    paths: dict[str, Schema] = {
        "/calibrate": {
            "post": _route(
                "Calibrate scores",
                "Columns of rows, one row, a record, or a list of records; or an Arrow IPC stream with the columns "
                "score and one per field. A record has the score and every field of the model under its name; other "
                "keys are ignored and counted. All rows of an answer are from one version.",
                {
                    "200": (
                        "The probabilities, in the order of the rows.",
                        {"application/json": _schema("Calibrated"), ARROW: _BYTES},
                    )
                },
                body=_body(
                    {
                        "application/json": {"anyOf": [_schema(n) for n in ("Columns", "Record", "Records")]},
                        ARROW: _BYTES,
                    }
                ),
                parameters=_ROWS_IN_QUERY,
                example="""curl -d '{"score": [0.1], "field": {"country": ["NL"]}}' URL/calibrate""",
            )
        },
        "/feedback": {
            "post": _route(
                "Send labelled rows",
                "Rows with labels, or a saved sketch of them, for the journal. Answered when they are on disk; "
                "the same key and rows again change nothing.",
                {
                    "201": ("The rows were added.", {"application/json": _schema("Added")}),
                    "200": ("They were there already.", {"application/json": _schema("Added")}),
                },
                body=_body({"application/json": _schema("Feedback"), ARROW: _BYTES, SKETCH: _BYTES}),
                parameters=_FEEDBACK_IN_QUERY,
                changes=True,
                example="curl -H 'Authorization: Bearer TOKEN' -d @rows.json URL/feedback",
            )
        },
        "/versions": {"get": _route("List the versions", "Oldest first.", _answer("The versions.", "Versions"))},
        "/versions/{version}/promote": {
            "post": _route(
                "Serve another version",
                "Make a version the current one. Answered when every worker serves it. A version that is not the "
                "latest is held, as after a rollback.",
                _MOVED,
                parameters=(_VERSION, _NOTE),
                changes=True,
                example="curl -X POST -H 'Authorization: Bearer TOKEN' URL/versions/3/promote",
            )
        },
        "/rollback": {
            "post": _route(
                "Go back",
                "Make the version current that was current before, and hold it: updates publish nothing until it is "
                "released, or the latest version is promoted.",
                _MOVED,
                parameters=(_NOTE,),
                changes=True,
                example="curl -X POST -H 'Authorization: Bearer TOKEN' URL/rollback",
            )
        },
        "/hold": {
            "post": _route(
                "Keep the current version",
                "Updates learn and judge, but publish nothing until it is released, or the latest version is promoted.",
                _MOVED,
                parameters=(_NOTE,),
                changes=True,
                example="curl -X POST -H 'Authorization: Bearer TOKEN' URL/hold",
            )
        },
        "/release": {
            "post": _route(
                "Let updates publish again",
                "End the hold that a rollback, or the promotion of an older version, has set. The current version "
                "stays until an update publishes another one.",
                _MOVED,
                parameters=(_NOTE,),
                changes=True,
                example="curl -X POST -H 'Authorization: Bearer TOKEN' URL/release",
            )
        },
        "/reload": {
            "post": _route(
                "Look at the registry now",
                "Every worker looks at the pointer of the registry, instead of waiting for its next poll.",
                _MOVED,
                changes=True,
            )
        },
        "/status": {"get": _route("The state of the service", "What the dashboard shows.", _answer("The state."))},
        "/curves": {
            "get": _route(
                "The curves that are served",
                "The pooled curve and those of the largest contexts; with the name and value of every field in the "
                "query, the curve of that context with its 95 % interval.",
                _answer("The curves, as points."),
            )
        },
        "/metrics": {
            "get": _route(
                "Metrics for Prometheus",
                "Summed over all workers.",
                {"200": ("The metrics.", {METRICS_TYPE.partition(";")[0]: {"type": "string"}})},
            )
        },
        "/v2": {"get": _route("The server", "Open Inference Protocol.", _answer("Name, version, extensions."))},
        "/v2/health/live": {"get": _route("Does it live?", "Open Inference Protocol.", _answer("It does."))},
        "/v2/health/ready": {"get": _route("Is it ready?", "Open Inference Protocol.", _answer("It is."))},
    }
    for version in (False, True):
        path = "/v2/models/{name}" + ("/versions/{version}" if version else "")
        parts = (_NAME, _VERSION) if version else (_NAME,)
        what = "A version" if version else "The model"
        paths[path] = {
            "get": _route(what, "Open Inference Protocol.", _answer("Inputs and outputs."), parameters=parts)
        }
        paths[f"{path}/ready"] = {
            "get": _route(f"{what}: ready?", "Open Inference Protocol.", _answer("It is."), parameters=parts)
        }
        paths[f"{path}/infer"] = {
            "post": _route(
                f"{what}: infer",
                "Open Inference Protocol, with its binary tensors. Inputs are score and one per field; outputs are "
                "calibrated, and low and high if they are asked for.",
                _INFER["answers"],
                body=_INFER["body"],
                parameters=parts,
            )
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mcnet",
            "version": __version__,
            "description": "Calibrated probabilities of ranking scores, by the current version of a registry.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


# The pages for people: the dashboard at `/`, and the list of requests at `/docs`. Both load nothing from elsewhere.

_DOCS_STYLE = """
pre { background: var(--raised); padding: .7rem .9rem; border-radius: .5rem; overflow-x: auto; font-size: .85rem; }
h2 code { font-size: 1.05rem; overflow-wrap: anywhere; } a { color: var(--accent); }
"""


def _asset(name: str) -> str:
    return files("mcnet.operations.service").joinpath(name).read_text(encoding="utf-8")


def _page(content: str, style: str, script: str = "") -> Response:
    """Return a page that may run its own script and style, talk to its own service, and nothing else."""
    allowed = {"style-src": style, "script-src": script}
    hashes = [
        f"{name} 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for name, text in allowed.items()
        if text
    ]
    rest = ("default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'")
    policy = "; ".join([*rest, "frame-ancestors 'none'", *hashes])
    return Response(200, [*HTML, ("content-security-policy", policy)], content.encode())


@cache
def dashboard() -> Response:
    """Return the dashboard; it asks for the state of the service itself."""
    style, script = read_asset("page.css") + _asset("dashboard.css"), _asset("dashboard.js")
    page = _asset("dashboard.html").replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    return _page(page, style, script)


@cache
def docs() -> Response:
    """Return the list of requests, made from the same description as openapi.json."""
    style = read_asset("page.css") + _DOCS_STYLE
    described = describe()
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_asset("docs.html.j2"))
    page = template.render(
        info=described["info"], paths=described["paths"], schemas=described["components"]["schemas"], style=style
    )
    return _page(page, style)
