"""The formats of logs, each opened as one lazy table."""

import glob
import json
import os
import re
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from os import fspath
from pathlib import Path
from typing import Any

import polars as pl

from mcnet._shared.messages import need_extra
from mcnet.errors import InputError
from mcnet.rows.csv_files import (
    ROWS_TO_GUESS_TYPES_FROM,
    canonical_csv_text,
    csv_separator,
    guessed_csv_types,
    lines_of,
    plain_name,
    refuse_other_headers,
    typed_csv_text,
    with_plain_names,
)
from mcnet.rows.fields import canonical_texts, field_text
from mcnet.rows.locations import (
    Format,
    Location,
    Locations,
    RemoteFile,
    is_whole,
    partition_values,
    read_options,
    refuse_dates_for_numbers,
    source_options,
    unusable_condition,
    with_outer_partitions,
    with_partitions,
)


@dataclass(frozen=True)
class Columns:
    """Which columns of logs are read, and what for.

    Attributes
    ----------
    numbers, texts : columns of numbers, and of fields.
    periods : those fields that are cut to periods, so that any string of a timestamp will do.
    all_kept : whether all other columns are kept, too.
    typed : whether the other columns of CSV files get a guessed type.
    """

    numbers: Sequence[str] = ()
    texts: Sequence[str] = ()
    periods: Collection[str] = ()
    all_kept: bool = False
    typed: bool = True


def check_folder_columns(
    paths: Sequence[Location], form: Format, partitions: Mapping[str, pl.DataType], columns: Columns
) -> None:
    """Refuse what a folder such as hour=7 and the files in it say differently, and a number that both of them have."""
    asked = _columns_of_condition()
    wanted = [n for n in partitions if columns.all_kept or n in asked or n in (*columns.numbers, *columns.texts)]
    fetched = [path for index, path in enumerate(paths) if index == 0 or isinstance(path, Path)]
    for path in fetched if wanted else ():  # of a store, one file is enough to look at
        frame = _without_folders(path, form)
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


def _without_folders(path: Location, form: Format) -> pl.LazyFrame:
    """Return a file without the columns of its folders; CSV as texts."""
    options = source_options([path])
    if form.is_csv:
        frame = _scan(form)(fspath(path), separator=csv_separator(form), infer_schema=False, **options)
        return with_plain_names(frame)
    if form.layout == "lines":
        return _scan_ndjson([path], infer_schema_length=ROWS_TO_GUESS_TYPES_FROM)
    opened: pl.LazyFrame = _scan(form)(fspath(path), hive_partitioning=False, **options)
    return opened


def _scan(form: Format) -> Any:
    """Return the function of Polars that opens files of a format."""
    return getattr(pl, f"scan_{form.engine}")


def _same_value(text: str | None, folder: str | None) -> bool:
    """Tell whether a file and its folder say the same: 07 and 7 are, too."""
    if text is None or folder is None:
        return text == folder
    return text == folder or (is_whole(text) and is_whole(folder) and int(text) == int(folder))


def _filtered(frame: pl.LazyFrame, types: Mapping[str, pl.DataType] | None = None) -> pl.LazyFrame:
    """Return the rows that meet the condition in SQL, if there is one."""
    where = read_options().where
    if where is None:
        return frame
    schema = frame.collect_schema()
    names = schema.names()
    try:
        condition = pl.sql_expr(where)
        asked = [name for name in condition.meta.root_names() if schema.get(name) == pl.String]
        typed = {name: kind for name, kind in (types or {}).items() if name in asked and kind != pl.String}
        refuse_dates_for_numbers(condition, {**schema, **typed})
        pl.DataFrame(schema={**schema, **typed}).filter(condition)  # refused now, and not while rows are read
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(where, error) from None
    if not typed:
        return frame.filter(condition)
    strings = {name: f"text of {name} {secrets.token_hex(8)}" for name in typed}
    frame = frame.with_columns(column_at(names, name).alias(string) for name, string in strings.items())
    frame = frame.with_columns(typed_csv_text(column_at(names, name), kind).alias(name) for name, kind in typed.items())
    both = [*names, *strings.values()]
    kept = frame.filter(condition).with_columns(column_at(both, string).alias(name) for name, string in strings.items())
    return kept.select(pl.nth(range(len(names))))


def open_format(form: Format, paths: Locations, partitions: dict[str, pl.DataType], columns: Columns) -> pl.LazyFrame:
    """Return files of one format as one table, without the rows that do not meet the condition, if there is one."""
    if form.is_csv:
        return _open_csv(paths, partitions, csv_separator(form), columns)
    if form.layout == "lines":
        return _filtered(_open_jsonl(paths, partitions, columns))
    if form.layout == "lake":
        return _filtered(_open_lake(paths, form, columns))
    return _filtered(_open_tables(paths, partitions, form, columns))


def _open_csv(paths: Locations, partitions: dict[str, pl.DataType], separator: str, columns: Columns) -> pl.LazyFrame:
    """Return CSV files as one table; the condition on the rows sees the types that the first rows suggest."""
    numbers, texts, typed = columns.numbers, columns.texts, columns.typed
    refuse_other_headers(paths, separator)
    options = source_options(paths)
    types = guessed_csv_types(list(map(fspath, paths)), separator, options) if typed or read_options().where else {}
    names = [plain_name(name) for name in types]
    guessed = dict(zip(names, types.values(), strict=True))

    def scan(files: Sequence[Location]) -> pl.LazyFrame:
        return with_plain_names(pl.scan_csv(list(map(fspath, files)), separator=separator, **described, **options))

    if typed:
        # A column of whole numbers in the first rows may have fractions, or other texts, in later ones.
        chosen = guessed | {name: pl.Float64() for name in numbers if name in guessed and guessed[name].is_integer()}
        chosen |= {name: pl.String() for name in texts if name in chosen}
        described: dict[str, Any] = {"schema": dict(zip(types, chosen.values(), strict=True))}
    else:
        described = {"infer_schema": False}
    frame = with_partitions(paths, partitions, scan) if partitions else scan(paths)
    if not typed:
        return _filtered(frame, guessed)
    # A partition may be whole numbers where the files have a column of its name.
    texts_of = {name: column_at(names, name).cast(pl.String) for name in texts if name in guessed}
    canonical = [canonical_csv_text(column).alias(name) for name, column in texts_of.items()]
    return _filtered(frame.with_columns(canonical), guessed)


def _open_jsonl(paths: Locations, partitions: dict[str, pl.DataType], columns: Columns) -> pl.LazyFrame:
    """Return files of lines of JSON as one table."""

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


def _scan_ndjson(paths: Sequence[Location], **options: Any) -> pl.LazyFrame:
    stored = {name: value for name, value in source_options(paths).items() if name != "glob"}
    # Polars takes names with a * or a ? for patterns here.
    sources = [glob.escape(fspath(path)) if isinstance(path, Path) else fspath(path) for path in paths]
    return pl.scan_ndjson(sources, **options, **stored)


def _open_lake(paths: Locations, form: Format, columns: Columns) -> pl.LazyFrame:
    """Return tables of Delta Lake or Apache Iceberg as one table."""
    need_extra(form.kind, f"a table of {form.name}")
    if form.kind == "iceberg" and find_spec("polars_iceberg") is None:
        # The extra has PyIceberg, which plans a scan as well; Polars would warn that its own plugin is faster.
        os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")
    options = dict(read_options().storage_options) or None
    frames = [_scan(form)(fspath(path), storage_options=options) for path in paths]
    return frames[0] if len(frames) == 1 else _one_table(paths, frames, columns)


def _open_tables(paths: Locations, partitions: dict[str, pl.DataType], form: Format, columns: Columns) -> pl.LazyFrame:
    """Return Parquet or Arrow files as one table; where files disagree on the type of a field, as canonical texts."""
    options = source_options(paths) | {"try_parse_hive_dates": False}
    options |= {"hive_schema": partitions} if partitions else {}
    if partitions or any(isinstance(path, RemoteFile) for path in paths):
        options["hive_partitioning"] = True  # by itself, Polars adds the columns of folders that it was given alone

    scan = partial(_scan(form), **options)
    sources = list(map(fspath, paths))
    frames = [scan(source) for source in sources] if len(sources) > 1 else []
    schemas = [frame.collect_schema() for frame in frames]
    alike = all(schema == schemas[0] for schema in schemas)
    frame: pl.LazyFrame = scan(sources) if alike else _one_table(paths, frames, columns)
    if any(isinstance(path, RemoteFile) and not path.is_one_file for path in paths):
        return with_outer_partitions(frame, paths[0])
    return frame


def _one_table(paths: Sequence[Location], frames: Sequence[pl.LazyFrame], columns: Columns) -> pl.LazyFrame:
    """Return tables whose columns or types differ as one: of the columns that all of them have."""
    schemas = [frame.collect_schema() for frame in frames]
    names = _names_in_all(paths, schemas, columns)
    mixed = []
    for name in names:
        types = {schema[name]: path for path, schema in zip(paths, schemas, strict=True)}
        if len(types) < 2:
            continue
        if name in columns.texts:
            mixed.append(name)
            kinds = {_kind_of_values(kind): kind for kind in reversed(types) if kind != pl.Null}
            # Periods of all kinds are cut alike.
            different = [] if name in columns.periods else sorted(kinds.values(), key=list(types).index)
        else:
            different = [] if _has_common_type(types) else list(types)
        if len(different) > 1:
            one, other = different[:2]
            raise InputError(
                f"{name} is {one} in {types[one]} and {other} in {types[other]}; cast the column to one type in all "
                "files"
            )
    parts = [frame.select(column_at(frame.collect_schema().names(), name) for name in names) for frame in frames]
    texts = [
        column_at(names, name).map_batches(canonical_texts, return_dtype=pl.String, is_elementwise=True).alias(name)
        for name in mixed
    ]
    return pl.concat([part.with_columns(texts) for part in parts], how="vertical_relaxed")


def _names_in_all(paths: Sequence[Location], schemas: Sequence[pl.Schema], columns: Columns) -> list[str]:
    """Return the columns to read of files that differ in them; refuse files that lack one of these."""

    common = [name for name in schemas[0] if all(name in schema for schema in schemas)]
    known = dict.fromkeys(name for schema in schemas for name in schema)
    named = [*columns.numbers, *columns.texts]
    for name in known if columns.all_kept else named:
        lacking = next((path for path, schema in zip(paths, schemas, strict=True) if name not in schema), None)
        having = next((path for path, schema in zip(paths, schemas, strict=True) if name in schema), None)
        if lacking is not None and having is not None:
            raise InputError(f"{lacking} has no column {name!r}, and {having} has it; give files of the same columns")
    if columns.all_kept or not named:
        return common
    asked = _columns_of_condition()
    return [name for name in common if name in named or name in asked]


def _columns_of_condition() -> set[str]:
    """Return the columns that the condition on the rows, if there is one, asks for."""
    where = read_options().where
    try:
        return set() if where is None else set(pl.sql_expr(where).meta.root_names())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unusable_condition(str(where), error) from None


def _has_common_type(kinds: Collection[pl.DataType]) -> bool:
    if len({kind.is_nested() for kind in kinds}) > 1:
        return False
    try:
        pl.concat([pl.DataFrame(schema={"x": kind}) for kind in kinds], how="vertical_relaxed")
    except pl.exceptions.PolarsError:
        return False
    return True


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class _MixedJson:
    """A field of JSONL files that Polars reads as strings, although lines may have it as a number or a boolean.

    The lines are searched once, and only if a string such as "1.50" or "True" would be another value as one of those.
    """

    def __init__(self, name: str, paths: Sequence[Location]) -> None:
        self._name, self._paths = name, paths
        self._lock = threading.Lock()
        self._typed: dict[str, str] | None = None

    def checked(self, texts: pl.Series) -> pl.Series:
        """Return the strings; refuse one that is another value where the field is not a string."""
        for string in texts.drop_nulls().unique(maintain_order=True):
            for kind in ("number", "flag"):
                typed = _typed_text(string, kind)
                if typed is None or typed == string:
                    continue
                with self._lock:
                    self._typed = self._first_lines() if self._typed is None else self._typed
                if kind in self._typed:
                    raise InputError(
                        f"{self._name} is {self._typed[kind]}, and a string in other lines, where {string!r} would be "
                        f"another value than {typed!r}; write all its values in quotes, or none"
                    )
        return texts

    def _first_lines(self) -> dict[str, str]:
        """Return the first line that has the field as a number, and the first that has it as a boolean, in words."""
        result: dict[str, str] = {}
        keys = {re.escape(json.dumps(self._name, ensure_ascii=ascii_only)) for ascii_only in (True, False)}
        pattern = rf"(?:{'|'.join(sorted(keys))})\s*:\s*[-0-9tf]"
        for path in self._paths:
            lines = lines_of(path).with_row_index("number").filter(pl.col("line").str.contains(pattern))
            for batch in lines.collect_batches(maintain_order=True):
                for number, line in batch.iter_rows():
                    value = json.loads(line).get(self._name)
                    if isinstance(value, bool):
                        result.setdefault("flag", f"the boolean {json.dumps(value)} in line {number + 1} of {path}")
                    elif isinstance(value, int | float):
                        result.setdefault("number", f"the number {value} in line {number + 1} of {path}")
                    if len(result) == 2:
                        return result
        return result


def _kind_of_values(kind: pl.DataType) -> str | None:
    """Return what the values of a type are; None for a column without values."""
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
    return None


def column_at(names: Sequence[str], name: str) -> pl.Expr:
    """Return the expression of a column by its index: Polars takes names like `^x$` and `*` for patterns."""
    return pl.nth(names.index(name))
