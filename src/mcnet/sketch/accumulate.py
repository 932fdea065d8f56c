"""The hot loop of sketching: rows into dense cells, with numba, and the same in NumPy without it."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, inside_unit
from mcnet._shared.numba_loops import compiled, numba_installed
from mcnet._shared.score_buckets import BLOCK, bucket_starts, clip_into_buckets
from mcnet._shared.typing import CodeArray, FloatArray
from mcnet.sketch.grid import POSITION_UNITS, LogitGrid

__all__ = ["NUMBA_FROM", "accumulate", "accumulate_numpy"]

NUMBA_FROM = 100_000
"""Fewer rows than this are not worth loading the compiler for."""


def accumulate_numpy(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    slots: NDArray[Any],
) -> bool:
    """Add rows to `cells[slot, cell]` = (weight, positives, position sum), in the order of the rows.

    Without weights each row counts once. Returns False if a score or a label is not inside [0, 1]: the cells are then
    of no use.
    """
    if not inside_unit(scores, labels):
        return False
    keys, positions = grid.locate(clip_scores(scores))
    flat = slots.astype(np.int64) * len(grid) + (keys - grid.first)
    table = cells.reshape(-1, 3)
    each: FloatArray | float = 1.0 if weights is None else weights
    with np.errstate(over="ignore"):  # which a fit refuses, with the reason
        np.add.at(table[:, 0], flat, each)
        np.add.at(table[:, 1], flat, each * labels)
        np.add.at(table[:, 2], flat, each * positions)
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
    whole, none, one, two = np.uint64, np.uint64(0), np.uint64(1), np.uint64(2)

    def kernel(cells, grid, guide, shift, scores, labels, weights, slots):  # type: ignore[no-untyped-def]
        last_bucket = whole(len(guide) - 1)
        clipped, buckets = np.empty(BLOCK), np.empty(BLOCK, np.uint64)
        for begin in range(0, len(scores), BLOCK):
            rows = min(BLOCK, len(scores) - begin)
            given, label = scores[begin : begin + rows], labels[begin : begin + rows]
            fine = clip_into_buckets(given, clipped, buckets, last_bucket, shift)
            for i in range(rows):
                fine += (label[i] >= 0.0) & (label[i] <= 1.0)
            if fine != 2 * rows:
                return False
            for i in range(whole(rows)):
                score = clipped[i]
                cell = whole(guide[buckets[i]])
                # A bucket meets few cells: one step without a branch, and rarely more.
                cell += whole(grid[cell + one, none] <= score)
                while grid[cell + one, none] <= score:
                    cell += one
                position = min(np.floor((score - grid[cell, none]) * grid[cell, one]), top)
                slot = whole(slots[whole(begin) + i])
                if weights is None:
                    cells[slot, cell, none] += 1.0
                    cells[slot, cell, one] += label[i]
                    cells[slot, cell, two] += position
                else:
                    weight = weights[whole(begin) + i]
                    cells[slot, cell, none] += weight
                    cells[slot, cell, one] += weight * label[i]
                    cells[slot, cell, two] += weight * position
        return True

    return compiled(kernel, clip_into_buckets)


def accumulate(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    slots: NDArray[Any],
) -> bool:
    """Do the same as accumulate_numpy, to the last bit, with numba where it is installed."""
    if not numba_installed():
        return accumulate_numpy(cells, grid, scores, labels, weights, slots)
    columns = [None if column is None else np.ascontiguousarray(column) for column in (scores, labels, weights, slots)]
    done: bool = _kernel()(cells, *_tables(grid), *columns)
    return done
