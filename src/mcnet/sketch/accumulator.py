"""The accumulator: rows in, batch after batch, a sketch's cells out."""

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, inside_unit
from mcnet._shared.typing import CodeArray, FloatArray
from mcnet.data.contexts import Contexts
from mcnet.data.fields import FieldColumn
from mcnet.sketch.accumulate import NUMBA_FROM, accumulate, accumulate_numpy
from mcnet.sketch.cells import CellParts, Cells
from mcnet.sketch.grid import Grid, LogitGrid
from mcnet.sketch.running_contexts import RunningContexts

__all__ = ["Accumulator"]

_MOST_DENSE_CELLS = 4_000_000
"""Cells kept as one dense block (three numbers each); with more contexts than fit in it, cells are sorted instead."""

_DENSE_CELLS_PER_ROW = 16
"""A dense block is worth its memory up to this many cells per row; with fewer rows they are sorted instead."""

_SPARSE_CELLS_BEFORE_SORTING = 4_000_000
"""This many cells are collected, beside twice those that are different, before equal ones are added up."""


class Accumulator:
    """Adds batches of rows to cells; memory depends on the number of cells, not of rows."""

    def __init__(self, grid: Grid, folds: int) -> None:
        """Start with no rows."""
        self.rows = 0
        self._grid = grid
        self._folds = folds
        self._contexts = RunningContexts()
        self._dense: FloatArray | None = None
        self._sparse = CellParts()
        self._compact = 0

    def add(
        self,
        scores: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None,
        fields: list[FieldColumn],
        folds: NDArray[np.int16] | None,
    ) -> bool:
        """Add one batch of rows; rows of weight 0 change nothing.

        Returns False if a score or a label is not inside [0, 1]; the accumulator cannot be used afterwards.
        """
        if weights is not None and weights.min() == 0.0:
            keep = weights > 0.0
            scores, labels, weights = scores[keep], labels[keep], weights[keep]
            fields = [column[keep] for column in fields]
            folds = folds[keep] if folds is not None else None
        if len(scores) == 0:
            return True
        self.rows += len(scores)
        contexts = self._contexts.number(fields, len(scores))
        slots = contexts if folds is None else contexts * self._folds + folds
        needed = len(self._contexts) * self._folds
        if isinstance(self._grid, LogitGrid) and self._worth_a_block(needed * len(self._grid)):
            return self._add_dense(self._grid, scores, labels, weights, slots, needed)
        if self._dense is not None:
            self._sparse.add(self._dense_cells())
            self._dense = None
        return self._add_sparse(scores, labels, weights, slots)

    def _worth_a_block(self, cells: int) -> bool:
        return cells <= _MOST_DENSE_CELLS and (self._dense is not None or cells <= _DENSE_CELLS_PER_ROW * self.rows)

    def has_more_cells(self, number: int) -> bool:
        """Tell whether there are more cells than this, and adding up equal ones does not leave half as many."""
        if len(self._sparse) > number:
            self._sparse.add_up()
            self._compact = len(self._sparse)
            if 2 * len(self._sparse) > number:  # else every further batch would have to be added up anew
                return True
        return self._dense is not None and int(np.count_nonzero(self._dense[:, :, 0])) > number

    def finish(self) -> tuple[Contexts, Cells]:
        """Return the contexts that have rows, in canonical order, and their cells."""
        if self._dense is not None:
            self._sparse.add(self._dense_cells())
            self._dense = None
        cells = self._sparse.together()
        contexts, places = self._contexts.finish(cells.context)
        return contexts, Cells(places[cells.context], cells.key, cells.fold, cells.sums).added_up_in_place()

    def _add_dense(
        self,
        grid: LogitGrid,
        scores: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None,
        slots: CodeArray,
        needed: int,
    ) -> bool:
        before = self._dense if self._dense is not None else np.zeros((0, len(grid), 3))
        if needed > len(before):
            # Doubled, so that growing is rare, but never beyond the limit.
            size = max(needed, min(2 * len(before), _MOST_DENSE_CELLS // len(grid)))
            before = np.concatenate([before, np.zeros((size - len(before), *before.shape[1:]))])
        self._dense = before
        add = accumulate if self.rows >= NUMBA_FROM else accumulate_numpy
        return add(before, grid, scores, labels, weights, slots)

    def _add_sparse(self, scores: FloatArray, labels: FloatArray, weights: FloatArray | None, slots: CodeArray) -> bool:
        if not inside_unit(scores, labels):
            return False
        weights = np.ones(len(scores)) if weights is None else weights
        keys, positions = self._grid.locate(clip_scores(scores))
        with np.errstate(over="ignore"):  # which a fit refuses, with the reason
            sums = np.column_stack([weights, weights * labels, weights * positions])
        part = Cells(slots // self._folds, keys, (slots % self._folds).astype(np.int16), sums).added_up()
        self._sparse.add(part)
        if len(self._sparse) > 2 * self._compact + _SPARSE_CELLS_BEFORE_SORTING:
            self._sparse.add_up()
            self._compact = len(self._sparse)
        return True

    def _dense_cells(self) -> Cells:
        assert self._dense is not None
        assert isinstance(self._grid, LogitGrid)
        slots, cells = np.nonzero(self._dense[:, :, 0])
        fold = (slots % self._folds).astype(np.int16)
        context = (slots // self._folds).astype(np.int32)
        return Cells(context, cells + self._grid.first, fold, self._dense[slots, cells])
