"""The formats of logs, each opened as one lazy table: CSV, JSONL, Parquet, Arrow, lakes, folders of partitions."""

import csv
import glob
import gzip
import json
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from itertools import combinations, groupby, islice
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mcnet._shared.messages import need_extra
from mcnet.errors import InputError
from mcnet.rows.fields import canonical_texts, field_text
from mcnet.rows.locations import Location, Locations, RemoteFile, read_options, unusable_condition
from mcnet.rows.periods import TIMESTAMP

if TYPE_CHECKING:
    import polars as pl

# CSV files, which have no types: guessed ones, and the canonical form of a field.

ROWS_TO_GUESS_TYPES_FROM = 10_000


def csv_separator(kind: str) -> str:
    """Return what parts the columns of a "csv" or "tsv" file, if no other separator was asked for."""
    return read_options().separator or ("\t" if kind == "tsv" else ",")


def guessed_csv_types(sources: Sequence[str], separator: str, options: Mapping[str, Any]) -> "dict[str, pl.DataType]":
    """Return the type of each column, as the first rows suggest it."""
    import polars as pl

    guessed = pl.scan_csv(
        list(sources), separator=separator, infer_schema_length=ROWS_TO_GUESS_TYPES_FROM, **options
    ).collect_schema()
    return dict(guessed)


def plain_name(name: str) -> str:
    """Return the name of a column as it is meant: Polars leaves the quotes in it doubled."""
    return name.replace('""', '"')


def with_plain_names(frame: "pl.LazyFrame") -> "pl.LazyFrame":
    """Return the table with the names of its columns as they are meant."""
    doubled = [name for name in frame.collect_schema().names() if plain_name(name) != name]
    return frame.rename({name: plain_name(name) for name in doubled}) if doubled else frame


def canonical_csv_text(column: "pl.Expr") -> "pl.Expr":
    """Return the canonical text of a field that is read from CSV.

    A CSV file has no types, so a value is what a typed file would have for it. The text stays as it is (007, 1e5, 1.10,
    0x1F) but for two things: pandas writes whole numbers beside missing ones with ".0", so 7.0 is 7, and -0 and -0.0
    are 0; True and False are true and false. A text column of a typed file keeps its text.
    """
    import polars as pl

    text = column.str.replace(r"^(-?(?:0|[1-9]\d*))\.0$", "${1}")
    zero = pl.when(column.is_in(["-0", "-0.0"])).then(pl.lit("0")).otherwise(text)
    return zero.replace({"True": "true", "False": "false"})


def typed_csv_text(column: "pl.Expr", kind: "pl.DataType") -> "pl.Expr":
    """Return strings of a CSV file as what they are in a type; an empty one is missing."""
    import polars as pl

    if kind == pl.Boolean:
        flags = {"true": True, "false": False, "": None}
        return column.str.to_lowercase().replace_strict(flags, return_dtype=pl.Boolean)
    if kind == pl.Date:
        return column.str.to_date("%Y-%m-%d")
    return pl.when(column != "").then(column).cast(kind)


def types_of_texts(frame: "pl.LazyFrame", names: Sequence[str]) -> "dict[str, pl.DataType]":
    """Return the columns of a table of strings that are whole numbers, numbers or flags in every row, with their type.

    As where types are guessed, the first rows propose a type; here every row has to agree. Numbers that would not
    come back as they are written stay strings: leading zeros (an id such as 007) and more digits than a float has.

    Parameters
    ----------
    frame : a table whose columns are strings.
    names : the columns to look at.
    """
    import polars as pl

    schema = frame.collect_schema()
    texts = {name: ("whole", "number", "flag") for name in names if schema[name] == pl.String}
    first = _common_kinds(frame.head(ROWS_TO_GUESS_TYPES_FROM), texts)
    wider = {"whole": ("whole", "number"), "number": ("number",), "flag": ("flag",)}
    found = _common_kinds(frame, {name: wider[kind] for name, kind in first.items()})
    types: dict[str, pl.DataType] = {"whole": pl.Int64(), "number": pl.Float64(), "flag": pl.Boolean()}
    return {name: types[kind] for name, kind in found.items()}


def _common_kinds(frame: "pl.LazyFrame", kinds: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the first of the kinds given for each column that all its values are of; nothing for one without."""
    names = frame.collect_schema().names()
    checks = {
        f"{place} {kind}": _all_of_kind(names.index(name), kind)
        for place, (name, asked) in enumerate(kinds.items())
        for kind in asked
    }
    if not checks:
        return {}
    holds = frame.select(**checks).collect(engine="streaming").row(0, named=True)
    found = {name: [kind for kind in kinds[name] if holds[f"{place} {kind}"]] for place, name in enumerate(kinds)}
    return {name: those[0] for name, those in found.items() if those}


_MOST_DIGITS_OF_A_FLOAT = 1e15


def _all_of_kind(place: int, kind: str) -> "pl.Expr":
    """Return whether all strings of a column that are not empty, and at least one, are of a kind."""
    import polars as pl

    text = pl.nth(place).filter(pl.nth(place) != "")
    if kind == "flag":
        return (text.len() > 0) & text.str.to_lowercase().is_in(["true", "false"]).all()
    padded = text.str.starts_with("0") & (text.str.len_bytes() > 1) & ~text.str.starts_with("0.")
    padded |= text.str.starts_with("-0") & (text.str.len_bytes() > 2) & ~text.str.starts_with("-0.")
    plain = ~(padded | text.str.starts_with("+"))
    if kind == "whole":
        return (text.len() > 0) & (plain & text.cast(pl.Int64, strict=False).is_not_null()).all()
    number = text.cast(pl.Float64, strict=False)
    long = (number.abs() >= _MOST_DIGITS_OF_A_FLOAT) & number.is_finite()
    long &= ~(text.str.contains("e", literal=True) | text.str.contains("E", literal=True))
    return number.is_finite().any() & (plain & ~long & number.is_not_null()).all()


def refuse_other_headers(paths: Sequence[Location], separator: str) -> None:
    """Refuse a file with two columns of one name, which Polars would rename, and files whose columns differ."""
    first: tuple[Path, list[str]] | None = None
    for path in paths:
        if not isinstance(path, Path):
            continue  # a file elsewhere is not fetched for its header alone
        header = _header(path, separator)
        if header is None:
            continue
        twice = [name for name, count in Counter(header).items() if count > 1]
        if twice:
            raise InputError(f"{path} has two columns named {twice[0]!r}; give each its own name")
        first = first or (path, header)
        if header != first[1] and header:
            raise InputError(
                f"{path} has the columns {separator.join(header)}, and {first[0]} has {separator.join(first[1])}; give "
                "files of the same columns in the same order"
            )


def _header(path: Path, separator: str) -> list[str] | None:
    """Return the names of the columns; None if the file cannot be read, which Polars says next."""
    try:
        with _opened(path) as lines:
            return next(csv.reader(lines, delimiter=separator), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error):
        return None


def _opened(path: Path) -> Any:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def refuse_long_row(path: Location, separator: str) -> None:
    """Refuse a CSV file on disk by its first row of more values than columns, if it has one."""
    header = _header(path, separator) if isinstance(path, Path) else None
    if header is None or not isinstance(path, Path):
        return
    # What cannot be read is said where the rows are read.
    with suppress(UnicodeDecodeError, EOFError, OSError, csv.Error), _opened(path) as lines:
        for number, row in enumerate(csv.reader(lines, delimiter=separator)):
            if len(row) > len(header):
                raise InputError(
                    f"row {number - 1} of {path} has {len(row)} values, and the header {len(header)} columns; a value "
                    f"with {separator!r} in it needs quotes around it"
                )


def is_empty_line(path: Location, separator: str, row: int) -> bool:
    """Tell whether a row of a CSV file on disk is a line without any value."""
    if not isinstance(path, Path):
        return False
    with suppress(UnicodeDecodeError, EOFError, OSError, csv.Error), _opened(path) as lines:
        return next(islice(csv.reader(lines, delimiter=separator), row + 1, None), None) == []
    return False


class ShortRows:
    """Refuses CSV files with rows of too few values, which Polars fills with missing ones.

    A short row lacks its last values, so files are looked through only after a field was missing in some row.
    """

    def __init__(self, paths: Sequence[Location], separator: str) -> None:
        self._paths = [path for path in paths if isinstance(path, Path)]
        self._separator = separator
        self._lock = threading.Lock()

    def check(self, columns: "Iterable[pl.Series]") -> None:
        """Refuse a short row of any file, if a value of these columns is missing."""
        import polars as pl

        if not self._paths or not any(column.null_count() for column in columns):
            return
        with self._lock:
            paths, self._paths = self._paths, []
        for path in paths:
            with suppress(UnicodeDecodeError, EOFError, OSError, csv.Error, pl.exceptions.PolarsError):
                self._refuse(path)  # what cannot be read is said where the rows are read

    def _refuse(self, path: Path) -> None:
        header = _header(path, self._separator)
        if header is None or not self._may_have_short_rows(path, len(header)):
            return
        with _opened(path) as lines:
            for number, row in enumerate(csv.reader(lines, delimiter=self._separator)):
                if 0 < len(row) < len(header):
                    raise InputError(
                        f"row {number - 1} of {path} has {len(row)} values, and the header {len(header)} columns; a "
                        "value that is missing at the end needs its separator"
                    )

    def _may_have_short_rows(self, path: Path, width: int) -> bool:
        """Tell whether a line has too few separators, or a quoted value goes on in the next line."""
        import polars as pl

        # No line has the character that separates columns here: each line is one text.
        none = "\x1e" if self._separator == "\x1f" else "\x1f"
        lines = _lines_of(path, none)
        line = pl.col("line")
        bare = pl.when(line.str.contains('"', literal=True)).then(line.str.replace_all('"[^"]*"', "")).otherwise(line)
        short = bare.str.count_matches(self._separator, literal=True) < width - 1
        found = lines.select((short | bare.str.contains('"', literal=True)).any()).collect().item()
        return bool(found)


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
    found = [part.partition("=") for part in folders if "=" in part[1:]]
    return {unquote(name): None if value == _MISSING else unquote(value) for name, _, value in found}


def partition_types(paths: Sequence[Location]) -> "dict[str, pl.DataType]":
    """Return the type of each partition column: whole numbers if all its values are; none if the files differ in them.

    Days stay the string that the folder has: a condition may say dt = '2026-11-16', or dt = DATE '2026-11-16'.
    """
    import polars as pl

    values = [partition_values(path) for path in paths]
    if any(list(found) != list(values[0]) for found in values):
        return {}
    whole = {name: all(is_whole(found[name]) for found in values) for name in values[0]}
    return {name: pl.Int64() if is_whole else pl.String() for name, is_whole in whole.items()}


def is_whole(value: str | None) -> bool:
    """Tell whether the value of a folder is a whole number, or missing."""
    return value is None or (value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19)


def _typed(value: str | None, kind: "pl.DataType") -> "str | int | None":
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
            pl.lit(_typed(value, kind), dtype=kind).alias(name)
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
    return frame.with_columns(pl.lit(_typed(v, types[n]), dtype=types[n]).alias(n) for n, v in outer.items())


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
        if not parts or not _looks_at_one_row(condition):
            return list(paths)
        values = [partition_values(path) for path in paths]
        table = pl.DataFrame(
            {name: [_typed(found[name], kind) for found in values] for name, kind in types.items()}, schema=types
        )
        dates = {name for part in parts for name in columns_of_dates(part, types)}
        table = table.with_columns(pl.col(name).str.to_date("%Y-%m-%d") for name in dates)
        kept = table.select(pl.all_horizontal(parts).fill_null(False)).to_series().to_list()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(where, error) from None
    return [path for path, keep in zip(paths, kept, strict=True) if keep] or list(paths[:1])


def columns_of_dates(condition: "pl.Expr", types: "Mapping[str, pl.DataType]") -> list[str]:
    """Return the columns of strings that a condition compares with dates, as in dt = DATE '2026-11-16'.

    Spark takes the folder dt=2026-11-16 for a date, and here it is a string: either way of asking is right.
    """
    import polars as pl

    def accepted(part: "pl.Expr", types: "Mapping[str, pl.DataType]") -> bool:
        try:
            pl.DataFrame(schema=types).filter(part)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return False
        return True

    found: list[str] = []
    for part in _conjuncts(condition):
        strings = [name for name in part.meta.root_names() if types.get(name) == pl.String and name not in found]
        if not strings or not _DATE_LITERAL.search(part.meta.serialize(format="json")) or accepted(part, types):
            continue
        dates = next(
            (one for one in ([name] for name in strings) if accepted(part, {**types, one[0]: pl.Date()})), strings
        )
        if accepted(part, {**types, **{name: pl.Date() for name in dates}}):
            found += dates
    return found


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


def _looks_at_one_row(condition: "pl.Expr") -> bool:
    """Tell whether a condition has no aggregate, count or window in it."""
    written = condition.meta.serialize(format="json")
    return not any(word in written for word in ('"Agg"', '"Len"', '"Over"', '"Window"'))


def _conjuncts(condition: "pl.Expr") -> "list[pl.Expr]":
    """Return the parts that a condition joins by AND."""
    parts = condition.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta == condition.meta:
        return [*_conjuncts(parts[1]), *_conjuncts(parts[0])]
    return [condition]


# The formats of logs: CSV, JSONL, Parquet, Arrow and tables of lakes, each opened as one lazy table.


@dataclass(frozen=True)
class Columns:
    """Which columns of logs are read, and what for.

    Attributes
    ----------
    numbers, texts : columns of numbers, and of fields.
    periods : those fields that are cut to periods, so that any string of a timestamp will do.
    all_kept : whether all other columns are kept, too.
    """

    numbers: Sequence[str] = ()
    texts: Sequence[str] = ()
    periods: Collection[str] = ()
    all_kept: bool = False


def check_folder_columns(
    paths: Sequence[Location], kind: str, partitions: "Mapping[str, pl.DataType]", columns: Columns
) -> None:
    """Refuse what a folder such as hour=7 and the files in it say differently, and a number that both of them have."""
    import polars as pl

    where = read_options().where
    if not partitions:
        return
    try:
        asked = set() if where is None else set(pl.sql_expr(where).meta.root_names())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(str(where), error) from None
    wanted = [n for n in partitions if columns.all_kept or n in asked or n in (*columns.numbers, *columns.texts)]
    fetched = [path for place, path in enumerate(paths) if place == 0 or isinstance(path, Path)]
    for path in fetched if wanted else ():  # of a store, one file is enough to look at
        frame = _without_folders(path, kind)
        names = frame.collect_schema().names()
        for name in (name for name in wanted if name in names):
            if name in columns.numbers:
                raise InputError(
                    f"{path} has a column {name!r}, and so has its folder {name}=…: rename the folder, or name the "
                    "files from inside it"
                )
            folder = partition_values(path)[name]
            values = canonical_texts(frame.select(column_at(names, name)).unique().collect().to_series())
            other = [value for value in values if not _same_value(value, folder)]
            if other:
                raise InputError(
                    f"{path} has {other[0]!r} in the column {name!r}, and its folder says {name}={folder}; rename the "
                    "column or the folder"
                )


def _without_folders(path: Location, kind: str) -> "pl.LazyFrame":
    """Return a file without the columns of its folders; CSV as texts."""
    import polars as pl

    options = _source_options([path])
    if kind in ("parquet", "arrow"):
        scan = pl.scan_parquet if kind == "parquet" else pl.scan_ipc
        return scan(fspath(path), hive_partitioning=False, **options)
    if kind == "jsonl":
        return _scan_ndjson([path], infer_schema_length=ROWS_TO_GUESS_TYPES_FROM)
    return with_plain_names(pl.scan_csv(fspath(path), separator=csv_separator(kind), infer_schema=False, **options))


def _same_value(text: str | None, folder: str | None) -> bool:
    """Tell whether a file and its folder say the same: 07 and 7 are, too."""
    if text is None or folder is None:
        return text == folder
    return text == folder or (is_whole(text) and is_whole(folder) and int(text) == int(folder))


def filtered(frame: "pl.LazyFrame", types: "Mapping[str, pl.DataType] | None" = None) -> "pl.LazyFrame":
    """Return the rows that meet the condition in SQL, if there is one.

    Parameters
    ----------
    frame : the rows.
    types : columns that are texts here, and of another type for the condition.
    """
    import polars as pl

    where = read_options().where
    if where is None:
        return frame
    schema = frame.collect_schema()
    names = schema.names()
    try:
        condition = pl.sql_expr(where)
        asked = [name for name in condition.meta.root_names() if schema.get(name) == pl.String]
        typed = {name: kind for name, kind in (types or {}).items() if name in asked and kind != pl.String}
        typed |= {name: pl.Date() for name in columns_of_dates(condition, {**schema, **typed})}
        refuse_dates_for_numbers(condition, {**schema, **typed})
        pl.DataFrame(schema={**schema, **typed}).filter(condition)  # refused now, and not while rows are read
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(where, error) from None
    if not typed:
        return frame.filter(condition)
    texts = {name: f"text of {name} {secrets.token_hex(8)}" for name in typed}
    frame = frame.with_columns(column_at(names, name).alias(text) for name, text in texts.items())
    frame = frame.with_columns(typed_csv_text(column_at(names, name), kind).alias(name) for name, kind in typed.items())
    both = [*names, *texts.values()]
    kept = frame.filter(condition).with_columns(column_at(both, text).alias(name) for name, text in texts.items())
    return kept.select(pl.nth(range(len(names))))


def open_csv(
    paths: Locations,
    partitions: "dict[str, pl.DataType]",
    separator: str,
    numbers: Sequence[str],
    texts: Sequence[str],
    typed: bool,
) -> "pl.LazyFrame":
    """Return CSV files as one table; the condition on the rows sees the types that the first rows suggest."""
    import polars as pl

    refuse_other_headers(paths, separator)
    options = _source_options(paths)
    types = guessed_csv_types(_sources(paths), separator, options) if typed or read_options().where else {}
    names = [plain_name(name) for name in types]
    guessed = dict(zip(names, types.values(), strict=True))

    def scan(files: Sequence[Location]) -> pl.LazyFrame:
        return with_plain_names(pl.scan_csv(_sources(files), separator=separator, **described, **options))

    if typed:
        # A column of whole numbers in the first rows may have fractions, or other texts, in later ones.
        chosen = guessed | {name: pl.Float64() for name in numbers if name in guessed and guessed[name].is_integer()}
        chosen |= {name: pl.String() for name in texts if name in chosen}
        described: dict[str, Any] = {"schema": dict(zip(types, chosen.values(), strict=True))}
    else:
        described = {"infer_schema": False}
    frame = with_partitions(paths, partitions, scan) if partitions else scan(paths)
    if not typed:
        return filtered(frame, guessed)
    # A partition may be whole numbers where the files have a column of its name.
    texts_of = {name: column_at(names, name).cast(pl.String) for name in texts if name in guessed}
    canonical = [canonical_csv_text(column).alias(name) for name, column in texts_of.items()]
    return filtered(frame.with_columns(canonical), guessed)


def _sources(paths: Sequence[Location]) -> list[str]:
    return [fspath(path) for path in paths]


def _source_options(paths: Sequence[Location]) -> dict[str, Any]:
    """Return the options of Polars for opening files: names on disk are not patterns; object stores have settings."""
    if all(isinstance(path, Path) for path in paths):
        return {"glob": False}
    return {"storage_options": dict(read_options().storage_options) or None}


def open_jsonl(paths: Locations, partitions: "dict[str, pl.DataType]", columns: Columns) -> "pl.LazyFrame":
    """Return files of lines of JSON as one table."""
    import polars as pl

    def scan(files: Sequence[Location], types: Mapping[str, pl.DataType] | None = None) -> pl.LazyFrame:
        return _scan_ndjson(files, infer_schema_length=ROWS_TO_GUESS_TYPES_FROM, schema_overrides=types)

    guessed = scan(paths).collect_schema()
    # Whole numbers in the first rows may have fractions in later ones, and a field without values may have texts.
    chosen = {name: pl.Float64() for name in columns.numbers if name in guessed and guessed[name].is_integer()}
    later: dict[str, pl.DataType] = {**chosen, **{n: pl.String() for n in columns.texts if guessed.get(n) == pl.Null}}
    names = guessed.names()
    if partitions:
        # What is guessed from all files holds for the files of each partition.
        frame = with_partitions(paths, partitions, lambda files: scan(files, {**guessed, **later}).select(names))
    else:
        frame = scan(paths, later or None)
    fields = [name for name in columns.texts if name not in columns.periods and name not in partitions]
    return frame.with_columns(
        column_at(names, name)
        .map_batches(_MixedJson(name, paths).checked, return_dtype=pl.String, is_elementwise=True)
        .alias(name)
        for name in fields
        if {**guessed, **later}.get(name) == pl.String
    )


def _scan_ndjson(paths: Sequence[Location], **options: Any) -> "pl.LazyFrame":
    import polars as pl

    stored = {name: value for name, value in _source_options(paths).items() if name != "glob"}
    # Polars takes names with a * or a ? for patterns here.
    sources = [glob.escape(fspath(path)) if isinstance(path, Path) else fspath(path) for path in paths]
    return pl.scan_ndjson(sources, **options, **stored)


def open_lake(paths: Locations, kind: str, columns: Columns) -> "pl.LazyFrame":
    """Return tables of Delta Lake or Apache Iceberg as one table."""
    import polars as pl

    need_extra(kind, f"a table of {kind.capitalize()}")
    if kind == "iceberg" and find_spec("polars_iceberg") is None:
        # The extra has PyIceberg, which plans a scan as well; Polars would warn that its own plugin is faster.
        os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")
    options = dict(read_options().storage_options) or None
    scan = pl.scan_delta if kind == "delta" else pl.scan_iceberg
    frames = [scan(fspath(path), storage_options=options) for path in paths]
    return frames[0] if len(frames) == 1 else _one_table(paths, frames, columns)


def open_tables(paths: Locations, partitions: "dict[str, pl.DataType]", kind: str, columns: Columns) -> "pl.LazyFrame":
    """Return Parquet or Arrow files as one table; where files disagree on the type of a field, as canonical texts."""
    import polars as pl

    options = _source_options(paths) | {"try_parse_hive_dates": False}
    options |= {"hive_schema": partitions} if partitions else {}
    if partitions or any(isinstance(path, RemoteFile) for path in paths):
        options["hive_partitioning"] = True  # by itself, Polars adds the columns of folders that it was given alone

    def scan(source: Location | Locations) -> pl.LazyFrame:
        given = _sources(source) if isinstance(source, Locations) else fspath(source)
        return pl.scan_parquet(given, **options) if kind == "parquet" else pl.scan_ipc(given, **options)

    frames = [scan(path) for path in paths] if len(paths) > 1 else []
    schemas = [frame.collect_schema() for frame in frames]
    if all(schema == schemas[0] for schema in schemas):
        return scan(paths)
    return _one_table(paths, frames, columns)


def _one_table(paths: Sequence[Location], frames: "Sequence[pl.LazyFrame]", columns: Columns) -> "pl.LazyFrame":
    """Return tables whose columns or types differ as one: of the columns that all of them have."""
    import polars as pl

    schemas = [frame.collect_schema() for frame in frames]
    names = _names_in_all(paths, schemas, columns)
    mixed = [name for name in columns.texts if name in names and len({schema[name] for schema in schemas}) > 1]
    checks = {name: _MixedField(name, paths, [schema[name] for schema in schemas]) for name in mixed}
    for name, check in checks.items():
        if name not in columns.periods:
            check.refuse_types()
    parts = []
    for place, (frame, schema) in enumerate(zip(frames, schemas, strict=True)):
        part = frame.select(column_at(schema.names(), name) for name in names)
        parts.append(
            part.with_columns(
                column_at(names, name)
                .map_batches(
                    canonical_texts if name in columns.periods else partial(checks[name].texts, place),
                    return_dtype=pl.String,
                    is_elementwise=True,
                )
                .alias(name)
                for name in mixed
            )
        )
    for name in names:
        kinds = {schema[name]: path for path, schema in zip(paths, schemas, strict=True)}
        if name not in mixed and len(kinds) > 1 and not _has_common_type(kinds):
            one, other = list(kinds)[:2]
            raise InputError(
                f"{name} is {one} in {kinds[one]} and {other} in {kinds[other]}; cast the column to one type in all "
                "files"
            )
    return pl.concat(parts, how="vertical_relaxed")


def _names_in_all(paths: Sequence[Location], schemas: "Sequence[pl.Schema]", columns: Columns) -> list[str]:
    """Return the columns to read of files that differ in them; refuse files that lack one of these."""
    import polars as pl

    common = [name for name in schemas[0] if all(name in schema for schema in schemas)]
    known = dict.fromkeys(name for schema in schemas for name in schema)
    named = [*columns.numbers, *columns.texts]
    for name in known if columns.all_kept else named:
        lacking = next((path for path, schema in zip(paths, schemas, strict=True) if name not in schema), None)
        having = next((path for path, schema in zip(paths, schemas, strict=True) if name in schema), None)
        if lacking is not None and having is not None:
            raise InputError(f"{lacking} has no column {name!r}, and {having} has it; give files of the same columns")
    where = read_options().where
    if columns.all_kept or not named:
        return common
    try:
        asked = set() if where is None else set(pl.sql_expr(where).meta.root_names())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(str(where), error) from None
    return [name for name in common if name in named or name in asked]


def _has_common_type(kinds: "Collection[pl.DataType]") -> bool:
    import polars as pl

    if len({kind.is_nested() for kind in kinds}) > 1:
        return False
    try:
        pl.concat([pl.DataFrame(schema={"x": kind}) for kind in kinds], how="vertical_relaxed")
    except pl.exceptions.PolarsError:
        return False
    return True


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SAME_TEXTS = [{"timestamp", "day"}, *({"text", kind} for kind in ("number", "flag", "day", "timestamp", "zoned"))]
"""Types that may stand for one field in different files: equal values have one canonical text."""


class _MixedField:
    """A field that has different types in different files, as its canonical texts."""

    def __init__(self, name: str, paths: Sequence[Location], types: "Sequence[pl.DataType]") -> None:
        self.name, self.paths, self.types = name, paths, types
        self.kinds = [_kind_of_values(kind) for kind in types]

    def refuse_types(self) -> None:
        """Refuse types in which one value would have two texts."""
        first = {kind: place for place, kind in reversed(list(enumerate(self.kinds))) if kind is not None}
        for one, other in combinations(sorted(first, key=first.__getitem__), 2):
            if {one, other} not in _SAME_TEXTS:
                raise InputError(
                    f"{self._types(first[one], first[other])}, so one value would become two; cast the column to one "
                    "type in all files"
                )

    def texts(self, place: int, values: "pl.Series") -> "pl.Series":
        """Return values of a file as canonical texts; refuse a text that is another one where the column is typed."""
        texts: pl.Series = canonical_texts(values)
        if self.kinds[place] == "text":
            for text in texts.drop_nulls().unique(maintain_order=True):
                for other, kind in enumerate(self.kinds):
                    typed = _typed_text(text, kind)
                    if typed is not None and typed != text:
                        raise InputError(
                            f"{self._types(other, place)}, where {text!r} would be another value than {typed!r}; cast "
                            "the column to one type in all files"
                        )
        return texts

    def _types(self, one: int, other: int) -> str:
        return f"{self.name} is {self.types[one]} in {self.paths[one]} and {self.types[other]} in {self.paths[other]}"


class _MixedJson:
    """A field of JSONL files that Polars reads as strings, although lines may have it as a number or a boolean.

    The lines are searched once, and only if a string such as "1.50" or "True" would be another value as one of those.
    """

    def __init__(self, name: str, paths: Sequence[Location]) -> None:
        self._name, self._paths = name, paths
        self._lock = threading.Lock()
        self._typed: dict[str, str] | None = None

    def checked(self, texts: "pl.Series") -> "pl.Series":
        """Return the strings; refuse one that is another value where the field is not a string."""
        for text in texts.drop_nulls().unique(maintain_order=True):
            for kind in ("number", "flag"):
                typed = _typed_text(text, kind)
                if typed is None or typed == text:
                    continue
                with self._lock:
                    self._typed = self._first_lines() if self._typed is None else self._typed
                if kind in self._typed:
                    raise InputError(
                        f"{self._name} is {self._typed[kind]}, and a string in other lines, where {text!r} would be "
                        f"another value than {typed!r}; write all its values in quotes, or none"
                    )
        return texts

    def _first_lines(self) -> dict[str, str]:
        """Return the first line that has the field as a number, and the first that has it as a boolean, in words."""
        import polars as pl

        found: dict[str, str] = {}
        keys = {re.escape(json.dumps(self._name, ensure_ascii=ascii_only)) for ascii_only in (True, False)}
        pattern = rf"(?:{'|'.join(sorted(keys))})\s*:\s*[-0-9tf]"
        for path in self._paths:
            lines = _lines_of(path).with_row_index("number").filter(pl.col("line").str.contains(pattern))
            for batch in lines.collect_batches(maintain_order=True):
                for number, line in batch.iter_rows():
                    value = json.loads(line).get(self._name)
                    if isinstance(value, bool):
                        found.setdefault("flag", f"the boolean {json.dumps(value)} in line {number + 1} of {path}")
                    elif isinstance(value, int | float):
                        found.setdefault("number", f"the number {value} in line {number + 1} of {path}")
                    if len(found) == 2:
                        return found
        return found


def _lines_of(path: Location, separator: str = "\x1f") -> "pl.LazyFrame":
    """Return a file as one column of strings, a line each; no line has the separator in it."""
    import polars as pl

    return pl.scan_csv(
        fspath(path),
        separator=separator,
        quote_char=None,
        has_header=False,
        schema={"line": pl.String},
        **_source_options([path]),
    )


def _kind_of_values(kind: "pl.DataType") -> str | None:
    """Return what the values of a type are; None for a column without values."""
    import polars as pl

    if kind == pl.Null:
        return None
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Binary):
        return "text"
    if kind.is_numeric():
        return "number"
    if isinstance(kind, pl.Datetime):
        return "timestamp" if kind.time_zone is None else "zoned"
    named: dict[Any, str] = {pl.Boolean: "flag", pl.Date: "day", pl.Time: "time", pl.Duration: "duration"}
    return named.get(kind.base_type(), str(kind))


def _typed_text(text: str, kind: str | None) -> str | None:
    """Return the canonical text of what a text says in a column of another kind; None if it says nothing there."""
    if kind == "number" and _NUMBER.fullmatch(text):
        return field_text(Decimal(text))
    if kind == "flag" and text.lower() in ("true", "false"):
        return text.lower()
    if kind in ("day", "timestamp", "zoned") and (match := re.fullmatch(TIMESTAMP, text)) and match["day"]:
        try:
            return field_text(datetime.fromisoformat(text))
        except ValueError:
            return "its timestamp"
    return None


def column_at(names: Sequence[str], name: str) -> "pl.Expr":
    """Return the expression of a column by its place: Polars takes names like `^x$` and `*` for patterns."""
    import polars as pl

    return pl.nth(names.index(name))
