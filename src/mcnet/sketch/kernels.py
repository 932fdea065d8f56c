"""The hot loop of sketching: rows into dense cells, with numba, and the same in NumPy without it."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.rows.buckets import bucket_starts
from mcnet.rows.columns import SCORE_FLOOR, FloatArray
from mcnet.rows.loops import compiled, numba_installed
from mcnet.sketch.grid import POSITION_UNITS, LogitGrid

__all__ = ["NUMBA_FROM", "accumulate", "accumulate_numpy"]

NUMBA_FROM = 100_000
"""Fewer rows than this are not worth loading the compiler for."""


def accumulate_numpy(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray,
    slots: NDArray[Any],
) -> None:
    """Add rows to `cells[slot, cell]` = (weight, positives, position sum), in the order of the rows."""
    keys, positions = grid.locate(scores)
    flat = slots.astype(np.int64) * len(grid) + (keys - grid.first)
    table = cells.reshape(-1, 3)
    np.add.at(table[:, 0], flat, weights)
    np.add.at(table[:, 1], flat, weights * labels)
    np.add.at(table[:, 2], flat, weights * positions)


@cache
def _guide(grid: LogitGrid) -> tuple[NDArray[np.int32], int]:
    """Return the last cell at or left of every score of a bucket, and the shift that makes buckets of bits."""
    shift = 52 - max(grid.resolution - 1, 1).bit_length()  # buckets about as wide as cells
    cells = np.searchsorted(grid.edges[1:-1], bucket_starts(shift), side="right")
    return cells.astype(np.int32), shift


@cache
def _kernel() -> Any:
    top, lowest = float(POSITION_UNITS) - 1.0, SCORE_FLOOR

    def kernel(cells, edges, per_score, guide, shift, scores, labels, weights, slots):  # type: ignore[no-untyped-def]
        first = np.float64(lowest).view(np.int64) >> shift
        last = len(guide) - 1
        for i in range(len(scores)):
            score = scores[i]
            bucket = (np.float64(min(score, 1.0 - score)).view(np.int64) >> shift) - first
            cell = guide[bucket if score < 0.5 else last - bucket]
            # A bucket meets few cells: one step without a branch, and rarely more. No score exceeds the last edge.
            cell += edges[cell + 1] <= score
            while edges[cell + 1] <= score:
                cell += 1
            position = min(np.floor((score - edges[cell]) * per_score[cell]), top)
            weight = weights[i]
            slot = slots[i]
            cells[slot, cell, 0] += weight
            cells[slot, cell, 1] += weight * labels[i]
            cells[slot, cell, 2] += weight * position

    return compiled(kernel)


def accumulate(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray,
    slots: NDArray[Any],
) -> None:
    """Do the same as accumulate_numpy, to the last bit, with numba where it is installed."""
    if not numba_installed():
        accumulate_numpy(cells, grid, scores, labels, weights, slots)
        return
    # The last cell is closed on the right: an infinite edge ends the search there.
    edges = np.append(grid.edges[:-1], np.inf)
    _kernel()(cells, edges, grid.units_per_score, *_guide(grid), scores, labels, weights, slots)
