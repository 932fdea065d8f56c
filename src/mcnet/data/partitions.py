"""Folders of partitions such as dt=2026-11-16/hour=7: their names are columns, and a condition on them prunes files."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mcnet.data.locations import Location, RemoteFile
from mcnet.data.read_options import unusable_condition

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "columns_of_dates",
    "is_whole",
    "partition_types",
    "partition_values",
    "prune",
    "with_outer_partitions",
    "with_partitions",
]

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
