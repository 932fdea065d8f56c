"""Inverses of many small positive definite matrices."""

from __future__ import annotations

import numpy as np

from mcnet._shared.typing import FloatArray

__all__ = ["inverses"]

# Up to this many rows a matrix is eliminated faster together with others than by LAPACK, one matrix at a time.
WIDEST_TOGETHER = 12
# Matrices eliminated at the same time: few enough for the cache, and enough to be worth it.
MOST_TOGETHER = 256
FEWEST_TOGETHER = 32


def inverses(blocks: FloatArray) -> FloatArray:
    """Return the inverse of each of the matrices `[number, width, width]`.

    Raises LinAlgError unless every one is positive definite.
    """
    number, width, _ = blocks.shape
    if width > WIDEST_TOGETHER or number < FEWEST_TOGETHER:
        np.linalg.cholesky(blocks)  # raises LinAlgError unless every block is positive definite
        return np.asarray(np.linalg.inv(blocks), dtype=np.float64)
    found = np.empty_like(blocks)
    for start in range(0, number, MOST_TOGETHER):
        part = slice(start, start + MOST_TOGETHER)
        found[part] = _eliminated(np.array(blocks[part].transpose(1, 2, 0), order="C")).transpose(2, 0, 1)
    return found


def _eliminated(matrices: FloatArray) -> FloatArray:
    """Replace matrices `[width, width, number]` by their inverses: Gauss and Jordan's elimination, pivot by pivot.

    The pivots of positive definite matrices are positive, and need no exchange of rows.
    """
    for pivot in range(len(matrices)):
        own = matrices[pivot, pivot].copy()
        if not float(own.min()) > 0.0:
            raise np.linalg.LinAlgError("a block is not positive definite")
        column = matrices[:, pivot].copy()
        column[pivot] = 0.0
        row = matrices[pivot] / own
        row[pivot] = 1.0 / own
        matrices[:, pivot] = 0.0
        matrices -= column[:, None] * row
        matrices[pivot] = row
    return matrices
