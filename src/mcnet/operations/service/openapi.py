"""The description of the service as OpenAPI 3.1, made of its routes, and the pages: dashboard and list of requests."""

import base64
import hashlib
import inspect
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from jinja2 import Environment, StrictUndefined

from mcnet.operations.service.http import HTML, PROBLEM_TYPE, ProblemDetails, Response, Route
from mcnet.report.monitor_page import status_html
from mcnet.report.page import read_asset
from mcnet.version import __version__

# The description of the service as OpenAPI 3.1: `GET /openapi.json`, and as a page `GET /docs`.

Schema = dict[str, Any]

_TOKEN = "-H 'Authorization: Bearer TOKEN'"

_PARAMETERS: dict[str, tuple[str, str, Any]] = {
    "head": ("path", "The name of a head; paths without it are for the only or the default one.", str),
    "version": ("path", "The number of a version.", str),
    "name": ("path", "The name of a head, or what the default one is called (--name).", str),
    "note": ("query", "Why; goes into the history.", Annotated[str, msgspec.Meta(max_length=1000)]),
    "interval": ("query", "Arrow only: the level of the interval to add, as 0.9.", float),
    "score_type": ("query", "Arrow and sketches: what the scores are.", Literal["probability", "logit"]),
    "period": ("query", "Arrow and sketches: the period of the rows.", str),
    "key": ("query", "Arrow and sketches: the key.", str),
    "age": ("query", "Arrow and sketches: how many periods later the labels were counted.", float),
    "allow": ("query", "Arrow and sketches: implausible rows to add: weight, period.", str),
    "Idempotency-Key": ("header", "The key, instead of `key`.", Annotated[str, msgspec.Meta(max_length=200)]),
}
"""Where a parameter is, what it is, and its type."""


def describe(routes: Sequence[Route]) -> Schema:
    """Return the description of every route: its words are those of its handler, its forms those of the types."""
    named = {kind for route in routes for what in (*route.body, *route.answers.values()) for kind in _types(what)}
    kinds = sorted(named | {ProblemDetails}, key=str)
    made, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, made, strict=True))
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _described(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mcnet",
            "version": __version__,
            "description": "Calibrated probabilities of ranking scores, by the current versions of a store.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(route: Route, schemas: dict[Any, Schema]) -> Schema:
    summary, _, more = (inspect.getdoc(route.handler) or "").partition("\n\n")
    if not summary or not more:
        raise ValueError(f"{route.method} {route.path} is not described: its handler needs a docstring of two parts")
    responses = {
        str(status): {"description": "What was asked for.", "content": _content(what, schemas)}
        for status, what in route.answers.items()
    }
    problem = {PROBLEM_TYPE: {"schema": schemas[ProblemDetails]}}
    responses["default"] = {"description": inspect.getdoc(ProblemDetails) or "", "content": problem}
    method = "" if route.method == "GET" else "-X POST" if not route.body else ""
    words = ("curl", method, _TOKEN if route.changes else "", route.example, f"URL{route.path}")
    described: Schema = {
        "summary": summary.rstrip("."),
        "description": " ".join(more.split()),
        "responses": responses,
        "x-example": " ".join(filter(None, words)),
    }
    if route.body:
        described["requestBody"] = {"required": True, "content": _content(route.body, schemas)}
    if names := [*re.findall(r"{(\w+)}", route.path), *route.parameters]:
        described["parameters"] = [_parameter(name) for name in names]
    if route.changes:
        described["security"] = [{"token": []}]
    return described


def _types(what: Any) -> list[Any]:
    """Return the types among what a body or an answer may be; the others are names of media types."""
    return [kind for kind in (what if isinstance(what, tuple) else (what,)) if not isinstance(kind, str)]


def _content(what: Any, schemas: dict[Any, Schema]) -> Schema:
    forms = [schemas[kind] for kind in _types(what)]
    content = {"application/json": {"schema": forms[0] if len(forms) == 1 else {"anyOf": forms}}} if forms else {}
    for kind in what if isinstance(what, tuple) else (what,):
        if isinstance(kind, str):
            content[kind] = {"schema": {"type": "string"} | ({} if kind.startswith("text/") else {"format": "binary"})}
    return content


def _parameter(name: str) -> Schema:
    where, description, kind = _PARAMETERS[name]
    schema = msgspec.json.schema(kind)
    return {"name": name, "in": where, "description": description, "required": where == "path", "schema": schema}


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


def dashboard(status: dict[str, Any], root: str) -> Response:
    """Return the page of the state, which refreshes itself and has buttons that change versions.

    Parameters
    ----------
    status : the document that `GET /status` answers.
    root : the way from this page to the others.
    """
    style, script = _dashboard_assets()
    return _page(status_html(status, style, script, root), style, script)


@cache
def _dashboard_assets() -> tuple[str, str]:
    return read_asset("page.css") + read_asset("status.css"), _asset("dashboard.js")


def docs(described: Schema) -> Response:
    """Return the list of requests, made from the description of the service."""
    style = read_asset("page.css") + _DOCS_STYLE
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_asset("docs.html.j2"))
    page = template.render(
        info=described["info"], paths=described["paths"], schemas=described["components"]["schemas"], style=style
    )
    return _page(page, style)
