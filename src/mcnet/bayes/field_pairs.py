"""A combination of two fields as one more field, whose values are the pairs that were seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mcnet._shared.typing import IntArray
from mcnet.curves.family import Combination

__all__ = ["Combination", "combine"]


def combine(codes: IntArray, sizes: Sequence[int], first: int, second: int) -> Combination:
    """The combination of two fields as it occurs in `codes`; pairs with an unknown value are left out."""
    one, two = codes[:, first].astype(np.int64), codes[:, second].astype(np.int64)
    known = (one >= 0) & (two >= 0)
    keys = np.unique(one[known] * sizes[second] + two[known])
    return Combination(first=first, second=second, size=int(sizes[second]), keys=keys)
