"""Parameters of a method from words like `bins=10`."""

import json
from collections.abc import Sequence
from typing import Any

from mcnet.errors import InputError

__all__ = ["parse_parameters"]


def parse_parameters(words: Sequence[str] | None) -> dict[str, Any]:
    """Return NAME=VALUE words as a mapping; values are numbers, true, false, null or lists if they read so, else text.

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
        try:
            found[name.strip()] = json.loads(text)
        except json.JSONDecodeError:
            found[name.strip()] = text
    return found
