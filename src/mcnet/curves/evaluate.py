"""The hot loop of serving: scores to probabilities, with numba, and the same in NumPy without it."""

from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import CodeArray, FloatArray, clip_scores, inside_unit
from mcnet._shared.loops import (
    BLOCK,
    bucket_starts,
    clip_into_buckets,
    clipped_and_buckets,
    compiled,
    threads_for,
    worth_compiling,
)
from mcnet.curves.curves import Curves
from mcnet.errors import InputError

# Lookup tables: the bits of a score give the place in its curve to start searching from.

CROWD = 16
"""This many knots of a bucket are walked through one by one; the rest is bisected."""

_GUIDE_LIMIT = 1 << 22
_MOST_BITS = 10


class LookupTables(NamedTuple):
    """What the evaluation loop reads.

    `lines` holds the curves one behind the other, from `line_start` on: (knot, value, slope, largest value) of the line
    right of each knot, so that a score finds all it needs in one place of memory. Each curve gets a sentinel knot on
    either side (0 and infinity), so the loop needs no special case at the ends. `line_start` ends where all lines do.
    `guide`, from the curve's `guide_start` on, is the last knot at or left of every score of a bucket; curves on one
    grid share it. `crowded` is True if a bucket has more than CROWD knots, else None, for which the loop is compiled
    without a case for them.
    """

    lines: FloatArray
    line_start: NDArray[np.uint64]
    guide: CodeArray
    guide_start: NDArray[np.uint64]
    last_bucket: np.uint64
    shift: np.uint64
    crowded: bool | None


def lookup_tables(curves: Curves) -> LookupTables:
    """Return the tables of a set of curves; the guide is as fine as the knots ask for, within bounded memory."""
    longest = int(np.diff(curves.grid_start).max())
    bits = _MOST_BITS
    while bits > 0 and (curves.grids * 48 << bits > _GUIDE_LIMIT or 48 << bits > 16 * longest + 512):
        bits -= 1
    starts = bucket_starts(52 - bits)
    # How many knots of a grid lie before each bucket: the first one that begins at a knot or right of it counts it.
    bucket = np.searchsorted(np.minimum.accumulate(starts[::-1])[::-1], curves.knots)
    bucket += np.repeat(np.arange(curves.grids), np.diff(curves.grid_start)) * (len(starts) + 1)
    knots = np.bincount(bucket, minlength=curves.grids * (len(starts) + 1)).reshape(curves.grids, -1)
    return LookupTables(
        _line_records(curves),
        (curves.value_start + 2 * np.arange(len(curves) + 1)).astype(np.uint64),
        np.cumsum(knots, axis=1, dtype=np.int32).ravel(),
        (curves.grid_of * (len(starts) + 1)).astype(np.uint64),
        np.uint64(len(starts) - 1),
        np.uint64(52 - bits),
        True if knots.max() > CROWD else None,
    )


def _line_records(curves: Curves) -> FloatArray:
    sizes = np.diff(curves.value_start)
    begin = curves.value_start[:-1] + 2 * np.arange(len(curves))
    end = begin + sizes + 1
    lines = np.zeros((len(curves.probabilities) + 2 * len(curves), 4))
    curve = np.repeat(np.arange(len(curves)), sizes)
    index = np.arange(len(curves.probabilities)) + 2 * curve + 1
    own_knot = np.arange(len(curves.probabilities)) - curves.value_start[curve]
    lines[index, 0] = curves.knots[curves.grid_start[curves.grid_of[curve]] + own_knot]
    lines[index, 1] = curves.probabilities
    lines[index, 2] = curves.slopes
    following = np.append(curves.probabilities[1:], np.inf)
    following[curves.value_start[1:] - 1] = np.inf
    # A falling line (histogram binning) has no end to be kept below.
    lines[index, 3] = np.where(following >= curves.probabilities, following, np.inf)
    lines[begin, 1] = curves.probabilities[curves.value_start[:-1]]
    lines[begin, 3] = np.inf
    lines[end, 0] = np.inf
    return lines


# The hot loop of serving: scores to probabilities, with numba, and the same in NumPy without it.


def evaluate_few(curves: Curves, scores: FloatArray, curve: NDArray[Any]) -> FloatArray:
    """Return the value of curve `curve[i]` at `scores[i]`: rows too few to be worth tables bisect the knots."""
    scores, knots, values = clip_scores(scores), curves.knots, curves.probabilities
    grid, begin = curves.grid_of[curve], curves.value_start[curve]
    first, end = curves.grid_start[grid], curves.grid_start[grid + 1]
    low, high = first, end
    while (low < high).any():
        middle = (low + high) >> 1
        left = (low < high) & (knots.take(middle, mode="clip") <= scores)
        low, high = np.where(left, middle + 1, low), np.where(left, high, np.minimum(middle, high))
    # Left of the first knot and right of the last one a curve is flat.
    step, knot = (low > first) & (low < end), np.maximum(low - 1, first)
    at = begin + knot - first
    value, following, run = values[at], values[at + step], knots[knot + step] - knots[knot]
    result: FloatArray = np.divide(following - value, run, out=np.zeros_like(run), where=run > 0.0)
    result *= scores - knots[knot]
    result += value
    # As in the tables: no line passes its end, but for a falling one (histogram binning).
    np.minimum(result, np.where(step & (following >= value), following, np.inf), out=result)
    return result


def evaluate_numpy(tables: LookupTables, scores: FloatArray, curve: NDArray[Any]) -> FloatArray:
    """Return the value of curve `curve[i]` at `scores[i]`, in a few operations on all rows."""
    scores, buckets = clipped_and_buckets(scores, tables.last_bucket, tables.shift)
    lines = tables.lines.ravel()
    at = tables.guide_start.take(curve)
    at += buckets
    line = tables.line_start.take(curve).view(np.int64)
    line += tables.guide.take(at.view(np.int64))
    # The tables put most rows on their line; the others are at most so many lines further, as bisection finds.
    beyond = np.flatnonzero(lines.take(4 * line + 4) <= scores)
    own, score, last = line[beyond], scores[beyond], tables.line_start.take(curve[beyond] + 1).view(np.int64) - 1
    for power in range((len(tables.lines) if tables.crowded else CROWD).bit_length() - 1, -1, -1):
        ahead = np.minimum(own + (1 << power), last)
        own = np.where(lines.take(4 * ahead) <= score, ahead, own)
    line[beyond] = own
    line *= 4
    result = scores
    result -= lines.take(line)
    line += 2
    result *= lines.take(line)
    line -= 1
    result += lines.take(line)
    line += 2
    return np.minimum(result, lines.take(line), out=result)


def _bisect(lines: FloatArray, low: Any, high: Any, score: float) -> Any:
    """Return the last line from `low` on, and before `high`, that starts at the score or left of it."""
    while high - low > np.uint64(1):
        middle = (low + high) >> np.uint64(1)
        if lines[middle, np.uint64(0)] <= score:
            low = middle
        else:
            high = middle
    return low


@cache
def _kernel() -> Any:
    # Unsigned places: signed ones would be compared with 0 at every look, since Python counts back from the end.
    whole, knot, value, slope, most, one = np.uint64, *(np.uint64(n) for n in (0, 1, 2, 3, 1))

    def kernel(lines, line_start, guide, guide_start, last_bucket, shift, crowded, scores, which, offset, out):  # type: ignore[no-untyped-def]
        curves = whole(len(line_start) - 1)
        clipped, buckets = np.empty(BLOCK), np.empty(BLOCK, np.uint64)
        curve, line_at, guide_at = whole(0), line_start[0], guide_start[0]
        for begin in range(0, len(scores), BLOCK):
            rows = min(BLOCK, len(scores) - begin)
            given, result = scores[begin : begin + rows], out[begin : begin + rows]
            fine = clip_into_buckets(given, clipped, buckets, last_bucket, shift)
            if which is not None:
                chosen = which[begin : begin + rows]
                for i in range(rows):
                    fine += whole(chosen[i] + offset) < curves
            if fine != (rows if which is None else 2 * rows):
                return False
            for i in range(whole(rows)):
                score = clipped[i]
                if which is not None:
                    curve = whole(chosen[i] + offset)
                    line_at, guide_at = line_start[curve], guide_start[curve]
                line = line_at + whole(guide[guide_at + buckets[i]])
                # Most buckets hold at most one knot: one step without a branch, and rarely more.
                line += whole(lines[line + one, knot] <= score)
                if crowded is None:  # known when compiled: counting steps would slow the usual curves down
                    while lines[line + one, knot] <= score:
                        line += one
                else:
                    steps = 0
                    while lines[line + one, knot] <= score:
                        line += one
                        steps += 1
                        if steps == CROWD:
                            line = _bisect(lines, line, line_start[curve + one] - one, score)
                            break
                reached = lines[line, slope] * (score - lines[line, knot]) + lines[line, value]
                result[i] = min(reached, lines[line, most])
        return True

    return compiled(kernel, clip_into_buckets, _bisect)


class Evaluator:
    """Evaluates one set of curves again and again; keeps the tables that make it fast."""

    def __init__(self, curves: Curves) -> None:
        """Start without tables; they are made once there were as many rows as knots."""
        self.curves = curves
        self._rows = 0

    def __call__(self, scores: FloatArray, which: NDArray[Any] | None = None, offset: int = 0) -> FloatArray:
        """Return the value of curve `which[i] + offset` (curve 0 if not given) at `scores[i]`."""
        result = self.attempt(scores, which, offset)
        if result is None:
            raise InputError("a score is outside [0, 1], or no curve has the number given")
        return result

    def attempt(self, scores: FloatArray, which: NDArray[Any] | None = None, offset: int = 0) -> FloatArray | None:
        """Return the same for rows that nobody has looked at yet, or None if any of them cannot be evaluated."""
        if worth_compiling(len(scores), _kernel):
            scores = np.ascontiguousarray(scores)
            which = None if which is None else np.ascontiguousarray(which, dtype=np.int32)
            return self._compiled(scores, which, offset)
        if not inside_unit(scores):
            return None
        if which is None:
            which, offset = np.zeros(len(scores), dtype=np.int32), 0
        elif len(which) and not 0 <= int(which.min()) + offset <= int(which.max()) + offset < len(self.curves):
            return None
        curve = which + offset if offset else which
        self._rows += len(scores)
        if self._rows < len(self.curves.probabilities) and "_lookup_tables" not in vars(self):
            return evaluate_few(self.curves, scores, curve)
        return evaluate_numpy(self._lookup_tables, scores, curve)

    @cached_property
    def _lookup_tables(self) -> LookupTables:
        return lookup_tables(self.curves)

    def _compiled(self, scores: FloatArray, which: CodeArray | None, offset: int) -> FloatArray | None:
        run, tables, out = _kernel(), self._lookup_tables, np.empty(len(scores))

        def evaluate(rows: slice) -> bool:
            done: bool = run(*tables, scores[rows], None if which is None else which[rows], offset, out[rows])
            return done

        workers = threads_for(len(scores))
        if workers == 1:
            return out if evaluate(slice(None)) else None
        from concurrent.futures import ThreadPoolExecutor  # a small batch is served sooner without it

        bounds = np.linspace(0, len(scores), workers + 1).astype(int)
        with ThreadPoolExecutor(workers) as pool:
            done = list(pool.map(evaluate, [slice(a, b) for a, b in pairwise(bounds)]))
        return out if all(done) else None
