"""Paths on a disk, distinguished from addresses in an object store or on a web server."""

import re
from os import PathLike, fspath
from pathlib import Path

from mcnet.errors import InputError

__all__ = ["disk_path", "is_url", "local_path"]

# A Path of an address has one slash where the address had two.
_URL = re.compile(r"(?:s3|s3a|gs|gcs|az|azure|abfs|abfss|adl|http|https|hf):/{1,2}[^/]")

_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)")


def is_url(path: str | PathLike[str]) -> bool:
    """Tell whether this is an address in an object store or on a web server.

    >>> is_url("s3://bucket/log.parquet"), is_url("log.parquet")
    (True, False)
    """
    return _URL.match(fspath(path)) is not None


def local_path(path: str | PathLike[str]) -> str:
    """Return a path as it is, or without the file:// that engines and catalogs write before one.

    >>> local_path("file:///logs/1.parquet"), local_path("file:/logs/1.parquet"), local_path("1.parquet")
    ('/logs/1.parquet', '/logs/1.parquet', '1.parquet')
    """
    return _FILE.sub("", fspath(path), count=1) if _FILE.match(fspath(path)) else fspath(path)


def disk_path(path: str | PathLike[str], what: str) -> Path:
    """Return the path of what is kept on a disk alone; refuse an address and what is no path.

    >>> disk_path("hours.parquet", "a sketch").name
    'hours.parquet'
    """
    if not isinstance(path, str | PathLike):
        raise InputError(f"{type(path).__name__} was given, not the path of {what}")
    if is_url(path):
        raise InputError(
            f"{fspath(path)} is an address, and {what} is kept on a disk: copy it there with the tools of the store, "
            "or name a path on a disk"
        )
    return Path(local_path(path))
