"""The accumulator: rows in, batch after batch, a sketch's cells out."""

import numpy as np
from numpy.typing import NDArray

from mcnet.rows.columns import FloatArray, clip_scores, inside_unit
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import FieldColumn
from mcnet.sketch.cells import Cells
from mcnet.sketch.grid import Grid, LogitGrid
from mcnet.sketch.kernels import NUMBA_FROM, accumulate, accumulate_numpy

__all__ = ["Accumulator"]

_DENSE_LIMIT = 4_000_000
"""Cells kept as one dense block (three numbers each); with more contexts than fit in it, cells are sorted instead."""

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
        self._dense = np.zeros((0, len(grid), 3)) if isinstance(grid, LogitGrid) else None
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
        if self._dense is not None and needed * self._dense.shape[1] > _DENSE_LIMIT:
            self._sparse = Cells.concatenate(self._sparse, self._dense_cells())
            self._dense = None
        if self._dense is not None:
            return self._add_dense(scores, labels, weights, slots, needed)
        return self._add_sparse(scores, labels, weights, slots)

    def finish(self) -> tuple[Contexts, Cells]:
        """Return the contexts that have rows, in canonical order, and their cells."""
        cells = self._sparse if self._dense is None else self._dense_cells()
        cells = cells.added_up()
        if not self._names:
            return Contexts.none(), cells
        present, places = np.unique(cells.context, return_inverse=True)
        known = list(self._numbers)
        seen = [known[number] for number in present]
        columns = []
        for field, name in enumerate(self._names):
            values = tuple(dict.fromkeys(context[field] for context in seen))
            place = {value: code for code, value in enumerate(values)}
            codes = np.array([place[context[field]] for context in seen], dtype=np.int32)
            columns.append(FieldColumn(name, codes, values))
        contexts, order = Contexts.of(columns, len(seen))
        return contexts, Cells(order[places], cells.key, cells.fold, cells.sums).added_up()

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
        scores: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None,
        slots: NDArray[np.int32],
        needed: int,
    ) -> bool:
        assert self._dense is not None
        assert isinstance(self._grid, LogitGrid)
        if needed > len(self._dense):
            # Doubled, so that growing is rare, but never beyond the limit.
            room = max(needed, min(2 * len(self._dense), _DENSE_LIMIT // self._dense.shape[1]))
            more = np.zeros((room - len(self._dense), *self._dense.shape[1:]))
            self._dense = np.concatenate([self._dense, more])
        add = accumulate if self.rows >= NUMBA_FROM else accumulate_numpy
        return add(self._dense, self._grid, scores, labels, weights, slots)

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
