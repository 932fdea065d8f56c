"""Curves as straight pieces: the one form from which every export computes the bits that predict computes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet.curves.curves import Curves
from mcnet.rows.columns import SCORE_FLOOR, FloatArray, IntArray

__all__ = ["HIGHEST_SCORE", "LOWEST_SCORE", "Pieces"]

LOWEST_SCORE = SCORE_FLOOR
HIGHEST_SCORE = 1.0 - SCORE_FLOOR


@dataclass(frozen=True, eq=False)
class Pieces:
    """Every curve cut at its knots into pieces min(slope · (x − start) + value, ceiling), x the clipped score.

    A piece holds from its start up to the start of the next one. Pieces that no clipped score reaches are left out, so
    the first piece of a curve needs no comparison, and jumps, flat ends and falling curves need no case of their own:
    a jump is two pieces that do not meet, a flat end has slope 0, and the ceiling only undoes the last bit that
    rounding may carry a line past its end. Curves that share a grid share the starts.
    """

    starts: FloatArray
    grid_begin: IntArray
    grid_size: IntArray
    grid_of: IntArray
    values: FloatArray
    slopes: FloatArray
    ceilings: FloatArray
    curve_begin: IntArray

    @staticmethod
    def of(curves: Curves) -> "Pieces":
        """Return the pieces of the curves.

        >>> pieces = Pieces.of(Curves.of([(np.array([0.25, 0.5, 0.5]), np.array([0.1, 0.2, 0.3]))]))
        >>> pieces.starts, pieces.slopes
        (array([0.  , 0.25, 0.5 ]), array([0. , 0.4, 0. ]))
        """
        starts, kept, leads = [], [], []
        for grid in range(curves.grids):
            knots = curves.knots[curves.grid_start[grid] : curves.grid_start[grid + 1]]
            reached = _reached(knots)
            lead = bool(knots[0] > LOWEST_SCORE)
            kept.append(reached)
            leads.append(lead)
            starts.append(np.concatenate([[0.0] * lead, knots[reached]]))
        values, slopes, ceilings = [], [], []
        for curve in range(len(curves)):
            grid = int(curves.grid_of[curve])
            reached, lead = kept[grid], leads[grid]
            here = curves.values(curve)
            there = np.concatenate([here[1:], here[-1:]])
            slope = curves.slopes[curves.value_start[curve] : curves.value_start[curve + 1]]
            first = [float(here[0])] * lead
            values.append(np.concatenate([first, here[reached]]))
            slopes.append(np.concatenate([[0.0] * lead, slope[reached]]))
            ceilings.append(np.concatenate([first, np.maximum(here, there)[reached]]))
        return Pieces(
            np.concatenate(starts),
            _begins(starts),
            np.array([len(part) for part in starts], dtype=np.int64),
            curves.grid_of,
            np.concatenate(values),
            np.concatenate(slopes),
            np.concatenate(ceilings),
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

    def grid(self, grid: int) -> FloatArray:
        """Return the starts of one grid."""
        begin = self.grid_begin[grid]
        return self.starts[begin : begin + self.grid_size[grid]]

    def curve(self, curve: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the starts, values, slopes and ceilings of one curve."""
        begin = self.curve_begin[curve]
        size = self.grid_size[self.grid_of[curve]]
        part = slice(begin, begin + size)
        return self.grid(int(self.grid_of[curve])), self.values[part], self.slopes[part], self.ceilings[part]


def _reached(knots: FloatArray) -> NDArray[np.bool_]:
    """Tell which knots begin a piece that some clipped score falls into."""
    following = np.concatenate([knots[1:], [np.inf]])
    mask: NDArray[np.bool_] = (knots < following) & (following > LOWEST_SCORE) & (knots <= HIGHEST_SCORE)
    return mask


def _begins(parts: list[FloatArray]) -> IntArray:
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.cumsum(lengths) - lengths
