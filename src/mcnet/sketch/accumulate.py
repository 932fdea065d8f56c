"""Rows into cells, batch after batch: the hot loop of sketching, with numba and the same in NumPy."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import CodeArray, FloatArray, clip_scores, inside_unit
from mcnet._shared.loops import BLOCK, bucket_starts, clip_into_buckets, compiled, numba_installed
from mcnet.errors import InputError
from mcnet.rows.columns import scores_column
from mcnet.rows.contexts import Contexts, distinct_combinations
from mcnet.rows.fields import Edges, FieldColumn
from mcnet.rows.spec import ValueKind
from mcnet.sketch.grid import POSITION_UNITS, VALUE_UNITS, CellParts, Cells, Grid, LogitGrid

# The hot loop of sketching: rows into dense cells, with numba, and the same in NumPy without it.

NUMBA_FROM = 100_000
"""Fewer rows than this are not worth loading the compiler for."""


def accumulate_numpy(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    slots: NDArray[Any],
    worth: "Worth | None" = None,
) -> bool:
    """Add rows, in their order, to `cells[slot, cell]` = (weight, positives, position sum, and the units of `worth`).

    Without weights each row counts once. Returns False if a score or a label is not inside [0, 1], or a value is none:
    the cells are then of no use.
    """
    if not inside_unit(scores, labels) or (worth is not None and not worth.valid):
        return False
    keys, positions = grid.locate(clip_scores(scores))
    flat = slots.astype(np.int64) * len(grid) + (keys - grid.first)
    table = cells.reshape(-1, cells.shape[2])
    each: FloatArray | float = 1.0 if weights is None else weights
    with np.errstate(over="ignore"):  # which a fit refuses, with the reason
        np.add.at(table[:, 0], flat, each)
        np.add.at(table[:, 1], flat, each * labels)
        np.add.at(table[:, 2], flat, each * positions)
    if worth is not None:
        for column, units in enumerate(worth.units(labels, weights).T, 3):
            np.add.at(table[:, column], flat, units)
    return True


@cache
def _tables(grid: LogitGrid) -> tuple[FloatArray, CodeArray, np.uint64]:
    """Return (lower edge, units per score) of each cell, the cell where to look first for each bucket, and the shift.

    The last cell is closed on the right: an infinite edge ends the search there.
    """
    lower = np.append(grid.edges[:-1], np.inf)
    shift = 52 - max(grid.resolution - 1, 1).bit_length()  # buckets about as wide as cells
    guide = np.searchsorted(grid.edges[1:-1], bucket_starts(shift), side="right")
    return np.column_stack([lower, np.append(grid.units_per_score, 0.0)]), guide.astype(np.int32), np.uint64(shift)


@cache
def _kernel() -> Any:
    top = float(POSITION_UNITS) - 1.0
    # Unsigned places, here as where curves are evaluated, need no comparison with 0.
    whole, none, one, two, three, four, five = np.uint64, *(np.uint64(n) for n in range(6))

    def kernel(cells, tables, scores, labels, weights, slots, value, inverse):  # type: ignore[no-untyped-def]
        grid, guide, shift = tables
        last_bucket = whole(len(guide) - 1)
        clipped, buckets = np.empty(BLOCK), np.empty(BLOCK, np.uint64)
        for begin in range(whole(0), whole(len(scores)), whole(BLOCK)):
            rows = min(whole(BLOCK), whole(len(scores)) - begin)
            given, label = scores[begin : begin + rows], labels[begin : begin + rows]
            fine = clip_into_buckets(given, clipped, buckets, last_bucket, shift)
            for i in range(rows):
                fine += (label[i] >= 0.0) & (label[i] <= 1.0)
            if value is not None:
                amounts = value[begin : begin + rows]
                for i in range(rows):
                    fine += (amounts[i] >= 0.0) & (amounts[i] < np.inf)
            if fine != (2 if value is None else 3) * rows:
                return False
            # Short loops, one after the other: the processor then waits for the cells of many rows at a time.
            for i in range(rows):
                score = clipped[i]
                cell = whole(guide[buckets[i]])
                # A bucket meets few cells: one step without a branch, and rarely more.
                cell += whole(grid[cell + one, none] <= score)
                while grid[cell + one, none] <= score:
                    cell += one
                clipped[i] = min(np.floor((score - grid[cell, none]) * grid[cell, one]), top)
                buckets[i] = cell
            for i in range(rows):
                slot, cell, position = whole(slots[begin + i]), buckets[i], clipped[i]
                weight = 1.0 if weights is None else weights[begin + i]
                cells[slot, cell, none] += weight
                cells[slot, cell, one] += weight * label[i]
                cells[slot, cell, two] += weight * position
            if value is not None:
                # As `Worth.units` has it, in the same order of multiplications.
                for i in range(rows):
                    slot, cell, amount = whole(slots[begin + i]), buckets[i], amounts[i]
                    each = amount if weights is None else amount * weights[begin + i]
                    square = each * amount if inverse is None else each * amount * inverse[begin + i]
                    units = np.floor(each * VALUE_UNITS + 0.5)
                    cells[slot, cell, three] += units
                    cells[slot, cell, four] += np.floor(units * label[i] + 0.5)
                    cells[slot, cell, five] += np.floor(square * VALUE_UNITS + 0.5)
        return True

    return compiled(kernel, clip_into_buckets)


def accumulate(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    slots: NDArray[Any],
    worth: "Worth | None" = None,
) -> bool:
    """Do the same as accumulate_numpy, to the last bit, with numba where it is installed."""
    if not numba_installed():
        return accumulate_numpy(cells, grid, scores, labels, weights, slots, worth)
    money = (None, None) if worth is None else (worth.value, worth.inverse)
    given = (scores, labels, weights, slots, *money)
    columns = [None if column is None else np.ascontiguousarray(column) for column in given]
    done: bool = _kernel()(cells, _tables(grid), *columns)
    return done


# Running numbers of contexts: the same number for the same field values in every batch of rows.


class RunningContexts:
    """Numbers field values and their combinations in the order in which batches bring them.

    Per batch only its distinct values and distinct combinations are looked up in dictionaries; rows are mapped by
    NumPy.
    """

    def __init__(self) -> None:
        """Start without a context."""
        self._names: tuple[str, ...] = ()
        self._values: list[dict[str | None, int]] = []
        self._combinations: dict[bytes, int] = {}
        self._edges: dict[str, Edges] = {}

    def __len__(self) -> int:
        if len(self._names) < 2:
            return len(self._values[0]) if self._names else 1
        return len(self._combinations)

    def number(self, fields: list[FieldColumn], rows: int) -> CodeArray:
        """Return the running number of each row's context."""
        if not fields:
            return np.zeros(rows, dtype=np.int32)
        if not self._names:
            self._names = Contexts.distinct_names(fields)
            self._values = [{} for _ in fields]
            self._edges = {column.name: column.edges for column in fields if column.edges is not None}
        running = [
            np.array([known.setdefault(value, len(known)) for value in column.values], dtype=np.int32)
            for known, column in zip(self._values, fields, strict=True)
        ]
        if len(fields) == 1:
            return fields[0].mapped(running[0])
        table, which = distinct_combinations([c.codes for c in fields], [len(c.values) for c in fields])
        codes = np.column_stack([numbers[table[:, f]] for f, numbers in enumerate(running)]).astype(np.int32)
        known = self._combinations
        keys = codes.view(f"V{codes.itemsize * codes.shape[1]}")[:, 0].tolist()
        numbers = np.fromiter((known.setdefault(key, len(known)) for key in keys), dtype=np.int32, count=len(keys))
        contexts: CodeArray = numbers[which]
        return contexts

    def finish(self, numbers: NDArray[Any]) -> tuple[Contexts, NDArray[Any]]:
        """Return the contexts among `numbers`, in canonical order, and the place of each running number."""
        if not self._names:
            return Contexts.none(), np.zeros(1, dtype=np.int32)
        present = np.flatnonzero(np.bincount(numbers, minlength=len(self)))
        if len(self._names) == 1:
            table = present[:, None].astype(np.int32)
        else:
            together = b"".join(self._combinations)
            table = np.frombuffer(together, dtype=np.int32).reshape(-1, len(self._names))[present]
        values = tuple(tuple(known) for known in self._values)
        contexts, order = Contexts(self._names, values, table, self._edges).compacted()
        places = np.zeros(len(self), dtype=np.int32)
        places[present] = order
        return contexts, places


# Values in whole units, and weights by inverse propensity.

MOST_INVERSE = 20.0
"""No row counts as more than so many: a few rows must not decide."""
_INVERSE_UNITS = 1024.0
"""Inverse propensities are whole numbers of this part of a row, so that sums do not depend on their order."""


@dataclass(frozen=True)
class Worth:
    """What the positives of some rows are worth; the inverse propensity of each, if they are weighted by it."""

    value: FloatArray
    inverse: FloatArray | None

    @property
    def valid(self) -> bool:
        """Tell whether every value is a number ≥ 0."""
        return bool(self.value.min() >= 0.0 and self.value.max() < np.inf)

    def units(self, labels: FloatArray, weights: FloatArray | None) -> FloatArray:
        """Return wv, wvy and wv² of each row in whole units.

        A weight counts as that many rows; an inverse propensity is one row that stands for several, and is squared.
        """
        money = self.value if weights is None else self.value * weights
        squares = money * self.value if self.inverse is None else money * self.value * self.inverse
        units = np.floor(money * VALUE_UNITS + 0.5)
        return np.column_stack([units, np.floor(units * labels + 0.5), np.floor(squares * VALUE_UNITS + 0.5)])


@dataclass
class InversePropensity:
    """Weights by the inverse of the probability that a row was logged, and the sum of their squares."""

    squares: float = 0.0
    rows: int = 0
    capped: int = 0

    def of(self, propensity: Any, name: str, where: dict[str, Any]) -> FloatArray:
        """Return the weight of each row; refuse what is no probability above 0."""
        known = scores_column(propensity, name=name, clip=False, **where)
        if not known.all():
            raise InputError(f"{name} is 0 in {int((known == 0.0).sum()):,} rows, which were logged; check the column")
        self.rows += len(known)
        self.capped += int((known < 1.0 / MOST_INVERSE).sum())
        return np.floor(np.minimum(1.0 / known, MOST_INVERSE) * _INVERSE_UNITS + 0.5) / _INVERSE_UNITS


# The accumulator: rows in, batch after batch, a sketch's cells out.

_MOST_DENSE_SUMS = 12_000_000
"""Sums kept as one dense block, three per cell or six with values; with more contexts, cells are sorted instead."""

_DENSE_CELLS_PER_ROW = 16
"""A dense block is worth its memory up to this many cells per row; with fewer rows they are sorted instead."""

_SPARSE_CELLS_BEFORE_SORTING = 4_000_000
"""This many cells are collected, beside twice those that are different, before equal ones are added up."""


class Accumulator:
    """Adds batches of rows to cells; memory depends on the number of cells, not of rows."""

    def __init__(self, grid: Grid, folds: int) -> None:
        """Start with no rows."""
        self.rows = 0
        self.inverse = InversePropensity()
        self.value_kind: ValueKind | None = None
        self._grid = grid
        self._folds = folds
        self._contexts = RunningContexts()
        self._dense: FloatArray | None = None
        self._sparse: CellParts | None = None
        self._compact = 0
        self._sums = 3
        """How many sums a cell has: three more with values."""

    def add(
        self,
        scores: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None,
        fields: list[FieldColumn],
        folds: NDArray[np.int16] | None,
        value: FloatArray | None = None,
        inverse: FloatArray | None = None,
    ) -> bool:
        """Add one batch of rows; rows of weight 0 change nothing. All batches have values, see `Worth`, or none.

        Returns False if a score or a label is not inside [0, 1], or a value is missing or below 0; the accumulator
        cannot be used afterwards.
        """
        if weights is not None and weights.min() == 0.0:
            keep = weights > 0.0
            scores, labels, weights = scores[keep], labels[keep], weights[keep]
            fields = [column[keep] for column in fields]
            folds = folds[keep] if folds is not None else None
            value, inverse = (None if column is None else column[keep] for column in (value, inverse))
        if len(scores) == 0:
            return True
        self.rows += len(scores)
        contexts = self._contexts.number(fields, len(scores))
        slots = contexts if folds is None else contexts * self._folds + folds
        needed = len(self._contexts) * self._folds
        worth = None if value is None else Worth(value, inverse)
        self._sums = 3 if worth is None else 6
        if isinstance(self._grid, LogitGrid):
            cells = needed * len(self._grid)
            worth_a_block = self._dense is not None or cells <= _DENSE_CELLS_PER_ROW * self.rows
            if worth_a_block and cells * self._sums <= _MOST_DENSE_SUMS:
                return self._add_dense(self._grid, scores, labels, weights, slots, needed, worth)
        return self._add_sparse(scores, labels, weights, slots, worth)

    def has_more_cells(self, number: int) -> bool:
        """Tell whether there are more cells than this, and adding up equal ones does not leave half as many."""
        if self._sparse is not None and len(self._sparse) > number:
            self._sparse.add_up()
            self._compact = len(self._sparse)
            if 2 * len(self._sparse) > number:  # else every further batch would have to be added up anew
                return True
        return self._dense is not None and int(np.count_nonzero(self._dense[:, :, 0])) > number

    def finish(self) -> tuple[Contexts, Cells]:
        """Return the contexts that have rows, in canonical order, and their cells."""
        if self._sparse is None and self._dense is not None:
            numbers = np.flatnonzero(self._dense[:, :, 0].any(axis=1)) // self._folds
            contexts, places = self._contexts.finish(numbers)
            return contexts, self._dense_cells(places)
        cells = self._sorted_cells().together()
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
        worth: Worth | None,
    ) -> bool:
        shape = (len(grid), self._sums)
        dense = self._dense if self._dense is not None else np.zeros((0, *shape))
        if needed > len(dense):
            # Doubled, so that growing is rare, but never beyond the limit.
            size = max(needed, min(2 * len(dense), _MOST_DENSE_SUMS // math.prod(shape)))
            grown = np.zeros((size, *shape))
            grown[: len(dense)] = dense
            dense = grown
        self._dense = dense
        add = accumulate if self.rows >= NUMBA_FROM else accumulate_numpy
        return add(dense, grid, scores, labels, weights, slots, worth)

    def _add_sparse(
        self,
        scores: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None,
        slots: CodeArray,
        worth: Worth | None,
    ) -> bool:
        if not inside_unit(scores, labels) or (worth is not None and not worth.valid):
            return False
        units = None if worth is None else worth.units(labels, weights)
        weights = np.ones(len(scores)) if weights is None else weights
        keys, positions = self._grid.locate(clip_scores(scores))
        with np.errstate(over="ignore"):  # which a fit refuses, with the reason
            sums = np.column_stack([weights, weights * labels, weights * positions])
        sums = sums if units is None else np.column_stack([sums, units])
        part = Cells(slots // self._folds, keys, (slots % self._folds).astype(np.int16), sums).added_up()
        sparse = self._sorted_cells()
        sparse.add(part)
        if len(sparse) > 2 * self._compact + _SPARSE_CELLS_BEFORE_SORTING:
            sparse.add_up()
            self._compact = len(sparse)
        return True

    def _sorted_cells(self) -> CellParts:
        """Return the cells that are no dense block, with what that block has, if there is one."""
        sparse = self._sparse = CellParts() if self._sparse is None else self._sparse
        if self._dense is not None:
            sparse.add(self._dense_cells(np.arange(len(self._dense) // self._folds, dtype=np.int32)))
        return sparse

    def _dense_cells(self, places: CodeArray) -> Cells:
        """Return the cells of the dense block, which then is gone, in order; `places` has that of each context."""
        assert self._dense is not None
        assert isinstance(self._grid, LogitGrid)
        dense, self._dense = self._dense, None
        order = np.argsort(places, kind="stable")
        by_context = (dense[: len(places) * self._folds, :, 0] > 0.0).reshape(len(places), self._folds, -1)[order]
        context, cell, fold = np.nonzero(by_context.transpose(0, 2, 1))
        flat = (order[context] * self._folds + fold) * len(self._grid) + cell
        sums = np.empty((dense.shape[2], len(flat)))
        for column, out in zip(dense.reshape(-1, dense.shape[2]).T, sums, strict=True):
            column.take(flat, out=out, mode="clip")
        return Cells(places[order[context]], cell + self._grid.first, fold.astype(np.int16), sums.T)
