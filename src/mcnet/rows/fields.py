"""Field columns: values of any type as codes into a short list of canonical strings."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import CodeArray, IntArray
from mcnet._shared.distinct_values import distinct_rows, distinct_texts, rows_of_keys, take
from mcnet.errors import InputError

# Tables of Polars, pandas and Arrow: recognise them, without importing the libraries.

_TABLES = ("DataFrame", "Table", "RecordBatch")


def is_table(rows: Any) -> bool:
    """Tell whether this is a table in memory: a DataFrame of Polars or pandas, a Table or RecordBatch of Arrow."""
    return type(rows).__module__.partition(".")[0] in ("polars", "pandas", "pyarrow") and any(
        base.__name__ in _TABLES for base in type(rows).__mro__
    )


def is_lazy(rows: Any) -> bool:
    """Tell whether this is a LazyFrame of Polars."""
    return type(rows).__module__.startswith("polars") and type(rows).__name__ == "LazyFrame"


def refuse_lazy(values: Any, name: str) -> None:
    """Refuse a LazyFrame or an expression of Polars where values are needed."""
    kind = {"LazyFrame": "a LazyFrame", "Expr": "an expression"}.get(type(values).__name__)
    if kind is not None and type(values).__module__.startswith("polars"):
        raise InputError(
            f"{name} is {kind} of Polars, which has no values yet; collect it first, or give a "
            "LazyFrame and names of columns to mcnet.scan"
        )


def column_names(table: Any) -> list[str]:
    """Return the names of the columns of a table."""
    if hasattr(table, "column_names"):  # Arrow
        return list(table.column_names)
    if hasattr(table, "schema") and hasattr(table.schema, "names") and not callable(table.schema.names):
        return list(table.schema.names)  # a RecordBatch of Arrow
    return [str(name) for name in table.columns]


# Names of fields: those of columns, and of what is derived from a column (`derived.py`), such as ts:hour.

NUMBER = "number"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS = tuple(f"{hour:02d}:00" for hour in range(24))
CLOCK = {
    "hour": HOURS,
    "weekday": WEEKDAYS,
    "hour-of-week": tuple(f"{day} {hour}" for day in WEEKDAYS for hour in HOURS),
}
"""What may be derived from a timestamp, and its values in their order."""


def derivation(name: str) -> tuple[str, str] | None:
    """Return the column and the kind that the name of a derived field has; None for a plain column.

    >>> derivation("ts:hour"), derivation("age:number"), derivation("country"), derivation("a:b")
    (('ts', 'hour'), ('age', 'number'), None, None)
    """
    column, colon, kind = name.rpartition(":")
    return (column, kind) if colon and column and (kind == NUMBER or kind in CLOCK) else None


def derivation_advice(name: str, known: Collection[str]) -> str | None:
    """Return what can be derived from a column, if this is the name of something else that is derived from it.

    >>> derivation_advice("ts:minute", ["ts"])
    "from the column 'ts' there can be ts:hour, ts:weekday, ts:hour-of-week and, of numbers, ts:number"
    """
    column, colon, _ = name.rpartition(":")
    if not colon or column not in known:
        return None
    of_time = ", ".join(f"{column}:{kind}" for kind in CLOCK)
    return f"from the column {column!r} there can be {of_time} and, of numbers, {column}:{NUMBER}"


def source_column(name: str) -> str:
    """Return the column that a field is read from.

    >>> source_column("ts:hour"), source_column("country")
    ('ts', 'country')
    """
    found = derivation(name)
    return name if found is None else found[0]


def number_fields(names: Iterable[str]) -> list[str]:
    """Return those of the fields that are numbers cut into bins."""
    return [name for name in names if (found := derivation(name)) is not None and found[1] == NUMBER]


# Values of Arrow columns as Python has them, those of types that an engine has made its own among them.


def arrow_values(name: str, kind: Any, distinct: Any) -> list[Any]:
    """Return distinct values of a field as Python has them."""
    if getattr(distinct.type, "unit", None) == "ns":  # which Python has not
        import pyarrow as pa

        zoned = hasattr(distinct.type, "tz")
        micros = pa.timestamp("us", distinct.type.tz) if zoned else str(distinct.type).replace("ns", "us")
        distinct = distinct.cast(micros, safe=False)
    try:
        values: list[Any] = distinct.to_pylist()
    except (ValueError, OverflowError) as error:  # texts that are not UTF-8, days beyond the calendar of Python
        raise InputError(f"field {name!r} has a value that cannot be read ({error}); cast it to text") from None
    own = getattr(kind, "extension_name", None)
    if own is None:
        return values
    if own == "arrow.uuid":
        return [UUID(bytes=value) for value in values]
    engine_type = getattr(kind, "type_name", own)
    if engine_type == "numeric":  # of PostgreSQL, in texts such as 7.50
        return [Decimal(value) for value in values]
    if any(isinstance(value, bytes) for value in values):
        raise InputError(f"field {name!r} is of the type {engine_type}, whose values are not known; cast it to text")
    return values


# Field columns: values of any type as codes into a short list of canonical texts.

Edges = tuple[float, ...]
"""Where a number that is a field is cut into bins: bin i goes from the edge before it, included, to the next one."""

MISSING_LABEL = "(missing)"
"""How the missing value is shown to people; inside, it is None."""

UNNAMED = "field"
"""The name of a field given as a bare column."""


_EQUAL_TEXTS = frozenset((str, int, float, type(None)))
"""Types of values that have one text where they are equal, also to each other: 7 and 7.0."""

_EQUAL_IN_ONE_TYPE = frozenset((Decimal, date, timedelta, bytes))
"""Types whose equal values have one text, in a column that has no other type."""

_DAYS_OF_PYTHON = tuple((end - date(1970, 1, 1)).days for end in (date.min, date.max))

_SMALL_RANGE = 1_000_000
"""Whole numbers that lie this close together are looked up in one table; others are hashed, or sorted."""


@dataclass(frozen=True)
class FieldColumn:
    """One field of the rows: `values[codes[i]]` is the canonical value of row i.

    What a row holds is its key, whatever the column came with; `numbers[key - low]` is the code of a key. Without
    `numbers` the keys are the codes. So whoever looks codes up in a table reads the rows once. A number that is cut
    into bins has their `edges`.
    """

    name: str
    keys: NDArray[Any]
    values: tuple[str | None, ...]
    numbers: CodeArray | None = None
    low: int = 0
    edges: Edges | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "FieldColumn":
        return replace(self, keys=self.keys[rows])

    @cached_property
    def codes(self) -> CodeArray:
        """Return the code of each row's value."""
        if self.numbers is None:
            return self.keys.astype(np.int32, copy=False)
        return take(self.numbers, self.keys, self.low)

    def mapped(self, table: CodeArray) -> CodeArray:
        """Return `table[code]` of each row."""
        if self.numbers is None:
            return take(table, self.keys, self.low)
        return take(table[self.numbers], self.keys, self.low)


def field_text(value: Any) -> str | None:
    """Return the canonical text of a field value, or None when it is missing.

    Timestamps with a time zone are written in UTC, so that equal timestamps have one text.

    >>> [field_text(v) for v in (7, 7.0, "7", 0.5, True, None, float("nan"))]
    ['7', '7', '7', '0.5', 'true', None, None]
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str):
        return _storable(str.__str__(value))  # what the text says, whatever a subclass (an Enum) shows
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", errors="backslashreplace")  # bytes that are not UTF-8 stay apart
    if isinstance(value, timedelta):  # of Python, and pandas' own
        return str(timedelta(value.days, value.seconds, value.microseconds))
    if isinstance(value, np.timedelta64):
        return None if np.isnat(value) else field_text(value.astype("timedelta64[us]").item())
    if isinstance(value, datetime):
        if value.tzinfo is not None:  # one timestamp has one text, whatever its time zone
            return value.astimezone(UTC).isoformat()
        # Midnight is its day, as 7.0 is 7: pandas has no type for days.
        return value.date().isoformat() if value.time() == time.min else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, np.datetime64):
        return _timestamp_text(value)
    return _storable(str(value))


def _storable(text: str) -> str:
    """Replace halves of surrogate pairs, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode("utf-8")


def _decimal_text(value: Decimal) -> str | None:
    """Return the string that the same number has as an int or a float, but with all of its digits."""
    if not value.is_finite():
        return field_text(float(value))
    if value == value.to_integral_value():
        return str(int(value))
    if value.adjusted() >= -4:
        return f"{value:f}".rstrip("0")
    digits = f"{value:e}".partition("e")[0]
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}e-{-value.adjusted():02d}"


def _timestamp_text(value: np.datetime64) -> str | None:
    """Return the text that Python's own date or datetime has, whatever the unit."""
    if np.isnat(value):
        return None
    timestamp = value.astype("datetime64[us]").item()
    return field_text(timestamp) if isinstance(timestamp, datetime) else str(value)


def sorted_values(values: Iterable[str | None]) -> tuple[str | None, ...]:
    """Return distinct field values in the order of their texts, the missing value last."""
    distinct = set(values)
    strings = sorted(value for value in distinct if value is not None)
    return (*strings, None) if None in distinct else tuple(strings)


def sort_key(value: str | None) -> tuple[bool, str]:
    """Order field values by their text, the missing value last."""
    return (value is None, value or "")


def _canonical(
    name: str, keys: NDArray[Any], raw: Iterable[Any], low: int = 0, there: IntArray | None = None
) -> FieldColumn:
    """Merge raw values of the same text and order them; `raw[i]` belongs to the key low + i, or low + there[i]."""
    strings = [field_text(value) for value in raw]
    values = sorted_values(strings)
    index = {value: code for code, value in enumerate(values)}
    numbers = np.array([index[string] for string in strings], dtype=np.int32)
    if there is not None:
        spread = np.zeros(there[-1] + 1, dtype=np.int32)
        spread[there] = numbers
        numbers = spread
    return FieldColumn(name, keys, values, numbers, low)


def _from_codes(name: str, codes: NDArray[Any], raw: Iterable[Any]) -> FieldColumn:
    """Return the column of codes into a list of raw values, where -1 is the missing value."""
    if len(codes) and codes.min() < 0:
        return _canonical(name, codes, [None, *raw], low=-1)
    return _canonical(name, codes, raw)


def _not_comparable(name: str) -> InputError:
    return InputError(f"field {name!r} holds values that cannot be compared (lists?); pass one value per row")


def _from_objects(name: str, items: Sequence[Any]) -> FieldColumn:
    kinds = set(map(type, items))
    known = kinds - {type(None)}
    if not kinds <= _EQUAL_TEXTS and known != {bool} and not (len(known) == 1 and known <= _EQUAL_IN_ONE_TYPE):
        # Equal is not always the same field value: True and 1, a half and 0.5, or what a class of the user compares to.
        items = [
            item if item.__hash__ is None and not isinstance(item, bytearray) else field_text(item) for item in items
        ]
    try:
        index = {value: code for code, value in enumerate(dict.fromkeys(items))}
    except TypeError:
        raise _not_comparable(name) from None
    codes = np.fromiter(map(index.__getitem__, items), dtype=np.int32, count=len(items))
    return _canonical(name, codes, index)


def _from_numpy(name: str, array: NDArray[Any]) -> FieldColumn:
    if array.ndim != 1:
        raise InputError(f"field {name!r} has shape {array.shape}; pass one column per field")
    if array.dtype.kind == "b":
        return _canonical(name, array.view(np.uint8), (False, True))
    if len(array) and array.dtype.kind in "iufM":
        return _from_keys(name, array, array.__getitem__)
    if array.dtype.kind == "U" and (result := distinct_rows(array)) is not None:
        codes, rows = result
        return _canonical(name, codes, array[rows].tolist())
    if array.dtype.kind == "m":
        array = array.astype("timedelta64[us]")  # nanoseconds would become plain numbers
    return _from_objects(name, array.tolist())


def _from_keys(name: str, keys: NDArray[Any], values_at: Callable[[IntArray], Iterable[Any]]) -> FieldColumn:
    """Return the column of numbers that are equal where the field values are; `values_at` gives those of some rows."""
    if keys.dtype.kind in "iu":
        low, high = int(keys.min()), int(keys.max())
        if high - low < _SMALL_RANGE:
            rows = rows_of_keys(keys, low, high)
            there = np.flatnonzero(rows >= 0)
            return _canonical(name, keys, values_at(rows[there]), low, there)
    result = distinct_rows(keys)
    if result is None:
        _, rows, codes = np.unique(keys, return_index=True, return_inverse=True)
        return _canonical(name, codes, values_at(rows))
    return _canonical(name, result[0], values_at(result[1]))


def _from_arrow(name: str, column: Any) -> FieldColumn:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
        if hasattr(column, "chunk"):  # a chunked array of several chunks of a dictionary type
            column = column.unify_dictionaries().combine_chunks()
    kind = column.type
    if hasattr(kind, "extension_name"):  # a type of an engine's own, kept as one that Arrow has
        column = column.storage
    if not hasattr(column, "dictionary"):
        if column.type.num_fields:
            raise _not_comparable(name)
        column = column.dictionary_encode()
    codes = column.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    return _from_codes(name, codes, arrow_values(name, kind, column.dictionary))


def _from_distinct_texts(name: str, codes: NDArray[Any], texts: Any) -> FieldColumn:
    """Return the column of codes into a Polars column of distinct texts, which are canonical already."""
    order = texts.arg_sort(nulls_last=True).to_numpy()  # the order of bytes in UTF-8 is that of Python's texts
    numbers = np.empty(len(order), dtype=np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return FieldColumn(name, codes, tuple(texts.gather(order).to_list()), numbers)


def _from_polars(name: str, series: Any) -> FieldColumn:
    import polars as pl

    series = series.alias("values")  # Polars takes names like `^x$` for patterns
    if series.dtype == pl.Binary:
        try:
            series = series.cast(pl.String)
        except pl.exceptions.ComputeError:  # not UTF-8
            return _from_objects(name, series.to_list())
    if series.dtype == pl.String:
        if (result := distinct_texts(series)) is not None:
            codes, rows = result
            return _from_distinct_texts(name, codes, series.gather(rows))
        series = series.cast(pl.Categorical)
    if series.dtype in (pl.Categorical, pl.Enum):
        physical = series.to_physical()
        if series.null_count():
            physical = physical.cast(pl.Int64).fill_null(-1)
        if len(series):
            return _from_keys(name, physical.to_numpy(), lambda rows: series.gather(rows).cast(pl.String).to_list())
        return _from_objects(name, [])
    in_numpy = series.dtype == pl.Boolean or (series.dtype.is_integer() and "128" not in str(series.dtype))
    if series.dtype.is_float() or (in_numpy and not series.null_count()):
        return _from_numpy(name, series.to_numpy())  # a missing fraction is NaN there
    keys = _whole_keys(series)
    if keys is None and series.dtype.is_decimal():
        strings = _from_polars(name, series.cast(pl.String))
        return _canonical(
            name, strings.codes, (None if string is None else Decimal(string) for string in strings.values)
        )
    if keys is None:
        return _from_objects(name, _python_values(name, series))
    return _from_keys(name, keys, lambda rows: _python_values(name, series.gather(rows)))


def _whole_keys(series: Any) -> NDArray[Any] | None:
    """Return whole numbers that are equal where the values of a Polars column are; None if 64 bits are too few."""
    import polars as pl

    kind = series.dtype
    if not (kind.is_integer() or kind.is_temporal() or kind.is_decimal() or kind == pl.Boolean):
        return None
    whole = series.to_physical().cast(pl.Int64, strict=False)
    least = whole.min()
    if whole.null_count() > series.null_count() or least is None or least == -(2**63):
        return None
    return np.asarray(whole.fill_null(least - 1).to_numpy())


def _python_values(name: str, series: Any) -> list[Any]:
    """Return values of Polars as Python has them."""
    import polars as pl

    if series.dtype == pl.Date and not series.to_physical().drop_nulls().is_between(*_DAYS_OF_PYTHON).all():
        raise InputError(f"field {name!r} has a day beyond the calendar of Python; cast it to text")
    try:
        values: list[Any] = series.to_list()
    except (ValueError, OverflowError) as error:
        raise InputError(f"field {name!r} has a value that cannot be read ({error}); cast it to text") from None
    return values


def _column(name: str, values: Any) -> FieldColumn:
    refuse_lazy(values, f"field {name!r}")
    kind = type(values).__module__.partition(".")[0]
    if kind == "polars":
        return _from_polars(name, values)
    if kind == "pyarrow":
        return _from_arrow(name, values)
    if hasattr(values, "cat") and hasattr(values.cat, "categories"):  # a pandas Series of categories
        return _from_codes(name, values.cat.codes.to_numpy(), values.cat.categories)
    if hasattr(values, "codes") and hasattr(values, "categories"):  # a pandas Categorical
        return _from_codes(name, np.asarray(values.codes), values.categories)
    if getattr(getattr(values, "dtype", None), "tz", None) is not None and hasattr(values, "dt") and len(values):
        # A pandas Series of timestamps with a time zone, which NumPy has only as objects.
        utc = values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return _from_keys(name, utc, lambda rows: values.iloc[rows].tolist())
    if hasattr(values, "to_numpy"):
        return _from_numpy(name, np.asarray(values.to_numpy()))
    if isinstance(values, np.ma.MaskedArray):
        return _from_objects(name, values.tolist())
    if isinstance(values, np.ndarray):
        return _from_numpy(name, values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(f"field {name!r} is {type(values).__name__} {values!r}, not a column; pass one value per row")
    return _from_objects(name, list(values))


def canonical_texts(series: Any) -> Any:
    """Return a Polars column as its canonical texts, under which a sketch knows the values.

    >>> import polars as pl
    >>> canonical_texts(pl.Series([7.0, 0.5, None])).to_list()
    ['7', '0.5', None]
    """
    import polars as pl

    if len(series) == 0:
        return pl.Series(series.name, [], dtype=pl.String)
    column = _column(series.name, series)
    return pl.Series(series.name, column.values, dtype=pl.String).gather(column.codes)


def is_of_strings(values: Any) -> bool:
    """Tell whether a column has strings by its type (Polars, Arrow, NumPy, pandas), or by its first value."""
    kind = str(getattr(values, "dtype", getattr(values, "type", ""))).lower()
    if kind in ("object", "o"):
        items = np.asarray(values).tolist()
        return isinstance(next((item for item in items if item is not None), None), str)
    return any(word in kind for word in ("str", "utf8", "<u", "cat", "enum", "dictionary"))


def named_columns(field: Any) -> list[tuple[str, Any]]:
    """Return what a caller gives as fields as pairs of a name and a column; see `field_columns`."""
    if field is None:
        return []
    refuse_lazy(field, "field")
    if isinstance(field, FieldColumn):
        return [(field.name, field)]
    if isinstance(field, Mapping):
        if not field:
            raise InputError("field is an empty mapping; give at least one named column, or leave it out")
        return [(str(name), values) for name, values in field.items()]
    if isinstance(field, list | tuple) and field and all(isinstance(item, FieldColumn) for item in field):
        return [(item.name, item) for item in field]
    if hasattr(field, "columns"):  # a table
        names = field.column_names if hasattr(field, "column_names") else list(field.columns)
        return [(str(name), field[name]) for name in names]
    if isinstance(field, np.ndarray) and field.ndim == 2:
        return [(f"field_{i + 1}", field[:, i]) for i in range(field.shape[1])]
    name = getattr(field, "name", None)
    return [(str(name) if name else UNNAMED, field)]


def field_columns(field: Any, edges: Mapping[str, Edges] | None = None) -> list[FieldColumn]:
    """Return one FieldColumn per field, in the order given; None is no field at all.

    `field` is a column, a mapping of names to columns, or a table (pandas, Polars, Arrow). An unnamed column
    is called UNNAMED ("field"). A field whose name says so is derived from its column (see `mcnet.rows.derived`);
    `edges` are those of numbers, which are chosen from the rows where they are not given.

    >>> column, = field_columns(["NL", None, "NL"])
    >>> column.name, column.values, column.codes.tolist()
    ('field', ('NL', None), [0, 1, 0])
    """
    return [field_column(name, values, (edges or {}).get(name)) for name, values in named_columns(field)]


def field_column(name: str, values: Any, edges: Edges | None = None) -> FieldColumn:
    """Return one field of rows; see `field_columns`."""
    if isinstance(values, FieldColumn):
        return values
    if derivation(name) is not None:
        from mcnet.rows.derived import derived_column

        refuse_lazy(values, f"field {name!r}")
        return derived_column(name, values, edges)
    return _column(name, values)
