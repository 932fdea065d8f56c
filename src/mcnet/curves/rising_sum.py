"""The sum of rising terms: the one evaluation of a model of several fields, in `predict` and in every export.

The curve of a context is logit p = offset + Σ slope_i · (part of panel i between the origin and the score), where the
logarithms of the slopes add up over the context's field values and pairs of values. All targets take these steps, in
this order, without a fused multiply-add, so that the exported C gives the bits of `predict`.

No step can break the order of scores. Products with a positive number, sums and quotients stay ordered when they are
rounded. The logarithm and the exponential are computed at the nearest point of a fixed grid, with an error below
10⁻¹⁴, and continued by a line whose slope is smaller than the true one by a share of 2⁻²²: where two lines meet, the
second one starts higher by more than the errors, and both results are within 10⁻¹³ of the exact ones.
"""

from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import pairwise
from math import frexp, inf, ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import SCORE_FLOOR, CodeArray, FloatArray, IntArray, clip_scores
from mcnet._shared.loops import compiled, threads_for, worth_compiling
from mcnet.curves.family import CONTEXTS_PER_BLOCK, LARGEST_LOGIT, CurveFamily, believable, blocks_of_contexts

# The elementary functions: plain arithmetic, which numbers, arrays and compiled loops share.

TO_WHOLE = 1.5 * 2.0**52
"""Adding and subtracting it rounds to a whole number."""
LOG_GRID, EXP_GRID = 2.0**23, 2.0**22
"""Grid points per unit: of the mantissa of the odds, and of a calibrated logit."""
SHORTER = 1.0 - 2.0**-22
"""The share of the true slope that lines between grid points have."""
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
LOG_SERIES = tuple(1.0 / (2 * power + 1) for power in range(10))
EXP_SERIES = tuple(1.0 / float(np.prod(np.arange(1.0, power + 1.0))) for power in range(14))
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8, _L9 = LOG_SERIES
_E0, _E1, _E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = EXP_SERIES


def raw_logit(mantissa: Any, exponent: Any) -> Any:
    """Return the logit of a score from the mantissa in [½, 1) and the exponent of its odds s / (1 − s)."""
    point = (mantissa * LOG_GRID + TO_WHOLE - TO_WHOLE) * (1.0 / LOG_GRID)
    low = point < SQRT_HALF
    whole = exponent - low * 1
    near_one = point + point * low
    z = (near_one - 1.0) / (near_one + 1.0)
    w = z * z
    w2 = w * w
    w4 = w2 * w2
    series = (_L0 + _L1 * w) + (_L2 + _L3 * w) * w2
    series = series + ((_L4 + _L5 * w) + (_L6 + _L7 * w) * w2) * w4
    series = series + (_L8 + _L9 * w) * (w4 * w4)
    line = (mantissa - point) / point * SHORTER
    return (whole * LN2_HIGH + (whole * LN2_LOW + (z + z) * series)) + line


def exp_parts(y: Any) -> Any:
    """Return (e, n) with exp(y) = e · 2ⁿ."""
    n = y * LOG2_E + TO_WHOLE - TO_WHOLE
    f = (y - n * LN2_HIGH) - n * LN2_LOW
    f2 = f * f
    f4 = f2 * f2
    low = ((_E0 + _E1 * f) + (_E2 + _E3 * f) * f2) + ((_E4 + _E5 * f) + (_E6 + _E7 * f) * f2) * f4
    high = ((_E8 + _E9 * f) + (_E10 + _E11 * f) * f2) + (_E12 + _E13 * f) * f4
    return low + high * (f4 * f4), n


def point_and_line(y: Any) -> Any:
    """Return the grid point nearest to y, and the factor from its exponential to that of y."""
    point = (y * EXP_GRID + TO_WHOLE - TO_WHOLE) * (1.0 / EXP_GRID)
    return point, 1.0 + (y - point) * SHORTER


# Number the contexts of rows.

_MOST_DENSE_KEYS = 1 << 22


def distinct_keys(keys: NDArray[Any], size: int) -> tuple[IntArray, NDArray[Any]]:
    """Return the distinct keys, whole numbers from 0 to `size` − 1, and which of them each row has."""
    if not worth_compiling(len(keys), _numbering):
        return np.unique(keys, return_inverse=True)
    which = np.empty(len(keys), dtype=np.int32)
    dense = size <= min(_MOST_DENSE_KEYS, 16 * len(keys))
    slots = size if dense else 1 << (2 * min(size, len(keys)) - 1).bit_length()
    numbers = np.full(slots, -1, dtype=np.int32)
    distinct = np.empty(min(size, len(keys)), dtype=np.int64)
    found = _numbering()(keys, None if dense else np.uint64(65 - slots.bit_length()), numbers, distinct, which)
    return distinct[:found], which


@cache
def _numbering() -> Any:
    def number(keys, shift, numbers, distinct, which):  # type: ignore[no-untyped-def]
        """Number the keys as they come; without a shift they are slots themselves, with it they are hashed."""
        found = 0
        for i in range(len(keys)):
            key = keys[i]
            if shift is None:
                slot = np.uint64(key)
            else:
                slot = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> shift
                while numbers[slot] >= 0 and distinct[numbers[slot]] != key:
                    slot = (slot + np.uint64(1)) & np.uint64(len(numbers) - 1)
            if numbers[slot] < 0:
                numbers[slot] = found
                distinct[found] = key
                found += 1
            which[i] = numbers[slot]
        return found

    return compiled(number)


# Field values to the rows of one table of numbers.

_MOST_DENSE_PAIRS = 4_000_000
"""Up to this many pairs of values are looked up in a table of all of them."""


class RisingSum:
    """Evaluates the curves of a family of several fields, context by context."""

    def __init__(self, family: CurveFamily) -> None:
        """Prepare nothing yet; tables are made when first needed."""
        self.family = family
        self.limit = min(family.limit, LARGEST_LOGIT)

    @cached_property
    def _numbers(self) -> FloatArray:
        """The numbers of all values and pairs, one part below the other, and zeros for what is not known."""
        return np.concatenate([*self.family.numbers, np.zeros((1, len(self.family.offset_by)))])

    @cached_property
    def _sizes(self) -> list[int]:
        """How many values of each field have numbers, alone or in a pair."""
        sizes = [len(part) for part in self.family.numbers[: self.family.fields]]
        for pair in self.family.combinations:
            sizes[pair.first] = max(sizes[pair.first], 1 + int(pair.keys.max(initial=-1)) // pair.size)
            sizes[pair.second] = max(sizes[pair.second], pair.size)
        return sizes

    @cached_property
    def _lookups(self) -> list[CodeArray | None]:
        """Per part, the row of the numbers of each value or pair; None for pairs too many to be listed.

        Codes count from 1; 0 and the last one are values without a number.
        """
        family, begin, result = self.family, 0, []
        for part, numbers in enumerate(family.numbers):
            pair = family.combinations[part - family.fields] if part >= family.fields else None
            shape = [self._sizes[f] + 2 for f in ((part,) if pair is None else (pair.first, pair.second))]
            lookup = None
            if np.prod(shape) <= _MOST_DENSE_PAIRS:
                lookup = np.full(shape, len(self._numbers) - 1, dtype=np.int32)
                known = np.arange(len(numbers), dtype=np.int32)
                at = (known,) if pair is None else np.divmod(pair.keys[: len(numbers)], pair.size)
                lookup[tuple(code + 1 for code in at)] = known + begin
                lookup = lookup.ravel()
            result.append(lookup)
            begin += len(numbers)
        return result

    def _rows(self, codes: NDArray[Any]) -> CodeArray:
        """Return which rows of the numbers each context adds up: `[contexts, parts]`."""
        family, begin = self.family, 0
        sizes = self._sizes
        digits = [np.clip(codes[:, field].astype(np.int64) + 1, 0, size + 1) for field, size in enumerate(sizes)]
        result = np.empty((len(codes), len(family.numbers)), dtype=np.int32)
        for part, (numbers, lookup) in enumerate(zip(family.numbers, self._lookups, strict=True)):
            if part < family.fields:
                assert lookup is not None
                result[:, part] = lookup[digits[part]]
            else:
                pair = family.combinations[part - family.fields]
                if lookup is not None:
                    result[:, part] = lookup[digits[pair.first] * (sizes[pair.second] + 2) + digits[pair.second]]
                else:
                    at = pair.codes(codes)
                    result[:, part] = np.where((at >= 0) & (at < len(numbers)), at + begin, len(self._numbers) - 1)
            begin += len(numbers)
        return result

    # Few rows, or no compiler: NumPy.

    def contexts(self, codes: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return the calibrated logits of contexts at the knots `[contexts, knots]`, the slopes `[contexts, panels]`.

        Panel i lies between the knots i − 1 and i; the first and the last one have no end.
        """
        family, rows = self.family, self._rows(codes)
        moved = np.zeros((len(codes), len(family.offset_by)))
        for part in rows.T:
            moved += self._numbers[part]
        sums = np.repeat(family.common[None, :], len(codes), axis=0)
        for number, by in enumerate(family.by_number):
            sums += moved[:, number, None] * by
        mantissa, whole = exp_parts(sums[:, :-1])
        slopes = np.ldexp(mantissa, whole.astype(np.int32))
        rises, origin = slopes[:, 1:-1] * np.diff(family.knots), family.origin
        values = np.empty((len(codes), len(family.knots)))
        values[:, origin] = sums[:, -1]
        for knot in range(origin + 1, len(family.knots)):
            values[:, knot] = values[:, knot - 1] + rises[:, knot - 1]
        for knot in range(origin - 1, -1, -1):
            values[:, knot] = values[:, knot + 1] - rises[:, knot]
        return values, slopes

    def _in_arrays(self, scores: FloatArray, codes: NDArray[Any], which: NDArray[Any]) -> FloatArray:
        """Return the probability of each row, by blocks of contexts."""
        family, result = self.family, np.empty(len(scores))
        odds = clip_scores(scores)
        x = raw_logit(*np.frexp(odds / (1.0 - odds)))
        panel = np.searchsorted(family.knots, x, side="right")
        anchor = np.where(panel > family.origin, panel - 1, panel)
        for block, rows in blocks_of_contexts(which, len(codes), CONTEXTS_PER_BLOCK):
            values, slopes = self.contexts(codes[block])
            bounded = np.full((len(values), values.shape[1] + 2), np.inf)
            bounded[:, 0], bounded[:, 1:-1] = -np.inf, values
            own, at, here = which[rows] - block.start, panel[rows], x[rows]
            t = values[own, anchor[rows]] + slopes[own, at] * (here - family.knots[anchor[rows]])
            t = np.minimum(np.maximum(t, bounded[own, at]), bounded[own, at + 1])
            point, line = point_and_line(-believable(t, here, self.limit))
            mantissa, whole = exp_parts(point)
            result[rows] = 1.0 / (1.0 + np.ldexp(mantissa, whole.astype(np.int32)) * line)
        return result

    # One row in plain Python.

    def line(self, codes: tuple[int, ...]) -> "SumLine":
        """Return the curve of one context, for scores that come one by one."""
        values, slopes = self.contexts(np.array([codes], dtype=np.int64))
        return SumLine(self, values[0].tolist(), slopes[0].tolist())

    # Many rows: sorted by context, in compiled loops.

    def predict(self, scores: FloatArray, codes: NDArray[Any], which: NDArray[Any]) -> FloatArray:
        """Return the probability of each row."""
        if not worth_compiling(len(scores), _kernel):
            return self._in_arrays(scores, codes, which)
        # Rows are sorted by context, since a look at a random place costs more than all arithmetic.
        begin, at = np.zeros(len(codes) + 1, dtype=np.int64), np.empty(len(scores), dtype=np.int32)
        ordered, panels = np.empty(len(scores)), np.empty(len(scores), dtype=np.int16)
        _sorting()(which, scores, begin, at, ordered)
        rows, shared, look, run = self._rows(codes), self._tables, _logit_loop(), _kernel()
        workers = threads_for(len(scores))
        ends = np.searchsorted(begin, np.linspace(0, len(scores), workers + 1).astype(np.int64))
        ends[0], ends[-1] = 0, len(codes)

        def evaluate(part: tuple[int, int]) -> None:
            first, last = part
            own = slice(begin[first], begin[last])
            look(shared, ordered[own], panels[own])
            run(shared, rows[first:last], begin[first : last + 1], panels, ordered)

        if workers == 1:
            evaluate((0, len(codes)))
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(evaluate, pairwise(ends.tolist())))
        return ordered.take(at)

    @cached_property
    def _tables(self) -> tuple[Any, ...]:
        family = self.family
        knots = family.knots
        cells = 64 * len(knots)
        per_logit = cells / max(float(knots[-1] - knots[0]), 1e-9)
        guide = np.searchsorted(knots, knots[0] + (np.arange(cells + 2) - 1.0) / per_logit, side="left")
        guide[0] = 0  # a logit left of all knots has this cell, too
        sums = self._numbers, family.common, family.by_number
        return *sums, knots, family.origin, self.limit, guide.astype(np.int32), per_logit


BLOCK = 256
"""Rows that go through several steps one after the other without leaving the fastest cache."""


class SumLine:
    """The curve of one context."""

    __slots__ = ("_knots", "_limit", "_pieces")

    def __init__(self, of: RisingSum, values: list[float], slopes: list[float]) -> None:
        """Take the calibrated logits at the knots and the slopes of the panels."""
        self._knots: list[float] = of.family.knots.tolist()
        self._limit = of.limit
        origin = of.family.origin
        anchors = [panel - 1 if panel > origin else panel for panel in range(len(slopes))]
        self._pieces = [
            (self._knots[anchor], values[anchor], slope, low, high)
            for anchor, slope, low, high in zip(anchors, slopes, [-inf, *values], [*values, inf], strict=True)
        ]

    def __call__(self, score: float) -> float:
        """Return the probability of a score inside [SCORE_FLOOR, 1 − SCORE_FLOOR]."""
        x = raw_logit(*frexp(score / (1.0 - score)))
        knot, value, slope, low, high = self._pieces[bisect_right(self._knots, x)]
        t = min(max(value + slope * (x - knot), low), high)
        limit = self._limit
        t = min(max(t, min(x, -limit)), max(x, limit))
        point, line = point_and_line(-t)
        mantissa, whole = exp_parts(point)
        result: float = 1.0 / (1.0 + ldexp(mantissa, int(whole)) * line)
        return result


@cache
def _sorting() -> Any:
    def sort(which, scores, begin, at, ordered):  # type: ignore[no-untyped-def]
        """Sort scores by context; `begin` is where those of each context begin, `at` where each row's score went."""
        for i in range(len(which)):
            begin[which[i] + 1] += 1
        for context in range(1, len(begin)):
            begin[context] += begin[context - 1]
        free = begin[:-1].copy()
        for i in range(len(which)):
            place = free[which[i]]
            free[which[i]] = place + 1
            at[i] = place
            ordered[place] = scores[i]

    return compiled(sort)


def _logits(scores, bits, exponents, mantissas):  # type: ignore[no-untyped-def]
    """Replace scores by their raw logits; all but the last lines are frexp, which calls would slow down."""
    for i in range(len(scores)):
        score = min(max(scores[i], SCORE_FLOOR), 1.0 - SCORE_FLOOR)
        mantissas[i] = score / (1.0 - score)
    for i in range(len(scores)):
        exponents[i] = np.int32(bits[i] >> 52) - np.int32(1022)
        bits[i] = (bits[i] & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000
    for i in range(len(scores)):
        scores[i] = raw_logit(mantissas[i], exponents[i])


def _exponentials(y, begin, end, bits, powers, out):  # type: ignore[no-untyped-def]
    """Compute exp from `begin` to `end`; powers of two are put together from their bits."""
    for i in range(begin, end):
        mantissa, whole = exp_parts(y[i])
        out[i] = mantissa
        bits[i] = (np.int64(np.int32(whole)) + 1023) << 52
    for i in range(begin, end):
        out[i] *= powers[i]


@cache
def _kernel() -> Any:
    def kernel(tables, rows, begin, panels, out):  # type: ignore[no-untyped-def]
        """Replace the logits of rows, sorted by context, by probabilities."""
        numbers, base, by, knots, origin, limit, _, _ = tables
        last, size = len(base) - 1, len(knots)
        moved, sums = np.empty(numbers.shape[1]), np.empty(len(base))
        values, slopes = np.empty(size + 2), np.empty(last)
        values[0], values[size + 1] = -np.inf, np.inf
        powers = np.empty(max(BLOCK, last))
        small, points, lines = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
        bits = powers.view(np.int64)
        filled, first = 0, begin[0]
        for context in range(len(rows)):
            if begin[context] == begin[context + 1]:
                continue
            moved[:] = 0.0
            for part in range(rows.shape[1]):
                row = rows[context, part]
                for k in range(len(moved)):
                    moved[k] += numbers[row, k]
            # Only the panels between the origin and the scores of this context.
            low, high = origin + 1, origin
            for i in range(begin[context], begin[context + 1]):
                panel = np.int64(panels[i])
                low, high = min(low, panel), max(high, panel)
            high += 1
            height = base[last]
            for p in range(low, high):
                sums[p] = base[p]
            for k in range(len(moved)):
                height += moved[k] * by[k, last]
                for p in range(low, high):
                    sums[p] += moved[k] * by[k, p]
            _exponentials(sums, low, high, bits, powers, slopes)  # type: ignore[no-untyped-call]
            values[1 + origin] = height
            for knot in range(origin + 1, min(high, size)):
                values[1 + knot] = values[knot] + slopes[knot] * (knots[knot] - knots[knot - 1])
            for knot in range(origin - 1, max(low, 1) - 2, -1):
                values[1 + knot] = values[2 + knot] - slopes[1 + knot] * (knots[knot + 1] - knots[knot])
            for i in range(begin[context], begin[context + 1]):
                x, panel = out[i], np.int64(panels[i])
                anchor = panel - (panel > origin)
                t = values[1 + anchor] + slopes[panel] * (x - knots[anchor])
                t = min(max(t, values[panel]), values[panel + 1])
                points[filled] = -min(max(t, min(x, -limit)), max(x, limit))
                filled += 1
                if filled == BLOCK or i == begin[-1] - 1:
                    for j in range(filled):
                        points[j], lines[j] = point_and_line(points[j])
                    _exponentials(points, 0, filled, bits, powers, small)  # type: ignore[no-untyped-call]
                    for j in range(filled):
                        out[first + j] = 1.0 / (1.0 + small[j] * lines[j])
                    first, filled = first + filled, 0

    return compiled(kernel, exp_parts, point_and_line, _exponentials)


@cache
def _logit_loop() -> Any:
    def loop(tables, scores, panels):  # type: ignore[no-untyped-def]
        """Replace scores by their raw logits, and say in which panel each lies."""
        _, _, _, knots, _, _, guide, per_logit = tables
        mantissas, exponents = np.empty(BLOCK), np.empty(BLOCK, np.int32)
        size, last = len(knots), len(guide) - 1
        bits = mantissas.view(np.int64)
        for begin in range(0, len(scores), BLOCK):
            end = min(begin + BLOCK, len(scores))
            _logits(scores[begin:end], bits, exponents, mantissas)  # type: ignore[no-untyped-call]
            for i in range(begin, end):
                x = scores[i]
                panel = guide[min(max(np.int64((x - knots[0]) * per_logit), 0), last)]
                while panel < size and knots[panel] <= x:
                    panel += 1
                panels[i] = panel

    return compiled(loop, raw_logit, _logits)
