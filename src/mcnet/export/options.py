"""The options of the exports: what kind of value each takes, checked once for all of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mcnet.errors import InputError

__all__ = ["check_options", "option_from_text"]

_TEXTS = ("dialect", "form", "format", "name", "output", "number_type", "score", "score_type")
_TABLES = ("source", "tables")
_COLUMNS = ("fields", "field_type")
_OPTIONAL = ("fields", "format", "score", "score_type")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse values of the wrong kind; which texts an option knows is for its export to say.

    >>> check_options({"missing_number": "none"})
    Traceback (most recent call last):
    mcnet.errors.InputError: missing_number is 'none'; it must be a whole number of 64 bits, such as -1
    """
    for name, value in options.items():
        if value is None and name in _OPTIONAL:
            continue
        wanted = _wanted(name, value)
        if wanted is not None:
            raise InputError(f"{name} is {value!r}; it must be {wanted}")


def option_from_text(name: str, text: str) -> Any:
    """Return an option that was typed: a number, a list or a mapping only where the option can be one.

    >>> option_from_text("missing", "7"), option_from_text("missing_number", "7")
    ('7', 7)
    """
    kinds = {"missing_number": int, **dict.fromkeys(_TABLES, list), **dict.fromkeys(_COLUMNS, dict)}
    if name not in kinds:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, kinds[name]) else text


def _wanted(name: str, value: Any) -> str | None:
    """Return what an option should be, None if it is that."""
    if name == "missing_number":
        whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        return None if whole else "a whole number of 64 bits, such as -1"
    if name == "missing":  # the empty text may stand for a missing value
        return None if isinstance(value, str) else "a text"
    if name in _TEXTS:
        return None if _is_text(value) else "a text that is not empty"
    if name in _TABLES:
        parts = isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_is_text, value))
        return None if _is_text(value) or (parts and len(value)) else 'a name, as in "table" or "schema.table"'
    if name not in _COLUMNS:
        return None  # an option of one target, which checks it
    if name == "field_type" and _is_text(value):
        return None
    texts = isinstance(value, Mapping) and all(_is_text(v) and isinstance(k, str) for k, v in value.items())
    if texts:
        return None
    example = '{"country": "int64"}' if name == "field_type" else '{"country": "country_code"}'
    return f"{'a text, or ' if name == 'field_type' else ''}a mapping of fields, as in {example}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
