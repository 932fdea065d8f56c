"""A handful of rows in plain Python: the bits of the array evaluation without the overhead of arrays."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from mcnet.curves.curves import Curves
from mcnet.rows.columns import SCORE_FLOOR, FloatArray
from mcnet.rows.contexts import Contexts

__all__ = ["FEW", "FewRows"]

FEW = 8
"""From more rows on, arrays are faster."""

_TOP = 1.0 - SCORE_FLOOR
_NUMBERS = (float, int, bool)


def _items(column: Any) -> list[Any] | None:
    """Return a short list or array as a list; None for everything else."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "biufU" and len(column) <= FEW:
        items: list[Any] = column.tolist()
        return items
    return list(column) if isinstance(column, list | tuple) and len(column) <= FEW else None


class FewRows:
    """Predicts lists of up to FEW rows, and leaves whatever is unusual about them to the array path."""

    def __init__(self, contexts: Contexts, curves: Curves) -> None:
        """Start without tables; a curve's is made when it is first asked for."""
        self._contexts = contexts
        self._curves = curves
        self._tables: dict[int, tuple[list[float], list[float], list[float]]] = {}

    def __call__(self, scores: Any, field: Any) -> FloatArray | None:
        """Return the calibrated probabilities, or None if these rows need the array path (and its messages)."""
        numbers = _items(scores)
        if not numbers:
            return None
        for number in numbers:
            # NaN fails the comparison.
            if type(number) not in _NUMBERS or not 0.0 <= number <= 1.0:
                return None
        curves = self._which(field, len(numbers))
        if curves is None:
            return None
        return np.array(
            [self._value(c, min(max(float(s), SCORE_FLOOR), _TOP)) for c, s in zip(curves, numbers, strict=True)]
        )

    def _which(self, field: Any, rows: int) -> list[int] | None:
        """Return the curve of each row, or None if it takes more than a look into a dictionary."""
        names = self._contexts.names
        if field is None:
            return None if names else [0] * rows
        if isinstance(field, Mapping):
            if set(field) != set(names):
                return None
            columns = [_items(field[name]) for name in names]
        elif len(names) == 1:
            columns = [_items(field)]
        else:
            return None
        if any(column is None or len(column) != rows for column in columns):
            return None
        try:
            return [1 + self._contexts.find(values) for values in zip(*columns, strict=True)]
        except TypeError:  # a value that cannot be a field value
            return None

    def _value(self, curve: int, score: float) -> float:
        if curve not in self._tables:
            begin = self._curves.value_start[curve]
            knots, values = self._curves.grid(curve).tolist(), self._curves.values(curve).tolist()
            self._tables[curve] = knots, values, self._curves.slopes[begin : begin + len(knots)].tolist()
        knots, values, slopes = self._tables[curve]
        left = bisect_right(knots, score) - 1
        if left < 0:
            return values[0]
        if left == len(knots) - 1:
            return values[left]
        found = slopes[left] * (score - knots[left]) + values[left]
        # Rounding may carry the line past its end by one unit in the last place; the order must not suffer.
        return values[left + 1] if values[left] <= values[left + 1] < found else found
