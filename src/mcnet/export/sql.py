"""Curves to SQL: tables to join, or one CASE expression."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal

import numpy as np

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import whole_file
from mcnet._shared.messages import warn
from mcnet.errors import InputError, NotSupportedError
from mcnet.export.pieces import (
    HIGHEST_SCORE,
    LOWEST_SCORE,
    ContextMap,
    Exported,
    Parts,
    Pieces,
    checked_score_type,
    stamp,
    stamp_line,
    warn_of_size,
)
from mcnet.export.sql_fields import FieldKeys, digit_cases, digit_joins, key_literal, number_literal, table_named
from mcnet.export.targets import Target
from mcnet.model.model import CalibrationModel
from mcnet.rows.fields import Edges, derivation, source_column
from mcnet.rows.sql_dialects import Dialect, dialect_named

# The SELECT form: the whole model as one expression of nested CASEs.


@dataclass(frozen=True)
class Columns:
    """The columns the expression reads, quoted already, and the rows that have them, called r."""

    score: str
    fields: tuple[str, ...]
    rows: str

    @staticmethod
    def of(
        source: str,
        score: str,
        fields: Mapping[str, str],
        dialect: Dialect,
        *,
        logits: bool,
        edges: Mapping[str, Edges],
    ) -> "Columns":
        """Return the columns of a table, all quoted here but the table; logits become probabilities.

        `fields` has the column of each field. Fields that are derived from theirs are cut by CASE and EXTRACT; a
        number by its `edges`.
        """
        number, rows = f"r.{dialect.column(score)}", f"{source} AS r"
        if logits or dialect.name == "postgresql":
            # Beside a score that is numeric, PostgreSQL leaves every literal numeric: slow, and other digits.
            x = f"CAST({number} AS {dialect.double_type})"
            x = sigmoid_expression(x, dialect) if logits else x
            joined, number = dialect.computed
            rows = f"{rows} {joined.format(x)}"
        quoted = {name: f"r.{dialect.column(column)}" for name, column in fields.items()}
        cut = {
            f"d{index}": dialect.derived(name, column, edges.get(name), zoned=None)
            for index, (name, column) in enumerate(quoted.items())
            if derivation(name) is not None
        }
        joined, named = dialect.named("mcnet__derived", cut)
        columns = tuple(named.get(f"d{index}", column) for index, column in enumerate(quoted.values()))
        return Columns(number, columns, rows + joined)


def sigmoid_expression(logit: str, dialect: Dialect) -> str:
    """Return the probability of a logit; beyond ±50 it is 0 or 1 to every digit that is used, and exp is safe."""
    near = f"LEAST(GREATEST({logit}, -50e0), 50e0)"
    # GREATEST leaves NULL out.
    return f"CASE WHEN {_missing(logit, dialect)} THEN NULL ELSE 1e0 / (1e0 + EXP(-{near})) END"


def _missing(number: str, dialect: Dialect) -> str:
    return f"{number} IS NULL OR {dialect.is_nan.format(number)}"


def _clipped(score: str, dialect: Dialect) -> str:
    return f"LEAST(GREATEST({score}, {dialect.number(LOWEST_SCORE)}), {dialect.number(HIGHEST_SCORE)})"


def case_select(
    pieces: Pieces, known: ContextMap, columns: Columns, dialect: Dialect, output: str, parts: Parts | None = None
) -> str:
    """Return the SELECT that calibrates the rows of the columns; NULL where the score is NULL or NaN."""
    subject = ""
    if parts is not None:
        joined, digits, numbers = case_numbers(parts, known, columns, dialect)
        more, chosen = summed_up(parts, columns.score, numbers, dialect)
        joined += more
        conditions = [
            (" AND ".join(f"{digit} = {value}" for digit, value in zip(digits, at, strict=True)), curve)
            for at, curve in known.combinations
        ]
    else:
        joined, chosen = "", _curve(pieces, 0, columns.score, dialect)
        conditions = [(key_literal(key, known), curve) for key, curve in known.curves.items()]
        if conditions:
            # Some engines compute x once per WHEN of CASE x WHEN …: keys and their combination are named first.
            keys, terms = digit_cases(known, columns.fields, dialect)
            joined, named = dialect.named("mcnet__f", keys)
            more, named = dialect.named("mcnet__c", {"k": "\n  + ".join(terms).format(**named)})
            joined, subject = joined + more, f" {named['k']}"
    if conditions:
        curves = [(condition, _curve(pieces, curve, columns.score, dialect)) for condition, curve in conditions]
        whens = "".join(f"\n    WHEN {condition} THEN {probability}" for condition, probability in curves)
        chosen = f"CASE{subject}{whens}\n    ELSE {chosen}\n  END"
    expression = f"CASE WHEN {_missing(columns.score, dialect)} THEN NULL ELSE\n  {chosen}\nEND"
    if parts is None and dialect.name == "postgresql":
        expression = dialect.as_double(expression)  # all of it may be literals, which are numeric
    return f"SELECT r.*, {expression} AS {dialect.column(output)}\nFROM {columns.rows}{joined}"


def _curve(pieces: Pieces, curve: int, score: str, dialect: Dialect) -> str:
    """Return one curve as a balanced tree of comparisons: few of them for each row."""
    starts = pieces.starts[pieces.of_grid(int(pieces.grid_of[curve]))].tolist()
    part = pieces.of_curve(curve)
    values, slopes = pieces.values[part].tolist(), pieces.slopes[part].tolist()
    ceilings = pieces.ceilings[part].tolist()

    def leaf(at: int) -> str:
        if slopes[at] == 0.0:
            return dialect.number(values[at])
        # Only the outermost pieces meet scores that predict would have clipped.
        x = f"GREATEST({score}, {dialect.number(LOWEST_SCORE)})" if at == 0 else score
        x = f"LEAST({x}, {dialect.number(HIGHEST_SCORE)})" if at == len(starts) - 1 else x
        line = f"{dialect.number(slopes[at])} * ({x} - {dialect.number(starts[at])}) + {dialect.number(values[at])}"
        return f"LEAST({line}, {dialect.number(ceilings[at])})"

    def tree(low: int, high: int) -> str:
        if low == high:
            return leaf(low)
        middle = (low + high + 1) // 2
        less, more = tree(low, middle - 1), tree(middle, high)
        return f"CASE WHEN {score} < {dialect.number(starts[middle])} THEN {less} ELSE {more} END"

    return tree(0, len(starts) - 1)


# A sum of rising terms: numbers of field values and pairs, by CASE or by joins, and one expression of them.


def case_numbers(
    parts: Parts, known: ContextMap, columns: Columns, dialect: Dialect
) -> tuple[str, list[str], dict[str, str]]:
    """Return what follows the rows in FROM, the digits of a row's values by field, and its numbers by names."""
    keys, terms = digit_cases(replace(known, strides=(1,) * len(known.names)), columns.fields, dialect)
    joined, named = dialect.named("mcnet__f", keys)
    more, digits = dialect.named("mcnet__d", {f"d{f}": term.format(**named) for f, term in enumerate(terms)})
    sums = []
    for k in range(parts.width):
        cases = []
        for (fields, rows), numbers in zip(_part_keys(parts), parts.numbers, strict=True):
            size = len(known.digits[fields[-1]]) + 1
            key = f" * {size} + ".join(digits[f"d{field}"] for field in fields)
            row_keys = [row[0] if len(row) == 1 else row[0] * size + row[1] for row in rows]
            whens = "".join(
                f" WHEN {at} THEN {dialect.number(number)}"
                for at, number in zip(row_keys, numbers[:, k].tolist(), strict=True)
                if number
            )
            if whens:
                cases.append(f"CASE {key}{whens} ELSE {dialect.number(0.0)} END")
        sums.append(dialect.as_double("\n  + ".join(cases) or dialect.number(0.0)))
    return joined + more, list(digits.values()), {f"m{k}": total for k, total in enumerate(sums)}


def joined_numbers(
    parts: Parts, digits: Sequence[str], dialect: Dialect, tables: str | Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the joins with the table of parts, and the numbers of a row by names."""
    joins, table = [], dialect.table(table_named(tables, "parts"))
    for index, (fields, _) in enumerate(_part_keys(parts)):
        same = [f"q{index}.digit_{at} = {digits[field]}" for at, field in enumerate(fields)]
        joins.append(f"LEFT JOIN {table} AS q{index} ON q{index}.part = {index} AND {' AND '.join(same)}")
    zero = dialect.number(0.0)
    # In parentheses, since some engines have no names for expressions.
    numbers = {}
    for k in range(parts.width):
        terms = [f"COALESCE(q{index}.n{k}, {zero})" for index in range(len(joins))]
        numbers[f"m{k}"] = f"({' + '.join(terms)})" if terms else dialect.as_double("0")
    return joins, numbers


def part_statements(parts: Parts, dialect: Dialect, tables: str | Sequence[str]) -> Iterable[str]:
    """Return the statements that make the table of the numbers of values and pairs, and fill it."""
    rows = [
        (str(index), str(digits[0]), str(digits[-1] if len(digits) > 1 else 0), *map(dialect.number, row))
        for index, ((_, keys), numbers) in enumerate(zip(_part_keys(parts), parts.numbers, strict=True))
        for digits, row in zip(keys, numbers.tolist(), strict=True)
    ]
    columns = [(name, "whole") for name in ("part", "digit_0", "digit_1")]
    columns += [(f"n{k}", "double") for k in range(parts.width)]
    yield from _filled(dialect, table_named(tables, "parts"), columns, rows, key="part, digit_0, digit_1")


def _part_keys(parts: Parts) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Return, for each part, its fields and the digits of its rows."""
    result: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = []
    for field, numbers in zip(parts.fields, parts.numbers[: len(parts.fields)], strict=True):
        result.append(((field,), [(digit + 1,) for digit in range(len(numbers))]))
    for pair in parts.pairs:
        firsts = np.repeat(np.arange(1, len(pair.begin)), np.diff(pair.begin)).tolist()
        result.append(((pair.first, pair.second), list(zip(firsts, (pair.seconds + 1).tolist(), strict=True))))
    return result


def summed_up(parts: Parts, score: str, numbers: dict[str, str], dialect: Dialect) -> tuple[str, str]:
    """Return what follows the rows in FROM, and the probability of a score given the names of a row's numbers."""
    number, knots, origin = dialect.number, parts.family.knots.tolist(), parts.family.origin
    inside = _clipped(score, dialect)
    joined, named = dialect.named("mcnet__m", {**numbers, "x": f"LN({inside} / ({number(1.0)} - {inside}))"})
    x = named["x"]

    def moved(at: int) -> str:
        moves = zip(range(parts.width), parts.moves[at].tolist(), strict=True)
        terms = [f"{named[f'm{k}']} * {number(by)}" for k, by in moves if by]
        return " + ".join([number(parts.common[at]), *terms])

    terms = [moved(len(knots) + 1)]
    for panel in range(len(knots) + 1):
        part = x if panel == 0 else f"GREATEST({x}, {number(knots[panel - 1])})"
        part = part if panel == len(knots) else f"LEAST({part}, {number(knots[panel])})"
        start = knots[panel - 1] if panel > origin else knots[panel]
        terms.append(f"EXP({moved(panel)}) * ({part} - {number(start)})")
    more, total = dialect.named("mcnet__t", {"t": "\n  + ".join(terms)})
    limit = number(parts.limit)
    bounded = f"LEAST(GREATEST({total['t']}, LEAST({x}, -{limit})), GREATEST({x}, {limit}))"
    return joined + more, f"{number(1.0)} / ({number(1.0)} + EXP(-{bounded}))"


# The join form: the model as four tables, and a SELECT that joins them.

_ROWS_PER_STATEMENT = 500

Column = tuple[str, str]


def table_statements(
    pieces: Pieces, known: ContextMap, dialect: Dialect, tables: str | Sequence[str], parts: Parts | None = None
) -> Iterable[str]:
    """Return the statements that make the tables of values, numbers, parts, contexts and pieces, and fill them."""
    if known.names:
        yield from _filled(
            dialect,
            table_named(tables, "values"),
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
                table_named(tables, "numbers"),
                [("field", "whole"), ("number", "double"), ("digit", "whole")],
                numbers,
                key="field, number",
            )
        if parts is not None:
            yield from part_statements(parts, dialect, tables)
            if not known.curves:
                return
        digits = [(f"digit_{field}", "whole") for field in range(len(known.names))]
        yield from _filled(
            dialect,
            table_named(tables, "contexts"),
            [*digits, ("curve", "whole")],
            [(*map(str, combination), str(curve)) for combination, curve in known.combinations],
            key=", ".join(name for name, _ in digits),
        )
    table = pieces.columns()
    columns = [(name, "whole" if name == "curve" else "double") for name in table]
    rows = [
        (str(curve), *map(dialect.number, numbers))
        for curve, *numbers in zip(*(column.tolist() for column in table.values()), strict=True)
    ]
    yield from _filled(dialect, table_named(tables, "pieces"), columns, rows, key="curve, low")


def join_select(
    known: ContextMap,
    columns: Columns,
    dialect: Dialect,
    *,
    tables: str | Sequence[str],
    output: str,
    parts: Parts | None = None,
) -> str:
    """Return the SELECT that calibrates the rows of the columns."""
    x = _clipped(columns.score, dialect)
    joins, digits = digit_joins(known, columns.fields, dialect, tables)
    named = total = ""
    if parts is not None:
        more, numbers = joined_numbers(parts, digits, dialect, tables)
        joins += more
        named, total = summed_up(parts, columns.score, numbers, dialect)
    if digits and (known.curves or parts is None):
        same = " AND ".join(f"c.digit_{field} = {digit}" for field, digit in enumerate(digits))
        joins.append(f"LEFT JOIN {dialect.table(table_named(tables, 'contexts'))} AS c ON {same}")
    # BigQuery refuses an outer join without an equality of both sides, so even curve 0 is a matter of the row.
    curve = "COALESCE(c.curve, 0)" if digits else f"CASE WHEN {columns.score} IS NULL THEN -1 ELSE 0 END"
    line = f"LEAST(p.slope * ({x} - p.low) + p.value, p.ceiling)"
    if known.curves or parts is None:
        joins.append(_piece_join(dialect, dialect.table(table_named(tables, "pieces")), curve, columns.score, x))
        line = line if parts is None else f"CASE WHEN {curve} > 0 THEN {line} ELSE {total} END"
    else:
        line = total
    return (
        f"SELECT r.*, CASE WHEN {_missing(columns.score, dialect)} THEN NULL ELSE {line} END"
        f" AS {dialect.column(output)}\n"
        f"FROM {columns.rows}\n" + "\n".join(joins) + named
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


# Curves to SQL: one SELECT for a small model, tables and a join for a large one.

MOST_CASES = 500
"""A model of more pieces than this is written as tables unless asked otherwise."""

_MANY_CASES = 5_000
"""A SELECT of more pieces than this is written with a warning."""


def export_sql(model: CalibrationModel, path: str | PathLike[str], **options: Any) -> None:
    """Write the model as SQL; the options are those of `sql_text`."""
    string = sql_text(model, **options)
    with whole_file(path) as part:
        part.write_text(string, encoding="utf-8", newline="\n")


def sql_text(
    model: CalibrationModel,
    *,
    dialect: str = "duckdb",
    source: str | Sequence[str] = "impressions",
    score: str | None = None,
    fields: Mapping[str, str] | None = None,
    output: str = "calibrated",
    form: Literal["auto", "case", "tables"] = "auto",
    tables: str | Sequence[str] = "mcnet",
    score_type: ScoreType | None = None,
) -> str:
    """Return SQL whose last statement gives every row of `source` with its calibrated probability added.

    A field is compared with the values of the model in its canonical form, whatever the type of its column: decimals,
    floats and timestamps, too. Fields that are derived from columns are cut by the SQL: numbers by comparisons, and
    timestamps by EXTRACT, in UTC whatever the time zone of the session. A column whose values cannot be compared
    (bytes, intervals, timestamps with a time zone where the model has them without) ends the query with a message. A
    NULL field, and NaN, is the missing value; a NULL or NaN score gives NULL; a score outside [0, 1] is taken as 0 or
    1.

    Parameters
    ----------
    dialect : the SQL of the engine, such as "duckdb" or "postgresql"; an error names all that there are.
    source : the table or view with the rows; dots divide schema and table, or pass the parts as a tuple.
    score : the column with the raw score; by default the one the model was fitted on, if it knows, or "score".
    fields : the column of each field, where its name differs from the field's.
    output : the name of the new column.
    form : "case" for one SELECT; "tables" for three tables that are made first and joined; "auto" by size.
    tables : what the names of these tables begin with, a schema before it if wanted.
    score_type : what the column of scores has, "probability" or "logit"; by default what the model was fitted on.
    """
    takes = checked_score_type(model, score_type)
    if form not in ("auto", "case", "tables"):
        raise InputError(f"form is {form!r}; it must be 'auto', 'case' or 'tables'")
    words = dialect_named(dialect)
    exported = Exported.in_parts(model)
    parts = exported.parts
    known = ContextMap.of(exported.contexts)
    unknown = sorted(set(fields or {}) - set(model.fields))
    if unknown:
        raise InputError(f"fields names {', '.join(unknown)}; the model has {', '.join(known.names) or 'none'}")
    named = {name: (fields or {}).get(name, source_column(name)) for name in known.names}
    score = score or model.provenance.get("columns", {}).get("score", "score")
    edges = model.contexts.edges
    columns = Columns.of(words.table(source), score, named, words, logits=takes == "logit", edges=edges)
    pieces = Pieces.of(exported.curves)
    size = len(pieces)
    if parts is not None:
        size = sum(part.size for part in parts.numbers) + (size if known.curves else 0)
    about = stamp_line(stamp(model, exported, takes))
    origin = f"-- Calibrated probabilities, generated by mcnet for {dialect}.\n-- {about}\n"
    one_select = form == "case" or (form == "auto" and size <= MOST_CASES)
    if one_select:
        statements = [case_select(pieces, known, columns, words, output, parts)]
    else:
        statements = [
            *(["BEGIN TRANSACTION"] if words.transactions else []),
            *table_statements(pieces, known, words, tables, parts),
            *(["COMMIT"] if words.transactions else []),
            join_select(known, columns, words, tables=tables, output=output, parts=parts),
        ]
    string = origin + _script(statements, words)
    warn_of_size("SQL", len(string), size)
    if one_select and size > _MANY_CASES:
        what = "pieces of curves" if parts is None else "numbers"
        warn(
            f"form='case' writes {size:,} {what} into one SELECT of {len(string) / 1e6:,.1f} MB, "
            "which engines take long to plan, or refuse; form='tables' joins them"
        )
    return string


def _script(statements: list[str], dialect: Dialect) -> str:
    """Join statements; refuse one that the engine would refuse for its length, warn if it takes them only in parts."""
    string = ";\n".join(statements) + ";\n"
    if dialect.longest is None or len(string.encode()) <= dialect.longest:
        return string
    most = f"and {dialect.name} takes at most {dialect.longest / 1e6:,.3g} MB at once"
    longest = max(len(statement.encode()) for statement in statements)
    if longest > dialect.longest:
        raise NotSupportedError(
            f"a statement has {longest / 1e6:,.1f} MB, {most}; form='tables' has the shortest statements"
        )
    warn(
        f"the SQL has {len(string.encode()) / 1e6:,.1f} MB, {most}: run its statements one by one; where a line ends "
        "in ; a statement ends"
    )
    return string


TARGET = Target("sql", (".sql",), export_sql, sql_text)
