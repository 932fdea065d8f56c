"""Rows of digits as whole numbers: combinations of field values, of however many fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import IntArray

__all__ = ["RowFinder", "distinct_combinations", "fits_one_number", "mixed_radix"]

_LARGEST_NUMBER = 2.0**62
_LARGEST_GROUP = 2.0**30
"""The numbers of a group of fields stay below this, so that times the number of known rows they fit in an int64."""


def fits_one_number(radix: Sequence[int]) -> bool:
    """Tell whether each row of digits has a number of its own that fits in an int64."""
    return float(np.prod([float(r) for r in radix])) <= _LARGEST_NUMBER


def mixed_radix(digits: Sequence[NDArray[np.integer]], radix: Sequence[int]) -> IntArray:
    """Return one whole number for each row of digits.

    >>> mixed_radix([np.array([0, 1]), np.array([2, 0])], [2, 3])
    array([2, 3])
    """
    number = np.zeros(len(digits[0]), dtype=np.int64)
    for digit, base in zip(digits, radix, strict=True):
        number = number * base + digit
    return number


def distinct_combinations(digits: Sequence[NDArray[np.integer]], radix: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Return a row of each distinct combination, in the order of the digits, and the combination of every row."""
    groups = _groups(radix) if not fits_one_number(radix) else [slice(0, len(radix))]
    inverse: NDArray[Any] = np.zeros(len(digits[0]), dtype=np.int64)
    rows: NDArray[Any] = np.zeros(1, dtype=np.int64)
    for group in groups:
        size = int(np.prod(radix[group]))
        number = inverse * size + mixed_radix(digits[group], radix[group])
        _, rows, inverse = np.unique(number, return_index=True, return_inverse=True)
    return rows, inverse


def _groups(radix: Sequence[int]) -> list[slice]:
    """Return runs of fields whose combinations have small numbers."""
    groups, begin, size = [], 0, 1.0
    for field, base in enumerate(radix):
        if size * base > _LARGEST_GROUP and field > begin:
            groups.append(slice(begin, field))
            begin, size = field, 1.0
        size *= base
    return [*groups, slice(begin, len(radix))]


@dataclass(frozen=True, eq=False)
class RowFinder:
    """Finds rows among known ones, group of fields by group: each prefix of a known row has a number."""

    groups: list[slice]
    radix: list[int]
    steps: list[IntArray]
    """For each group, the numbers (prefix before it × size of the group + number in the group) that occur, in order."""
    places: IntArray
    """Which known row the last number belongs to."""

    @staticmethod
    def of(digits: Sequence[NDArray[np.integer]], radix: Sequence[int]) -> "RowFinder":
        """Return the finder of the known rows, all different."""
        groups, steps = _groups(radix), []
        prefix: NDArray[Any] = np.zeros(len(digits[0]), dtype=np.int64)
        for group in groups:
            number = prefix * int(np.prod(radix[group])) + mixed_radix(digits[group], radix[group])
            step, prefix = np.unique(number, return_inverse=True)
            steps.append(step)
        places = np.zeros(len(prefix), dtype=np.int64)
        places[prefix] = np.arange(len(prefix))
        return RowFinder(groups, list(radix), steps, places)

    def find(self, digits: Sequence[NDArray[np.integer]]) -> NDArray[np.int32]:
        """Return which known row each row is, -1 if it is none."""
        prefix = np.zeros(len(digits[0]), dtype=np.int64)
        known = np.full(len(prefix), len(self.places) > 0)
        for group, step in zip(self.groups, self.steps, strict=True):
            if not known.any():
                break
            number = prefix * int(np.prod(self.radix[group])) + mixed_radix(digits[group], self.radix[group])
            prefix = np.minimum(np.searchsorted(step, number), len(step) - 1)
            known &= step[prefix] == number
        found = np.full(len(prefix), -1, dtype=np.int32)
        found[known] = self.places[prefix[known]]
        return found
