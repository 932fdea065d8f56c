"""Lookup tables: the bits of a score give the place in its curve to start searching from."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.score_buckets import bucket_starts
from mcnet._shared.typing import CodeArray, FloatArray
from mcnet.curves.curves import Curves

__all__ = ["CROWD", "LookupTables", "lookup_tables"]

CROWD = 16
"""This many knots of a bucket are walked through one by one; the rest is bisected."""

_GUIDE_LIMIT = 1 << 22
_MOST_BITS = 10


class LookupTables(NamedTuple):
    """What the evaluation loop reads.

    `lines` holds the curves one behind the other, from `line_start` on: (knot, value, slope, largest value) of the line
    right of each knot, so that a score finds all it needs in one place of memory. Each curve gets a sentinel knot on
    either side (0 and infinity), so the loop needs no special case at the ends. `guide`, from the curve's `guide_start`
    on, is the last knot at or left of every score of a bucket; curves on one grid share it. `crowded` is
    True if a bucket has more than CROWD knots, else None, for which the loop is compiled without a case for them.
    """

    lines: FloatArray
    line_start: NDArray[np.uint64]
    guide: CodeArray
    guide_start: NDArray[np.uint64]
    last_bucket: np.uint64
    shift: np.uint64
    crowded: bool | None


def lookup_tables(curves: Curves) -> LookupTables:
    """Return the tables of a set of curves; the guide is as fine as the knots ask for, within bounded memory."""
    longest = int(np.diff(curves.grid_start).max())
    bits = _MOST_BITS
    while bits > 0 and (curves.grids * 48 << bits > _GUIDE_LIMIT or 48 << bits > 16 * longest + 512):
        bits -= 1
    starts = bucket_starts(52 - bits)
    guide, most_knots = np.empty((curves.grids, len(starts)), dtype=np.int32), 0
    for grid in range(curves.grids):
        own = np.concatenate([[0.0], curves.knots[curves.grid_start[grid] : curves.grid_start[grid + 1]]])
        guide[grid] = np.maximum(np.searchsorted(own, starts, side="right") - 1, 0)
        most_knots = max(most_knots, int(np.diff(guide[grid], append=len(own) - 1).max()))
    return LookupTables(
        _lines(curves),
        (curves.value_start[:-1] + 2 * np.arange(len(curves))).astype(np.uint64),
        guide.ravel(),
        (curves.grid_of * len(starts)).astype(np.uint64),
        np.uint64(len(starts) - 1),
        np.uint64(52 - bits),
        True if most_knots > CROWD else None,
    )


def _lines(curves: Curves) -> FloatArray:
    sizes = np.diff(curves.value_start)
    begin = curves.value_start[:-1] + 2 * np.arange(len(curves))
    end = begin + sizes + 1
    lines = np.zeros((len(curves.probabilities) + 2 * len(curves), 4))
    curve = np.repeat(np.arange(len(curves)), sizes)
    place = np.arange(len(curves.probabilities)) + 2 * curve + 1
    own_knot = np.arange(len(curves.probabilities)) - curves.value_start[curve]
    lines[place, 0] = curves.knots[curves.grid_start[curves.grid_of[curve]] + own_knot]
    lines[place, 1] = curves.probabilities
    lines[place, 2] = curves.slopes
    following = np.append(curves.probabilities[1:], np.inf)
    following[curves.value_start[1:] - 1] = np.inf
    # A falling line (histogram binning) has no end to be kept below.
    lines[place, 3] = np.where(following >= curves.probabilities, following, np.inf)
    lines[begin, 1] = curves.probabilities[curves.value_start[:-1]]
    lines[begin, 3] = np.inf
    lines[end, 0] = np.inf
    return lines
