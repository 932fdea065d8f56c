"""Field values to digits in SQL: in one expression, or by joins with the tables of a model."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite

from mcnet.errors import NotSupportedError
from mcnet.export.pieces import ContextMap
from mcnet.rows.column_types import COLUMN_TYPES
from mcnet.rows.fields import field_text
from mcnet.rows.sql_dialects import Dialect, name_parts

_DECIMAL = re.compile("-?([0-9]{1,1000}([.][0-9]{1,1000})?(e-[0-9]{2,4})?|inf)")

# A field of the rows in forms that are compared with the values of a model.


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


# A value's digit: by CASE, or by joins.


def digit_cases(known: ContextMap, columns: Sequence[str], dialect: Dialect) -> tuple[dict[str, str], list[str]]:
    """Return the keys of the fields by names, and per field the number of its value, with {name} for a key.

    A field value counts as its digit times its stride; 0 is any value that is not listed.
    """
    named: dict[str, str] = {}
    terms = []
    for field, (column, digits, stride) in enumerate(zip(columns, known.digits, known.strides, strict=True)):
        keys = FieldKeys.of(column, digits, dialect)

        def listed(key: str, cases: Iterable[tuple[str, int]], stride: int = stride) -> str:
            whens = "".join(f" WHEN {value} THEN {key_literal(digit * stride, known)}" for value, digit in cases)
            literals = whens.replace("{", "{{").replace("}", "}}")
            return f"CASE {{{key}}}{literals} ELSE {key_literal(0, known)} END"

        strings = [(dialect.text(value), digit) for value, digit in digits.items() if value is not None]
        parts = []
        if strings:
            named[f"v{field}"] = keys.string
            parts.append(listed(f"v{field}", strings))
        if keys.number is not None:
            named[f"n{field}"] = keys.number
        if keys.numbers:
            parts.append(listed(f"n{field}", ((number_literal(v, dialect), d) for v, d in keys.numbers.items())))
        missing = key_literal(digits.get(None, 0) * stride, known)
        absent = keys.missing(column.replace("{", "{{").replace("}", "}}"), f"{{n{field}}}", dialect)
        terms.append(f"CASE WHEN {absent} THEN {missing} ELSE {' + '.join(parts) or key_literal(0, known)} END")
    return named, terms


def key_literal(key: int, known: ContextMap) -> str:
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


def digit_joins(
    known: ContextMap, columns: Sequence[str], dialect: Dialect, tables: str | Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the joins with the tables of values, and per field the digit of its value."""
    joins, digits = [], []
    for field, column in enumerate(columns):
        keys = FieldKeys.of(column, known.digits[field], dialect)
        joins.append(
            f"LEFT JOIN {dialect.table(table_named(tables, 'values'))} AS v{field}"
            f" ON v{field}.field = {field} AND v{field}.value = {keys.string}"
        )
        digit = f"COALESCE(v{field}.digit, 0)"
        if keys.numbers:
            joins.append(
                f"LEFT JOIN {dialect.table(table_named(tables, 'numbers'))} AS n{field}"
                f" ON n{field}.field = {field} AND n{field}.number = {keys.number} + {dialect.number(0.0)}"
            )
            digit += f" + COALESCE(n{field}.digit, 0)"
        missing, absent = known.digits[field].get(None, 0), keys.missing(column, keys.number or "", dialect)
        digits.append(f"CASE WHEN {absent} THEN {missing} ELSE {digit} END")
    return joins, digits


def table_named(tables: str | Sequence[str], what: str) -> tuple[str, ...]:
    """Return the name of one of a model's tables."""
    *path, last = name_parts(tables)
    return (*path, f"{last}_{what}")
