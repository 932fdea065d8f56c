"""Standard output and object stores: their settings, and what can be written to them."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcnet.errors import InputError

__all__ = ["STANDARD_OUTPUT", "storage_settings", "url_exists", "write_to_standard_output"]

STANDARD_OUTPUT = "-"


def storage_settings(typed: Sequence[str]) -> dict[str, str]:
    """Return settings that were typed as KEY=VALUE.

    >>> storage_settings(["aws_region=eu-west-1"])
    {'aws_region': 'eu-west-1'}
    """
    settings = {}
    for setting in typed:
        key, sign, value = setting.partition("=")
        if not sign or not key:
            raise InputError(f"--storage-option is KEY=VALUE, as in aws_region=eu-west-1, and not {setting!r}")
        settings[key] = value
    return settings


def url_exists(url: str) -> bool:
    """Tell whether there is something at an address of an object store; if in doubt, there is."""
    from mcnet.data.files import open_log

    try:
        open_log(url).collect_schema()
    except Exception as error:  # Polars has many kinds; only "there is none" makes the address free
        return not any(words in str(error).lower() for words in ("not found", "expanded paths were empty", "404"))
    return True


def write_to_standard_output(write: Callable[[Path], Any], ending: str) -> Any:
    """Let a file be written as a whole, then pass it on to standard output; return what the function returned."""
    if sys.stdout.isatty() and ending in (".parquet", ".arrow"):
        raise InputError(f"stdout is a terminal, and {ending[1:]} is not for reading; pipe it on, or name a file")
    with tempfile.TemporaryDirectory(prefix="mcnet-") as folder:
        target = Path(folder) / f"output{ending}"
        result = write(target)
        with target.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    return result
