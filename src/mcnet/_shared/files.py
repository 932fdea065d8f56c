"""Files on a disk: written whole or not at all, locked by one process, JSON documents and JSON lines."""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec

from mcnet.errors import BusyError, InputError

# Paths on a disk, distinguished from addresses in an object store or on a web server.

# A Path of an address has one slash where the address had two.
_URL = re.compile(r"(?:s3|s3a|gs|gcs|az|azure|abfs|abfss|adl|http|https|hf):/{1,2}[^/]")

_FILE = re.compile(r"\Afile:(?://(?:localhost)?)?(?=/)")


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
    return _FILE.sub("", fspath(path))


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


# Write a file completely or not at all, and never leave a partial one behind.

if sys.platform != "win32":
    import fcntl


_NAME_BYTES = 100
"""How much of the target's name the temporary name repeats: far below what every file system allows (143 or 255)."""

_PART_NAME = re.compile(r"\..*\.mcnet-[0-9a-f]{16}\.part", re.DOTALL)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_unfinished: set[Path] = set()


def output_file(path: str | os.PathLike[str]) -> Path:
    """Return the regular file that writing to `path` would make or replace; symbolic links are followed."""
    target = disk_path(path, "what is written here")
    if target.is_symlink():
        target = Path(os.path.realpath(target))
        if target.is_symlink():
            raise InputError(f"{path} is a symbolic link that leads back to itself; name a file")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; make it first")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), None)
    if kind is not None or not stat.S_ISREG(mode):
        raise InputError(f"{path} is {kind or 'not a regular file'}; name a regular file to write to")
    return target


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it takes the place of `path`, on failure it is removed.

    A file that is replaced keeps its mode and, where the system allows it, its owner. A symbolic link stays, and the
    file it leads to is replaced. Temporary files of processes that were killed are removed.
    """
    target = output_file(path)
    _remove_abandoned(target.parent)
    # The name is known before the file is made, so that an interrupt at any time finds what it has to remove.
    beginning = target.name.encode(errors="ignore")[:_NAME_BYTES].decode(errors="ignore")
    part = target.with_name(f".{beginning}.mcnet-{secrets.token_hex(8)}.part")
    _unfinished.add(part)
    lock = -1
    try:
        with named_if_full(path):
            lock = _create(part)
            yield part
            _take_over_mode(part, target)
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)
        _unfinished.discard(part)
        if lock >= 0:
            os.close(lock)


@contextmanager
def named_if_full(path: str | os.PathLike[str], result: str = "nothing was written") -> Iterator[None]:
    """If the disk is full, raise an error that names what was being written: that of the system often names nothing."""
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            raise OSError(errno.ENOSPC, f"no space left on the disk, {result}", str(path)) from None
        raise


def remove_unfinished_files() -> None:
    """Remove the temporary files that this process is writing, before it ends at once."""
    for part in tuple(_unfinished):
        with suppress(OSError):
            part.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error means that no more can be written; Polars says so in its message alone."""
    return getattr(error, "errno", None) in _FULL or _FULL_TEXT.search(str(error)) is not None


def _create(part: Path) -> int:
    """Create the temporary file and lock it for as long as this process lives; return its descriptor."""
    while True:
        lock = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        if sys.platform == "win32":
            return lock
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(part.stat(), os.fstat(lock)):
                return lock
        os.close(lock)  # another process took it for abandoned before it was locked


def _take_over_mode(part: Path, target: Path) -> None:
    try:
        result = target.stat()
    except FileNotFoundError:
        return
    made = part.stat()
    if (made.st_uid, made.st_gid) != (result.st_uid, result.st_gid):
        with suppress(OSError):
            os.chown(part, result.st_uid, result.st_gid)
    os.chmod(part, stat.S_IMODE(result.st_mode))


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of processes that were killed: nobody holds a lock on them."""
    if sys.platform == "win32":
        return  # there are no such locks
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (_PART_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)):
                continue
            with suppress(OSError):
                lock = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)
                finally:
                    os.close(lock)


# A lock that one process at a time can have; it is released when the process ends, however it ends.

_SECONDS_BETWEEN_TRIES = 0.05


@contextmanager
def exclusive_lock(path: Path, wait_seconds: float | None = None, what: str = "") -> Iterator[None]:
    """Wait until no other process has the lock of this file, and have it until the end of the block."""
    import fcntl

    until = math.inf if wait_seconds is None else time.monotonic() + wait_seconds
    with open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait_seconds is None else fcntl.LOCK_NB))
                break
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0.0:
                    doing = what or f"using {path.parent}"
                    raise BusyError(
                        f"another process is {doing} and has not ended after {wait_seconds:g} s; try again later, or "
                        "wait longer"
                    ) from None
                time.sleep(min(_SECONDS_BETWEEN_TRIES, left))
        yield


# JSON documents in files: written whole or not at all, with a checksum over their content.


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document's content, whatever its layout and order of keys; its own entry is left out.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1, "checksum": "sha256:…"})
    True
    """
    content = {key: value for key, value in document.items() if key != "checksum"}
    # Twelve times as fast as json.dumps; numbers of NumPy are written as those of Python.
    encoded = msgspec.json.encode(content, order="deterministic", enc_hook=lambda number: number.item())
    return "sha256:" + hashlib.sha256(encoded).hexdigest()


def write_json(path: str | PathLike[str], document: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write a document to a file; numbers that are not finite are refused."""
    string = json.dumps(document, indent=indent, allow_nan=False)
    with whole_file(path) as part:
        part.write_text(string, encoding="utf-8")


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
