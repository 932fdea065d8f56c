"""Pairs of fields: which of them interact, and a pair as one more field whose values are the combinations seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from mcnet._shared.typing import FloatArray, IntArray
from mcnet._shared.user_warnings import warn
from mcnet.curves.family import Combination
from mcnet.data.combinations import distinct_combinations

__all__ = ["MOST_PAIRS", "Combination", "combine", "field_pairs", "interacting_pairs"]

MOST_PAIRS = 15
"""Pairs of fields that get their own deviations, at most: those of six fields."""
MOST_COMBINATIONS = 200_000
"""A pair of fields with more combinations than this gets no deviations of its own."""
COMBINATIONS_KEPT_WHOLE = 10_000
"""A pair with more combinations leaves out those that the data cannot tell from the sum of the two fields."""


def field_pairs(names: Sequence[str], codes: IntArray, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of fields that get an interaction: all of them, unless they combine in too many ways."""
    pairs = []
    for first, second in combinations(range(len(names)), 2):
        number = len(np.unique(codes[:, first] * (sizes[second] + 1) + codes[:, second]))
        if number <= MOST_COMBINATIONS:
            pairs.append((first, second))
        else:
            warn(
                f"mcnet-bayes: {names[first]} × {names[second]} has {number:,} combinations, more than "
                f"{MOST_COMBINATIONS:,}: they get no deviations; the effects of the two fields add up"
            )
    return pairs


def combine(
    codes: IntArray,
    sizes: Sequence[int],
    first: int,
    second: int,
    information: FloatArray | None = None,
    least_information: float = 0.0,
) -> Combination:
    """Return the combination of two fields as it occurs in `codes`; pairs with an unknown value are left out.

    With very many combinations, those whose contexts have less `information` together than the least are left out.
    """
    one, two = codes[:, first].astype(np.int64), codes[:, second].astype(np.int64)
    known = (one >= 0) & (two >= 0)
    keys, inverse = np.unique(one[known] * sizes[second] + two[known], return_inverse=True)
    if information is not None and len(keys) > COMBINATIONS_KEPT_WHOLE:
        keys = keys[np.bincount(inverse, weights=information[known], minlength=len(keys)) >= least_information]
    return Combination(first=first, second=second, size=int(sizes[second]), keys=keys)


def interacting_pairs(
    codes: IntArray, sizes: Sequence[int], residual: FloatArray, variance: FloatArray
) -> list[tuple[int, int]]:
    """Return the pairs of fields whose residuals differ most from what noise alone would give, MOST_PAIRS at most.

    `residual` and `variance` are, per context, the positives not expected by a fit without pairs and their variance.
    The measure is the chi-square statistic over the combinations of a pair, less its expectation, in its standard
    deviations; a pair needs more than two.
    """
    found = []
    for first, second in combinations(range(len(sizes)), 2):
        _, place = distinct_combinations(
            [codes[:, first] + 1, codes[:, second] + 1], [sizes[first] + 1, sizes[second] + 1]
        )
        away, spread = np.bincount(place, weights=residual), np.bincount(place, weights=variance)
        used = spread > 1.0
        excess = float(np.sum(away[used] ** 2 / spread[used]) - used.sum())
        found.append((excess / np.sqrt(2.0 * max(int(used.sum()), 1)), (first, second)))
    found.sort(reverse=True)
    return sorted(pair for excess, pair in found[:MOST_PAIRS] if excess > 2.0)
