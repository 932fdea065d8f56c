"""The parts that are embedded in the page: Plotly's library, style, script, and compressed data."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from mcnet.plots.style import Difference, Rows, ThereAndBack

__all__ = ["packed_data", "packed_plotly", "read_asset", "template"]

_SHORTEST_COLUMN = 8
_SHORTEST_OBJECT = 24


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
    """Return data as compressed JSON, with every column and every object that occurs more than once stored once.

    A column is a list of eight or more numbers or strings. Methods and views share many of them (the scores, the rows
    before calibration, the periods), and intervals are in a figure twice, as bars and as words. `unpack.js` puts them
    back: {"c": 3} is column 3, {"d": [3, 4]} the difference of two, {"b": [3, 4]} one and then the other backwards,
    {"r": […]} the rows of several, {"s": 5} the shared object 5.
    """
    columns: dict[str, int] = {}
    slim = _with_columns(data, columns)
    uses: Counter[str] = Counter()
    _count_objects(slim, uses)
    shared: dict[str, int] = {}
    parts: list[Any] = []

    def sharing(part: Any) -> Any:
        if isinstance(part, list):
            return [sharing(entry) for entry in part]
        if not isinstance(part, dict):
            return part
        key = _json(part)
        if uses[key] < 2:
            return {name: sharing(entry) for name, entry in part.items()}
        if key not in shared:
            parts.append({name: sharing(entry) for name, entry in part.items()})
            shared[key] = len(parts) - 1
        return {"s": shared[key]}

    rest = sharing(slim)
    return _packed(f'{{"columns":[{",".join(columns)}],"shared":{_json(parts)},"data":{_json(rest)}}}'.encode())


def _with_columns(part: Any, columns: dict[str, int]) -> Any:
    """Return a part of the data with its columns replaced by their numbers, and add them to `columns`."""

    def number(values: Sequence[Any]) -> int:
        return columns.setdefault(_json(list(values)), len(columns))

    if isinstance(part, Difference | ThereAndBack | Rows):
        letter = {Difference: "d", ThereAndBack: "b", Rows: "r"}[type(part)]
        return {letter: [number(values) for values in part.columns]}
    if isinstance(part, dict):
        return {name: _with_columns(entry, columns) for name, entry in part.items()}
    if not isinstance(part, list):
        return part
    if len(part) >= _SHORTEST_COLUMN and not any(isinstance(entry, dict | list) for entry in part):
        return {"c": number(part)}
    return [_with_columns(entry, columns) for entry in part]


def _count_objects(part: Any, uses: "Counter[str]") -> None:
    """Count how often each object occurs that is long enough to be worth a reference."""
    for entry in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _count_objects(entry, uses)
    if isinstance(part, dict):
        key = _json(part)
        if len(key) >= _SHORTEST_OBJECT:
            uses[key] += 1


def _json(part: Any) -> str:
    return json.dumps(part, separators=(",", ":"), allow_nan=False)


def _packed(content: bytes) -> str:
    # No time stamp: the same content gives the same page.
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
