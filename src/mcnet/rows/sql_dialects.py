"""What the SQL dialects write differently: quotes, types, numbers, and tables written in the text of a query."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcnet.errors import InputError, NotSupportedError
from mcnet.rows.column_types import COLUMN_TYPES

if TYPE_CHECKING:
    from mcnet.rows.fields import Edges

# How engines quote: a text or a name that means exactly what it says, whatever is in it.

_CONTROL = re.compile(r"([\x00-\x1f\x7f-\x9f\u2028\u2029])")


def doubled(mark: str) -> Callable[[str], str]:
    """Return a quote that doubles its mark inside.

    >>> doubled("'")("it's")
    "'it''s'"
    """
    return lambda text: mark + text.replace(mark, mark * 2) + mark


def by_code(quote: Callable[[str], str]) -> Callable[[str], str]:
    """Return a quote that writes control characters by their number: a reader of text files may change a line's end."""

    def quoted(value: str) -> str:
        parts = _CONTROL.split(value)
        if len(parts) == 1:
            return quote(value)
        strings = [f"chr({ord(part)})" if index % 2 else quote(part) for index, part in enumerate(parts)]
        return f"({' || '.join(strings)})"

    return quoted


def postgresql_text(value: str) -> str:
    """Return a text literal of PostgreSQL."""
    # An E-text means the same whatever the server's standard_conforming_strings.
    return "E" + doubled("'")(value.replace("\\", "\\\\")) if "\\" in value else doubled("'")(value)


def escaped(mark: str, code_point: Callable[[str], str]) -> Callable[[str], str]:
    """Return a quote that escapes with backslashes; `code_point` writes a character that cannot be printed."""

    def quote(text: str) -> str:
        inside = "".join(
            f"\\{char}" if char in ("\\", "'", '"', "`") else char if char.isprintable() else code_point(char)
            for char in text
        )
        return mark + inside + mark

    return quote


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
    timestamp_type: str = "TIMESTAMP"
    """The type of a timestamp without a time zone."""
    column_as_double: str | None = None
    """The expression of a column as a double, where a cast would take texts that are no numbers for missing values."""
    fetched: str = "{}"
    """The expression of a field value such that every client gets the value, and not how the engine stores it."""
    in_utc: str = "CAST({} AT TIME ZONE 'UTC' AS TIMESTAMP)"
    """The expression of a timestamp with a time zone as one without, as clocks in UTC show it."""
    zoned_type: str | None = "TIMESTAMP WITH TIME ZONE"
    """The type of timestamps with a time zone; None if the type for clocks in UTC keeps what they mean."""
    string_with_zone: str | None = None
    """Whether the column has strings with a time zone, where a cast to a timestamp without one would forget it."""
    truncated: str = "DATE_TRUNC('{unit}', {timestamp})"
    """The expression of a timestamp cut to a unit: minute, hour, day, month or year."""
    weekday: str = "EXTRACT(ISODOW FROM {})"
    """The expression of the day of the week of a timestamp, from 1 for Monday to 7."""
    casts_booleans: bool = True
    """Whether a boolean can be cast to a double."""
    goes_by_row: bool = False
    """Whether compiled code goes from row to row, and leaves out conditions that need no test."""
    ignores_case: bool = False
    """Whether names of columns that differ only in case are one column."""
    computed: tuple[str, str] = ("CROSS JOIN LATERAL (SELECT {} AS x) AS mcnet__s", "mcnet__s.x")
    """What follows a table in FROM so that an expression of its columns has a name, and the name."""
    named_columns: str | None = "\nCROSS JOIN LATERAL (SELECT {columns}) AS {table}"
    """The same for several expressions; None if the engine computes an expression once that is written often."""
    create_table: str = "CREATE TABLE {table} ({columns})"
    """The statement that makes a table; {key} has the names of the columns that tell its rows apart."""
    drops_first: bool = True
    """Whether a table of that name has to be dropped before."""
    not_null: str = " NOT NULL"
    """What follows the type of a column that has no missing values."""
    transactions: bool = False
    """Whether tables are made inside transactions, all or none."""
    longest: int | None = None
    """How many bytes the engine takes at a time, if it says so."""

    def timestamp(self, column: str, zoned: bool | None) -> str:
        """Return a column of timestamps as clocks in UTC show them; without a time zone they are taken as they are.

        Where nobody knows whether the column has a time zone (None), the query asks the engine.
        """
        local = f"CAST({column} AS {self.timestamp_type})"
        if zoned is None and self.zoned_type is not None:
            conditions = [COLUMN_TYPES[self.name].zoned_timestamp.format(column)]
            if self.string_with_zone is not None:
                conditions.append(self.string_with_zone.format(column))
            in_utc = self.in_utc.format(f"CAST({column} AS {self.zoned_type})")
            return f"CASE WHEN {' OR '.join(conditions)} THEN {in_utc} ELSE {local} END"
        return self.in_utc.format(column) if zoned else local

    def derived(self, name: str, column: str, edges: "Edges | None", zoned: bool | None) -> str:
        """Return the value of a derived field (`mcnet.rows.derived`) as a string."""
        from mcnet.rows.derived import bin_texts  # not before: the command line lists dialects in its help
        from mcnet.rows.fields import CLOCK, HOURS, WEEKDAYS, derivation

        derived = derivation(name)
        assert derived is not None
        if derived[1] in CLOCK:
            timestamp = self.timestamp(column, zoned)
            day = self._of(self.weekday.format(timestamp), enumerate(WEEKDAYS, 1))
            hour = self._of(f"EXTRACT(HOUR FROM {timestamp})", enumerate(HOURS))
            return {"hour": hour, "weekday": day}.get(derived[1], f"({day} || ' ' || {hour})")
        number = self.double_column(column)
        *below, last = bin_texts(edges or ())
        cases = "".join(
            f" WHEN {number} < {self.number(edge)} THEN {self.text(text)}"
            for edge, text in zip(edges or (), below, strict=True)
        )
        missing = f"{column} IS NULL OR {self.is_nan.format(number)}"
        return f"CASE WHEN {missing} THEN NULL{cases} ELSE {self.text(last)} END"

    def _of(self, number: str, texts: Iterable[tuple[int, str]]) -> str:
        return f"CASE {number}{''.join(f' WHEN {n} THEN {self.text(text)}' for n, text in texts)} END"

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

        The exponent makes it a double in most engines. In PostgreSQL it is a numeric of these digits, which becomes a
        double beside one: scores are cast before they meet it, and results that may be literals alone after.
        """
        string = repr(float(value))
        return string if "e" in string else string + "e0"

    def as_double(self, expression: str) -> str:
        """Return the expression as a double."""
        return f"CAST({expression} AS {self.double_type})"

    def double_column(self, column: str) -> str:
        """Return a column of the rows as a double; a text that is no number ends the query."""
        return self.as_double(column) if self.column_as_double is None else self.column_as_double.format(column)

    def as_whole(self, expression: str) -> str:
        """Return the expression as a whole number of 32 bits or more."""
        return f"CAST({expression} AS {self.whole_type})"

    def stored_type(self, kind: str) -> str:
        """Return the type of a column without missing values: of "whole" numbers, "double" or "text"."""
        types = {"whole": self.whole_type, "double": self.double_type, "text": self.text_type}
        return types[kind].removeprefix("Nullable(").removesuffix(")") + self.not_null

    def named(self, table: str, expressions: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return what follows a table in FROM so that expressions of its columns have names, and these names."""
        if self.named_columns is None or not expressions:
            return "", dict(expressions)
        columns = ",\n  ".join(f"{expression} AS {name}" for name, expression in expressions.items())
        return self.named_columns.format(columns=columns, table=table), {
            name: f"{table}.{name}" for name in expressions
        }


def name_parts(name: str | Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a table's name: dots divide a text, a sequence is taken as it is."""
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not parts or any(not part or "\x00" in part for part in parts):
        raise InputError(f"{name!r} is not the name of a table; write it as table or schema.table")
    return parts


def _eight_digits(char: str) -> str:
    return f"\\U{ord(char):08x}"


def _utf16(char: str) -> str:
    """Return the escapes of a character in UTF-16, as Java writes it."""
    units = char.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _utf8(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


_KEYED = "CREATE TABLE {table} ({columns}, PRIMARY KEY ({key}))"

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "duckdb",
            "VARCHAR",
            "INTEGER",
            "DOUBLE",
            by_code(doubled("'")),
            doubled('"'),
            "isnan(CAST({} AS DOUBLE))",
            string_with_zone="regexp_matches(CAST({} AS VARCHAR), ':.*([Zz]|[+-][0-9:]+)$')",
            ignores_case=True,
            create_table=_KEYED,
            transactions=True,
        ),
        Dialect(
            "postgresql",
            "TEXT",
            "INTEGER",
            "DOUBLE PRECISION",
            by_code(postgresql_text),
            doubled('"'),
            "{} = 'NaN'",
            string_with_zone="CAST({} AS TEXT) ~ ':.*([Zz]|[+-][0-9:]+)$'",
            casts_booleans=False,
            create_table=_KEYED,
            transactions=True,
        ),
        Dialect(
            "bigquery",
            "STRING",
            "INT64",
            "FLOAT64",
            escaped("'", _eight_digits),
            escaped("`", _eight_digits),
            "IS_NAN(CAST({} AS FLOAT64))",
            timestamp_type="DATETIME",
            zoned_type="TIMESTAMP",
            string_with_zone="REGEXP_CONTAINS(CAST({} AS STRING), ':.*([Zz]|[+-][0-9:]+)$')",
            in_utc="DATETIME({}, 'UTC')",
            truncated="DATETIME_TRUNC({timestamp}, {unit})",
            weekday="MOD(EXTRACT(DAYOFWEEK FROM {}) + 5, 7) + 1",
            casts_booleans=False,
            ignores_case=True,
            computed=("CROSS JOIN UNNEST([{}]) AS mcnet__s", "mcnet__s"),
            named_columns="\nCROSS JOIN UNNEST([STRUCT({columns})]) AS {table}",
            create_table="CREATE OR REPLACE TABLE {table} ({columns})",
            drops_first=False,
            longest=1_000_000,
        ),
        Dialect(
            "snowflake",
            "VARCHAR",
            "INTEGER",
            "DOUBLE",
            escaped("'", _utf16),
            doubled('"'),
            "CAST({} AS DOUBLE) = CAST('NaN' AS DOUBLE)",
            timestamp_type="TIMESTAMP_NTZ",
            zoned_type="TIMESTAMP_TZ",
            # A session may write timestamps without a zone with a Z. The pattern is for the whole string.
            string_with_zone="(SYSTEM$TYPEOF({0}) LIKE 'VARCHAR%' "
            "AND REGEXP_LIKE(CAST({0} AS VARCHAR), '.*:.*([Zz]|[+-][0-9:]+)'))",
            in_utc="CAST(CONVERT_TIMEZONE('UTC', {}) AS TIMESTAMP_NTZ)",
            weekday="DAYOFWEEKISO({})",
            casts_booleans=False,
            create_table="CREATE OR REPLACE TABLE {table} ({columns})",
            drops_first=False,
            longest=1_000_000,
        ),
        Dialect(
            "spark",
            "STRING",
            "INT",
            "DOUBLE",
            escaped("'", _utf16),
            doubled("`"),
            "isnan(CAST({} AS DOUBLE))",
            timestamp_type="TIMESTAMP_NTZ",
            zoned_type="TIMESTAMP",
            string_with_zone="CAST({} AS STRING) RLIKE ':.*([Zz]|[+-][0-9:]+)$'",
            in_utc="TIMESTAMP_NTZ'1970-01-01' + MAKE_DT_INTERVAL(0, 0, 0, UNIX_MICROS({}) / 1000000)",
            # Of a timestamp without a zone Spark's DATE_TRUNC makes one of the session's zone.
            truncated="CAST(DATE_TRUNC('{unit}', {timestamp}) AS TIMESTAMP_NTZ)",
            weekday="(WEEKDAY({}) + 1)",
            goes_by_row=True,
            ignores_case=True,
            create_table="CREATE TABLE {table} ({columns}) USING parquet",
        ),
        Dialect(
            "clickhouse",
            "Nullable(String)",
            "Nullable(Int32)",
            "Nullable(Float64)",
            escaped("'", _utf8),
            escaped("`", _utf8),
            "isNaN(CAST({} AS Nullable(Float64)))",
            timestamp_type="Nullable(DateTime64(6, 'UTC'))",
            zoned_type=None,
            in_utc="CAST({} AS Nullable(DateTime64(6, 'UTC')))",
            weekday="toDayOfWeek({})",
            column_as_double="toFloat64({})",
            # In Arrow, ClickHouse writes an Enum or a DateTime as its number, and others as their bytes.
            fetched="accurateCast({0}, multiIf(match(toTypeName({0}), '(^|[(])(Enum|UUID|IPv[46]|U?Int(128|256))'), "
            "'Nullable(String)', match(toTypeName({0}), '(^|[(])DateTime($|[()])'), "
            "'Nullable(DateTime64(0, ''UTC''))', toTypeName({0})))",
            computed=("ARRAY JOIN [{}] AS mcnet__s", "mcnet__s"),
            named_columns=None,
            create_table="CREATE OR REPLACE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY ({key})",
            drops_first=False,
            not_null="",
            longest=262_144,
        ),
        Dialect(
            "trino",
            "VARCHAR",
            "INTEGER",
            "DOUBLE",
            by_code(doubled("'")),
            doubled('"'),
            "is_nan(CAST({} AS DOUBLE))",
            string_with_zone="REGEXP_LIKE(CAST({} AS VARCHAR), ':.*([Zz]|[+-][0-9:]+)$')",
            weekday="DAY_OF_WEEK({})",
            ignores_case=True,
            not_null="",
            longest=1_000_000,
        ),
    )
}


def dialect_named(name: str) -> Dialect:
    """Return a dialect by its name."""
    if name not in DIALECTS:
        raise InputError(f"dialect is {name!r}; it must be one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
