"""Combinations of codes: number them, and find them again, for any number of fields."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import CodeArray, IntArray

__all__ = ["CombinationIndex", "distinct_combinations"]

_LARGEST_KEY = 2**62
_MOST_DENSE_KEYS = 4_000_000
"""Up to this many possible combinations are looked up in one table; more are sorted."""

_DENSE_KEYS_PER_ROW = 16
"""A table of all possible combinations is worth its memory up to this size."""


def distinct_combinations(
    codes: Sequence[NDArray[np.integer]], sizes: Sequence[int]
) -> tuple[NDArray[np.integer], NDArray[Any]]:
    """Return the distinct rows of several columns of codes, in order, and which of them each row is.

    `codes[f]` is a column of numbers from 0 to `sizes[f]` - 1.

    >>> table, which = distinct_combinations([np.array([1, 0, 1]), np.array([2, 0, 2])], [2, 3])
    >>> table.tolist(), which.tolist()
    ([[0, 0], [1, 2]], [1, 0, 1])
    """
    keys, size = np.zeros(len(codes[0]), dtype=np.int64), 1
    for column, number in zip(codes, sizes, strict=True):
        if size * number > _LARGEST_KEY:
            keys, size = _numbered(keys, size)
        keys = keys * number + column
        size *= number
    which, number = _numbered(keys, size)
    rows = np.empty(number, dtype=np.int64)
    rows[which] = np.arange(len(which))
    return np.column_stack([column[rows] for column in codes]), which


def _numbered(keys: IntArray, size: int) -> tuple[IntArray, int]:
    """Return the number of each key among the distinct keys in order, and how many these are."""
    if not 0 < size <= min(_MOST_DENSE_KEYS, _DENSE_KEYS_PER_ROW * len(keys)):
        distinct, which = np.unique(keys, return_inverse=True)
        return which, len(distinct)
    there = np.zeros(size, dtype=bool)
    there[keys] = True
    number = np.cumsum(there) - 1
    return number[keys], int(number[-1]) + 1


class CombinationIndex:
    """Finds rows of codes in a table of distinct rows."""

    def __init__(self, columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> None:
        """Index the table with these columns; `columns[f]` has numbers from 0 to `sizes[f]` - 1."""
        self._sizes = sizes
        self._cuts: dict[int, IntArray] = {}
        """Fields before which keys, grown too large, are replaced by their numbers among the distinct ones."""
        keys, size = np.zeros(len(columns[0]), dtype=np.int64), 1
        for place, (column, number) in enumerate(zip(columns, sizes, strict=True)):
            if size * number > _LARGEST_KEY:
                self._cuts[place], keys = np.unique(keys, return_inverse=True)
                size = len(self._cuts[place])
            keys = keys * number + column
            size *= number
        self._rows = np.argsort(keys)
        self._ordered = keys[self._rows]
        self._dense: CodeArray | None = None
        if size <= _MOST_DENSE_KEYS:
            self._dense = np.full(size, -1, dtype=np.int32)
            self._dense[keys] = np.arange(len(keys), dtype=np.int32)

    def find(self, columns: Sequence[NDArray[np.integer]]) -> CodeArray:
        """Return the row of the table that each row of these columns is, -1 where it is none."""
        if len(self._rows) == 0:
            return np.full(len(columns[0]), -1, dtype=np.int32)
        keys = np.zeros(len(columns[0]), dtype=np.int64)
        unknown = np.zeros(0, dtype=np.int64)
        for place, (column, number) in enumerate(zip(columns, self._sizes, strict=True)):
            if place in self._cuts:
                distinct = self._cuts[place]
                at = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
                unknown = np.concatenate([unknown, np.flatnonzero(distinct[at] != keys)])
                keys = at
            keys = keys * number + column
        if self._dense is not None:
            found = self._dense[keys]
        else:
            at = np.minimum(np.searchsorted(self._ordered, keys), len(self._ordered) - 1)
            found = np.where(self._ordered[at] == keys, self._rows[at], -1).astype(np.int32)
        found[unknown] = -1
        return found
