"""JSON documents in files: written whole or not at all, with a checksum over their content."""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from mcnet._shared.atomic_files import flush, whole_file

__all__ = ["checksum", "write_json"]


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document's content, whatever its layout and order of keys; its own entry is left out.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1, "checksum": "sha256:…"})
    True
    """
    content = {key: value for key, value in document.items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write_json(
    path: str | PathLike[str], document: Mapping[str, Any], *, indent: int | None = None, durable: bool = False
) -> None:
    """Write a document to a file; numbers that are not finite are refused.

    Parameters
    ----------
    path, document, indent : the file, what it says, and how it is laid out.
    durable : return only when it would outlive a loss of power.
    """
    text = json.dumps(document, indent=indent, allow_nan=False)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
        if durable:
            flush(part)
    if durable:
        flush(Path(path).parent)
