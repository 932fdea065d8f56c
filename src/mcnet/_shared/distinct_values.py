"""Distinct values of a column: a row of each, and tables looked up by row, with numba and the same in NumPy."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import IntArray
from mcnet._shared.loops import compiled, worth_compiling

_KEYS = (np.int32, np.int64, np.uint32)
_WORDS = (np.uint64, np.uint32)
_MULTIPLIER = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: spreads neighbours
_FIRST_SIZE = 1024


def _is_long(column: Any) -> bool:
    return worth_compiling(len(column), _take, _mark, _distinct)


def _modulo(low: int) -> np.uint64:
    """Return a number modulo 2⁶⁴, in which the difference of two whole numbers of any type is right."""
    return np.uint64(low % 2**64)


def _places(keys: NDArray[Any], low: int) -> NDArray[Any]:
    if low == 0:
        return keys
    wide = np.uint64 if keys.dtype.kind == "u" else np.int64
    return (keys.astype(wide) - wide(low)).astype(np.int64)


def take(table: NDArray[np.int32], keys: NDArray[Any], low: int) -> NDArray[np.int32]:
    """Return `table[key - low]` for each key."""
    if not (_is_long(keys) and keys.dtype in _KEYS):
        taken: NDArray[np.int32] = table[_places(keys, low)]
        return taken
    out = np.empty(len(keys), dtype=np.int32)
    _take()(table, np.ascontiguousarray(keys), _modulo(low), out)
    return out


def rows_of_keys(keys: NDArray[Any], low: int, high: int) -> IntArray:
    """Return a row that has the key low, low + 1 … high; -1 where there is none."""
    rows = np.full(high - low + 1, -1, dtype=np.int64)
    if _is_long(keys) and keys.dtype in _KEYS:
        _mark()(rows, np.ascontiguousarray(keys), _modulo(low))
    else:
        rows[_places(keys, low)] = np.arange(len(keys))
    return rows


def distinct_rows(column: NDArray[Any]) -> tuple[NDArray[Any], IntArray] | None:
    """Return a code for each row, equal where the bytes of the rows are, and a row of each code.

    None if there is no fast way: too few rows, no compiler, or elements of an odd size.
    """
    if not _is_long(column):
        return None
    column = np.ascontiguousarray(column)
    for word in _WORDS:
        if column.dtype.itemsize and column.dtype.itemsize % word().itemsize == 0:
            words = column.view(word).reshape(len(column), -1)
            return _hashed(words) if words.flags.aligned else None
    return None


def distinct_texts(column: Any) -> tuple[NDArray[Any], IntArray] | None:
    """Return the same for a column of strings of Polars; None if there is no fast way, or two texts have one hash."""
    result = distinct_rows(column.hash().to_numpy()) if _is_long(column) else None
    if result is None:
        return None
    codes, rows = result
    # Texts that agree in two hashes, 128 bits in all, are equal; to compare the texts would take longer.
    other = column.hash(1).to_numpy()
    return result if np.array_equal(other[rows].take(codes), other) else None


def _hashed(words: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    codes, size = np.empty(len(words), dtype=np.int32), _FIRST_SIZE
    while True:
        rows = np.empty(size // 2, dtype=np.int64)
        shift = np.uint64(65 - size.bit_length())
        result = _distinct()(words, codes, np.full(size, -1, dtype=np.int32), rows, shift)
        if result >= 0:
            return codes, rows[:result].copy()
        # A table that grows would slow every row down; starting again with a larger one is rare, and early.
        size *= 16


@cache
def _take() -> Any:
    def kernel(table, keys, low, out):  # type: ignore[no-untyped-def]
        for i in range(len(keys)):
            out[i] = table[np.uint64(keys[i]) - low]

    return compiled(kernel)


@cache
def _mark() -> Any:
    def kernel(rows, keys, low):  # type: ignore[no-untyped-def]
        for i in range(len(keys)):
            rows[np.uint64(keys[i]) - low] = i

    return compiled(kernel)


@cache
def _distinct() -> Any:
    multiplier, whole = np.uint64(_MULTIPLIER), np.uint64
    one, half = np.uint64(1), np.uint64(32)

    def kernel(words, codes, table, rows, shift):  # type: ignore[no-untyped-def]
        """Number the rows through a hash table with open addressing; return how many differ, or -1 for too many."""
        width, mask, result = whole(words.shape[1]), whole(len(table) - 1), 0
        for i in range(whole(len(words))):
            hashed = whole(0)
            for j in range(width):
                hashed = (hashed ^ whole(words[i, j])) * multiplier
                hashed ^= hashed >> half
            # The first bits depend on all bits of a word; the last ones are 0 for whole numbers held as fractions.
            at = hashed >> shift
            while True:
                code = table[at]
                if code < 0:
                    if result == len(rows):
                        return -1
                    code = np.int32(result)
                    table[at] = code
                    rows[whole(result)] = i
                    result += 1
                    break
                row, same = rows[whole(code)], True
                for j in range(width):
                    same &= words[row, j] == words[i, j]
                if same:
                    break
                at = (at + one) & mask
            codes[i] = code
        return result

    return compiled(kernel)
