"""The SELECT form: the whole model as one expression of nested CASEs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from mcnet.data.fields import field_text
from mcnet.errors import NotSupportedError
from mcnet.export.context_map import ContextMap
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces
from mcnet.sql.column_types import COLUMN_TYPES
from mcnet.sql.dialects import Dialect

__all__ = ["Columns", "FieldKeys", "case_select", "number_literal", "sigmoid_expression"]


@dataclass(frozen=True)
class FieldKeys:
    """A field of the rows in forms that are compared with the values of a model.

    The canonical string of a fraction differs from what engines write, so fractions are compared as numbers.
    """

    string: str
    """The canonical string of the value; NULL where it is missing or compared as a number."""
    number: str | None
    """The value as a double, NULL where it is compared as a string; None if the model has no numbers in this field."""
    numbers: Mapping[float, int]
    """The digits of the model's values that are numbers."""

    @staticmethod
    def of(column: str, digits: Mapping[str | None, int], dialect: Dialect) -> "FieldKeys":
        """Return the keys of a quoted column, whatever its type; of a type that cannot be compared the query fails."""
        types = COLUMN_TYPES[dialect.name]
        written = f"CAST({column} AS {dialect.text_type})"
        values = [value for value in digits if value is not None]
        numbers = {float(value): digits[value] for value in values if _is_number(value)}
        zoned = {timestamp.tzinfo is not None for timestamp in map(_timestamp, values) if timestamp is not None}
        cases, number = [(types.plain.format(column), written)], None
        if numbers:
            whole = f"REGEXP_REPLACE({written}, '[.]0*$', '')"
            # Spark may write 0E-10, PostgreSQL has NaN and Infinity.
            fraction = " OR ".join(f"{whole} LIKE '%{part}%'" for part in (".", "E", "N", "I"))
            decimal, double = types.decimal.format(column), types.double.format(column)
            cases.append((decimal, f"CASE WHEN {fraction} THEN NULL ELSE {whole} END"))
            doubles = [
                (f"{decimal} AND ({fraction})", types.decimal_as_double.format(column)),
                (double, types.as_double.format(column)),
            ]
            if types.single is not None and types.single_as_double is not None:
                doubles.append((types.single.format(column), types.single_as_double.format(column)))
            cases += [(found, "NULL") for found, _ in doubles[1:]]
            number = _cases([*doubles], "NULL")
        for has_zone, found in ((False, types.timestamp), (True, types.zoned_timestamp)):
            canonical = types.canonical_timestamp(column, zoned=has_zone)
            if has_zone in zoned and found is not None and canonical is not None:
                cases.append((found.format(column), canonical))
        refused = dialect.text(f"mcnet cannot compare the column {column} with the model's values: it has the type ")
        advice = dialect.text("; cast it to strings as the model has them, in a view. The first value: ")
        failure = types.failure.format(f"{refused} || {types.name.format(column)} || {advice} || {written}")
        return FieldKeys(_cases([(f"{column} IS NULL", "NULL"), *cases], failure), number, numbers)

    def missing(self, column: str, number: str, dialect: Dialect) -> str:
        """Return the condition that the value is missing: NULL, or NaN; `number` is where the number is found."""
        return f"{column} IS NULL" if self.number is None else f"{column} IS NULL OR {dialect.is_nan.format(number)}"


def _cases(cases: Sequence[tuple[str, str]], otherwise: str) -> str:
    return "CASE" + "".join(f" WHEN {found} THEN {value}" for found, value in cases) + f" ELSE {otherwise} END"


def _is_number(value: str) -> bool:
    """Tell whether a value is the canonical string of a float."""
    try:
        return field_text(float(value)) == value
    except (ValueError, OverflowError):
        return False


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
