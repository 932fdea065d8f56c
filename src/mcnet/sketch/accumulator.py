"""The accumulator: rows in, batch after batch, a sketch's cells out."""

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, inside_unit
from mcnet._shared.typing import FloatArray
from mcnet.data.contexts import Contexts
from mcnet.data.fields import FieldColumn
from mcnet.sketch.accumulate import NUMBA_FROM, accumulate, accumulate_numpy
from mcnet.sketch.cells import Cells
from mcnet.sketch.grid import Grid, LogitGrid

__all__ = ["Accumulator"]

_DENSE_LIMIT = 4_000_000
"""Cells kept as one dense block (three numbers each); with more contexts than fit in it, cells are sorted instead."""

_CROWDED = 16
"""A dense block is worth its memory from one row for so many cells on; fewer rows are sorted."""

_SPARSE_BUFFER = 4_000_000


class Accumulator:
    """Adds batches of rows to cells; memory depends on the number of cells, not of rows."""

    def __init__(self, grid: Grid, folds: int) -> None:
        """Start with no rows."""
        self.rows = 0
        self._grid = grid
        self._folds = folds
        self._numbers: dict[tuple[str | None, ...], int] = {}
        self._names: tuple[str, ...] | None = None
        self._dense: FloatArray | None = None
        self._sparse = Cells.empty()
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

        Returns False if a score or a label is not inside [0, 1]: there is no going on from there.
        """
        if weights is not None and weights.min() == 0.0:
            keep = weights > 0.0
            scores, labels, weights = scores[keep], labels[keep], weights[keep]
            fields = [column[keep] for column in fields]
            folds = folds[keep] if folds is not None else None
        if len(scores) == 0:
            return True
        self.rows += len(scores)
        contexts = self._number(fields, len(scores))
        slots = contexts if folds is None else contexts * self._folds + folds
        needed = len(self._numbers) * self._folds
        if isinstance(self._grid, LogitGrid) and self._worth_a_block(needed * len(self._grid)):
            return self._add_dense(self._grid, scores, labels, weights, slots, needed)
        if self._dense is not None:
            self._sparse = Cells.concatenate(self._sparse, self._dense_cells())
            self._dense = None
        return self._add_sparse(scores, labels, weights, slots)

    def _worth_a_block(self, cells: int) -> bool:
        return cells <= _DENSE_LIMIT and (self._dense is not None or cells <= _CROWDED * self.rows)

    def finish(self) -> tuple[Contexts, Cells]:
        """Return the contexts that have rows, in canonical order, and their cells."""
        cells = self._sparse
        if self._dense is not None:
            cells = Cells.concatenate(cells, self._dense_cells()) if len(cells) else self._dense_cells()
        if not self._names:
            return Contexts.none(), cells.added_up()
        present = np.flatnonzero(np.bincount(cells.context))
        known = list(self._numbers)
        seen = [known[number] for number in present]
        columns = []
        for field, name in enumerate(self._names):
            values = tuple(dict.fromkeys(context[field] for context in seen))
            code = {value: number for number, value in enumerate(values)}
            codes = np.array([code[context[field]] for context in seen], dtype=np.int32)
            columns.append(FieldColumn(name, codes, values))
        contexts, order = Contexts.of(columns, len(seen))
        place = np.zeros(len(known), dtype=np.int32)
        place[present] = order
        return contexts, Cells(place[cells.context], cells.key, cells.fold, cells.sums).added_up()

    def _number(self, fields: list[FieldColumn], rows: int) -> NDArray[np.int32]:
        """Return each row's context in the running numbering of all batches."""
        self._names = tuple(column.name for column in fields)
        if not fields:
            self._numbers[()] = 0
            return np.zeros(rows, dtype=np.int32)
        if len(fields) == 1:
            # One field: its list of values is all there is to number, and the rows need no second look.
            return fields[0].mapped(self._numbered([(value,) for value in fields[0].values]))
        contexts, codes = Contexts.of(fields, rows)
        table = contexts.table.tolist()
        known = [tuple(contexts.values[f][code] for f, code in enumerate(row)) for row in table]
        return self._numbered(known)[codes]

    def _numbered(self, known: list[tuple[str | None, ...]]) -> NDArray[np.int32]:
        """Return the running number of each of these contexts."""
        return np.array([self._numbers.setdefault(context, len(self._numbers)) for context in known], dtype=np.int32)

    def _add_dense(
        self,
        grid: LogitGrid,
        scores: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None,
        slots: NDArray[np.int32],
        needed: int,
    ) -> bool:
        before = self._dense if self._dense is not None else np.zeros((0, len(grid), 3))
        if needed > len(before):
            # Doubled, so that growing is rare, but never beyond the limit.
            room = max(needed, min(2 * len(before), _DENSE_LIMIT // len(grid)))
            before = np.concatenate([before, np.zeros((room - len(before), *before.shape[1:]))])
        self._dense = before
        add = accumulate if self.rows >= NUMBA_FROM else accumulate_numpy
        return add(before, grid, scores, labels, weights, slots)

    def _add_sparse(
        self, scores: FloatArray, labels: FloatArray, weights: FloatArray | None, slots: NDArray[np.int32]
    ) -> bool:
        if not (inside_unit(scores) and inside_unit(labels)):
            return False
        weights = np.ones(len(scores)) if weights is None else weights
        keys, positions = self._grid.locate(clip_scores(scores))
        sums = np.column_stack([weights, weights * labels, weights * positions])
        part = Cells(slots // self._folds, keys, (slots % self._folds).astype(np.int16), sums).added_up()
        self._sparse = Cells.concatenate(self._sparse, part)
        if len(self._sparse) > 2 * self._compact + _SPARSE_BUFFER:
            self._sparse = self._sparse.added_up()
            self._compact = len(self._sparse)
        return True

    def _dense_cells(self) -> Cells:
        assert self._dense is not None
        assert isinstance(self._grid, LogitGrid)
        slots, cells = np.nonzero(self._dense[:, :, 0])
        fold = (slots % self._folds).astype(np.int16)
        context = (slots // self._folds).astype(np.int32)
        return Cells(context, cells + self._grid.first, fold, self._dense[slots, cells])
