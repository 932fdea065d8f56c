"""Compile fitted functions to curves: evaluate densely, guarantee the order, keep few knots within an error bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from mcnet._shared.arrays import (
    PROBABILITY_FLOOR,
    SCORE_FLOOR,
    CodeArray,
    FloatArray,
    IntArray,
    MaskArray,
    clip_probabilities,
    clip_scores,
    logit,
    sigmoid,
)
from mcnet.curves.curves import Curves
from mcnet.curves.family import LARGEST_LOGIT, CurveFamily, Lines

# Place the knots of curves that are piecewise linear in logit space: more where a curve bends more.
#
# A line of slope β takes the score s = σ(x) to p = σ(α + βx). A chord between two knots misses p by the square of
# their distance times p''(s) / 8, and
#
#     p''(s) · (ds/dx)² = β p (1 − p) · (β (1 − 2p) − (1 − 2s)),
#
# so the density of knots that just keeps the bound is known everywhere, and all curves get theirs at once. The formula
# is exact for close knots only; a long or steep chord is checked at its middle, and halved where it misses.

LOGIT_EDGE = float(np.log1p(-SCORE_FLOOR) - np.log(SCORE_FLOOR))
"""The logit of the highest score, and minus that of the lowest."""
_STEP = 0.4
"""How far apart, at most, the bend is looked at, in logits."""
_FILLED = 0.8
"""The share of the bound that knots are placed for; the rest is for what the density does not know."""
_CLOSE = 0.1
"""Up to this many logits, of the score and calibrated, the bend along a chord is as good as constant."""
_STEEP = 2.0
"""On a line of this slope the bend may change within a step."""
_CURVES_PER_KNOT_BLOCK = 128
"""Curves worked on at the same time: few enough for the cache."""
_MOST_REFINEMENTS = 24
"""How often knots may be added, or intervals halved, where a line misses the function."""
_ROUNDING = 1e-15
_POWERS = 10.0 ** np.concatenate([[9.0], np.arange(9.0 - np.floor(np.log10(PROBABILITY_FLOOR)), 9.0, -1.0)])
"""What makes ten digits of a probability a whole number, by the whole part of its logarithm: 0, then −12 … −1."""
_LEAST_KNOTS_PER_LOGIT = 1e-3
"""Knots per logit where nothing asks for one: positions are found by their running number, which has to rise."""


def tolerated(values: FloatArray) -> FloatArray:
    """Return what errors are relative to: p itself, and next to 1 ten times 1 − p."""
    return np.minimum(values, 10.0 * (1.0 - values))


def short(values: FloatArray) -> FloatArray:
    """Return probabilities with ten significant digits, which shortens the file; those next to 1 as they are."""
    scale = _POWERS[np.floor(np.log10(values)).astype(np.int64)]
    return np.where(values < 0.9, np.round(values * scale) / scale, values)


class _Points(NamedTuple):
    """Points of curves one after the other, between which a curve is straight in logit space."""

    curve: IntArray
    logits: FloatArray
    calibrated: FloatArray


def place_knots(lines: Lines, error: float) -> Curves:
    """Return curves within `error`, relative to p, of the lines: one for each row of values."""
    number = len(lines.values)
    parts = [
        _placed(lines.rows(np.arange(start, min(start + _CURVES_PER_KNOT_BLOCK, number))), error)
        for start in range(0, number, _CURVES_PER_KNOT_BLOCK)
    ]
    sizes = np.concatenate([size for size, _, _ in parts])
    scores, values = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
    start = np.concatenate([[0], np.cumsum(sizes)])
    return Curves(scores, start, np.arange(number), values, start)


def _placed(lines: Lines, error: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return how many knots each curve has, then the scores and the probabilities of them all."""
    knots = _knots(_corners(lines), error)
    curve, x, y = knots
    run, rise = np.diff(x), np.diff(y)
    left = np.flatnonzero((curve[1:] == curve[:-1]) & ((np.maximum(run, rise) > _CLOSE) | (rise > _STEEP * run)))
    for _ in range(_MOST_REFINEMENTS):
        missed = left[_misses(knots.logits, knots.calibrated, left, error)]
        if not len(missed):
            break
        middle = (0.5 * (part[missed] + part[missed + 1]) for part in knots[1:])
        knots = _inserted(knots, missed, _Points(knots.curve[missed], *middle))
        # Only the halves of what was halved need another look.
        halves = missed + np.arange(len(missed))
        left = np.sort(np.concatenate([halves, halves + 1]))
    curve, x, y = knots
    scores, values = sigmoid(np.stack([x, y]))
    scores = clip_scores(scores)
    keep = np.ones(len(x), dtype=bool)
    # Two knots at one score would be a jump.
    keep[1:] = (np.diff(scores) > 0.0) | (curve[1:] != curve[:-1])
    curve, scores = curve[keep], scores[keep]
    values = short(clip_probabilities(values[keep]))
    # Rounding may let a curve fall by a unit in the last place.
    for fallen in np.unique(curve[1:][(np.diff(values) < 0.0) & (curve[1:] == curve[:-1])]):
        part = np.flatnonzero(curve == fallen)
        values[part] = np.maximum.accumulate(values[part])
    return np.bincount(curve, minlength=len(lines.values)), scores, values


def _corners(lines: Lines) -> _Points:
    """Return the points where the bounded lines change their slope, and others at most a step apart."""
    limit = min(lines.limit, LARGEST_LOGIT)
    marks = np.concatenate([lines.knots, [-limit, limit]])
    marks = np.unique(np.concatenate([[-LOGIT_EDGE, LOGIT_EDGE], marks[np.abs(marks) < LOGIT_EDGE]]))
    even = np.linspace(-LOGIT_EDGE, LOGIT_EDGE, 1 + int(np.ceil(2.0 * LOGIT_EDGE / _STEP)))[1:-1]
    wide = np.diff(marks)[np.searchsorted(marks, even, side="right") - 1] > _STEP
    grid = np.unique(np.concatenate([marks, even[wide]]))
    free = lines._replace(limit=np.inf).at(grid)
    number = len(free)
    bounds = np.minimum(grid, -limit), np.maximum(grid, limit)
    points = _Points(np.repeat(np.arange(number), len(grid)), np.tile(grid, number), np.clip(free, *bounds).ravel())
    # Between two points of the grid both a line and its bounds are straight: they cross at most once.
    indices, shares, values = [], [], []
    for bound in bounds:
        above = free - bound
        curve, piece = np.nonzero(above[:, :-1] * above[:, 1:] < 0.0)
        share = above[curve, piece] / (above[curve, piece] - above[curve, piece + 1])
        indices.append(curve * len(grid) + piece)
        shares.append(share)
        values.append(bound[piece] + share * (bound[piece + 1] - bound[piece]))
    index, share, value = (np.concatenate(parts) for parts in (indices, shares, values))
    order = np.lexsort((share, index))
    index, share, value = index[order], share[order], value[order]
    where = points.logits[index] + share * (points.logits[index + 1] - points.logits[index])
    return _inserted(points, index, _Points(points.curve[index], where, value))


def _inserted(points: _Points, index: IntArray, added: _Points) -> _Points:
    """Return the points with others inserted after those at the places."""
    if not len(index):
        return points
    return _Points(*(np.insert(old, index + 1, new) for old, new in zip(points, added, strict=True)))


def _knots(corners: _Points, error: float) -> _Points:
    """Return the corners at which the slope changes, and between them what knots the bend asks for."""
    curve, x, y = corners
    width = np.diff(x)
    inside = (curve[1:] == curve[:-1]) & (width > 0.0)
    slope = np.divide(np.diff(y), width, out=np.zeros_like(width), where=inside)
    p, s = sigmoid(np.stack([y, x]))
    scale = p * (1.0 - p) / tolerated(p)
    away, along = 1.0 - 2.0 * p, 1.0 - 2.0 * s
    bend = np.maximum(
        scale[:-1] * np.abs(slope * away[:-1] - along[:-1]), scale[1:] * np.abs(slope * away[1:] - along[1:])
    )
    asked = np.sqrt(slope * bend / (8.0 * _FILLED * error)) * width
    asked = np.where(inside, np.maximum(asked, _LEAST_KNOTS_PER_LOGIT * width), 0.0)
    corner = np.ones(len(x), dtype=bool)
    change = np.abs(np.diff(slope)) > 1e-9 * np.maximum(slope[1:], slope[:-1])
    corner[1:-1] = change | ~inside[1:] | ~inside[:-1]
    # Between two corners there is a whole number of chords; the running number of chords finds the knots.
    starts = np.flatnonzero(corner)
    wanted = np.add.reduceat(np.append(asked, 0.0), starts)
    chords = np.where(wanted > 0.0, np.ceil(wanted), 1.0)
    group = np.cumsum(corner) - 1
    run = np.concatenate([[0.0], np.cumsum(asked)])
    share = (run - run[starts][group]) / np.where(wanted > 0.0, wanted, 1.0)[group]
    first = np.concatenate([[0.0], np.cumsum(chords[:-1])])
    level = first[group] + chords[group] * np.clip(share, 0.0, 1.0)
    number = np.arange(int(first[-1]) + 1)
    owner = np.repeat(curve[starts], np.diff(np.append(first, number[-1] + 1)).astype(np.int64))
    return _Points(owner, np.interp(number, level, x), np.interp(number, level, y))


def _misses(x: FloatArray, y: FloatArray, left: IntArray, error: float) -> MaskArray:
    """Return whether the chord that starts at each of the knots misses the curve by more than is allowed."""
    one, two = np.stack([x[left], y[left]]), np.stack([x[left + 1], y[left + 1]])
    (s, p), (s_next, p_next), (middle, exact) = sigmoid(np.stack([one, two, 0.5 * (one + two)]))
    run = s_next - s
    share = np.divide(middle - s, run, out=np.zeros_like(run), where=run > 0.0)
    # Next to 1 a probability is itself known to no more than rounding.
    allowed = 0.95 * error * tolerated(exact) + _ROUNDING
    missed: MaskArray = np.abs(p + share * (p_next - p) - exact) > allowed
    return missed


# Compile any functions: evaluate them densely, guarantee the order, keep few knots within an error bound.

DEFAULT_ERROR = 1e-4
"""The error that a compiled curve may have, relative to p (next to 1: to 10·(1 − p)), against its function."""

DENSE_PER_LOGIT = 64
"""How closely functions are looked at to be compiled, at the least, in points per unit of logit."""
_CURVES_PER_BLOCK = 256
"""How many curves are compiled at the same time, to bound the memory."""
MOST_CURVES_WITH_OWN_KNOTS = 2_000
"""With more curves than this, all share one grid of knots."""
_MOST_SHARED_VALUES = 10_000_000
"""How many probabilities the curves on a shared grid may have in all."""
_MOST_CURVES_MEASURED = 2_000
"""Of curves on a shared grid, the error is measured on this many, spread evenly over all."""
_CURVES_WORTH_ARRAYS = 16
"""From this many curves on, choosing their knots together in arrays is faster than one by one."""


def dense_scores(
    breaks: FloatArray | None = None,
    jumps: FloatArray | None = None,
    *,
    error: float = DEFAULT_ERROR,
    per_logit: int = DENSE_PER_LOGIT,
) -> FloatArray:
    """Return the scores at which a function is looked at to be compiled, in order.

    They are dense everywhere in logit space and include every break (a kink of the function) once and every jump twice:
    the function gives its left value at the first of the two and its right value at the second.
    """
    # A line misses a smooth function by the square of the distance of its ends.
    dense = per_logit * max(math.sqrt(DEFAULT_ERROR / error), 1.0)
    scores = _even_scores(int(2 * LOGIT_EDGE * dense))
    more = [] if breaks is None else [clip_scores(breaks)]
    twice = clip_scores(np.unique(jumps)) if jumps is not None else np.empty(0)
    once = np.setdiff1d(np.unique(np.concatenate([scores, *more])), twice)
    return np.sort(np.concatenate([once, twice, twice]))


@cache
def _even_scores(number: int) -> FloatArray:
    """Return scores at equal distances in logit space."""
    scores = clip_scores(sigmoid(np.linspace(-LOGIT_EDGE, LOGIT_EDGE, number)))
    scores.flags.writeable = False  # it is kept
    return scores


@dataclass(frozen=True)
class Projection:
    """What the order guarantee had to move: how many curves, and by how much at most."""

    curves: int
    largest: float


def project_monotone(values: FloatArray, mass: FloatArray) -> tuple[FloatArray, Projection]:
    """Return the closest non-decreasing rows, in weighted least squares, and what had to move.

    `values` has one row per curve; `mass` (one row, or one per curve) says where the data are, so that a violation is
    corrected where it costs least.
    """
    from scipy.optimize import isotonic_regression

    result = values.copy()
    falling = np.flatnonzero((np.diff(values, axis=1) < 0.0).any(axis=1))
    for row in falling:
        weights = mass if mass.ndim == 1 else mass[row]
        # A tiny weight everywhere keeps the projection defined where there are no data.
        fitted = isotonic_regression(values[row], weights=weights + 1e-9 * (weights.mean() or 1.0)).x
        result[row] = np.maximum.accumulate(fitted)
    largest = float(np.abs(result - values).max()) if len(falling) else 0.0
    return result, Projection(len(falling), largest)


def compile_table(scores: FloatArray, values: FloatArray, error: float = DEFAULT_ERROR) -> Curves:
    """Return curves with few knots through the tabulated functions, one row of `values` each.

    Between the chosen knots a straight line stays within `error`, relative to p, of every tabulated value.
    A knot is placed greedily: a line from the last knot is stretched as far as the cone of slopes allowed by the points
    passed over permits.
    """
    values = clip_probabilities(values)
    # Half of the bound is kept for what happens between two points of the table.
    keep = _stretch(scores, values, 0.5 * error * tolerated(values))
    return Curves.of([(scores[mask], short(row[mask])) for mask, row in zip(keep, values, strict=True)])


def compile_functions(
    function: Callable[[IntArray, FloatArray], FloatArray],
    number: int,
    *,
    breaks: FloatArray | None = None,
    error: float = DEFAULT_ERROR,
) -> Curves:
    """Return the curves of p = σ(function(which, logits)) for which = 0 … number − 1.

    `function` takes a column of curve numbers and a row of logits and returns a logit for every pair. It must not fall.
    """
    pairs = []
    for start in range(0, number, _CURVES_PER_BLOCK):
        which = np.arange(start, min(start + _CURVES_PER_BLOCK, number))[:, None]
        scores, values = _look(partial(function, which), dense_scores(breaks, error=error), error)
        # Rounding may let the sum of a few terms fall by a unit in the last place.
        pairs += compile_table(scores, np.maximum.accumulate(values, axis=1), error).pairs()
    return Curves.of(pairs)


def compile_lines(lines: Lines, *, of: int | None = None) -> Curves:
    """Return the curves of lines in logit space.

    Up to a few thousand curves get their own knots, within `DEFAULT_ERROR`. More share one grid, as fine as a bounded
    memory allows. Where these are a part of more curves, of which there are `of`, they are made as these would be.
    """
    number = len(lines.values) if of is None else of
    if number <= MOST_CURVES_WITH_OWN_KNOTS:
        return place_knots(lines, DEFAULT_ERROR)
    logits = _shared_logits(lines.knots, _MOST_SHARED_VALUES // number)
    values = np.empty((len(lines.values), len(logits)))
    for start in range(0, len(values), _CURVES_PER_BLOCK):
        block = slice(start, start + _CURVES_PER_BLOCK)
        np.maximum.accumulate(clip_probabilities(sigmoid(lines.rows(block).at(logits))), axis=1, out=values[block])
    return Curves.sharing(sigmoid(logits), values)


def compiled_error(lines: Lines) -> float:
    """Return the largest relative error that `compile_lines` leaves inside the lines' knots.

    On a shared grid it is measured on a sample of the curves.
    """
    number = len(lines.values)
    if number <= MOST_CURVES_WITH_OWN_KNOTS:
        return DEFAULT_ERROR
    logits = _shared_logits(lines.knots, _MOST_SHARED_VALUES // number)
    inside = logits[(logits >= lines.knots[0]) & (logits <= lines.knots[-1])]
    middles = 0.5 * (inside[1:] + inside[:-1])
    worst = 0.0
    measured = np.linspace(0, number - 1, min(number, _MOST_CURVES_MEASURED)).astype(np.int64)
    for start in range(0, len(measured), _CURVES_PER_BLOCK):
        part = lines.rows(measured[start : start + _CURVES_PER_BLOCK])
        exact, ends = (clip_probabilities(sigmoid(part.at(points))) for points in (middles, inside))
        share = (sigmoid(middles) - sigmoid(inside[:-1])) / np.diff(sigmoid(inside))
        straight = ends[:, :-1] * (1.0 - share) + ends[:, 1:] * share
        worst = max(worst, float((np.abs(straight - exact) / tolerated(exact)).max(initial=0.0)))
    return worst


def family_curves(family: CurveFamily, table: CodeArray) -> tuple[Curves, float]:
    """Return the curve of no known value, then one for each row of codes; and their largest relative error."""
    nothing = np.full((1, family.fields), -1, dtype=np.int64)
    codes = np.concatenate([nothing, table.astype(np.int64)]) if family.fields else nothing
    lines = family.lines(codes)
    return compile_lines(lines), compiled_error(lines)


def _shared_logits(knots: FloatArray, budget: int) -> FloatArray:
    """Return the logits of a grid for many curves: even between the lines' own knots, four to a unit beyond them."""
    width = float(knots[-1] - knots[0])
    left = np.arange(-LOGIT_EDGE, knots[0], 0.25)
    right = np.arange(LOGIT_EDGE, knots[-1], -0.25)[::-1]
    steps = int(np.clip(budget - len(left) - len(right) - len(knots), 16, DENSE_PER_LOGIT * max(width, 1.0)))
    even = np.linspace(knots[0], knots[-1], steps)
    grid: FloatArray = np.unique(np.concatenate([left, even, knots, right]))
    return np.clip(grid, -LOGIT_EDGE, LOGIT_EDGE)


def _look(
    function: Callable[[FloatArray], FloatArray], scores: FloatArray, error: float
) -> tuple[FloatArray, FloatArray]:
    """Return the scores, more of them where a line between two would miss the function, and its probabilities."""

    logits = logit(scores)
    values = clip_probabilities(sigmoid(function(logits)))
    left = np.flatnonzero(np.diff(scores) > 1e-12 * scores[1:])
    for _ in range(_MOST_REFINEMENTS):
        between = 0.5 * (logits[left] + logits[left + 1])
        middle = sigmoid(between)
        result = clip_probabilities(sigmoid(function(between)))
        share = (middle - scores[left]) / (scores[left + 1] - scores[left])
        line = values[:, left] + share * (values[:, left + 1] - values[:, left])
        # Next to 1 a probability is itself known to no more than rounding.
        allowed = 0.5 * error * tolerated(result) + _ROUNDING
        missed = (np.abs(line - result) > allowed).any(axis=0)
        if not missed.any():
            break
        added = middle[missed]
        order = np.argsort(np.concatenate([scores, added]), kind="stable")
        scores = np.concatenate([scores, added])[order]
        logits = np.concatenate([logits, between[missed]])[order]
        values = np.concatenate([values, result[:, missed]], axis=1)[:, order]
        # Only the halves of what was halved need another look.
        fresh = np.searchsorted(scores, added)
        left = np.unique(np.concatenate([fresh - 1, fresh]))
        left = left[scores[left + 1] - scores[left] > 1e-12 * scores[left + 1]]
    return scores, values


def _stretch(scores: FloatArray, values: FloatArray, allowed: FloatArray) -> MaskArray:
    """Return which points become knots, one row per curve."""
    if len(values) >= _CURVES_WORTH_ARRAYS:
        return _stretch_together(scores, values, allowed)
    x = scores.tolist()
    return np.array([_stretch_one(x, y.tolist(), a.tolist()) for y, a in zip(values, allowed, strict=True)])


def _stretch_one(x: list[float], y: list[float], allowed: list[float]) -> list[bool]:
    """Choose the knots of one curve; plain numbers are faster than arrays of length one."""
    keep = [False] * len(x)
    keep[0] = keep[-1] = True
    anchor_x, anchor_y, low, high = x[0], y[0], -math.inf, math.inf
    for i in range(1, len(x)):
        if x[i] == x[i - 1]:
            keep[i - 1] = keep[i] = True
            anchor_x, anchor_y, low, high = x[i], y[i], -math.inf, math.inf
            continue
        if not low <= (y[i] - anchor_y) / (x[i] - anchor_x) <= high:
            keep[i - 1] = True
            anchor_x, anchor_y, low, high = x[i - 1], y[i - 1], -math.inf, math.inf
        run, rise = x[i] - anchor_x, y[i] - anchor_y
        low = max(low, (rise - allowed[i]) / run)
        high = min(high, (rise + allowed[i]) / run)
    return keep


def _stretch_together(scores: FloatArray, values: FloatArray, allowed: FloatArray) -> MaskArray:
    """Choose the knots of many curves, all walked together."""
    number, points = values.shape
    keep = np.zeros((number, points), dtype=bool)
    keep[:, [0, -1]] = True
    anchor_x = np.full(number, scores[0])
    anchor_y = values[:, 0].copy()
    low, high = np.full(number, -np.inf), np.full(number, np.inf)
    by_point, allowance = np.ascontiguousarray(values.T), np.ascontiguousarray(allowed.T)
    for i in range(1, points):
        run = scores[i] - anchor_x
        rise = by_point[i] - anchor_y
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = rise / run
            fits = (slope >= low) & (slope <= high)
        if scores[i] == scores[i - 1]:
            fits[:] = False
        if not fits.all():
            # The line cannot reach this point: it ends at the one before, and the next line starts there.
            broken = ~fits
            keep[broken, i - 1] = True
            anchor_x[broken] = scores[i - 1]
            anchor_y[broken] = by_point[i - 1][broken]
            low[broken], high[broken] = -np.inf, np.inf
            run = scores[i] - anchor_x
            rise = by_point[i] - anchor_y
        if scores[i] == scores[i - 1]:
            # A jump: the line starts afresh on its right side.
            keep[:, i] = True
            anchor_x[:] = scores[i]
            anchor_y[:] = by_point[i]
            low[:], high[:] = -np.inf, np.inf
            continue
        low = np.maximum(low, (rise - allowance[i]) / run)
        high = np.minimum(high, (rise + allowance[i]) / run)
    return keep
