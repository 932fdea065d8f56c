"""What the SQL dialects write differently: quotes, types, numbers, and how tables are made."""

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

    def text(self, value: str) -> str:
        """Return a text literal that means exactly the value."""
        if "\x00" in value:
            raise NotSupportedError(f"the field value {value!r} holds a zero character, which SQL text cannot hold")
        return self.quote_text(value)

    def table(self, name: str | Sequence[str]) -> str:
        """Return the quoted name of a table."""
        return ".".join(self.quote_name(part) for part in name_parts(name))

    def number(self, value: float) -> str:
        """Return a literal of a double; the exponent keeps engines from reading it as a decimal."""
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
        "duckdb", "VARCHAR", "INTEGER", "DOUBLE", _doubled("'"), _doubled('"'), "isnan(CAST({} AS DOUBLE))"
    ),
    "postgresql": Dialect(
        "postgresql",
        "TEXT",
        "INTEGER",
        "DOUBLE PRECISION",
        _postgres_text,
        _doubled('"'),
        "CAST({} AS DOUBLE PRECISION) = 'NaN'",
    ),
    "bigquery": Dialect(
        "bigquery", "STRING", "INT64", "FLOAT64", _escaped("'"), _escaped("`"), "IS_NAN(CAST({} AS FLOAT64))"
    ),
}


def dialect_named(name: str) -> Dialect:
    """Return a dialect by its name."""
    if name not in DIALECTS:
        raise InputError(f"dialect is {name!r}; it is one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
