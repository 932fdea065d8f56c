"""The grid: which cell of the sketch a score falls into."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, Protocol

import numpy as np

from mcnet._shared.math import SCORE_FLOOR
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.errors import InputError

__all__ = [
    "DEFAULT_RESOLUTION",
    "EXACT",
    "POSITION_UNITS",
    "ExactGrid",
    "Grid",
    "LogitGrid",
    "Resolution",
    "make_grid",
]

Resolution = int | Literal["exact"]
DEFAULT_RESOLUTION = 512
EXACT: Literal["exact"] = "exact"

POSITION_UNITS = 1 << 20
"""A score's position inside its cell is a whole number of these, so that sums do not depend on their order."""


class Grid(Protocol):
    """What a sketch asks of a grid; keys are whole numbers in the order of scores."""

    @property
    def resolution(self) -> Resolution: ...

    def locate(self, scores: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the key of the cell and the position inside it, in POSITION_UNITS, of each score."""

    def scores(self, keys: IntArray, positions: FloatArray) -> FloatArray:
        """Return the score at a (mean) position inside a cell."""

    def lower(self, keys: IntArray) -> FloatArray:
        """Return the lower edge of each cell."""

    def upper(self, keys: IntArray) -> FloatArray:
        """Return the upper edge of each cell."""

    def knows(self, keys: IntArray) -> bool:
        """Tell whether every key is one of a cell of this grid."""


@dataclass(frozen=True)
class LogitGrid:
    """Cells of equal width in logit space: cell k holds the scores with k ≤ logit·resolution < k + 1.

    >>> keys, positions = LogitGrid(64).locate(np.array([0.5, 0.02]))
    >>> keys.tolist(), positions.astype(int).tolist()
    ([0, -250], [0, 967804])
    """

    resolution: int = DEFAULT_RESOLUTION

    @cached_property
    def first(self) -> int:
        """Return the key of the lowest cell."""
        return math.floor(math.log(SCORE_FLOOR / (1.0 - SCORE_FLOOR)) * self.resolution)

    @cached_property
    def edges(self) -> FloatArray:
        """Return the edges of all cells in score space, one more than there are cells."""
        # math.exp, not np.exp: NumPy's differs in the last bit between processors, and edges decide cells.
        inner = [1.0 / (1.0 + math.exp(-key / self.resolution)) for key in range(self.first + 1, -self.first)]
        return np.array([SCORE_FLOOR, *inner, 1.0 - SCORE_FLOOR])

    @cached_property
    def units_per_score(self) -> FloatArray:
        """Return how many POSITION_UNITS a unit of score is worth inside each cell."""
        return POSITION_UNITS / np.diff(self.edges)

    def __len__(self) -> int:
        return len(self.edges) - 1

    def locate(self, scores: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the key of the cell and the position inside it of each (clipped) score."""
        cells = np.searchsorted(self.edges[1:-1], scores, side="right")
        positions = np.floor((scores - self.edges[cells]) * self.units_per_score[cells])
        return cells + self.first, np.minimum(positions, POSITION_UNITS - 1.0)

    def scores(self, keys: IntArray, positions: FloatArray) -> FloatArray:
        """Return the score at a (mean) position inside a cell."""
        cells = keys - self.first
        # Positions were rounded down: half a unit back makes the mean unbiased.
        return self.edges[cells] + (positions + 0.5) / self.units_per_score[cells]

    def lower(self, keys: IntArray) -> FloatArray:
        """Return the lower edge of each cell."""
        return self.edges[keys - self.first]

    def upper(self, keys: IntArray) -> FloatArray:
        """Return the upper edge of each cell."""
        return self.edges[keys - self.first + 1]

    def knows(self, keys: IntArray) -> bool:
        """Tell whether every key is one of a cell of this grid."""
        return bool(((keys >= self.first) & (keys < self.first + len(self))).all())


@dataclass(frozen=True)
class ExactGrid:
    """Every distinct score is its own cell; the key is the score's own bits.

    >>> grid = ExactGrid()
    >>> keys, positions = grid.locate(np.array([0.25]))
    >>> grid.scores(keys, positions)
    array([0.25])
    """

    @property
    def resolution(self) -> Literal["exact"]:
        """Return "exact"."""
        return EXACT

    def locate(self, scores: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the key of each score; there is nothing inside a cell."""
        # The bits of positive floats, read as whole numbers, are in the order of the floats.
        return np.ascontiguousarray(scores).view(np.int64), np.zeros(len(scores))

    def scores(self, keys: IntArray, positions: FloatArray) -> FloatArray:
        """Return the score of each cell."""
        return np.ascontiguousarray(keys).view(np.float64)

    def lower(self, keys: IntArray) -> FloatArray:
        """Return the score of each cell."""
        return self.scores(keys, np.zeros(0))

    def upper(self, keys: IntArray) -> FloatArray:
        """Return the score of each cell."""
        return self.scores(keys, np.zeros(0))

    def knows(self, keys: IntArray) -> bool:
        """Tell whether every key is one of a (clipped) score."""
        low, high = np.array([SCORE_FLOOR, 1.0 - SCORE_FLOOR]).view(np.int64)
        return bool(((keys >= low) & (keys <= high)).all())


@cache
def make_grid(resolution: Resolution) -> Grid:
    """Return the grid of a resolution: cells per unit of logit, or "exact"."""
    if resolution == EXACT:
        return ExactGrid()
    if isinstance(resolution, bool) or not isinstance(resolution, int | np.integer) or not 1 <= resolution <= 4096:
        raise InputError(f"resolution is {resolution!r}; it must be a number of cells per logit (1…4096) or 'exact'")
    return LogitGrid(int(resolution))
