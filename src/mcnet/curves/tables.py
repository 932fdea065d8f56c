"""Lookup tables: where in its curve to start looking for a score, read off the score's bits."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet.curves.curves import Curves
from mcnet.rows.buckets import bucket_starts
from mcnet.rows.columns import FloatArray

__all__ = ["LookupTables", "lookup_tables"]

_GUIDE_LIMIT = 1 << 22
_MOST_BITS = 8


class LookupTables(NamedTuple):
    """What the evaluation loop reads, grids and curves one behind the other.

    Each grid gets a sentinel knot on either side (0 and infinity), so the loop needs no special case at the ends.
    `lines[l]` is (value, slope, largest value) of the line right of a knot. `guide[g, b]` is the last knot of grid g at
    or left of every score of bucket b.
    """

    knots: FloatArray
    grid_start: NDArray[np.int64]
    grid_of: NDArray[np.int64]
    lines: FloatArray
    line_start: NDArray[np.int64]
    guide: NDArray[np.int32]
    shift: int


def lookup_tables(curves: Curves) -> LookupTables:
    """Return the tables of a set of curves; the guide is as fine as the knots ask for, within bounded memory."""
    longest = int(np.diff(curves.grid_start).max())
    bits = _MOST_BITS
    while bits > 0 and (curves.grids * 48 << bits > _GUIDE_LIMIT or 48 << bits > 4 * longest + 512):
        bits -= 1
    starts = bucket_starts(52 - bits)
    guide = np.empty((curves.grids, len(starts)), dtype=np.int32)
    padded = []
    for grid in range(curves.grids):
        own = np.concatenate([[0.0], curves.knots[curves.grid_start[grid] : curves.grid_start[grid + 1]], [np.inf]])
        guide[grid] = np.maximum(np.searchsorted(own, starts, side="right") - 1, 0)
        padded.append(own)
    sizes = np.diff(curves.value_start)
    line_start = curves.value_start[:-1] + np.arange(len(curves))
    lines = np.zeros((len(curves.probabilities) + len(curves), 3))
    place = np.arange(len(curves.probabilities)) + np.repeat(np.arange(len(curves)), sizes) + 1
    lines[place, 0] = curves.probabilities
    lines[place, 1] = curves.slopes
    following = np.append(curves.probabilities[1:], np.inf)
    following[curves.value_start[1:] - 1] = np.inf
    # A falling line (histogram binning) has no end to be kept below.
    lines[place, 2] = np.where(following >= curves.probabilities, following, np.inf)
    lines[line_start, 0] = curves.probabilities[curves.value_start[:-1]]
    lines[line_start, 2] = np.inf
    return LookupTables(
        np.concatenate(padded),
        curves.grid_start[:-1] + 2 * np.arange(curves.grids),
        curves.grid_of,
        lines,
        line_start,
        guide,
        52 - bits,
    )
