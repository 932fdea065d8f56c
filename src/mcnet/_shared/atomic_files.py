"""Write a file completely or not at all, and never leave a partial one behind."""

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcnet._shared.disk_paths import disk_path
from mcnet.errors import InputError

if sys.platform != "win32":
    import fcntl

__all__ = ["flush", "is_disk_full", "output_file", "remove_unfinished_files", "whole_file"]

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
    """Return the regular file that writing to `path` would make or replace; symbolic links are followed.

    Raises
    ------
    InputError : its folder does not exist, or there is something else than a regular file in its place.
    """
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

    Raises
    ------
    InputError : `path` cannot be written to (see `output_file`).
    OSError : the disk is full (ENOSPC), or the file cannot be written for another reason.
    """
    target = output_file(path)
    _remove_abandoned(target.parent)
    # The name is known before the file is made, so that an interrupt at any time finds what it has to remove.
    part = target.with_name(_part_name(target.name))
    _unfinished.add(part)
    lock = -1
    try:
        lock = _create(part)
        yield part
        _take_over_mode(part, target)
        part.replace(target)
    except Exception as error:
        if is_disk_full(error):
            raise OSError(errno.ENOSPC, "no space left on the disk, nothing was written", str(path)) from None
        raise
    finally:
        part.unlink(missing_ok=True)
        _unfinished.discard(part)
        if lock >= 0:
            os.close(lock)


def flush(path: str | os.PathLike[str]) -> None:
    """Ask the system to bring a file or a folder to the disk, so that it outlives a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_unfinished_files() -> None:
    """Remove the temporary files that this process is writing, before it ends at once."""
    for part in tuple(_unfinished):
        with suppress(OSError):
            part.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error means that no more can be written; Polars says so in its message alone."""
    return getattr(error, "errno", None) in _FULL or _FULL_TEXT.search(str(error)) is not None


def _part_name(name: str) -> str:
    beginning = name.encode(errors="ignore")[:_NAME_BYTES].decode(errors="ignore")
    return f".{beginning}.mcnet-{secrets.token_hex(8)}.part"


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
        found = target.stat()
    except FileNotFoundError:
        return
    made = part.stat()
    if (made.st_uid, made.st_gid) != (found.st_uid, found.st_gid):
        with suppress(OSError):
            os.chown(part, found.st_uid, found.st_gid)
    os.chmod(part, stat.S_IMODE(found.st_mode))


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
