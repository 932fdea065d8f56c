"""Sketch a table where it is, through a connection to its database: DuckDB, DB-API or ADBC."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

from mcnet._shared.messages import first_line
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
    with _refused_by(words), _usable_afterwards(connection, words), _runner(connection) as run:
        spec = query_spec(_with_edges(run, spec, words, source))
        asked = [] if words.casts_booleans else [str(spec.label)]
        asked = list(dict.fromkeys((*asked, *timestamp_columns(spec))))
        no_rows = f"SELECT {', '.join(map(words.column, asked))} FROM {words.table(table)} WHERE 1 = 0"
        kinds = run(no_rows).description if asked else []
        types = {name: column[1] for name, column in zip(asked, kinds, strict=True)}  # as the driver tells them
        kind = types.get(str(spec.label))
        boolean = not words.casts_booleans and (
            str(kind).lower() in _BOOLEAN_TYPES or (words.name == "snowflake" and kind == 13)
        )
        zoned = [name for name in timestamp_columns(spec) if _has_zone(types[name], words)]
        query = table_query(table, spec, words, where, "boolean" if boolean else "number", zoned)
        fetched = fetched_columns(run(query))
    return Sketch.from_table(fetched, drop_missing=spec.drop_missing)


def _with_edges(run: Callable[[str], Any], spec: RowSpec, dialect: Dialect, source: str) -> RowSpec:
    """Choose the edges of numbers that are fields by a query each, where they are not known."""
    edges = dict(spec.edges)
    for name in number_fields(spec.fields):
        if name in edges:
            continue
        bins, number = read_options().bins or DEFAULT_BINS, dialect.double_column(dialect.column(source_column(name)))
        numbers = f"SELECT {number} AS x FROM {source}"
        tiles = f"SELECT x, NTILE({bins}) OVER (ORDER BY x) AS n FROM ({numbers}) q"
        tiles += f" WHERE x IS NOT NULL AND NOT ({dialect.is_nan.format('x')})"
        rows = run(f"SELECT MIN(x) AS x FROM ({tiles}) r GROUP BY n").fetchall()
        edges[name] = tuple(sorted({float(x) for (x,) in rows}))[1:]
    return replace(spec, edges=edges)


@contextmanager
def _runner(connection: Any) -> Iterator[Callable[[str], Any]]:
    """Give a function that runs a query and returns what has its result: rows as tuples, whatever was told a driver."""
    if type(connection).__module__.lstrip("_").startswith("duckdb"):
        # A cursor of DuckDB is its own connection, which sees neither temporary nor registered tables.
        yield connection.sql
        return
    with closing(connection.cursor()) as cursor:
        if type(cursor).__module__.partition(".")[0] == "psycopg":
            from psycopg.rows import tuple_row

            cursor.row_factory = tuple_row

        def run(query: str) -> Any:
            cursor.execute(query)
            return cursor

        yield run


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
    return InputError(f"{dialect.name} refused the query of the sketch: {first_line(error)}{advice}")
