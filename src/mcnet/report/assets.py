"""The parts that are embedded in the page: Plotly's library, style, script, and compressed data."""

import base64
import gzip
import json
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

__all__ = ["packed_data", "packed_plotly", "read_asset", "template"]


def read_asset(name: str) -> str:
    """Return a text file of this package."""
    return files("mcnet.report").joinpath(name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Return a template of a page; what it puts into the page is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(read_asset(name))


@cache
def packed_plotly() -> str:
    """Return Plotly's JavaScript from its Python package, compressed.

    The bundle has 4.8 MB; compressed it has 2 MB, and any browser since 2023 can decompress it.
    """
    return _packed(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes())


def packed_data(data: Any) -> str:
    """Return data as compressed JSON."""
    return _packed(json.dumps(data, separators=(",", ":"), allow_nan=False).encode())


def _packed(content: bytes) -> str:
    # No time stamp: the same content gives the same page.
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode("ascii")
