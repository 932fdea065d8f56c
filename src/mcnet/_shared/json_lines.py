"""A file that grows by one line of JSON at a time, and stays readable if its writer is killed."""

import json
import math
import os
from pathlib import Path
from typing import Any

__all__ = ["append_json_line", "finite", "last_json_lines", "read_json_lines"]

_TAIL_BYTES = 1 << 18


def finite(value: Any) -> Any:
    """Return values as JSON has them: None for numbers that are not finite, lists for tuples.

    >>> finite({"low": float("-inf"), "periods": ("mon", "tue")})
    {'low': None, 'periods': ['mon', 'tue']}
    """
    if isinstance(value, dict):
        return {str(name): finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append_json_line(path: Path, document: dict[str, Any]) -> None:
    """Append one line and bring it to the disk; part of a line that a killed writer has left is taken away first.

    One writer at a time: whoever calls this holds a lock.
    """
    line = (json.dumps(document, allow_nan=False) + "\n").encode()
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        end = _end_of_whole_lines(handle)
        os.ftruncate(handle, end)
        while line:
            written = os.pwrite(handle, line, end)
            line, end = line[written:], end + written
        os.fsync(handle)
    finally:
        os.close(handle)


def _end_of_whole_lines(handle: int) -> int:
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - _TAIL_BYTES)
        last = os.pread(handle, end - start, start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return every whole line, oldest first; none if there is no such file."""
    try:
        return _parsed(path.read_bytes())
    except FileNotFoundError:
        return []


def last_json_lines(path: Path, number: int) -> list[dict[str, Any]]:
    """Return the last whole lines, oldest first, without reading more of a long file than the end of it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            tail = _TAIL_BYTES
            while True:
                file.seek(max(0, size - tail))
                content = file.read()
                if tail < size:  # the first line may have lost its beginning
                    content = content[content.find(b"\n") + 1 :]
                if tail >= size or content.count(b"\n") >= number:
                    return _parsed(content)[-number:]
                tail *= 4
    except FileNotFoundError:
        return []


def _parsed(content: bytes) -> list[dict[str, Any]]:
    found = []
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue  # damaged by something else; the other lines are as good as ever
        if isinstance(document, dict):
            found.append(document)
    return found
