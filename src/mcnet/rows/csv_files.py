"""CSV files, which have no types: guessed ones, the canonical form of a field, headers, long and short rows."""

import csv
import gzip
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from os import fspath
from pathlib import Path
from typing import Any

import polars as pl

from mcnet.errors import InputError
from mcnet.rows.locations import Format, Location, read_options, source_options

ROWS_TO_GUESS_TYPES_FROM = 10_000


def csv_separator(form: Format) -> str:
    """Return what divides the columns of files of a format: what was asked for, or what is usual."""
    return read_options().separator or form.separator or ","


def guessed_csv_types(sources: Sequence[str], separator: str, options: Mapping[str, Any]) -> dict[str, pl.DataType]:
    """Return the type of each column, as the first rows suggest it."""
    guessed = pl.scan_csv(
        list(sources), separator=separator, infer_schema_length=ROWS_TO_GUESS_TYPES_FROM, **options
    ).collect_schema()
    return dict(guessed)


def plain_name(name: str) -> str:
    """Return the name of a column as it is meant: Polars leaves the quotes in it doubled."""
    return name.replace('""', '"')


def with_plain_names(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the table with the names of its columns as they are meant."""
    doubled = [name for name in frame.collect_schema().names() if plain_name(name) != name]
    return frame.rename({name: plain_name(name) for name in doubled}) if doubled else frame


def canonical_csv_text(column: pl.Expr) -> pl.Expr:
    """Return the canonical text of a field that is read from CSV.

    A CSV file has no types, so a value is what a typed file would have for it. The text stays as it is (007, 1e5, 1.10,
    0x1F) but for two things: pandas writes whole numbers beside missing ones with ".0", so 7.0 is 7, and -0 and -0.0
    are 0; True and False are true and false. A text column of a typed file keeps its text.
    """
    string = column.str.replace(r"^(-?(?:0|[1-9]\d*))\.0$", "${1}")
    zero = pl.when(column.is_in(["-0", "-0.0"])).then(pl.lit("0")).otherwise(string)
    return zero.replace({"True": "true", "False": "false"})


def typed_csv_text(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return strings of a CSV file as what they are in a type; an empty one is missing."""
    if kind == pl.Boolean:
        flags = {"true": True, "false": False, "": None}
        return column.str.to_lowercase().replace_strict(flags, return_dtype=pl.Boolean)
    return pl.when(column != "").then(column).cast(kind)


def types_of_texts(frame: pl.LazyFrame, names: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the columns of a table of strings that are whole numbers, numbers or flags in every row, with their type.

    As where types are guessed, the first rows propose a type; here every row has to agree. Numbers that would not
    come back as they are written stay strings: leading zeros (an id such as 007) and more digits than a float has.
    """
    schema = frame.collect_schema()
    strings = {name: ("whole", "number", "flag") for name in names if schema[name] == pl.String}
    first = _common_kinds(frame.head(ROWS_TO_GUESS_TYPES_FROM), strings)
    wider = {"whole": ("whole", "number"), "number": ("number",), "flag": ("flag",)}
    result = _common_kinds(frame, {name: wider[kind] for name, kind in first.items()})
    types: dict[str, pl.DataType] = {"whole": pl.Int64(), "number": pl.Float64(), "flag": pl.Boolean()}
    return {name: types[kind] for name, kind in result.items()}


def _common_kinds(frame: pl.LazyFrame, kinds: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the first of the kinds given for each column that all its values are of; nothing for one without."""
    names = frame.collect_schema().names()
    checks = {
        f"{index} {kind}": _all_of_kind(names.index(name), kind)
        for index, (name, asked) in enumerate(kinds.items())
        for kind in asked
    }
    if not checks:
        return {}
    holds = frame.select(**checks).collect(engine="streaming").row(0, named=True)
    result = {name: [kind for kind in kinds[name] if holds[f"{index} {kind}"]] for index, name in enumerate(kinds)}
    return {name: those[0] for name, those in result.items() if those}


_MOST_DIGITS_OF_A_FLOAT = 1e15


def _all_of_kind(index: int, kind: str) -> pl.Expr:
    """Return whether all strings of a column that are not empty, and at least one, are of a kind."""
    string = pl.nth(index).filter(pl.nth(index) != "")
    if kind == "flag":
        return (string.len() > 0) & string.str.to_lowercase().is_in(["true", "false"]).all()
    padded = string.str.starts_with("0") & (string.str.len_bytes() > 1) & ~string.str.starts_with("0.")
    padded |= string.str.starts_with("-0") & (string.str.len_bytes() > 2) & ~string.str.starts_with("-0.")
    plain = ~(padded | string.str.starts_with("+"))
    if kind == "whole":
        return (string.len() > 0) & (plain & string.cast(pl.Int64, strict=False).is_not_null()).all()
    number = string.cast(pl.Float64, strict=False)
    long = (number.abs() >= _MOST_DIGITS_OF_A_FLOAT) & number.is_finite()
    long &= ~(string.str.contains("e", literal=True) | string.str.contains("E", literal=True))
    return number.is_finite().any() & (plain & ~long & number.is_not_null()).all()


def refuse_other_headers(paths: Sequence[Location], separator: str) -> None:
    """Refuse a file with two columns of one name, which Polars would rename, and files whose columns differ."""
    first: tuple[Location, list[str]] | None = None
    for path in paths:
        header = next(_rows(path, separator), None)
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


def _rows(path: Location, separator: str) -> Iterator[list[str]]:
    """Yield the header and the rows of a CSV file on disk, up to what cannot be read: Polars says so next."""
    if not isinstance(path, Path):
        return  # a file elsewhere is not fetched to be looked at
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with (
        suppress(UnicodeDecodeError, EOFError, OSError, csv.Error),
        opened(path, "rt", encoding="utf-8-sig", newline="") as file,
    ):
        yield from csv.reader(file, delimiter=separator)


def refuse_long_row(path: Location, separator: str) -> None:
    """Refuse a CSV file on disk by its first row of more values than columns, if it has one."""
    rows = _rows(path, separator)
    columns = len(next(rows, []))
    for number, row in enumerate(rows):
        if len(row) > columns:
            raise InputError(
                f"row {number} of {path} has {len(row)} values, and the header {columns} columns; a value with "
                f"{separator!r} in it needs quotes around it"
            )


def is_empty_line(path: Location, separator: str, row: int) -> bool:
    """Tell whether a row of a CSV file on disk is a line without any value."""
    return next(islice(_rows(path, separator), row + 1, None), None) == []


def lines_of(path: Location, separator: str = "\x1f") -> pl.LazyFrame:
    """Return a file as one column of strings, a line each; no line has the separator in it."""
    return pl.scan_csv(
        fspath(path),
        separator=separator,
        quote_char=None,
        has_header=False,
        schema={"line": pl.String},
        **source_options([path]),
    )


class ShortRows:
    """Refuses CSV files with rows of too few values, which Polars fills with missing ones.

    A short row lacks its last values, so files are looked through only after a field was missing in some row.
    """

    def __init__(self, paths: Sequence[Location], separator: str) -> None:
        self._paths = [path for path in paths if isinstance(path, Path)]
        self._separator = separator
        self._lock = threading.Lock()

    def check(self, columns: Iterable[pl.Series]) -> None:
        """Refuse a short row of any file, if a value of these columns is missing."""
        if not self._paths or not any(column.null_count() for column in columns):
            return
        with self._lock:
            paths, self._paths = self._paths, []
        for path in paths:
            with suppress(pl.exceptions.PolarsError):
                self._refuse(path)  # what cannot be read is said where the rows are read

    def _refuse(self, path: Path) -> None:
        rows = _rows(path, self._separator)
        columns = len(next(rows, []))
        if not self._may_have_short_rows(path, columns):
            return
        for number, row in enumerate(rows):
            if 0 < len(row) < columns:
                raise InputError(
                    f"row {number} of {path} has {len(row)} values, and the header {columns} columns; a value that is "
                    "missing at the end needs its separator"
                )

    def _may_have_short_rows(self, path: Path, width: int) -> bool:
        """Tell whether a line has too few separators, or a quoted value goes on in the next line."""
        # No line has the character that separates columns here: each line is one text.
        none = "\x1e" if self._separator == "\x1f" else "\x1f"
        lines = lines_of(path, none)
        line = pl.col("line")
        bare = pl.when(line.str.contains('"', literal=True)).then(line.str.replace_all('"[^"]*"', "")).otherwise(line)
        short = bare.str.count_matches(self._separator, literal=True) < width - 1
        result = lines.select((short | bare.str.contains('"', literal=True)).any()).collect().item()
        return bool(result)
