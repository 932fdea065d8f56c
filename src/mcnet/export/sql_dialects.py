"""What the SQL dialects write differently: quotes, types, numbers, and how tables are made."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcnet.errors import InputError, NotSupportedError

__all__ = ["DIALECTS", "Dialect", "dialect_named", "name_parts"]


@dataclass(frozen=True)
class Dialect:
    """The words of one SQL engine."""

    name: str
    text_type: str
    whole_type: str
    double_type: str
    quote_text: Callable[[str], str]
    quote_name: Callable[[str], str]
    is_nan: str
    """An expression with {} for the number."""
    longest: int | None = None
    """How many bytes the engine takes at a time, if it says so."""

    def text(self, value: str) -> str:
        """Return a text literal that means exactly the value."""
        if "\x00" in value:
            raise NotSupportedError(f"the field value {value!r} holds a zero character, which SQL text cannot hold")
        return self.quote_text(value)

    def table(self, name: str | Sequence[str]) -> str:
        """Return the quoted name of a table."""
        return ".".join(self.quote_name(part) for part in name_parts(name))

    def column(self, name: str) -> str:
        """Return the quoted name of a column."""
        if not name or "\x00" in name or "\r" in name:
            raise InputError(
                f"{name!r} cannot be the name of a column in SQL; name the columns with score=, fields=, output="
            )
        return self.quote_name(name)

    def number(self, value: float) -> str:
        """Return a literal that means exactly the double, where a double is wanted.

        The exponent makes it a double in DuckDB and BigQuery. In PostgreSQL it is a numeric of these digits, which
        becomes a double beside one: scores are cast before they meet it, and results that may be literals alone after.
        """
        text = repr(float(value))
        return text if "e" in text else text + "e0"


def name_parts(name: str | Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a table's name: dots divide a text, a sequence is taken as it is."""
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not parts or any(not part or "\x00" in part for part in parts):
        raise InputError(f"{name!r} is not the name of a table; write it as table or schema.table")
    return parts


def _doubled(mark: str) -> Callable[[str], str]:
    return lambda text: mark + text.replace(mark, mark * 2) + mark


def _by_number(quote: Callable[[str], str]) -> Callable[[str], str]:
    """Return a quote that writes control characters by their number: a reader of text files may change a line's end."""

    def quoted(value: str) -> str:
        parts = re.split(r"([\x00-\x1f\x7f-\x9f\u2028\u2029])", value)
        if len(parts) == 1:
            return quote(value)
        texts = [f"chr({ord(part)})" if place % 2 else quote(part) for place, part in enumerate(parts)]
        return f"({' || '.join(texts)})"

    return quoted


def _postgres_text(value: str) -> str:
    # An E-text means the same whatever the server's standard_conforming_strings.
    return "E" + _doubled("'")(value.replace("\\", "\\\\")) if "\\" in value else _doubled("'")(value)


def _escaped(mark: str) -> Callable[[str], str]:
    def quote(text: str) -> str:
        inside = "".join(
            f"\\{char}" if char in ("\\", "'", '"', "`") else char if char.isprintable() else _code_point(char)
            for char in text
        )
        return mark + inside + mark

    return quote


def _code_point(char: str) -> str:
    return f"\\U{ord(char):08x}"


DIALECTS = {
    "duckdb": Dialect(
        "duckdb", "VARCHAR", "INTEGER", "DOUBLE", _by_number(_doubled("'")), _doubled('"'), "isnan(CAST({} AS DOUBLE))"
    ),
    "postgresql": Dialect(
        "postgresql",
        "TEXT",
        "INTEGER",
        "DOUBLE PRECISION",
        _by_number(_postgres_text),
        _doubled('"'),
        "{} = 'NaN'",
    ),
    "bigquery": Dialect(
        "bigquery", "STRING", "INT64", "FLOAT64", _escaped("'"), _escaped("`"), "IS_NAN(CAST({} AS FLOAT64))", 1_000_000
    ),
}


def dialect_named(name: str) -> Dialect:
    """Return a dialect by its name."""
    if name not in DIALECTS:
        raise InputError(f"dialect is {name!r}; it is one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
