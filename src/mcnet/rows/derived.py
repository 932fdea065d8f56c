"""Derived fields: a number cut into bins, the hour or the weekday of a timestamp, named `column:number`, `column:hour`.

The name says what is derived from which column. The edges of the bins of a number are chosen once, from the rows of a
fit, and stay with the sketch and the model, so that a request sends the number. Timestamps are cut in UTC: one with a
time zone is converted to UTC, one without is taken as it is.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet.errors import InputError
from mcnet.rows.columns import DescribeRow, RowName, as_array, as_floats, describe_row
from mcnet.rows.fields import (
    CLOCK,
    NUMBER,
    Edges,
    FieldColumn,
    derivation,
    field_column,
    field_text,
    is_of_strings,
    source_column,
)
from mcnet.rows.periods import counted_seconds, timestamps_of

DEFAULT_BINS = 16
MOST_BINS = 1_000
_SLACK = 0.1
"""By so much of a bin an edge may be moved for the sake of fewer digits."""

_MOST_ROWS_FOR_EDGES = 1 << 20
"""Edges are chosen from at most so many rows, evenly spaced among all."""

_DAY_MICROS = 86_400_000_000
_HOUR_MICROS = 3_600_000_000
_FIRST_WEEKDAY = 3
"""1970 began on a Thursday."""


# Bins of a number.


def check_bins(bins: Any) -> int:
    """Return the number of bins, or raise if it is not one."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 2 <= int(bins) <= MOST_BINS:
        raise InputError(f"bins is {bins!r}; it must be a whole number from 2 to {MOST_BINS:,}")
    return int(bins)


def chosen_edges(numbers: FloatArray, bins: int = DEFAULT_BINS) -> Edges:
    """Return the edges that cut numbers into at most `bins` parts of nearly equal size, none empty; NaN is left out.

    An edge has as few digits as it can within a fifth of a bin.

    >>> chosen_edges(np.array([1.0, 2.0, 3.0, 40.0]), 2), chosen_edges(np.linspace(0.0, 1.0, 1000), 4)
    ((3.0,), (0.25, 0.5, 0.75))
    """
    values, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    if len(values) < 2:
        return ()
    mass = np.cumsum(counts)
    at = np.arange(1, check_bins(bins))
    # The last number below the edge, at the earliest and at the latest.
    first = np.searchsorted(mass, mass[-1] / bins * (at - _SLACK) * (1.0 - 1e-12))
    last = np.maximum(np.searchsorted(mass, mass[-1] / bins * (at + _SLACK), side="right") - 1, first)
    inside = first < len(values) - 1
    last = np.minimum(last[inside], len(values) - 2)
    edges = {_shortest(float(values[i]), float(values[j + 1])) for i, j in zip(first[inside], last, strict=True)}
    return tuple(sorted(edges))


def _shortest(below: float, above: float) -> float:
    """Return the number of the fewest digits that is above the one and not above the other."""
    for digits in range(1, 18):
        for number in (float(f"{above:.{digits}g}"), float(f"{0.5 * below + 0.5 * above:.{digits}g}")):
            if below < number <= above and math.isfinite(number):
                return number
    return above


@cache
def bin_texts(edges: Edges) -> tuple[str, ...]:
    """Return the field values that bins have, in their order.

    >>> bin_texts((12.0, 18.5)), bin_texts(())
    (('< 12', '[12, 18.5)', '>= 18.5'), ('any number',))
    """
    if not edges:
        return ("any number",)
    ends = [field_text(edge) for edge in edges]
    inner = (f"[{low}, {high})" for low, high in pairwise(ends))
    return (f"< {ends[0]}", *inner, f">= {ends[-1]}")


def check_edges(name: str, edges: Sequence[float]) -> Edges:
    """Return edges that came from elsewhere, or raise if they are none."""
    numbers = tuple(float(edge) for edge in edges)
    rising = all(low < high for low, high in pairwise(numbers))
    if len(numbers) >= MOST_BINS or not all(map(math.isfinite, numbers)) or not rising:
        raise InputError(f"the edges of {name!r} do not rise, are infinite, or are {MOST_BINS:,} or more")
    return numbers


def edges_of(like: Any) -> dict[str, Edges]:
    """Return the edges of a sketch, a model or a fitted calibrator, or edges by name as they are; none of None."""
    if like is None or isinstance(like, Mapping):
        return {name: check_edges(name, edges) for name, edges in (like or {}).items()}
    contexts = getattr(getattr(like, "model_", like), "contexts", None)
    if contexts is None:
        raise InputError(f"like is {type(like).__name__}; give a sketch, a model or a fitted calibrator")
    return dict(contexts.edges)


class EdgeSample:
    """Numbers of a column, batch after batch, evenly thinned to a bounded number, from which edges are chosen."""

    def __init__(self) -> None:
        """Start without rows."""
        self._parts: list[FloatArray] = []
        self._step, self._rows, self._kept = 1, 0, 0

    def add(self, numbers: FloatArray) -> None:
        """Add the next rows of the column."""
        part = numbers[(-self._rows) % self._step :: self._step]
        self._rows += len(numbers)
        self._parts.append(part)
        self._kept += len(part)
        while self._kept > _MOST_ROWS_FOR_EDGES:
            self._parts = [np.concatenate(self._parts)[::2]]
            self._step, self._kept = 2 * self._step, len(self._parts[0])

    def edges(self, bins: int) -> Edges:
        """Return the edges of the rows so far."""
        return chosen_edges(np.concatenate([np.empty(0), *self._parts]), bins)


# Columns of rows to columns of a derived field.


def derived_column(
    name: str, values: Any, edges: Edges | None, *, describe_row: DescribeRow = describe_row
) -> FieldColumn:
    """Return the field that its name derives from a column; values that are derived already stay as they are."""
    found = derivation(name)
    assert found is not None
    source, kind = found
    known = CLOCK[kind] if kind in CLOCK else None if edges is None else bin_texts(edges)
    done = _derived_before(name, values, known)
    if done is not None:
        return FieldColumn(name, done.keys, done.values, done.numbers, done.low, edges)
    if kind in CLOCK:
        codes = _clock_codes(kind, source, values, describe_row)
        return FieldColumn(name, codes.astype(np.int32), (*CLOCK[kind], None))
    numbers = number_column(name, values, describe_row)
    edges = chosen_edges(numbers) if edges is None else edges
    codes = np.searchsorted(np.array(edges), numbers, side="right").astype(np.int32)
    codes[np.isnan(numbers)] = len(edges) + 1
    return FieldColumn(name, codes, (*bin_texts(edges), None), edges=edges)


def number_column(name: str, values: Any, describe_row: DescribeRow = describe_row) -> FloatArray:
    """Return the column of a derived field of numbers; say what to do if it has something else in it."""
    if hasattr(values, "replace") and str(getattr(values, "dtype", "")) == "String":
        values = values.replace({"": None})  # what some programs write for a missing number
    try:
        return as_floats(values, source_column(name), describe_row)
    except InputError as error:
        advice = f"; if {source_column(name)} has names and not numbers, give it as a field without :{NUMBER}"
        raise InputError(
            error.what.replace("; convert the column first", "") + advice, column=error.column, row=error.row
        ) from None


def _derived_before(name: str, values: Any, known: tuple[str, ...] | None) -> FieldColumn | None:
    """Return a column of strings that are values of the derived field already; None for any other column."""
    if isinstance(values, list | tuple):
        strings = all(value is None or isinstance(value, str) for value in values) and any(values)
    else:
        strings = is_of_strings(values)
    if not strings:
        return None
    column = field_column(source_column(name), values)
    texts = [value for value in column.values if value is not None]
    ours = known or ()
    if not texts or not all(text in ours if known else _is_bin(text) for text in texts):
        return None
    return column


def _is_bin(text: str) -> bool:
    """Tell whether a string is written as the bin of a number."""
    return text == "any number" or text.startswith(("< ", ">= ")) or (text[:1] == "[" and text[-1:] == ")")


def _clock_codes(kind: str, source: str, values: Any, describe_row: DescribeRow | None) -> IntArray:
    """Return the index of each timestamp's value; that of a missing one is the number of values."""
    import polars as pl

    typed = hasattr(values, "__arrow_array__") or hasattr(values, "dt") or type(values).__module__.startswith("pyarrow")
    if not typed and not isinstance(values, list | tuple):
        values = as_array(values, source)
        if values.dtype.kind == "M":
            values = values.astype("datetime64[us]")
        elif values.dtype.kind == "O":
            values = values.tolist()
    if isinstance(values, list | tuple) and any(isinstance(value, date | np.datetime64) for value in values):
        column = pl.Series(source, [_in_utc(value) for value in values], dtype=pl.Datetime("us"))
    else:
        column = pl.Series(source, values, strict=False)
    timestamps = timestamps_of(column, describe_row=describe_row)
    missing = timestamps.is_null().to_numpy()
    micros = timestamps.cast(pl.Datetime("us")).to_physical().fill_null(0).to_numpy()
    return np.where(missing, len(CLOCK[kind]), clock_index(kind, micros))


def _in_utc(value: Any) -> datetime | None:
    """Return a timestamp or a day of any kind as a timestamp without a time zone, as clocks in UTC show it."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def clock_index(kind: str, micros: Any) -> Any:
    """Return the index of the value that timestamps have, given in microseconds since 1970; of one number or an array.

    >>> CLOCK["hour-of-week"][clock_index("hour-of-week", np.array([0]))[0]]
    'Thu 00:00'
    """
    hour, day = micros // _HOUR_MICROS % 24, (micros // _DAY_MICROS + _FIRST_WEEKDAY) % 7
    return hour if kind == "hour" else day if kind == "weekday" else 24 * day + hour


# One value at a time, for a server.


def value_text(name: str, edges: Edges | None) -> Callable[[Any], str | None]:
    """Return the function that gives the field value of one value as a caller sends it; plain fields too.

    >>> value_text("age:number", (12.0,))(7), value_text("ts:weekday", None)("2026-11-16T07:00")
    ('< 12', 'Mon')
    """
    found = derivation(name)
    if found is None:
        return field_text
    source, kind = found
    if kind in CLOCK:
        return lambda value: _clock_text(kind, source, value)
    ends = list(edges or ())
    texts = bin_texts(edges or ())
    known = frozenset(texts)

    def cut(value: Any) -> str | None:
        if type(value) is not float:
            if value is None or (isinstance(value, str) and value in known):
                return None if value is None else str(value)
            value = float(as_floats([value], source, lambda row: RowName("the request", row))[0])
        return None if value != value else texts[bisect_right(ends, value)]

    return cut


def _clock_text(kind: str, source: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value in CLOCK[kind]):
        return None if value is None else str(value)
    micros: int | None = None
    if type(value) is str:
        with suppress(ValueError):  # what other forms there are, the column knows
            value = datetime.fromisoformat(value)
    if isinstance(value, date | np.datetime64):
        utc = _in_utc(value)
        micros = None if utc is None else int((utc - _EPOCH).total_seconds() // 1) * 1_000_000
    elif type(value) in (int, float) and (seconds := counted_seconds(value)) is not None:
        micros = seconds * 1_000_000
    if micros is None:
        index = int(_clock_codes(kind, source, [value], None)[0])
        return None if index == len(CLOCK[kind]) else CLOCK[kind][index]
    return CLOCK[kind][int(clock_index(kind, micros))]


_EPOCH = datetime(1970, 1, 1)
