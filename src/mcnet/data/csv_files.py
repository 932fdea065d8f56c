"""CSV files, which have no types: guessed ones, and the canonical form of a field."""

import csv
import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet.data.locations import Location
from mcnet.data.read_options import read_options
from mcnet.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "ROWS_TO_GUESS_TYPES_FROM",
    "canonical_csv_text",
    "csv_separator",
    "guessed_csv_types",
    "plain_name",
    "refuse_repeated_names",
    "typed_csv_text",
    "types_of_texts",
    "with_plain_names",
]

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
    if kind.is_numeric():
        column = column.str.strip_chars().replace({"": None})
    return column.cast(kind)


def types_of_texts(frame: "pl.LazyFrame", names: Sequence[str]) -> "dict[str, pl.DataType]":
    """Return the columns of a table of strings that are whole numbers, numbers or flags in every row, with their type.

    As where types are guessed, the first rows propose a type; here every row has to agree. Numbers that would not
    come back as they are written stay strings: leading zeros (an id such as 007) and more digits than a float has.

    Parameters
    ----------
    frame : a table whose columns are strings.
    names : the columns to look at.
    """
    found = _common_types(frame.head(ROWS_TO_GUESS_TYPES_FROM), names)
    return _common_types(frame, list(found))


_WHOLE = r"^-?(0|[1-9]\d{0,18})$"
_NOT_A_PLAIN_NUMBER = r"^-?0\d|^\+|^-?\d{16}"


def _common_types(frame: "pl.LazyFrame", names: Sequence[str]) -> "dict[str, pl.DataType]":
    import polars as pl

    if not names:
        return {}
    known, checks = frame.collect_schema().names(), []
    for place, name in enumerate(names):
        if frame.collect_schema()[name] != pl.String:
            continue  # a folder's column has its type
        text = pl.nth(known.index(name)).str.strip_chars().replace({"": None}).drop_nulls()
        whole = text.str.contains(_WHOLE) & text.cast(pl.Int64, strict=False).is_not_null()
        number = text.cast(pl.Float64, strict=False).is_not_null() & ~text.str.contains(_NOT_A_PLAIN_NUMBER)
        flag = text.str.to_lowercase().is_in(["true", "false"])
        digits = text.str.contains(r"\d")
        checks += [
            (digits.any() & whole.all()).alias(f"{place} whole"),
            (digits.any() & number.all()).alias(f"{place} number"),
            ((text.len() > 0) & flag.all()).alias(f"{place} flag"),
        ]
    row = frame.select(checks).collect(engine="streaming").row(0, named=True) if checks else {}
    kinds = {"whole": pl.Int64(), "number": pl.Float64(), "flag": pl.Boolean()}
    found: dict[str, pl.DataType] = {}
    for place, name in enumerate(names):
        kind = next((kinds[kind] for kind in kinds if row.get(f"{place} {kind}")), None)
        if kind is not None:
            found[name] = kind
    return found


def refuse_repeated_names(paths: Sequence[Location], separator: str) -> None:
    """Refuse a file with two columns of one name: Polars would rename the second."""
    for path in paths:
        if not isinstance(path, Path):
            continue  # a file elsewhere is not fetched for its header alone
        opened = gzip.open if path.name.lower().endswith(".gz") else open
        try:
            with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
                header = next(csv.reader(lines, delimiter=separator), [])
        except (OSError, EOFError, UnicodeDecodeError, csv.Error):
            continue  # Polars reads the file next and says what is wrong with it
        twice = [name for name, count in Counter(header).items() if count > 1]
        if twice:
            raise InputError(f"{path} has two columns named {twice[0]!r}; give each its own name")
