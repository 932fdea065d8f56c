"""Curves to SQL: tables to join, or one CASE expression."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from os import PathLike
from typing import Any, Literal

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import whole_file
from mcnet.errors import CalibrationWarning, InputError, NotSupportedError
from mcnet.export.pieces import (
    HIGHEST_SCORE,
    LOWEST_SCORE,
    ContextMap,
    Exported,
    Pieces,
    checked_score_type,
    stamp,
    stamp_line,
    warn_of_size,
)
from mcnet.export.targets import Target
from mcnet.model.model import CalibrationModel
from mcnet.rows.column_types import COLUMN_TYPES
from mcnet.rows.dialects import Dialect, dialect_named, name_parts
from mcnet.rows.fields import field_text

_DECIMAL = re.compile("-?([0-9]{1,1000}([.][0-9]{1,1000})?(e-[0-9]{2,4})?|inf)")

# The SELECT form: the whole model as one expression of nested CASEs.


@dataclass(frozen=True)
class FieldKeys:
    """A field of the rows in forms that are compared with the values of a model.

    No engine writes doubles as mcnet does, so doubles are compared as numbers. Decimals are compared by all of their
    digits: a double has about 16 of them.
    """

    string: str
    """The canonical string of the value; NULL where it is missing or compared as a number."""
    number: str | None
    """The value as a double, NULL where it is compared as a string; None if the model has no numbers in this field."""
    numbers: Mapping[float, int]
    """The digits of the model's values that are doubles; a decimal may have more digits than any of them."""

    @staticmethod
    def of(column: str, digits: Mapping[str | None, int], dialect: Dialect) -> "FieldKeys":
        """Return the keys of a quoted column, whatever its type; of a type that cannot be compared the query fails."""
        types = COLUMN_TYPES[dialect.name]
        written = f"CAST({column} AS {dialect.text_type})"
        values = [value for value in digits if value is not None]
        numbers = {float(value): digits[value] for value in values if _is_number(value)}
        decimals = [value for value in values if _is_decimal(value)]
        zoned = {timestamp.tzinfo is not None for timestamp in map(_timestamp, values) if timestamp is not None}
        cases, number = [(types.plain.format(column), written)], None
        if decimals:
            decimal, small = types.decimal.format(column), any("e-" in value for value in decimals)
            cases.append((decimal, types.canonical_decimal(column, dialect.text_type, small=small)))
            doubles = [
                # PostgreSQL has NaN and Infinity among decimals.
                (f"{decimal} AND ({written} LIKE '%N%' OR {written} LIKE '%I%')", types.as_double.format(column)),
                (types.double.format(column), types.as_double.format(column)),
            ]
            if types.single is not None and types.single_as_double is not None:
                doubles.append((types.single.format(column), types.single_as_double.format(column)))
            cases += [(condition, "NULL") for condition, _ in doubles[1:]]
            number = _cases(doubles, "NULL")
        for has_zone, condition in ((False, types.timestamp), (True, types.zoned_timestamp)):
            canonical = types.canonical_timestamp(column, zoned=has_zone)
            if has_zone in zoned and condition is not None and canonical is not None:
                cases.append((condition.format(column), canonical))
        refused = dialect.text(f"mcnet cannot compare the column {column} with the model's values: it has the type ")
        advice = dialect.text("; cast it to strings as the model has them, in a view. The first value: ")
        failure = types.failure.format(f"{refused} || {types.name.format(column)} || {advice} || {written}")
        return FieldKeys(_cases([(f"{column} IS NULL", "NULL"), *cases], failure), number, numbers)

    def missing(self, column: str, number: str, dialect: Dialect) -> str:
        """Return the condition that the value is missing: NULL, or NaN; `number` is where the number is found."""
        return f"{column} IS NULL" if self.number is None else f"{column} IS NULL OR {dialect.is_nan.format(number)}"


def _cases(cases: Sequence[tuple[str, str]], otherwise: str) -> str:
    return "CASE" + "".join(f" WHEN {condition} THEN {value}" for condition, value in cases) + f" ELSE {otherwise} END"


def _is_number(value: str) -> bool:
    """Tell whether a value is the canonical string of a float."""
    try:
        return field_text(float(value)) == value
    except (ValueError, OverflowError):
        return False


def _is_decimal(value: str) -> bool:
    """Tell whether a value is the canonical string of a decimal: of every whole number, and of every double, too."""
    return _DECIMAL.fullmatch(value) is not None and field_text(Decimal(value)) == value


def _timestamp(value: str) -> datetime | None:
    """Return the timestamp that a value is the canonical string of."""
    try:
        timestamp = datetime.fromisoformat(value)
    except ValueError:
        return None
    return timestamp if field_text(timestamp) == value else None


@dataclass(frozen=True)
class Columns:
    """The columns the expression reads, quoted already, and the rows that have them, called r."""

    score: str
    fields: tuple[str, ...]
    rows: str

    @staticmethod
    def of(source: str, score: str, fields: Sequence[str], dialect: Dialect, *, logits: bool = False) -> "Columns":
        """Return the columns of a table, all quoted here but the table; logits become probabilities."""
        number, rows = f"r.{dialect.column(score)}", f"{source} AS r"
        if logits or dialect.name == "postgresql":
            # Beside a score that is numeric, PostgreSQL leaves every literal numeric: slow, and other digits.
            x = f"CAST({number} AS {dialect.double_type})"
            x = sigmoid_expression(x, dialect) if logits else x
            joined, number = dialect.computed
            rows = f"{rows} {joined.format(x)}"
        return Columns(number, tuple(f"r.{dialect.column(name)}" for name in fields), rows)


def sigmoid_expression(logit: str, dialect: Dialect) -> str:
    """Return the probability of a logit; beyond ±50 it is 0 or 1 to every digit that is used, and exp is safe."""
    near = f"LEAST(GREATEST({logit}, -50e0), 50e0)"
    nothing = f"{logit} IS NULL OR {dialect.is_nan.format(logit)}"  # GREATEST leaves NULL out
    return f"CASE WHEN {nothing} THEN NULL ELSE 1e0 / (1e0 + EXP(-{near})) END"


def case_select(pieces: Pieces, known: ContextMap, columns: Columns, dialect: Dialect, output: str) -> str:
    """Return the SELECT that calibrates the rows of the columns; NULL where the score is NULL or NaN."""
    nothing = f"{columns.score} IS NULL OR {dialect.is_nan.format(columns.score)}"
    curves = [_curve(pieces, curve, columns.score, dialect) for curve in range(pieces.curves)]
    chosen, rows = curves[0], columns.rows
    if known.curves:
        # Some engines compute x once per WHEN of CASE x WHEN …: keys and their combination are named first.
        keys, combination = _digits(known, columns, dialect)
        joined, named = dialect.named("mcnet__f", keys)
        rows += joined
        joined, named = dialect.named("mcnet__c", {"k": combination.format(**named)})
        rows += joined
        whens = "".join(f"\n    WHEN {_key(key, known)} THEN {curves[curve]}" for key, curve in known.curves.items())
        chosen = f"CASE {named['k']}{whens}\n    ELSE {curves[0]}\n  END"
    expression = f"CASE WHEN {nothing} THEN NULL ELSE\n  {chosen}\nEND"
    if dialect.name == "postgresql":
        expression = dialect.as_double(expression)  # all of it may be literals, which are numeric
    return f"SELECT r.*, {expression} AS {dialect.column(output)}\nFROM {rows}"


def _digits(known: ContextMap, columns: Columns, dialect: Dialect) -> tuple[dict[str, str], str]:
    """Return the keys of the fields by names, and the number of their combination, with {name} for a key.

    A field value counts as its digit times its stride; 0 is any value that is not listed.
    """
    named: dict[str, str] = {}
    terms = []
    for field, (column, digits, stride) in enumerate(zip(columns.fields, known.digits, known.strides, strict=True)):
        keys = FieldKeys.of(column, digits, dialect)

        def listed(key: str, cases: Iterable[tuple[str, int]], stride: int = stride) -> str:
            whens = "".join(f" WHEN {value} THEN {_key(digit * stride, known)}" for value, digit in cases)
            literals = whens.replace("{", "{{").replace("}", "}}")
            return f"CASE {{{key}}}{literals} ELSE {_key(0, known)} END"

        strings = [(dialect.text(value), digit) for value, digit in digits.items() if value is not None]
        parts = []
        if strings:
            named[f"v{field}"] = keys.string
            parts.append(listed(f"v{field}", strings))
        if keys.number is not None:
            named[f"n{field}"] = keys.number
        if keys.numbers:
            parts.append(listed(f"n{field}", ((number_literal(v, dialect), d) for v, d in keys.numbers.items())))
        missing = _key(digits.get(None, 0) * stride, known)
        absent = keys.missing(column.replace("{", "{{").replace("}", "}}"), f"{{n{field}}}", dialect)
        terms.append(f"CASE WHEN {absent} THEN {missing} ELSE {' + '.join(parts) or _key(0, known)} END")
    return named, "\n  + ".join(terms)


def _key(key: int, known: ContextMap) -> str:
    """Return the literal of a combination; a double, if whole numbers of 32 bits would not do."""
    if known.most < 2**31:
        return str(key)
    if known.most < 2**53:
        return f"{key}e0"
    raise NotSupportedError("the fields have too many values together for form='case'; use form='tables'")


def number_literal(value: float, dialect: Dialect) -> str:
    """Return a literal that means exactly the double, infinity among them."""
    if isfinite(value):
        return dialect.number(value)
    infinite = COLUMN_TYPES[dialect.name].infinity
    return dialect.as_double(f"'{'-' if value < 0 else ''}{infinite}'")


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


# The join form: the model as four tables, and a SELECT that joins them.

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
        if keys.numbers:
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
    floats and timestamps, too. A column whose values cannot be compared (bytes, intervals, timestamps with a time zone
    where the model has them without) ends the query with a message. A NULL field, and NaN, is the missing value; a NULL
    or NaN score gives NULL; a score outside [0, 1] is taken as 0 or 1.

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
    exported = Exported.of(model)
    known = ContextMap.of(exported.contexts)
    unknown = sorted(set(fields or {}) - set(known.names))
    if unknown:
        raise InputError(f"fields names {', '.join(unknown)}; the model has {', '.join(known.names) or 'none'}")
    named = [(fields or {}).get(name, name) for name in known.names]
    score = score or model.provenance.get("columns", {}).get("score", "score")
    columns = Columns.of(words.table(source), score, named, words, logits=takes == "logit")
    pieces = Pieces.of(exported.curves)
    about = stamp_line(stamp(model, exported, takes))
    origin = f"-- Calibrated probabilities, generated by mcnet for {dialect}.\n-- {about}\n"
    if form == "case" or (form == "auto" and len(pieces) <= MOST_CASES):
        string = _announced(origin + _script([case_select(pieces, known, columns, words, output)], words), len(pieces))
        if len(pieces) > _MANY_CASES:
            warnings.warn(
                f"form='case' writes {len(pieces):,} pieces of curves into one SELECT of {len(string) / 1e6:,.1f} MB, "
                "which engines take long to plan, or refuse; form='tables' joins them",
                CalibrationWarning,
                stacklevel=2,
            )
        return string
    statements = [
        *(["BEGIN TRANSACTION"] if words.transactions else []),
        *table_statements(pieces, known, words, tables),
        *(["COMMIT"] if words.transactions else []),
        join_select(known, columns, words, tables=tables, output=output),
    ]
    return _announced(origin + _script(statements, words), len(pieces))


def _announced(text: str, pieces: int) -> str:
    warn_of_size("SQL", len(text), pieces)
    return text


def _script(statements: list[str], dialect: Dialect) -> str:
    """Join statements; refuse one that the engine would refuse for its length, warn if it takes them only in parts."""
    string = ";\n".join(statements) + ";\n"
    if dialect.longest is None or len(string.encode()) <= dialect.longest:
        return string
    most = f"and {dialect.name} takes at most {dialect.longest / 1e6:,.0f} MB at once"
    longest = max(len(statement.encode()) for statement in statements)
    if longest > dialect.longest:
        raise NotSupportedError(
            f"a statement has {longest / 1e6:,.1f} MB, {most}; form='tables' has the shortest statements"
        )
    warnings.warn(
        f"the SQL has {len(string.encode()) / 1e6:,.1f} MB, {most}: run its statements one by one; where a line ends "
        "in ; a statement ends",
        CalibrationWarning,
        stacklevel=3,
    )
    return string


TARGET = Target("sql", (".sql",), export_sql, sql_text)
