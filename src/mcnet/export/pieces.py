"""Curves as straight pieces: the one form from which every export computes the bits that predict computes."""

from dataclasses import dataclass

import numpy as np

from mcnet._shared.math import SCORE_FLOOR
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.curves.curves import Curves

__all__ = ["HIGHEST_SCORE", "LOWEST_SCORE", "Pieces"]

LOWEST_SCORE = SCORE_FLOOR
HIGHEST_SCORE = 1.0 - SCORE_FLOOR

_BEYOND = 2.0  # where the last piece stops: right of every score


@dataclass(frozen=True, eq=False)
class Pieces:
    """Every curve cut at its knots into pieces min(slope · (x − start) + value, ceiling), x the clipped score.

    A piece holds from its start up to its stop, where the next one starts. Pieces that no clipped score reaches are
    left out, so the first piece of a curve needs no comparison, and jumps, flat ends and falling curves need no case
    of their own: a jump is two pieces that do not meet, a flat end has slope 0, and the ceiling only undoes the last
    bit that rounding may carry a line past its end. Curves that share a grid share the starts and stops.
    """

    starts: FloatArray
    stops: FloatArray
    grid_begin: IntArray
    grid_size: IntArray
    grid_of: IntArray
    values: FloatArray
    ends: FloatArray
    slopes: FloatArray
    curve_begin: IntArray

    @staticmethod
    def of(curves: Curves) -> "Pieces":
        """Return the pieces of the curves.

        >>> pieces = Pieces.of(Curves.of([(np.array([0.25, 0.5, 0.5]), np.array([0.1, 0.2, 0.3]))]))
        >>> pieces.starts, pieces.slopes
        (array([0.  , 0.25, 0.5 ]), array([0. , 0.4, 0. ]))
        """
        starts, stops, kept, leads = [], [], [], []
        for grid in range(curves.grids):
            knots = curves.knots[curves.grid_start[grid] : curves.grid_start[grid + 1]]
            following = np.concatenate([knots[1:], [_BEYOND]])
            reached = (knots < following) & (following > LOWEST_SCORE) & (knots <= HIGHEST_SCORE)
            lead = bool(knots[0] > LOWEST_SCORE)  # the flat piece left of the first knot
            kept.append(reached)
            leads.append(lead)
            starts.append(np.concatenate([[0.0] * lead, knots[reached]]))
            stops.append(np.concatenate([knots[:lead], following[reached]]))
        values, ends, slopes = [], [], []
        for curve in range(len(curves)):
            grid = int(curves.grid_of[curve])
            reached, lead = kept[grid], leads[grid]
            here = curves.values(curve)
            there = np.concatenate([here[1:], here[-1:]])
            slope = curves.slopes[curves.value_start[curve] : curves.value_start[curve + 1]]
            values.append(np.concatenate([here[:lead], here[reached]]))
            ends.append(np.concatenate([here[:lead], there[reached]]))
            slopes.append(np.concatenate([[0.0] * lead, slope[reached]]))
        return Pieces(
            np.concatenate(starts),
            np.concatenate(stops),
            _begins(starts),
            np.array([len(part) for part in starts], dtype=np.int64),
            curves.grid_of,
            np.concatenate(values),
            np.concatenate(ends),
            np.concatenate(slopes),
            _begins(values),
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def curves(self) -> int:
        """Return how many curves there are."""
        return len(self.grid_of)

    @property
    def grids(self) -> int:
        """Return how many different grids there are."""
        return len(self.grid_begin)

    @property
    def ceilings(self) -> FloatArray:
        """Return the value that each piece never exceeds."""
        return np.maximum(self.values, self.ends)

    def of_grid(self, grid: int) -> slice:
        """Return where the starts and stops of a grid are."""
        begin = int(self.grid_begin[grid])
        return slice(begin, begin + int(self.grid_size[grid]))

    def of_curve(self, curve: int) -> slice:
        """Return where the values, ends and slopes of a curve are."""
        begin = int(self.curve_begin[curve])
        return slice(begin, begin + int(self.grid_size[self.grid_of[curve]]))


def _begins(parts: list[FloatArray]) -> IntArray:
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.cumsum(lengths) - lengths
