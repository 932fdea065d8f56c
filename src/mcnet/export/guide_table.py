"""A guide table: from the bits of a score to the few pieces it can fall into."""

from dataclasses import dataclass

import numpy as np

from mcnet._shared.score_buckets import bucket_starts
from mcnet._shared.typing import IntArray
from mcnet.export.pieces import LOWEST_SCORE, Pieces

__all__ = ["Guide"]

_MANTISSA_BITS = 52
_MOST_BITS = 6
_LEAST_LIMIT_OF_ENTRIES = 8192
"""A table may always have this many entries, and two per piece if that is more."""


@dataclass(frozen=True, eq=False)
class Guide:
    """For each grid and bucket, a piece from which `steps` halving steps reach every score of the bucket.

    A bucket is the exponent and the first bits of the mantissa of t = min(x, 1 − x), counted from `first`; those of the
    upper half run backwards, so buckets are in the order of scores: fine where the scores of rare events crowd, and
    read off without a logarithm. All buckets need the same number of steps, so a search never branches.
    """

    shift: int
    first: int
    buckets: int
    steps: int
    entries: IntArray

    @staticmethod
    def of(pieces: Pieces) -> "Guide":
        """Return the guide with the fewest steps that is not much larger than the table of starts itself."""
        allowed = max(_LEAST_LIMIT_OF_ENTRIES, 2 * len(pieces.starts))
        best = _guide(pieces, 0)
        for bits in range(1, _MOST_BITS + 1):
            finer = _guide(pieces, bits)
            if finer.entries.size > allowed:
                break
            if finer.steps < best.steps:
                best = finer
        return best


def _guide(pieces: Pieces, bits: int) -> Guide:
    shift = _MANTISSA_BITS - bits
    edges = bucket_starts(shift)
    # The highest score of a bucket may be where the next one starts, since starts are a hair low.
    ends = np.append(np.nextafter(edges[1:], 1.0), 1.0)
    found = np.empty((pieces.grids, len(edges)), dtype=np.int64)
    reach = 0
    for grid in range(pieces.grids):
        starts = pieces.starts[pieces.of_grid(grid)]
        found[grid] = np.maximum(np.searchsorted(starts, edges, side="right") - 1, 0)
        reach = max(reach, int((np.searchsorted(starts, ends, side="right") - 1 - found[grid]).max()))
    steps = reach.bit_length()
    # A search that begins further left still ends at the same piece, and then it never reads past its grid.
    furthest = np.maximum(pieces.grid_size - (1 << steps), 0)
    first = int(np.float64(LOWEST_SCORE).view(np.int64)) >> shift
    return Guide(shift, first, len(edges), steps, np.minimum(found, furthest[:, None]))
