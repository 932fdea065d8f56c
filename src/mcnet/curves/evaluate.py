"""The hot loop of serving: scores to probabilities, with numba, and the same in NumPy without it."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.curves.curves import Curves
from mcnet.curves.tables import LookupTables, lookup_tables
from mcnet.rows.columns import SCORE_FLOOR, FloatArray, clip_scores
from mcnet.rows.loops import compiled, numba_installed

__all__ = ["NUMBA_FROM", "Evaluator", "evaluate_numpy"]

NUMBA_FROM = 50_000
"""Fewer rows than this are not worth loading the compiler for."""

_THREAD_ROWS = 500_000


def evaluate_numpy(curves: Curves, scores: FloatArray, which: NDArray[Any]) -> FloatArray:
    """Return the value of curve `which[i]` at `scores[i]`."""
    result = np.empty(len(scores))
    scores = clip_scores(scores)
    if len(curves) == 1:
        parts: list[tuple[int, Any]] = [(0, slice(None))]
    else:
        order = np.argsort(which, kind="stable")
        present, starts = np.unique(which[order], return_index=True)
        parts = list(zip(present.tolist(), np.split(order, starts[1:]), strict=True))
    slopes = curves.slopes
    for curve, rows in parts:
        knots, values = curves.grid(curve), curves.values(curve)
        x = scores[rows]
        at = np.searchsorted(knots, x, side="right") - 1
        left = np.maximum(at, 0)
        right = np.minimum(at + 1, len(knots) - 1)
        begin = curves.value_start[curve]
        found = slopes[begin + left] * (x - knots[left]) + values[left]
        # Rounding may carry the line past its end by one unit in the last place; the order must not suffer.
        found = np.where(values[left] <= values[right], np.minimum(found, values[right]), found)
        result[rows] = np.where(at < 0, values[0], found)
    return result


@cache
def _kernel() -> Any:
    lowest, highest = SCORE_FLOOR, 1.0 - SCORE_FLOOR

    def kernel(knots, grid_start, grid_of, lines, line_start, guide, shift, scores, which, offset, out):  # type: ignore[no-untyped-def]
        first = np.float64(lowest).view(np.int64) >> shift
        last = guide.shape[1] - 1
        for i in range(len(scores)):
            score = min(max(scores[i], lowest), highest)
            curve = which[i] + offset
            grid = grid_of[curve]
            start = grid_start[grid]
            bucket = (np.float64(min(score, 1.0 - score)).view(np.int64) >> shift) - first
            at = guide[grid, bucket if score < 0.5 else last - bucket]
            # Most buckets hold at most one knot: one step without a branch, and rarely more.
            at += knots[start + at + 1] <= score
            while knots[start + at + 1] <= score:
                at += 1
            line = line_start[curve] + at
            out[i] = min(lines[line, 1] * (score - knots[start + at]) + lines[line, 0], lines[line, 2])

    return compiled(kernel)


class Evaluator:
    """Evaluates one set of curves again and again; keeps the tables that make it fast."""

    def __init__(self, curves: Curves) -> None:
        """Start without tables; they are made when a large array first asks for them."""
        self.curves = curves
        self._tables: LookupTables | None = None
        self._numba = numba_installed()

    def __call__(self, scores: FloatArray, which: NDArray[Any] | None = None, offset: int = 0) -> FloatArray:
        """Return the value of curve `which[i] + offset` (curve 0 if not given) at `scores[i]`."""
        if which is None:
            which = np.broadcast_to(np.zeros(1, dtype=np.int32), len(scores))
        if not self._numba or len(scores) < NUMBA_FROM:
            return evaluate_numpy(self.curves, scores, which + offset if offset else which)
        if self._tables is None:
            self._tables = lookup_tables(self.curves)
        out = np.empty(len(scores))
        workers = min(os.cpu_count() or 1, 8, -(-len(scores) // _THREAD_ROWS))
        if workers == 1:
            _kernel()(*self._tables, scores, which, offset, out)
            return out
        bounds = np.linspace(0, len(scores), workers + 1).astype(int)
        parts = [slice(a, b) for a, b in pairwise(bounds)]
        run, tables = _kernel(), self._tables
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda part: run(*tables, scores[part], which[part], offset, out[part]), parts))
        return out
