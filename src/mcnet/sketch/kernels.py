"""The hot loop of sketching: rows into dense cells, with numba, and the same in NumPy without it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.rows.columns import FloatArray
from mcnet.rows.loops import compiled, numba_installed
from mcnet.sketch.grid import GUIDE_FIRST, GUIDE_SHIFT, POSITION_UNITS, LogitGrid, edge_guide

__all__ = ["NUMBA_FROM", "accumulate", "accumulate_numpy"]

NUMBA_FROM = 100_000
"""Fewer rows than this are not worth loading the compiler for."""

_compiled: dict[str, Any] = {}


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


def _kernel() -> Any:
    if "kernel" not in _compiled:
        units, first, shift = float(POSITION_UNITS), GUIDE_FIRST, GUIDE_SHIFT

        def kernel(cells, edges, per_score, below, above, scores, bits, labels, weights, slots):  # type: ignore[no-untyped-def]
            for i in range(len(scores)):
                score = scores[i]
                bucket = (bits[i] >> shift) - first
                cell = below[bucket] if score < 0.5 else above[bucket]
                while edges[cell + 1] <= score and cell < len(per_score) - 1:
                    cell += 1
                position = np.floor((score - edges[cell]) * per_score[cell])
                if position > units - 1.0:
                    position = units - 1.0
                weight = weights[i]
                entry = cells[slots[i], cell]
                entry[0] += weight
                entry[1] += weight * labels[i]
                entry[2] += weight * position

        _compiled["kernel"] = compiled(kernel)
    return _compiled["kernel"]


def accumulate(
    cells: FloatArray,
    grid: LogitGrid,
    scores: FloatArray,
    labels: FloatArray,
    weights: FloatArray,
    slots: NDArray[Any],
) -> None:
    """Do the same as accumulate_numpy, to the last bit, with numba where it is installed and worth it."""
    if not numba_installed():
        accumulate_numpy(cells, grid, scores, labels, weights, slots)
        return
    guide = _compiled.setdefault(f"guide {grid.resolution}", edge_guide(grid.edges))
    bits = np.minimum(scores, 1.0 - scores).view(np.int64)
    _kernel()(cells, grid.edges, grid.units_per_score, *guide, scores, bits, labels, weights, slots)
