"""A combination of two fields as one more field, whose values are the pairs that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Combination", "combine"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Combination:
    """Fields `first` and `second` together; `keys` are the seen pairs as `code₁ · size₂ + code₂`, sorted."""

    first: int
    second: int
    size: int
    keys: Integers

    def codes(self, codes: Integers) -> Integers:
        """The combination's code in each row of `codes` `[rows, fields]`; −1 for a pair never seen."""
        one, two = codes[:, self.first].astype(np.int64), codes[:, self.second].astype(np.int64)
        key = one * self.size + two
        place = np.minimum(np.searchsorted(self.keys, key), max(len(self.keys) - 1, 0))
        known = (one >= 0) & (two >= 0) & (two < self.size)
        if len(self.keys):
            known &= self.keys[place] == key
        else:
            known[:] = False
        return np.where(known, place, -1)

    def pairs(self) -> Integers:
        """The seen pairs as rows of codes that `codes` can read."""
        rows = np.full((len(self.keys), 1 + max(self.first, self.second)), -1, dtype=np.int64)
        rows[:, self.first], rows[:, self.second] = np.divmod(self.keys, self.size)
        return rows


def combine(codes: Integers, sizes: Sequence[int], first: int, second: int) -> Combination:
    """The combination of two fields as it occurs in `codes`; pairs with an unknown value are left out."""
    one, two = codes[:, first].astype(np.int64), codes[:, second].astype(np.int64)
    known = (one >= 0) & (two >= 0)
    keys = np.unique(one[known] * sizes[second] + two[known])
    return Combination(first=first, second=second, size=int(sizes[second]), keys=keys)
