"""A guide table: from the bits of a score to the few pieces it can fall into."""

from dataclasses import dataclass

import numpy as np

from mcnet.export.pieces import LOWEST_SCORE, Pieces
from mcnet.rows.columns import FloatArray, IntArray

__all__ = ["Guide"]

_MANTISSA = 52
_MOST_BITS = 6
_SMALL = 8192


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
        allowed = max(_SMALL, 2 * len(pieces.starts))
        best = _guide(pieces, 0)
        for bits in range(1, _MOST_BITS + 1):
            shift = _MANTISSA - bits
            if pieces.grids * _buckets(shift) > allowed:
                break
            finer = _guide(pieces, bits)
            if finer.steps < best.steps:
                best = finer
        return best


def _first(shift: int) -> int:
    return int(np.float64(LOWEST_SCORE).view(np.int64)) >> shift


def _buckets(shift: int) -> int:
    return 2 * ((int(np.float64(0.5).view(np.int64)) >> shift) - _first(shift) + 1)


def _edges(shift: int) -> FloatArray:
    """Return the lower edge of every bucket, and of one more, right of every score."""
    half = _buckets(shift) // 2
    low = ((np.arange(half + 1, dtype=np.int64) + _first(shift)) << shift).view(np.float64)
    return np.concatenate([low[:-1], 1.0 - low[:0:-1], [2.0]])


def _guide(pieces: Pieces, bits: int) -> Guide:
    shift = _MANTISSA - bits
    edges = _edges(shift)
    found = np.stack(
        [
            np.maximum(np.searchsorted(pieces.starts[pieces.of_grid(grid)], edges, side="right") - 1, 0)
            for grid in range(pieces.grids)
        ]
    )
    steps = int(np.diff(found, axis=1).max()).bit_length()
    # A search that begins further left still ends at the same piece, and then it never reads past its grid.
    furthest = np.maximum(pieces.grid_size - (1 << steps), 0)
    return Guide(shift, _first(shift), len(edges) - 1, steps, np.minimum(found[:, :-1], furthest[:, None]))
