"""The hot loop of serving: scores to probabilities, with numba, and the same in NumPy without it."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.curves.curves import Curves
from mcnet.rows.columns import SCORE_FLOOR, FloatArray
from mcnet.rows.loops import compiled, numba_installed

__all__ = ["NUMBA_FROM", "Evaluator", "evaluate_numpy"]

NUMBA_FROM = 50_000
"""Fewer rows than this are not worth loading the compiler for."""

_THREAD_ROWS = 500_000
_GUIDE_LIMIT = 4_000_000

# A guide bucket is the exponent and the first four bits of the mantissa of min(s, 1 − s): fine where the scores of rare
# events crowd, and read off the bits without a logarithm.
_SHIFT = 52 - 4
_FIRST = int(np.float64(SCORE_FLOOR).view(np.int64)) >> _SHIFT
_HALF = (int(np.float64(0.5).view(np.int64)) >> _SHIFT) - _FIRST + 1


def evaluate_numpy(curves: Curves, scores: FloatArray, which: NDArray[Any]) -> FloatArray:
    """Return the value of curve `which[i]` at `scores[i]`."""
    result = np.empty(len(scores))
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


def _kernel() -> Any:
    shift, first, half = _SHIFT, _FIRST, _HALF

    def kernel(knots, grid_start, grid_of, values, slopes, value_start, guide, scores, bits, which, out):  # type: ignore[no-untyped-def]
        guided = len(guide) > 0
        for i in range(len(scores)):
            score = scores[i]
            curve = which[i]
            grid = grid_of[curve]
            start = grid_start[grid]
            last = grid_start[grid + 1] - start - 1
            low, high = -1, last
            if guided:
                bucket = (bits[i] >> shift) - first
                bucket = bucket if score < 0.5 else 2 * half - 1 - bucket
                low = guide[grid, bucket]
                high = guide[grid, bucket + 1]
            while high - low > 8:
                middle = (low + high + 1) >> 1
                if knots[start + middle] <= score:
                    low = middle
                else:
                    high = middle - 1
            while low < high and knots[start + low + 1] <= score:
                low += 1
            at = value_start[curve]
            if low < 0:
                out[i] = values[at]
            elif low == last:
                out[i] = values[at + last]
            else:
                here = values[at + low]
                there = values[at + low + 1]
                found = slopes[at + low] * (score - knots[start + low]) + here
                out[i] = there if here <= there < found else found

    return compiled(kernel)


_compiled: dict[str, Any] = {}


@dataclass
class Evaluator:
    """Evaluates one set of curves again and again; keeps the tables that make it fast."""

    curves: Curves

    def __post_init__(self) -> None:
        """Start without tables; they are made when a large array first asks for them."""
        self._guide: NDArray[np.int32] | None = None
        self._numba = numba_installed()

    def __call__(self, scores: FloatArray, which: NDArray[Any] | None = None) -> FloatArray:
        """Return the value of curve `which[i]` (curve 0 if not given) at `scores[i]`, scores clipped already."""
        if which is None:
            which = np.zeros(len(scores), dtype=np.int32)
        if not self._numba or len(scores) < NUMBA_FROM:
            return evaluate_numpy(self.curves, scores, which)
        if "kernel" not in _compiled:
            _compiled["kernel"] = _kernel()
        if self._guide is None:
            self._guide = _guide(self.curves)
        out = np.empty(len(scores))
        workers = min(os.cpu_count() or 1, 8, -(-len(scores) // _THREAD_ROWS))
        if workers == 1:
            self._run(scores, which, out)
            return out
        bounds = np.linspace(0, len(scores), workers + 1).astype(int)
        with ThreadPoolExecutor(workers) as pool:
            parts = [slice(a, b) for a, b in pairwise(bounds)]
            list(pool.map(lambda part: self._run(scores[part], which[part], out[part]), parts))
        return out

    def _run(self, scores: FloatArray, which: NDArray[Any], out: FloatArray) -> None:
        curves = self.curves
        tables = (
            curves.knots,
            curves.grid_start,
            curves.grid_of,
            curves.probabilities,
            curves.slopes,
            curves.value_start,
        )
        for start in range(0, len(scores), 1 << 16):  # the temporary of bits stays in the cache
            part = slice(start, start + (1 << 16))
            bits = np.minimum(scores[part], 1.0 - scores[part]).view(np.int64)
            _compiled["kernel"](*tables, self._guide, scores[part], bits, which[part], out[part])


def _guide(curves: Curves) -> NDArray[np.int32]:
    """Return, per grid and bucket, the last knot at or left of the bucket's start; no guide for very many grids."""
    if curves.grids * 2 * _HALF > _GUIDE_LIMIT:
        return np.empty((0, 0), dtype=np.int32)
    low = ((np.arange(_HALF, dtype=np.int64) + _FIRST) << _SHIFT).view(np.float64)
    # Buckets of the upper half run backwards: bucket b holds 1 − s in [low, next), so s lies in (1 − next, 1 − low].
    following = ((np.arange(_HALF, dtype=np.int64) + _FIRST + 1) << _SHIFT).view(np.float64)
    starts = np.concatenate([low, 1.0 - following[::-1], [2.0]])
    guide = np.empty((curves.grids, len(starts)), dtype=np.int32)
    for grid in range(curves.grids):
        knots = curves.knots[curves.grid_start[grid] : curves.grid_start[grid + 1]]
        guide[grid] = np.searchsorted(knots, starts, side="right") - 1
    return guide
