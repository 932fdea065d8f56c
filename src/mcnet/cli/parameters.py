"""Parameters of a method from words like `bins=10`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from mcnet.errors import InputError

__all__ = ["parse_parameters"]


def _as_json(_: str, text: str) -> Any:
    """Return a number, true, false, null or a list if the text reads so, else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def parse_parameters(words: Sequence[str] | None, read: Callable[[str, str], Any] = _as_json) -> dict[str, Any]:
    """Return NAME=VALUE words as a mapping; `read` makes a value of a name and its text.

    >>> parse_parameters(["bins=10", "inner=platt", "smooth_targets=true"])
    {'bins': 10, 'inner': 'platt', 'smooth_targets': True}
    """
    found: dict[str, Any] = {}
    for word in words or ():
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {word!r} is not NAME=VALUE, as in --set bins=10")
        if name.strip() in found:
            raise InputError(f"--set gives {name.strip()!r} twice; give it once")
        found[name.strip()] = read(name.strip(), text)
    return found
