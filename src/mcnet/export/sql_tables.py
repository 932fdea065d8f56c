"""The join form: the model as four tables, and a SELECT that joins them."""

from collections.abc import Iterable, Sequence

from mcnet.export.context_map import ContextMap
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces
from mcnet.export.sql_case import Columns, FieldKeys, number_literal
from mcnet.sql.dialects import Dialect, name_parts

__all__ = ["join_select", "table_statements"]

_ROWS_PER_STATEMENT = 500

Column = tuple[str, str]


def table_statements(pieces: Pieces, known: ContextMap, dialect: Dialect, tables: str | Sequence[str]) -> Iterable[str]:
    """Return the statements that make the tables of values, numbers, contexts and pieces, and fill them."""
    if known.names:
        yield from _filled(
            dialect,
            _named(tables, "values"),
            [("field", "whole"), ("value", "text"), ("digit", "whole")],
            [
                (str(field), dialect.text(value), str(digit))
                for field, digits in enumerate(known.digits)
                for value, digit in digits.items()
                if value is not None
            ],
            key="field, value",
        )
        numbers: list[tuple[str, ...]] = [
            (str(field), number_literal(number, dialect), str(digit))
            for field, digits in enumerate(known.digits)
            for number, digit in FieldKeys.of("", digits, dialect).numbers.items()
        ]
        if numbers:
            yield from _filled(
                dialect,
                _named(tables, "numbers"),
                [("field", "whole"), ("number", "double"), ("digit", "whole")],
                numbers,
                key="field, number",
            )
        digits = [(f"digit_{field}", "whole") for field in range(len(known.names))]
        yield from _filled(
            dialect,
            _named(tables, "contexts"),
            [*digits, ("curve", "whole")],
            [(*map(str, combination), str(curve)) for combination, curve in known.combinations],
            key=", ".join(name for name, _ in digits),
        )
    rows = []
    for curve in range(pieces.curves):
        grid, part = pieces.of_grid(int(pieces.grid_of[curve])), pieces.of_curve(curve)
        columns_of = (pieces.starts[grid], pieces.stops[grid], pieces.values[part], pieces.slopes[part])
        rows += [
            (str(curve), *map(dialect.number, row))
            for row in zip(*(n.tolist() for n in (*columns_of, pieces.ceilings[part])), strict=True)
        ]
    names = ("low", "high", "value", "slope", "ceiling")
    columns = [("curve", "whole"), *((name, "double") for name in names)]
    yield from _filled(dialect, _named(tables, "pieces"), columns, rows, key="curve, low")


def join_select(
    known: ContextMap,
    columns: Columns,
    dialect: Dialect,
    *,
    tables: str | Sequence[str],
    output: str,
) -> str:
    """Return the SELECT that calibrates the rows of the columns."""
    x = f"LEAST(GREATEST({columns.score}, {dialect.number(LOWEST_SCORE)}), {dialect.number(HIGHEST_SCORE)})"
    joins, digits = [], []
    for field, column in enumerate(columns.fields):
        keys = FieldKeys.of(column, known.digits[field], dialect)
        joins.append(
            f"LEFT JOIN {dialect.table(_named(tables, 'values'))} AS v{field}"
            f" ON v{field}.field = {field} AND v{field}.value = {keys.string}"
        )
        digit = f"COALESCE(v{field}.digit, 0)"
        if keys.number is not None:
            joins.append(
                f"LEFT JOIN {dialect.table(_named(tables, 'numbers'))} AS n{field}"
                f" ON n{field}.field = {field} AND n{field}.number = {keys.number} + {dialect.number(0.0)}"
            )
            digit += f" + COALESCE(n{field}.digit, 0)"
        missing, absent = known.digits[field].get(None, 0), keys.missing(column, keys.number or "", dialect)
        digits.append(f"CASE WHEN {absent} THEN {missing} ELSE {digit} END")
    if digits:
        same = " AND ".join(f"c.digit_{field} = {digit}" for field, digit in enumerate(digits))
        joins.append(f"LEFT JOIN {dialect.table(_named(tables, 'contexts'))} AS c ON {same}")
    # BigQuery refuses an outer join without an equality of both sides, so even curve 0 is a matter of the row.
    curve = "COALESCE(c.curve, 0)" if digits else f"CASE WHEN {columns.score} IS NULL THEN -1 ELSE 0 END"
    joins.append(_piece_join(dialect, dialect.table(_named(tables, "pieces")), curve, columns.score, x))
    line = f"LEAST(p.slope * ({x} - p.low) + p.value, p.ceiling)"
    nothing = f"{columns.score} IS NULL OR {dialect.is_nan.format(columns.score)}"
    return (
        f"SELECT r.*, CASE WHEN {nothing} THEN NULL ELSE {line} END AS {dialect.column(output)}\n"
        f"FROM {columns.rows}\n" + "\n".join(joins)
    )


def _piece_join(dialect: Dialect, pieces: str, curve: str, score: str, x: str) -> str:
    """Return the join to the one piece a row falls into, by the engine's own fast path where it has one."""
    if dialect.name in ("duckdb", "clickhouse"):
        return f"ASOF LEFT JOIN {pieces} AS p ON p.curve = {curve} AND {x} >= p.low"
    if dialect.name == "postgresql":
        # The primary key (curve, low) answers this with one descent of its tree.
        return (
            f"LEFT JOIN LATERAL (SELECT * FROM {pieces} AS q WHERE q.curve = {curve} AND q.low <= {x}"
            f" ORDER BY q.low DESC LIMIT 1) AS p ON TRUE"
        )
    return f"LEFT JOIN {pieces} AS p ON p.curve = {curve} AND {x} >= p.low AND {x} < p.high"


def _named(tables: str | Sequence[str], what: str) -> tuple[str, ...]:
    *path, last = name_parts(tables)
    return (*path, f"{last}_{what}")


def _filled(
    dialect: Dialect,
    name: tuple[str, ...],
    columns: list[Column],
    rows: list[tuple[str, ...]],
    *,
    key: str,
) -> Iterable[str]:
    """Return the statements that make one table anew and fill it."""
    table = dialect.table(name)
    described = ", ".join(f"{column} {dialect.stored_type(kind)}" for column, kind in columns)
    if dialect.drops_first:
        yield f"DROP TABLE IF EXISTS {table}"
    yield dialect.create_table.format(table=table, columns=described, key=key)
    for at in range(0, len(rows), _ROWS_PER_STATEMENT):
        block = ",\n  ".join(f"({', '.join(row)})" for row in rows[at : at + _ROWS_PER_STATEMENT])
        yield f"INSERT INTO {table} VALUES\n  {block}"
