"""A handful of rows in plain Python: the bits of the array evaluation without the overhead of arrays."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from types import NoneType
from typing import Any

import numpy as np

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray
from mcnet.curves.curves import Curves
from mcnet.curves.rising_sum import RisingSum, SumLine
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import FieldColumn

MOST_ROWS = 8
"""With more rows than this, arrays are faster."""

_FLOOR = SCORE_FLOOR
_TOP = 1.0 - SCORE_FLOOR
_NUMBERS = frozenset((float, int, bool, np.bool_, *(np.dtype(kind).type for kind in "efdbhilqBHILQ")))
"""Types of scores that become the same float one by one as in a column."""

_empty = np.empty

_PLAIN = frozenset((str, int, float, NoneType))
"""Values of these types that are equal have one text: 7 and 7.0. True equals 1 but is another value: not among them."""

_REMEMBERED_VALUES = 4_096
"""How many values are remembered, besides two for each context: known ones come as text and as number."""

_LONGEST_REMEMBERED_TEXT = 256
_LARGEST_REMEMBERED_NUMBER = 1 << 64

Lines = tuple[list[float], list[tuple[float, float, float, float]]]
"""The knots of a curve, and (start, value, slope, largest value) of the lines left of, between and right of them."""


def _items(column: Any) -> list[Any] | None:
    """Return a short list or array as a list; None for everything else."""
    if (
        isinstance(column, np.ndarray)
        and column.ndim == 1
        and column.dtype.kind in "biufU"
        and len(column) <= MOST_ROWS
    ):
        items: list[Any] = column.tolist()
        return items
    return list(column) if isinstance(column, list | tuple) and len(column) <= MOST_ROWS else None


def _at(lines: Lines | SumLine, score: float) -> float:
    if type(lines) is SumLine:
        return lines(score)
    assert type(lines) is tuple
    start, value, slope, most = lines[1][bisect_right(lines[0], score)]
    result = slope * (score - start) + value
    # Rounding may carry the line past its end by one unit in the last place; the order must not suffer.
    return result if result < most else most


def _small(value: Any) -> bool:
    """Tell whether a plain value takes so few bytes that thousands of them can be remembered."""
    if type(value) is str:
        return len(value) <= _LONGEST_REMEMBERED_TEXT
    return type(value) is not int or -_LARGEST_REMEMBERED_NUMBER < value < _LARGEST_REMEMBERED_NUMBER


def _unusual(values: tuple[Any, ...]) -> bool:
    """Tell whether a value is a column, or cannot be a field value."""
    return any(isinstance(value, FieldColumn) or value.__hash__ is None for value in values)


class SmallBatches:
    """Predicts lists of up to MOST_ROWS rows, and leaves whatever is unusual about them to the array path."""

    def __init__(self, contexts: Contexts, curves: Curves, rising_sum: RisingSum | None = None) -> None:
        """Start without lines but those of a model without fields; a curve's are made when it is first asked for.

        A `rising_sum` serves the combinations that have no curve of their own.
        """
        self._contexts = contexts
        self._curves = curves
        self._rising_sum = rising_sum
        self._lines: dict[int, Lines] = {}
        self._by_value: dict[Any, Any] = {}
        self._without = None if contexts.names else self._lines_of(0)

    def __call__(self, scores: Any, field: Any) -> FloatArray | None:
        """Return the calibrated probabilities, or None if these rows need the array path (and its messages)."""
        # A server's usual call is one row in lists: every line of this branch is a tenth of a microsecond.
        if type(scores) is list and len(scores) == 1 and type(score := scores[0]) is float and _FLOOR <= score <= _TOP:
            if field is None:
                lines = self._without
            elif type(field) is list and len(field) == 1 and type(field[0]) in _PLAIN:
                lines = self._by_value.get(field[0])
            else:
                lines = None
            if lines is not None:
                start, value, slope, most = lines[1][bisect_right(lines[0], score)]
                found = slope * (score - start) + value
                result: FloatArray = _empty(1)
                result[0] = found if found < most else most
                return result
        return self._several(scores, field)

    def one(self, score: Any, field: Any) -> float | None:
        """Return the calibrated probability of one score in one context, or None if it needs the array path.

        `field` is the value of the only field, a tuple of values in the order of the fields, or a mapping.
        """
        if type(score) is not float:
            if type(score) not in _NUMBERS or not 0 <= score <= 1:
                return None
            score = float(score)
        if not _FLOOR <= score <= _TOP:
            if not 0.0 <= score <= 1.0:
                return None
            score = _FLOOR if score < _FLOOR else _TOP
        lines: Lines | SumLine | None
        if field is None:
            lines = self._without
        elif type(field) is tuple:
            lines = self._find(field)
        elif type(field) in _PLAIN:
            lines = self._by_value.get(field) or self._find((field,))
        elif isinstance(field, Mapping):
            names = self._contexts.names
            field = self._contexts.by_field(field) if self._contexts.derived else field
            known = len(field) == len(names) and all(name in field for name in names)
            lines = self._find(tuple([field[name] for name in names]) if known else self._with_useless(field))
        else:
            lines = self._find((field,))
        return None if lines is None else _at(lines, score)

    def _with_useless(self, field: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of a row that lacks fields without known values, where any value does; () for others."""
        names, needed = self._contexts.names, self._contexts.needed
        known = set(needed) <= set(field) <= set(names)
        return tuple([field.get(name) for name in names]) if known else ()

    def _several(self, scores: Any, field: Any) -> FloatArray | None:
        numbers = _items(scores)
        if not numbers:
            return None
        for number in numbers:
            # NaN fails the comparison.
            if type(number) not in _NUMBERS or not 0.0 <= number <= 1.0:
                return None
        lines = self._lines_of_rows(field, len(numbers))
        if lines is None:
            return None
        return np.array(
            [_at(own, min(max(float(score), _FLOOR), _TOP)) for own, score in zip(lines, numbers, strict=True)]
        )

    def _lines_of_rows(self, field: Any, rows: int) -> list[Lines | SumLine] | None:
        """Return the lines of each row's curve, or None if it takes more than a look into a dictionary."""
        names = self._contexts.names
        if field is None:
            return None if self._without is None else [self._without] * rows
        if isinstance(field, Mapping):
            field = self._contexts.by_field(field) if self._contexts.derived else field
            if set(field) != set(names):
                return None
            columns = [_items(field[name]) for name in names]
        elif len(names) == 1:
            columns = [_items(field)]
        else:
            return None
        result: list[Lines | SumLine] = []
        for column in columns:
            if column is None or len(column) != rows:
                return None
        for values in zip(*columns, strict=True):
            own = self._find(values)
            if own is None:
                return None
            result.append(own)
        return result

    def _find(self, values: tuple[Any, ...]) -> Lines | SumLine | None:
        """Return the lines of the context with these values; None for what cannot be one, or is not for this path."""
        if len(values) != len(self._contexts.names) or not values:
            return None
        plain = _PLAIN.issuperset(map(type, values))
        key = values[0] if len(values) == 1 else values
        # One look, since another thread may forget everything between two.
        if plain and (known := self._by_value.get(key)) is not None:
            remembered: Lines | SumLine = known
            return remembered
        if _unusual(values):
            return None
        context = self._contexts.find(values)
        lines: Lines | SumLine
        if context < 0 and self._rising_sum is not None:
            lines = self._rising_sum.line(self._contexts.codes_of(values))
        else:
            lines = self._lines_of(1 + context)
        if plain and all(map(_small, values)):
            if len(self._by_value) >= _REMEMBERED_VALUES + 2 * len(self._contexts):
                self._by_value.clear()
            self._by_value[key] = lines
        return lines

    def _lines_of(self, curve: int) -> Lines:
        if curve not in self._lines:
            begin = self._curves.value_start[curve]
            knots, values = self._curves.grid(curve).tolist(), self._curves.values(curve).tolist()
            slopes = self._curves.slopes[begin : begin + len(knots)].tolist()
            # A falling line (histogram binning) has no end to be kept below.
            most = [after if after >= value else inf for value, after in pairwise(values)]
            right = zip(knots, values, slopes, [*most, inf], strict=True)
            self._lines[curve] = knots, [(0.0, values[0], 0.0, inf), *right]
        return self._lines[curve]
