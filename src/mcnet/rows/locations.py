"""Where rows are: on disk, in an object store, in a table of a lake, on standard input; and how they are read."""

import atexit
import gzip
import re
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from os import PathLike, fspath
from pathlib import Path, PurePosixPath

from mcnet._shared.files import is_url, local_path, named_if_full
from mcnet.errors import FileFormatError, InputError

# Options of reading files: settings of object stores, separators, conditions on rows.


@dataclass
class ReadOptions:
    """What holds for every file that is opened meanwhile.

    Attributes
    ----------
    storage_options : settings of object stores, as Polars takes them; what is not there comes from the environment.
    separator : what divides the columns of CSV files; None for a comma, or a tab in TSV files.
    where : a condition on the rows, in SQL.
    drop_missing : leave out rows whose score, label or weight is missing.
    dropped_rows : how many rows were left out so far.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None
    where: str | None = None
    drop_missing: bool = False
    dropped_rows: int = 0


_current: ContextVar[ReadOptions | None] = ContextVar("mcnet read options", default=None)


def read_options() -> ReadOptions:
    """Return the options that hold now."""
    return _current.get() or ReadOptions()


@contextmanager
def read_with(
    *,
    storage_options: Mapping[str, str] | None = None,
    separator: str | None = None,
    where: str | None = None,
    drop_missing: bool = False,
) -> Iterator[ReadOptions]:
    """Let options hold for every file that is opened inside; those not given stay as they are."""
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        raise InputError(f"the separator is {separator!r}; it must be one character, such as ';'")
    before = read_options()
    options = replace(
        before,
        storage_options={**before.storage_options, **(storage_options or {})},
        separator=before.separator if separator is None else separator,
        where=before.where if where is None else where,
        drop_missing=before.drop_missing or drop_missing,
        dropped_rows=0,
    )
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)
        before.dropped_rows += options.dropped_rows


def unusable_condition(where: str, error: BaseException) -> InputError:
    """Return the error about a condition on rows that Polars refused."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "date/datetime/time" in reason:
        reason = "it compares timestamps with a text; write DATE '2026-11-16' or TIMESTAMP '2026-11-16 07:00'"
    elif "compare string with numeric" in reason:
        reason = (
            "it compares numbers with strings; write hour = 3 for a column of numbers, site = '3' for one of strings"
        )
    return InputError(f"the condition {where!r} cannot be used: {reason}")


# Where rows are, if not in a file on disk: in an object store, in a table of a lake, or on standard input.

STANDARD_INPUT = "-"

_NAMED_TABLE = re.compile(r"(?P<kind>delta|iceberg):(?P<path>.+)", re.DOTALL)
_VERSION = re.compile(r"\d+")
_GLOB = re.compile(r"[*\[]")


@dataclass(frozen=True)
class RemoteFile:
    """A file, a folder or a glob in an object store or on a web server, read by Polars itself."""

    url: str

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """Return the last part of the address, without a query."""
        return PurePosixPath(self._path).name

    @property
    def is_one_file(self) -> bool:
        """Whether the address names a file, by the ending of its name, and not a folder or a glob."""
        return not self._path.endswith("/") and "." in self.name and not _GLOB.search(self._path)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that the address names, without those that a glob leaves open."""
        path = PurePosixPath(self._path)
        is_folder = self._path.endswith("/") or "." not in self.name
        return tuple(part for part in (path if is_folder else path.parent).parts if not _GLOB.search(part))

    @property
    def _path(self) -> str:
        return self.url if _GLOB.search(self.url) else self.url.partition("?")[0]  # ? is a glob, or begins a query


@dataclass(frozen=True)
class LakeTable:
    """A table of Delta Lake ("delta") or Apache Iceberg ("iceberg"); of the latter, a file of metadata."""

    kind: str
    path: str

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """Return the name of its folder or file."""
        return PurePosixPath(self.path).name


Location = Path | RemoteFile | LakeTable


class Locations(tuple[Location, ...]):
    """What names were expanded to: nothing in it is looked up again."""

    __slots__ = ()


def lake_table(path: str | PathLike[str]) -> LakeTable | None:
    """Return the table that a path names, by a prefix such as delta:s3://…, or by what is in the folder."""
    named = _NAMED_TABLE.fullmatch(fspath(path))
    if named is not None:
        location = local_path(named["path"])
        if named["kind"] == "iceberg" and not location.endswith(".json") and Path(location).is_dir():
            return LakeTable("iceberg", _latest_metadata(Path(location)))
        return LakeTable(named["kind"], location)
    if is_url(path):
        return LakeTable("iceberg", fspath(path)) if fspath(path).endswith(".metadata.json") else None
    folder = Path(path)
    if (folder / "_delta_log").is_dir():
        return LakeTable("delta", str(folder))
    if folder.name.endswith(".metadata.json") and folder.is_file():
        return LakeTable("iceberg", str(folder))
    if (folder / "metadata").is_dir() and any((folder / "metadata").glob("*.metadata.json")):
        return LakeTable("iceberg", _latest_metadata(folder))
    return None


def _latest_metadata(folder: Path) -> str:
    """Return the newest file of metadata of an Iceberg table: the one with the highest number in front."""
    files = list((folder / "metadata").glob("*.metadata.json"))
    if not files:
        raise InputError(f"{folder} is not an Iceberg table: it has no metadata/*.metadata.json")
    return str(max(files, key=lambda file: (int((_VERSION.search(file.name) or ["0"])[0]), file.name)))


@cache
def standard_input() -> Path:
    """Return a temporary file with all of standard input, of the format that its first bytes tell."""
    folder = Path(tempfile.mkdtemp(prefix="mcnet-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if sys.stdin.isatty():
        raise InputError("- stands for standard input, and nothing is piped into it; name a file, or pipe rows into it")
    target = folder / "standard-input"
    with named_if_full(folder, "so standard input cannot be kept in it"), target.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with target.open("rb") as file:
        start = file.read(8)
    if not start:
        raise InputError("standard input is empty; pipe rows into it")
    if start.startswith(b"PAR1"):
        ending = ".parquet"
    elif start.startswith(b"ARROW1"):
        ending = ".arrow"
    elif start.startswith(b"\xff\xff\xff\xff"):
        return _file_of_stream(target)
    elif start.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(target) as file:
                ending = _text_ending(file.read(1000)) + ".gz"
        except (OSError, EOFError, zlib.error) as error:
            raise FileFormatError(f"standard input is packed with gzip and cannot be read: {error}") from None
    else:
        ending = _text_ending(start)
    return target.rename(target.with_name(target.name + ending))


def _text_ending(start: bytes) -> str:
    return ".jsonl" if start.lstrip().startswith(b"{") else ".csv"


def _file_of_stream(stream: Path) -> Path:
    """Return an Arrow file with the rows of an Arrow stream, which programs write into pipes."""
    import polars as pl

    target = stream.with_name(stream.name + ".arrow")
    try:
        pl.read_ipc_stream(stream).write_ipc(target)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().partition("\n")[0]
        raise FileFormatError(f"standard input is an Arrow stream and cannot be read: {reason}") from None
    stream.unlink()
    return target


def file_state(path: Path) -> tuple[int, int, int]:
    """Return size, time of the last change and number of a file: others if it was written to or replaced."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def fingerprint(location: Location) -> str:
    """Return a text that changes when a file does; of what is not on disk, another one each time."""
    if not isinstance(location, Path):
        return secrets.token_hex(8)
    size, changed, _ = file_state(location)
    return f"{fspath(location)!r} {size} {changed}"
