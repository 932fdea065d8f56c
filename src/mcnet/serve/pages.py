"""The pages for people: the dashboard at `/`, and the list of requests at `/docs`. Both load nothing from elsewhere."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from mcnet.report.assets import read_asset
from mcnet.serve.openapi import describe
from mcnet.serve.request import HTML, Response

__all__ = ["dashboard", "docs"]

_DOCS_STYLE = """
pre { background: var(--raised); padding: .7rem .9rem; border-radius: .5rem; overflow-x: auto; font-size: .85rem; }
h2 code { font-size: 1.05rem; overflow-wrap: anywhere; } a { color: var(--accent); }
"""


def _asset(name: str) -> str:
    return files("mcnet.serve").joinpath(name).read_text(encoding="utf-8")


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
