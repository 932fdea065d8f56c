"""Sketch a table where it is, through a connection to its database: DuckDB, DB-API or ADBC."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

from mcnet.errors import InputError, McnetError
from mcnet.rows.derived import DEFAULT_BINS
from mcnet.rows.fields import is_lazy, is_table, number_fields, source_column
from mcnet.rows.locations import read_options
from mcnet.rows.spec import RowSpec
from mcnet.rows.sql_dialects import DIALECTS, Dialect, dialect_named
from mcnet.sketch.query import fetched_columns, query_spec, table_query, timestamp_columns
from mcnet.sketch.sketch import Sketch

_DIALECT_OF_MODULE = {
    "duckdb": "duckdb",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pg8000": "postgresql",
    "google": "bigquery",
    "snowflake": "snowflake",
    "databricks": "spark",
    "clickhouse_connect": "clickhouse",
    "clickhouse_driver": "clickhouse",
    "chdb": "clickhouse",
    "trino": "trino",
}

_SAVEPOINT = "mcnet__scan"

_BOOLEAN_TYPES = ("16", "bool", "boolean")
"""How drivers name the type of a column of booleans in the description of a cursor: psycopg by its number."""


def is_connection(rows: Any) -> bool:
    """Tell whether this is a connection to a database: something with cursors."""
    return callable(getattr(_driver_connection(rows), "cursor", None)) and not (
        isinstance(rows, str | PathLike | Sequence) or is_table(rows) or is_lazy(rows)
    )


def _driver_connection(rows: Any) -> Any:
    """Return the connection of the driver that a connection of SQLAlchemy has, or what was given."""
    if type(rows).__module__.startswith("sqlalchemy") and hasattr(rows, "exec_driver_sql"):
        return rows.connection
    return rows


def dialect_of(connection: Any) -> Dialect:
    """Return the dialect of a connection, by its driver."""
    connection = getattr(connection, "driver_connection", None) or connection  # behind one of SQLAlchemy
    module = type(connection).__module__.partition(".")[0].lstrip("_")
    if module == "adbc_driver_manager":
        vendor = str(connection.adbc_get_info().get("vendor_name", "")).lower()
        name = next((name for name in DIALECTS if name in vendor), None)
    else:
        name = _DIALECT_OF_MODULE.get(module)
    if name is None:
        raise InputError(
            f"which SQL a connection of {type(connection).__module__} takes is not known; "
            f"pass dialect=, one of {', '.join(DIALECTS)}"
        )
    return DIALECTS[name]


def scan_connection(
    connection: Any, table: str | Sequence[str], spec: RowSpec, *, dialect: str | None, where: str | None
) -> Sketch:
    """Run the sketch query over a connection and read its result; see `scan` for the parameters."""
    connection = _driver_connection(connection)
    words = dialect_of(connection) if dialect is None else dialect_named(dialect)
    source = words.table(table) + ("" if where is None else f" WHERE ({where}\n)")
    spec = _with_edges(connection, spec, words, source)
    spec = query_spec(spec)

    def query(types: Mapping[str, Any]) -> str:
        kind = types.get(str(spec.label))  # as a driver tells it
        boolean = not words.casts_booleans and (
            str(kind).lower() in _BOOLEAN_TYPES or (words.name == "snowflake" and kind == 13)
        )
        zoned = [name for name in timestamp_columns(spec) if _has_zone(types[name], words)]
        return table_query(table, spec, words, where, "boolean" if boolean else "number", zoned)

    asked = list(dict.fromkeys((*([] if words.casts_booleans else [str(spec.label)]), *timestamp_columns(spec))))
    if _is_duckdb(connection):
        # A cursor of DuckDB is its own connection, which sees neither temporary nor registered tables.
        with _refused_by(words):
            kinds = connection.sql(_bare_query(words, table, asked)).types if asked else []
            result = connection.sql(query(dict(zip(asked, kinds, strict=True)))).to_arrow_table()
        return Sketch.from_table(result, drop_missing=spec.drop_missing)
    with _refused_by(words), _usable_afterwards(connection, words), closing(_cursor(connection)) as cursor:
        types = {}
        if asked:
            cursor.execute(_bare_query(words, table, asked))
            types = {name: column[1] for name, column in zip(asked, cursor.description, strict=True)}
        cursor.execute(query(types))
        fetched = fetched_columns(cursor)
    return Sketch.from_table(fetched, drop_missing=spec.drop_missing)


def _is_duckdb(connection: Any) -> bool:
    return type(connection).__module__.lstrip("_").startswith("duckdb")


def _with_edges(connection: Any, spec: RowSpec, dialect: Dialect, source: str) -> RowSpec:
    """Choose the edges of numbers that are fields by a query each, where they are not known."""
    edges = dict(spec.edges)
    for name in number_fields(spec.fields):
        if name in edges:
            continue
        bins, number = read_options().bins or DEFAULT_BINS, dialect.double_column(dialect.column(source_column(name)))
        numbers = f"SELECT {number} AS x FROM {source}"
        tiles = f"SELECT x, NTILE({bins}) OVER (ORDER BY x) AS n FROM ({numbers}) q"
        tiles += f" WHERE x IS NOT NULL AND NOT ({dialect.is_nan.format('x')})"
        query = f"SELECT MIN(x) AS x FROM ({tiles}) r GROUP BY n"
        with _refused_by(dialect), _usable_afterwards(connection, dialect):
            if _is_duckdb(connection):
                rows = connection.sql(query).fetchall()
            else:
                with closing(_cursor(connection)) as cursor:
                    cursor.execute(query)
                    rows = cursor.fetchall()
        edges[name] = tuple(sorted({float(x) for (x,) in rows}))[1:]
    return replace(spec, edges=edges)


def _cursor(connection: Any) -> Any:
    """Return a cursor that gives rows as tuples, however the connection was told to give them."""
    cursor = connection.cursor()
    if type(cursor).__module__.partition(".")[0] == "psycopg":
        from psycopg.rows import tuple_row

        cursor.row_factory = tuple_row
    return cursor


@contextmanager
def _usable_afterwards(connection: Any, dialect: Dialect) -> Iterator[None]:
    """Undo a query that failed: in PostgreSQL it would leave the transaction aborted, with all that was done in it."""
    if dialect.name != "postgresql" or not _execute(connection, f"SAVEPOINT {_SAVEPOINT}"):
        yield  # outside a transaction nothing is left behind
        return
    try:
        yield
    except Exception as error:
        undone = _execute(connection, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        if not undone and not isinstance(error, McnetError):  # drivers of ADBC take nothing but a rollback
            raise _refusal(dialect, error, "; call rollback() before the connection is used again") from error
        raise
    finally:
        _execute(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")


def _execute(connection: Any, statement: str) -> bool:
    """Run a statement; tell whether the engine took it."""
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement)
    except Exception:  # every driver has kinds of its own
        return False
    return True


def _bare_query(dialect: Dialect, table: str | Sequence[str], columns: Sequence[str]) -> str:
    """Return a query for no rows of these columns, whose result tells their types."""
    return f"SELECT {', '.join(map(dialect.column, columns))} FROM {dialect.table(table)} WHERE 1 = 0"


def _has_zone(kind: Any, dialect: Dialect) -> bool:
    """Tell whether a column is one of timestamps with a time zone: psycopg tells its number, ADBC a type of Arrow."""
    told = str(kind).lower()
    if dialect.name == "snowflake":
        return kind in (6, 7)
    return told == "1184" or "with time zone" in told or "tz=" in told or (dialect.name, told) == ("spark", "timestamp")


@contextmanager
def _refused_by(dialect: Dialect) -> Iterator[None]:
    """Turn what any driver says of a query that failed into one InputError."""
    try:
        yield
    except McnetError:
        raise
    except Exception as error:  # every driver has kinds of its own
        raise _refusal(dialect, error) from error


def _refusal(dialect: Dialect, error: Exception, advice: str = "") -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(f"{dialect.name} refused the query of the sketch: {reason}{advice}")
