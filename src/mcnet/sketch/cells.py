"""Cells as plain columns, and adding up those that are the same."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray, IntArray

__all__ = ["Cells", "scaled_cells"]

_LEAST_WEIGHT = 1e-250
"""Cells below this weight are dropped when they are scaled."""


@dataclass(frozen=True)
class Cells:
    """The columns of a table of cells; `sums` holds weight, positives and the weighted position inside the cell."""

    context: NDArray[np.int32]
    key: IntArray
    fold: NDArray[np.int16]
    sums: FloatArray

    def __len__(self) -> int:
        return len(self.key)

    @staticmethod
    def empty() -> "Cells":
        """Return a table without cells."""
        none = np.empty(0, dtype=np.int64)
        return Cells(none.astype(np.int32), none, none.astype(np.int16), np.empty((0, 3)))

    @staticmethod
    def concatenate(*parts: "Cells") -> "Cells":
        """Return the tables one below the other, nothing added up."""
        return Cells(
            np.concatenate([part.context for part in parts]),
            np.concatenate([part.key for part in parts]),
            np.concatenate([part.fold for part in parts]),
            np.concatenate([part.sums for part in parts]),
        )

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> "Cells":
        """Return the rows chosen."""
        return Cells(self.context[rows], self.key[rows], self.fold[rows], self.sums[rows])

    def added_up(self) -> "Cells":
        """Return the table ordered by context, key and fold, equal cells added up, cells without weight dropped."""
        if len(self) == 0:
            return self
        table = self.take(self._order())
        starts = np.ones(len(table), dtype=bool)
        starts[1:] = (
            (table.context[1:] != table.context[:-1])
            | (table.key[1:] != table.key[:-1])
            | (table.fold[1:] != table.fold[:-1])
        )
        first = np.flatnonzero(starts)
        sums = table.sums if len(first) == len(table) else np.add.reduceat(table.sums, first, axis=0)
        table = Cells(table.context[first], table.key[first], table.fold[first], sums)
        return table.take(sums[:, 0] > 0.0)

    def _order(self) -> NDArray[np.int64]:
        """Return the places of the cells ordered by context, key and fold; equal ones stay in their order."""
        lowest, folds = int(self.key.min()), int(self.fold.max()) + 1
        keys = int(self.key.max()) - lowest + 1
        bits = len(self).bit_length()
        if (int(self.context.max()) + 1) * keys * folds << bits > 2**63:
            return np.lexsort((self.fold, self.key, self.context))
        # One number per cell, its place in the last bits: whole numbers are sorted faster than places are.
        number = (self.context.astype(np.int64) * keys + (self.key - lowest)) * folds + self.fold
        return np.sort((number << bits) + np.arange(len(self))) & ((1 << bits) - 1)


def scaled_cells(cells: Cells, factor: float) -> Cells:
    """Return the cells with all sums times a factor."""
    scaled = Cells(cells.context, cells.key, cells.fold, cells.sums * factor)
    # After years of decay a cell that nobody fills comes to numbers too small to divide by.
    return scaled.take(scaled.sums[:, 0] > _LEAST_WEIGHT)
