"""The grid: which cell of the sketch a score falls into; cells as plain columns, and their sums."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import SCORE_FLOOR, CodeArray, FloatArray, IndexArray, IntArray, MaskArray
from mcnet._shared.messages import warn
from mcnet.errors import InputError
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution

# The grid: which cell of the sketch a score falls into.

POSITION_UNITS = 1 << 20
"""A score's position inside its cell is a whole number of these, so that sums do not depend on their order."""

VALUE_UNITS = 1e6
"""Sums of values are whole numbers of this part of a unit of money (and its squares), for the same reason."""
_SMALLEST_VALUE = 0.002


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

    def positions(self, keys: IntArray, scores: FloatArray) -> FloatArray:
        """Return the positions of mean scores inside their cells, as `scores` reads them."""
        cells = keys - self.first
        positions = (scores - self.edges[cells]) * self.units_per_score[cells] - 0.5
        return np.clip(positions, 0.0, POSITION_UNITS - 1.0)

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

    resolution: ClassVar[Literal["exact"]] = "exact"

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

    upper = lower

    def knows(self, keys: IntArray) -> bool:
        """Tell whether every key is one of a (clipped) score."""
        low, high = np.array([SCORE_FLOOR, 1.0 - SCORE_FLOOR]).view(np.int64)
        return bool(((keys >= low) & (keys <= high)).all())


Grid = LogitGrid | ExactGrid
"""What finds the cells of a sketch; keys are whole numbers in the order of scores."""


@cache
def make_grid(resolution: Resolution) -> Grid:
    """Return the grid of a resolution: cells per unit of logit, or "exact"."""
    if resolution == "exact":
        return ExactGrid()
    if isinstance(resolution, bool) or not isinstance(resolution, int | np.integer) or not 1 <= resolution <= 4096:
        raise InputError(f"resolution is {resolution!r}; it must be a number of cells per logit (1…4096) or 'exact'")
    return LogitGrid(int(resolution))


# Cells as plain columns, and adding up those that are the same.

_CELLS_OF_A_RUN = 32
"""Tables whose ordered runs are longer than this, on average, are sorted by merging these runs."""
_LEAST_WEIGHT = 1e-250
"""Cells below this weight are dropped when they are scaled."""


@dataclass(frozen=True)
class Cells:
    """The columns of a table of cells; `sums` holds weight, positives and the weighted position inside the cell.

    If the rows have a value, three more: Σwv, Σwvy and Σwv², in whole units, see VALUE_UNITS.
    """

    context: CodeArray
    key: IntArray
    fold: NDArray[np.int16]
    sums: FloatArray

    def __len__(self) -> int:
        return len(self.key)

    @staticmethod
    def concatenate(*parts: "Cells") -> "Cells":
        """Return the tables one below the other, nothing added up."""
        return Cells(
            np.concatenate([part.context for part in parts]),
            np.concatenate([part.key for part in parts]),
            np.concatenate([part.fold for part in parts]),
            np.concatenate([part.sums for part in parts]),
        )

    def take(self, rows: IndexArray | MaskArray | slice) -> "Cells":
        """Return the rows chosen."""
        return Cells(self.context[rows], self.key[rows], self.fold[rows], self.sums[rows])

    def added_up(self) -> "Cells":
        """Return the table ordered by context, key and fold, equal cells added up, cells without weight dropped."""
        return self.take(self._order())._equal_ones_added() if len(self) else self

    def added_up_in_place(self) -> "Cells":
        """Do the same, with the memory of these columns: their contents are gone afterwards.

        Beside the table there is never more than two more columns.
        """
        if len(self) == 0:
            return self
        order = self._order()
        columns = (self.context, self.key, self.fold, *self.sums.T)
        for column in columns:
            column[:] = column[order]
        del order
        first = np.flatnonzero(self._starts())
        if 2 * len(first) <= len(self):
            return self._equal_ones_added()  # smaller columns are worth their memory
        if len(first) < len(self):
            for column in columns[:3]:
                column[: len(first)] = column[first]
            with np.errstate(over="ignore"):  # which a fit refuses, with the reason
                for column in columns[3:]:
                    column[: len(first)] = np.add.reduceat(column, first)
        return self.take(slice(len(first)))._with_weight()

    def _equal_ones_added(self) -> "Cells":
        """Return an ordered table with equal cells, which are next to each other, added up."""
        starts = self._starts()
        if starts.all():
            return self._with_weight()
        first = np.flatnonzero(starts)
        with np.errstate(over="ignore"):  # which a fit refuses, with the reason
            sums = np.add.reduceat(self.sums, first, axis=0)
        return Cells(self.context[first], self.key[first], self.fold[first], sums)._with_weight()

    def _starts(self) -> MaskArray:
        """Return where a cell differs from the one before it."""
        starts = np.ones(len(self), dtype=bool)
        np.not_equal(self.context[1:], self.context[:-1], out=starts[1:])
        starts[1:] |= self.key[1:] != self.key[:-1]
        starts[1:] |= self.fold[1:] != self.fold[:-1]
        return starts

    def _with_weight(self) -> "Cells":
        """Return the cells that have a weight."""
        weighty = self.sums[:, 0] > 0.0
        return self if weighty.all() else self.take(weighty)

    def _order(self) -> IntArray:
        """Return the indices of the cells ordered by context, key and fold; equal ones stay in their order."""
        lowest, folds = int(self.key.min()), int(self.fold.max()) + 1
        keys = int(self.key.max()) - lowest + 1
        bits = len(self).bit_length()
        if (int(self.context.max()) + 1) * keys * folds << bits > 2**63:
            return np.lexsort((self.fold, self.key, self.context))
        # One number per cell, its index in the last bits: whole numbers are sorted faster than indices are.
        number = self.context.astype(np.int64)
        number *= keys
        number += self.key
        number -= lowest
        number *= folds
        number += self.fold
        number <<= bits
        number += np.arange(len(self))
        # A sum of ordered tables has few runs, which a merge sort takes as they are.
        runs = np.count_nonzero(number[1:] < number[:-1])
        number.sort(kind="stable" if _CELLS_OF_A_RUN * runs < len(number) else None)
        number &= (1 << bits) - 1
        return number


class CellParts:
    """Parts of a table that is still growing; they become one table column by column, each part's memory freed."""

    def __init__(self) -> None:
        """Start without a part."""
        self._columns: list[list[NDArray[Any]]] = [[] for _ in range(6)]
        self._cells = 0

    def __len__(self) -> int:
        return self._cells

    def add(self, part: Cells) -> None:
        """Take over a part."""
        sums = [np.ascontiguousarray(column) for column in part.sums.T]
        self._columns += [[] for _ in range(3 + len(sums) - len(self._columns))]
        for parts, column in zip(self._columns, [part.context, part.key, part.fold, *sums], strict=True):
            parts.append(np.asarray(column))
        self._cells += len(part)

    def together(self) -> Cells:
        """Return all parts as one table, nothing added up; nothing is left here, so its memory may be reused."""
        context, key, fold = (_joined(parts) for parts in self._columns[:3])
        sums = np.empty((len(self._columns) - 3, self._cells))
        for row, parts in zip(sums, self._columns[3:], strict=True):
            row[:] = _joined(parts)
        self._cells = 0
        return Cells(context, key, fold, sums.T)

    def add_up(self) -> None:
        """Add up equal cells."""
        together = self.together().added_up_in_place()
        self.add(together)


def warn_of_small_values(mean: float) -> None:
    """Warn of values of which whole units keep few digits: the square of 0.001 is one unit."""
    if 0.0 < mean < _SMALLEST_VALUE:
        warn(
            f"a positive is worth {mean:.2g}, and sums of values are kept in whole 10⁻⁶ units of money, which lose "
            "digits of values this small; give values in a smaller unit, such as cents"
        )


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the parts one after the other; the list is emptied."""
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return joined


def scaled_cells(cells: Cells, factor: float) -> Cells:
    """Return the cells with all sums times a factor."""
    scaled = Cells(cells.context, cells.key, cells.fold, cells.sums * factor)
    # After years of decay a cell that nobody fills comes to numbers too small to divide by.
    return scaled.take(scaled.sums[:, 0] > _LEAST_WEIGHT)
