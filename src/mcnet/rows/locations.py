"""Where rows are: on disk, in an object store, a lake, a database, on standard input; and how they are read."""

import atexit
import gzip
import json
import re
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from mcnet._shared.files import is_url, local_path, named_if_full
from mcnet._shared.messages import first_line
from mcnet.errors import FileFormatError, InputError

if TYPE_CHECKING:
    import polars as pl

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
    bins : into how many bins a number that is a field is cut, where they are chosen.
    edges : those of fields of numbers that were chosen so far, or come from a model: all rows are cut alike.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None
    where: str | None = None
    drop_missing: bool = False
    dropped_rows: int = 0
    bins: int | None = None
    edges: dict[str, tuple[float, ...]] = field(default_factory=dict)


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
    bins: int | None = None,
    edges: Mapping[str, tuple[float, ...]] | None = None,
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
        bins=before.bins if bins is None else bins,
        edges=before.edges if edges is None else {**before.edges, **edges},
    )
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)
        before.dropped_rows += options.dropped_rows


def unusable_condition(where: str, error: BaseException) -> InputError:
    """Return the error about a condition on rows that Polars refused."""
    reason = first_line(error)
    if "date/datetime/time" in reason:
        reason = (
            "it compares timestamps with strings; write DATE '2026-11-16' or TIMESTAMP '2026-11-16 07:00' for a column "
            "of timestamps, '2026-11-16' for one of strings, such as a folder dt=2026-11-16"
        )
    elif "compare string with numeric" in reason:
        reason = (
            "it compares numbers with strings; write hour = 3 for a column of numbers, site = '3' for one of strings"
        )
    return InputError(f"the condition {where!r} cannot be used: {reason}")


# The formats of logs, which messages and the help of commands name.


@dataclass(frozen=True)
class Format:
    """A format of logs.

    Attributes
    ----------
    name : what people call it.
    engine : what Polars calls it: scan_… opens its files, and sink_… writes them.
    endings : how the names of its files end; a table of a lake has no ending.
    layout : whether it keeps columns with types, or lines of text, or is a table of a lake.
    separator : what divides the columns of a line, if anything does; such columns have no types.
    """

    name: str
    engine: str
    endings: tuple[str, ...] = ()
    layout: Literal["columns", "lines", "lake"] = "columns"
    separator: str | None = None

    @property
    def kind(self) -> str:
        """Its key in `FORMATS`."""
        return self.name.lower()

    @property
    def is_csv(self) -> bool:
        """Whether its columns are strings, divided by a separator."""
        return self.separator is not None


FORMATS = {
    form.kind: form
    for form in (
        Format("Parquet", "parquet", (".parquet", ".pq")),
        Format("CSV", "csv", (".csv", ".csv.gz"), "lines", ","),
        Format("TSV", "csv", (".tsv", ".tsv.gz"), "lines", "\t"),
        Format("Arrow", "ipc", (".arrow", ".ipc", ".feather")),
        Format("JSONL", "ndjson", (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"), "lines"),
        Format("Delta", "delta", layout="lake"),
        Format("Iceberg", "iceberg", layout="lake"),
    )
}
"""The formats of logs; `formats.py` opens them, and `model/apply.py` writes them."""

_FILES = [form.name for form in FORMATS.values() if form.endings]
FORMAT_NAMES = " or ".join([", ".join(_FILES[:-1]), _FILES[-1]])


# Where rows are, if not in a file on disk: in an object store, in a table of a lake, or on standard input.

STANDARD_INPUT = "-"

_LAKES = "|".join(kind for kind, form in FORMATS.items() if form.layout == "lake")
_NAMED_TABLE = re.compile(rf"(?P<kind>{_LAKES}):(?P<path>.+)", re.DOTALL)
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
        raise FileFormatError(f"standard input is an Arrow stream and cannot be read: {first_line(error)}") from None
    stream.unlink()
    return target


# Stores, which have sketches of rows by period: their addresses are told from those of logs.

DATABASE_URL = re.compile(r"(postgres(ql)?|mysql|mariadb|mssql|oracle|redshift|sqlite)(\+\w+)?:/", re.IGNORECASE)
"""What the address of a database begins with, also of one that cannot be a store: it may have a password."""


def is_store(address: Any) -> bool:
    """Tell whether something is the address of a store."""
    if not isinstance(address, str | PathLike):
        return False
    if DATABASE_URL.match(str(address)):
        return True
    try:
        with Path(address).open("rb") as file:
            return file.read(16) == b"SQLite format 3\x00"
    except (OSError, ValueError):
        return False


# Files on disk: whether they changed, and how Polars opens them.


def file_state(path: Path) -> tuple[int, int, int]:
    """Return size, time of the last change and number of a file: others if it was written to or replaced."""
    result = path.stat()
    return result.st_size, result.st_mtime_ns, result.st_ino


def fingerprint(location: Location) -> str:
    """Return a text that changes when a file does; of what is not on disk, another one each time."""
    if not isinstance(location, Path):
        return secrets.token_hex(8)
    size, changed, _ = file_state(location)
    return f"{fspath(location)!r} {size} {changed}"


def source_options(paths: Sequence[Location]) -> dict[str, Any]:
    """Return the options of Polars for opening files: names on disk are not patterns; object stores have settings."""
    if all(isinstance(path, Path) for path in paths):
        return {"glob": False}
    return {"storage_options": dict(read_options().storage_options) or None}


# Folders of partitions such as dt=2026-11-16/hour=7: their names are columns, and a condition on them prunes files.

_MISSING = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark name the folder of rows that have no value."""

_DATE_LITERAL = re.compile(r'"Date(time|Time)?":')
"""How a condition that Polars has written as JSON shows that it has a date or a timestamp in it."""

Values = dict[str, str | None]


def partition_values(path: Location) -> Values:
    """Return the columns that the folders of a path or an address stand for, and their values.

    All folders count, wherever a name begins: a file is given the same columns if it is named alone or by its folder,
    on a disk or in an object store.

    >>> partition_values(Path("log/dt=2026-11-16/hour=7/part.parquet"))
    {'dt': '2026-11-16', 'hour': '7'}
    """
    folders = path.folders if isinstance(path, RemoteFile) else Path(path).parent.parts
    result = [part.partition("=") for part in folders if "=" in part[1:]]
    return {unquote(name): None if value == _MISSING else unquote(value) for name, _, value in result}


def partition_types(paths: Sequence[Location]) -> "dict[str, pl.DataType]":
    """Return the type of each partition column: whole numbers if all its values are, otherwise strings, of days, too.

    None if the files differ in these columns.
    """
    import polars as pl

    values = [partition_values(path) for path in paths]
    if any(list(result) != list(values[0]) for result in values):
        return {}
    whole = {name: all(is_whole(result[name]) for result in values) for name in values[0]}
    return {name: pl.Int64() if is_whole else pl.String() for name, is_whole in whole.items()}


def is_whole(value: str | None) -> bool:
    """Tell whether the value of a folder is a whole number, or missing."""
    return value is None or (value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19)


def _typed_value(value: str | None, kind: "pl.DataType") -> "str | int | None":
    return int(value) if value is not None and kind.is_integer() else value


def with_partitions(
    paths: Sequence[Location], types: "dict[str, pl.DataType]", opened: "Callable[[list[Location]], pl.LazyFrame]"
) -> "pl.LazyFrame":
    """Return files of a format that Polars opens without their partitions, with these as columns."""
    import polars as pl

    frames = []
    # Neighbours alone: rows stay in the order of the files.
    for values, files in groupby(paths, key=lambda path: tuple(partition_values(path).values())):
        columns = [
            pl.lit(_typed_value(value, kind), dtype=kind).alias(name)
            for value, (name, kind) in zip(values, types.items(), strict=True)
        ]
        frames.append(opened(list(files)).with_columns(columns))
    return pl.concat(frames, how="vertical_relaxed")


def with_outer_partitions(frame: "pl.LazyFrame", path: Location) -> "pl.LazyFrame":
    """Return rows of a folder or a glob of an object store with the columns of the folders above it, too.

    Polars adds those of the folders below.
    """
    import polars as pl

    known = frame.collect_schema().names()
    types = partition_types([path])
    outer = {name: value for name, value in partition_values(path).items() if name not in known}
    return frame.with_columns(pl.lit(_typed_value(v, types[n]), dtype=types[n]).alias(n) for n, v in outer.items())


def prune(paths: Sequence[Location], types: "dict[str, pl.DataType]", where: str) -> list[Location]:
    """Return the files of the partitions that can have rows which meet a condition; at least one, for its columns.

    Of a condition with AND, the parts that speak of partitions alone decide. A condition that looks at more than one
    row, such as hour > AVG(hour), prunes nothing.
    """
    import polars as pl

    try:
        condition = pl.sql_expr(where)
        refuse_dates_for_numbers(condition, types)
        parts = [part for part in _conjuncts(condition) if set(part.meta.root_names()) <= set(types)]
        parts = [part for part in parts if part.meta.root_names()]
        written = condition.meta.serialize(format="json")
        if not parts or any(word in written for word in ('"Agg"', '"Len"', '"Over"', '"Window"')):
            return list(paths)  # an aggregate, a count or a window looks at more than one row
        values = [partition_values(path) for path in paths]
        table = pl.DataFrame(
            {name: [_typed_value(result[name], kind) for result in values] for name, kind in types.items()},
            schema=types,
        )
        kept = table.select(pl.all_horizontal(parts).fill_null(False)).to_series().to_list()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(where, error) from None
    return [path for path, keep in zip(paths, kept, strict=True) if keep] or list(paths[:1])


def refuse_dates_for_numbers(condition: "pl.Expr", types: "Mapping[str, pl.DataType]") -> None:
    """Refuse a condition such as hour = DATE '2026-11-16' on numbers, which Polars takes for days since 1970."""

    def literal(node: Any) -> bool:
        return isinstance(node, dict) and _DATE_LITERAL.search(json.dumps(node.get("Literal"))) is not None

    def column(node: Any) -> str | None:
        return node.get("Column") if isinstance(node, dict) else None

    def check(node: Any) -> None:
        if isinstance(node, dict) and "BinaryExpr" in node:
            left, right = node["BinaryExpr"]["left"], node["BinaryExpr"]["right"]
            name = column(left) if literal(right) else column(right) if literal(left) else None
            if name is not None and name in types and types[name].is_numeric():
                raise InputError(f"{name} has numbers, and the condition compares it with a date; write a number")
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            check(inner)

    written = condition.meta.serialize(format="json")
    if _DATE_LITERAL.search(written):
        check(json.loads(written))


def _conjuncts(condition: "pl.Expr") -> "list[pl.Expr]":
    """Return the parts that a condition joins by AND."""
    parts = condition.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta == condition.meta:
        return [*_conjuncts(parts[1]), *_conjuncts(parts[0])]
    return [condition]
