"""The description of the service as OpenAPI 3.1, made of its operations, and the pages: dashboard and requests."""

import asyncio
import base64
import hashlib
import inspect
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined
from starlette.responses import Response

from mcnet.operations.service.endpoints import (
    JSON_TYPE,
    OPERATIONS,
    PROBLEM_TYPE,
    Call,
    Json,
    Operation,
    Service,
    of_heads,
    operation,
)
from mcnet.operations.service.problems import ProblemDetails
from mcnet.report.page import read_asset
from mcnet.report.status_page import status_html
from mcnet.version import __version__

Schema = dict[str, Any]

_IN_PATHS = {
    "head": "The name of a head; paths without it are for the only or the default one.",
    "version": "The number of a version.",
    "name": "The name of a head, or what the default one is called (--name).",
}


@cache
def description() -> Schema:
    """Return the description of every operation: its words are those of its handler, its forms those of the types."""
    kinds = {kind for one in OPERATIONS for kind in (*one.body, *one.answers) if not isinstance(kind, str)}
    listed = sorted(kinds | {ProblemDetails}, key=str)
    made, components = msgspec.json.schema_components(listed, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(listed, made, strict=True))
    paths: dict[str, Schema] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, schemas)
    about = "Calibrated probabilities of ranking scores, by the current versions of a store."
    return {
        "openapi": "3.1.0",
        "info": {"title": "mcnet", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _described(one: Operation, schemas: dict[Any, Schema]) -> Schema:
    problem = {PROBLEM_TYPE: {"schema": schemas[ProblemDetails]}}
    answer = {"description": "What was asked for.", "content": _content(one.answers, schemas)}
    described: Schema = {
        "description": " ".join((inspect.getdoc(one.handler) or "").split()),
        "parameters": [_in_path(name) for name in re.findall(r"{(\w+)}", one.path)] + _in_query(one.query),
        "responses": {str(status): answer for status in one.status}
        | {"default": {"description": inspect.getdoc(ProblemDetails), "content": problem}},
    }
    if one.body:
        described["requestBody"] = {"required": True, "content": _content(one.body, schemas)}
    if one.changes:
        described["security"] = [{"token": []}]
    return described


def _content(kinds: Iterable[Any], schemas: dict[Any, Schema]) -> Schema:
    forms = [schemas[kind] for kind in kinds if not isinstance(kind, str)]
    content: Schema = {JSON_TYPE: {"schema": forms[0] if len(forms) == 1 else {"anyOf": forms}}} if forms else {}
    for kind in kinds:
        if isinstance(kind, str):
            content[kind] = {"schema": {"type": "string"} | ({} if kind.startswith("text/") else {"format": "binary"})}
    return content


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "description": _IN_PATHS[name], "required": True, "schema": {"type": "string"}}


def _in_query(kind: Any) -> list[Schema]:
    (_, components) = msgspec.json.schema_components([kind])
    known = components[kind.__name__]["properties"] if components else {}
    return [
        {"name": name, "in": "query", "description": schema.pop("description"), "schema": schema}
        for name, schema in known.items()
    ]


@operation("GET", "/openapi.json", group="dashboard")
async def described(service: Service, call: Call) -> Response:
    """Describe the service for programs: OpenAPI 3.1."""
    return Json(description())


# The pages for people. They load nothing from elsewhere.

_DOCS_STYLE = """
pre { background: var(--raised); padding: .7rem .9rem; border-radius: .5rem; overflow-x: auto; font-size: .85rem; }
h2 code { font-size: 1.05rem; overflow-wrap: anywhere; } a { color: var(--accent); }
"""


@operation("GET", *of_heads("/"), group="dashboard", answers=("text/html",))
async def dashboard(service: Service, call: Call) -> Response:
    """Show the dashboard: what is served, how well it is calibrated, the versions, and buttons that change them."""
    style, script = read_asset("page.css") + read_asset("status.css"), _asset("dashboard.js")
    status = await asyncio.to_thread(service.people.document, call.served_head(service))
    root = "../../" if "head" in call.path_params else ""
    return _page(await asyncio.to_thread(status_html, status, style, script, root), style, script)


@operation("GET", "/docs", group="dashboard", answers=("text/html",))
async def docs(service: Service, call: Call) -> Response:
    """List the requests: this page."""
    known, style = description(), read_asset("page.css") + _DOCS_STYLE
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_asset("docs.html.j2"))
    forms = known["components"]["schemas"]
    return _page(template.render(info=known["info"], paths=known["paths"], schemas=forms, style=style), style)


@cache
def _asset(name: str) -> str:
    return files("mcnet.operations.service").joinpath(name).read_text(encoding="utf-8")


def _page(content: str, style: str, script: str = "") -> Response:
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
