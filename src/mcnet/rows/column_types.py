"""How a query tells the type of a column, and writes its values in mcnet's canonical form whatever the type.

A query is written before anyone knows the types of its columns, and engines refuse casts that make no sense, even where
they are never computed. So an expression here goes through the string of a value, or through another form that the
engine makes of values of every type.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnTypes:
    """Conditions and expressions of one SQL engine; {} is the column."""

    name: str
    """The name of the type, for people."""
    plain: str
    """Whether a cast to a string gives the canonical form: strings, whole numbers, booleans, and dates if possible."""
    boolean: str
    decimal: str
    double: str
    zoned_timestamp: str
    as_double: str
    """A double as it is, in an expression that the engine takes for columns of every type."""
    failure: str
    """An expression that ends the query; {} is the message, which depends on the row."""
    single: str | None = None
    single_as_double: str | None = None
    timestamp: str | None = None
    """Whether the values are dates and clock times without a time zone, or dates that a cast does not write as ISO."""
    timestamp_string: str | None = None
    """A timestamp as 2026-11-16 07:00:00, with a fraction after a point if there is one."""
    utc_string: str | None = None
    """The same of a timestamp with a time zone, as clocks in UTC show it."""
    infinity: str = "inf"
    """The string that is cast to the largest double of all."""
    decimal_string: str | None = None
    """All digits of a decimal without an exponent, where a cast to a string may write one."""
    padded: str | None = None
    """Whether values are fetched with blanks that fill them up, which a cast to a string leaves out."""

    def marks(self, column: str) -> list[tuple[str, str]]:
        """Return conditions on a column, and the letter that each one stands for in the result of a sketch query."""
        conditions = {
            "b": self.boolean,
            "n": self.decimal,
            "d": self.double,
            "s": self.single,
            "t": self.timestamp,
            "z": self.zoned_timestamp,
            "c": self.padded,
        }
        return [(result.format(column), mark) for mark, result in conditions.items() if result is not None]

    def canonical_decimal(self, column: str, string_type: str, *, small: bool) -> str:
        """Return the canonical string of a decimal, all of its digits; NULL for NaN and infinity."""
        exact = self.decimal_string
        written = f"CAST({column} AS {string_type})" if exact is None else exact.format(column)
        whole = f"REGEXP_REPLACE({written}, '[.]0*$', '')"
        fraction = f"REGEXP_REPLACE({whole}, '0+$', '')"
        cases = [(f"{whole} LIKE '%N%' OR {whole} LIKE '%I%'", "NULL"), (f"{whole} NOT LIKE '%.%'", whole)]
        exponent = "NULL"
        if small:
            digits = f"REGEXP_REPLACE({fraction}, '^-?0[.]0*', '')"
            position = f"LENGTH(REGEXP_REPLACE({fraction}, '^-?0[.]', '')) - LENGTH({digits}) + 1"
            exponent = (
                f"CASE WHEN {whole} LIKE '-%' THEN '-' ELSE '' END || SUBSTR({digits}, 1, 1)"
                f" || CASE WHEN LENGTH({digits}) > 1 THEN '.' ELSE '' END || SUBSTR({digits}, 2)"
                f" || CASE WHEN {position} < 10 THEN 'e-0' ELSE 'e-' END || CAST({position} AS {string_type})"
            )
        cases.append((f"{whole} LIKE '0.0000%' OR {whole} LIKE '-0.0000%'", exponent))
        return "CASE" + "".join(f" WHEN {result} THEN {value}" for result, value in cases) + f" ELSE {fraction} END"

    def canonical_timestamp(self, column: str, *, zoned: bool) -> str | None:
        """Return the canonical string of a timestamp: 2026-11-16 at midnight, else 2026-11-16T07:00:00."""
        template = self.utc_string if zoned else self.timestamp_string
        if template is None:
            return None
        written = template.format(column)
        day, clock = f"SUBSTR({written}, 1, 10)", f"SUBSTR({written}, 12, 8)"
        fraction = f"RPAD(SUBSTR({written}, 21, 6), 6, '0')"
        exact = f"CASE WHEN {fraction} = '000000' THEN '' ELSE '.' || {fraction} END"
        whole = f"{day} || 'T' || {clock} || {exact}"
        if zoned:
            return f"{whole} || '+00:00'"
        midnight = f"{clock} = '00:00:00' AND {fraction} = '000000'"
        return f"CASE WHEN {midnight} THEN {day} ELSE {whole} END"


def _one_of(kind: str, *names: str, cast: str = "") -> str:
    """Return the condition that a type, in the words of the engine, is one of these."""
    quoted = (f"'{name}'{cast}" for name in names)
    return f"{kind} IN ({', '.join(quoted)})"


_PG_TIMESTAMP = "TO_CHAR({}, 'YYYY-MM-DD HH24:MI:SS.US')"
_SNOWFLAKE_TIMESTAMP = "TO_CHAR({}, 'YYYY-MM-DD HH24:MI:SS.FF6')"
_VIA_STRING = "CAST(CAST({{}} AS {string}) AS {double})"
_VIA_SINGLE = "CAST(CAST(CAST({{}} AS {string}) AS {single}) AS {double})"

COLUMN_TYPES = {
    "duckdb": ColumnTypes(
        name="typeof({})",
        plain="(typeof({0}) LIKE '%INT' OR typeof({0}) LIKE 'ENUM(%' OR "
        + _one_of("typeof({0})", "VARCHAR", "INTEGER", "UINTEGER", "BOOLEAN", "DATE", "UUID", "BIGNUM")
        + ")",
        boolean="typeof({}) = 'BOOLEAN'",
        decimal="typeof({}) LIKE 'DECIMAL(%'",
        double="typeof({}) = 'DOUBLE'",
        single="typeof({}) = 'FLOAT'",
        timestamp=_one_of("typeof({})", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        zoned_timestamp="typeof({}) = 'TIMESTAMP WITH TIME ZONE'",
        as_double=_VIA_STRING.format(string="VARCHAR", double="DOUBLE"),
        single_as_double=_VIA_SINGLE.format(string="VARCHAR", single="FLOAT", double="DOUBLE"),
        timestamp_string="CAST({} AS VARCHAR)",
        utc_string="CAST(CAST(CAST({} AS VARCHAR) AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS VARCHAR)",
        failure="error({})",
    ),
    "postgresql": ColumnTypes(
        name="CAST(pg_typeof({}) AS TEXT)",
        # Enums, domains over strings and types of extensions have names of their own.
        plain="("
        + _one_of(
            "pg_typeof({0})",
            "text",
            "varchar",
            "bpchar",
            "boolean",
            "smallint",
            "integer",
            "bigint",
            "uuid",
            "name",
            cast="::regtype",
        )
        + " OR EXISTS (SELECT 1 FROM pg_catalog.pg_type AS k WHERE k.oid = pg_typeof({0})"
        " AND k.typcategory IN ('S', 'E')))",
        boolean="pg_typeof({}) = 'boolean'::regtype",
        decimal="pg_typeof({}) = 'numeric'::regtype",
        double="pg_typeof({}) = 'double precision'::regtype",
        single="pg_typeof({}) = 'real'::regtype",
        # How a date is written depends on the session's DateStyle, but in JSON.
        timestamp=_one_of("pg_typeof({})", "timestamp", "date", cast="::regtype"),
        zoned_timestamp="pg_typeof({}) = 'timestamptz'::regtype",
        as_double=_VIA_STRING.format(string="TEXT", double="DOUBLE PRECISION"),
        single_as_double=_VIA_SINGLE.format(string="TEXT", single="REAL", double="DOUBLE PRECISION"),
        timestamp_string=_PG_TIMESTAMP.format("CAST(TO_JSONB({}) #>> '{{}}' AS TIMESTAMP)"),
        utc_string=_PG_TIMESTAMP.format("CAST(TO_JSONB({}) #>> '{{}}' AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"),
        failure="CAST(CAST({} AS INTEGER) AS TEXT)",
        padded="(pg_typeof({0}) = 'bpchar'::regtype OR EXISTS (SELECT 1 FROM pg_catalog.pg_type AS k"
        " WHERE k.oid = pg_typeof({0}) AND k.typbasetype = 'bpchar'::regtype))",
    ),
    "bigquery": ColumnTypes(
        # BigQuery names no type, but writes a value as a literal that shows it: NUMERIC "1.5", 1.5, "text".
        name="SUBSTR(FORMAT('%T', {}), 1, 20)",
        plain="REGEXP_CONTAINS(FORMAT('%T', {}), r'^[\"\\x27]|^-?[0-9]+$|^true$|^false$|^DATE ')",
        boolean="FORMAT('%T', {}) IN ('true', 'false')",
        decimal="REGEXP_CONTAINS(FORMAT('%T', {}), '^(BIG)?NUMERIC ')",
        double="REGEXP_CONTAINS(FORMAT('%T', {}), '^-?[0-9]+[.e]|^CAST')",
        timestamp="STARTS_WITH(FORMAT('%T', {}), 'DATETIME ')",
        zoned_timestamp="STARTS_WITH(FORMAT('%T', {}), 'TIMESTAMP ')",
        as_double=_VIA_STRING.format(string="STRING", double="FLOAT64"),
        timestamp_string="CAST({} AS STRING)",
        utc_string="CAST(DATETIME(CAST(CAST({} AS STRING) AS TIMESTAMP), 'UTC') AS STRING)",
        failure="ERROR({})",
    ),
    "snowflake": ColumnTypes(
        name="SYSTEM$TYPEOF({})",
        plain="(SYSTEM$TYPEOF({0}) LIKE 'VARCHAR(%' OR SYSTEM$TYPEOF({0}) LIKE 'BOOLEAN[%'"
        " OR SYSTEM$TYPEOF({0}) LIKE 'NUMBER(%,0)[%')",
        boolean="SYSTEM$TYPEOF({}) LIKE 'BOOLEAN[%'",
        decimal="SYSTEM$TYPEOF({}) LIKE 'NUMBER(%'",
        double="SYSTEM$TYPEOF({}) LIKE 'FLOAT[%'",
        # How a date is written depends on the session's DATE_OUTPUT_FORMAT.
        timestamp="(SYSTEM$TYPEOF({0}) LIKE 'TIMESTAMP_NTZ(%' OR SYSTEM$TYPEOF({0}) LIKE 'DATE[%')",
        zoned_timestamp="(SYSTEM$TYPEOF({0}) LIKE 'TIMESTAMP_LTZ(%' OR SYSTEM$TYPEOF({0}) LIKE 'TIMESTAMP_TZ(%')",
        as_double="AS_DOUBLE(TO_VARIANT({}))",  # the string of a double does not have all of its digits
        timestamp_string=_SNOWFLAKE_TIMESTAMP.format("CAST(TO_VARIANT({}) AS TIMESTAMP_NTZ)"),
        utc_string=_SNOWFLAKE_TIMESTAMP.format("CONVERT_TIMEZONE('UTC', CAST(TO_VARIANT({}) AS TIMESTAMP_TZ))"),
        failure="CAST(CAST({} AS INTEGER) AS VARCHAR)",
    ),
    "spark": ColumnTypes(
        name="typeof({})",
        plain="(typeof({0}) LIKE 'varchar%' OR typeof({0}) LIKE 'char%' OR typeof({0}) LIKE 'string%' OR "
        + _one_of("typeof({0})", "boolean", "tinyint", "smallint", "int", "bigint", "date")
        + ")",
        boolean="typeof({}) = 'boolean'",
        decimal="typeof({}) LIKE 'decimal(%'",
        double="typeof({}) = 'double'",
        single="typeof({}) = 'float'",
        timestamp="typeof({}) = 'timestamp_ntz'",
        zoned_timestamp="typeof({}) = 'timestamp'",
        as_double=_VIA_STRING.format(string="STRING", double="DOUBLE"),
        single_as_double=_VIA_SINGLE.format(string="STRING", single="FLOAT", double="DOUBLE"),
        timestamp_string="CAST({} AS STRING)",
        # The string of a timestamp leaves out the time zone: an hour of autumn would be two.
        utc_string="GET_JSON_OBJECT(TO_JSON(NAMED_STRUCT('v', {}), MAP('timeZone', 'UTC', 'timestampFormat', "
        "'yyyy-MM-dd HH:mm:ss.SSSSSS')), '$.v')",
        failure="CAST(RAISE_ERROR({}) AS STRING)",
        # Outside ANSI mode a cast writes numbers below 0.000001 as 1.50E-7.
        decimal_string="CASE WHEN CAST({0} AS STRING) LIKE '%E-%' THEN"
        " REGEXP_REPLACE(CAST({0} AS STRING), '[0-9].*$', '') || '0.'"
        " || REPEAT('0', TRY_CAST(REGEXP_REPLACE(CAST({0} AS STRING), '^.*E-', '') AS INT) - 1)"
        " || REGEXP_REPLACE(CAST({0} AS STRING), 'E.*$|[-.]', '') ELSE CAST({0} AS STRING) END",
    ),
    "clickhouse": ColumnTypes(
        name="toTypeName({})",
        plain="match(toTypeName({}), '^(LowCardinality[(])?(Nullable[(])?"
        "(String|FixedString|Enum|UUID|Bool|Date[)]*$|Date32|U?Int|IPv)')",
        boolean="match(toTypeName({}), '^(LowCardinality[(])?(Nullable[(])?Bool')",
        decimal="match(toTypeName({}), '^(LowCardinality[(])?(Nullable[(])?Decimal')",
        double="match(toTypeName({}), '^(LowCardinality[(])?(Nullable[(])?B?Float')",
        zoned_timestamp="match(toTypeName({}), '^(LowCardinality[(])?(Nullable[(])?DateTime')",
        as_double="accurateCastOrNull({}, 'Float64')",
        utc_string="CAST(accurateCastOrNull({}, 'DateTime64(6, ''UTC'')') AS Nullable(String))",
        failure="toString(toInt32({}))",
    ),
    "trino": ColumnTypes(
        name="typeof({})",
        plain="(typeof({0}) LIKE 'varchar%' OR typeof({0}) LIKE 'char(%' OR "
        + _one_of("typeof({0})", "boolean", "tinyint", "smallint", "integer", "bigint", "date", "uuid")
        + ")",
        boolean="typeof({}) = 'boolean'",
        decimal="typeof({}) LIKE 'decimal(%'",
        double="typeof({}) = 'double'",
        single="typeof({}) = 'real'",
        timestamp="typeof({0}) LIKE 'timestamp(%' AND typeof({0}) NOT LIKE '%zone'",
        # Its string has the name of a zone, in which an hour of autumn is two: such columns are refused.
        zoned_timestamp="typeof({}) LIKE 'timestamp(%zone'",
        as_double=_VIA_STRING.format(string="VARCHAR", double="DOUBLE"),
        single_as_double=_VIA_SINGLE.format(string="VARCHAR", single="REAL", double="DOUBLE"),
        timestamp_string="CAST({} AS VARCHAR)",
        failure="CAST(fail({}) AS VARCHAR)",
        infinity="Infinity",
    ),
}
"""By the name of the dialect."""
