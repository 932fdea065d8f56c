"""Compile fitted functions to curves: a dense look, an order guarantee, and few knots within an error bound."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet.curves.curves import Curves
from mcnet.curves.family import CurveFamily, Lines
from mcnet.rows.columns import PROBABILITY_FLOOR, SCORE_FLOOR, FloatArray, clip_scores, logit, sigmoid

__all__ = [
    "DEFAULT_ERROR",
    "Projection",
    "compile_functions",
    "compile_lines",
    "compile_table",
    "dense_scores",
    "family_curves",
    "project_monotone",
]

DEFAULT_ERROR = 1e-4
"""The relative error, of p and of 1 − p, that a compiled curve may have against the function it stands for."""

DENSE_PER_LOGIT = 64
"""How closely functions are looked at to be compiled, in points a unit of logit."""
_LOGIT_EDGE = -float(logit(np.array([SCORE_FLOOR]))[0])
_TOGETHER = 256
_SHARED_FROM = 2_000
_MOST_KNOTS = 10_000_000


def dense_scores(
    breaks: FloatArray | None = None, jumps: FloatArray | None = None, per_logit: int = DENSE_PER_LOGIT
) -> FloatArray:
    """Return the scores at which a function is looked at to be compiled, in order.

    They are dense everywhere in logit space and include every break (a kink of the function) once and every jump twice:
    the function gives its left value at the first of the two and its right value at the second.
    """
    even = np.linspace(-_LOGIT_EDGE, _LOGIT_EDGE, int(2 * _LOGIT_EDGE * per_logit))
    scores = clip_scores(sigmoid(even))
    more = [] if breaks is None else [clip_scores(breaks)]
    twice = clip_scores(np.unique(jumps)) if jumps is not None else np.empty(0)
    once = np.setdiff1d(np.unique(np.concatenate([scores, *more])), twice)
    return np.sort(np.concatenate([once, twice, twice]))


@dataclass(frozen=True)
class Projection:
    """What the order guarantee had to move: how many curves, and by how much at most."""

    curves: int
    largest: float


def project_monotone(values: FloatArray, mass: FloatArray) -> tuple[FloatArray, Projection]:
    """Return the closest non-decreasing rows, in weighted least squares, and what had to move.

    `values` has one row a curve; `mass` (one row, or one a curve) says where the data are, so that a violation is
    mended where it costs least.
    """
    from scipy.optimize import isotonic_regression

    result = values.copy()
    falling = np.flatnonzero((np.diff(values, axis=1) < 0.0).any(axis=1))
    for row in falling:
        weights = mass if mass.ndim == 1 else mass[row]
        # A whisper of weight everywhere keeps the projection defined where there are no data.
        fitted = isotonic_regression(values[row], weights=weights + 1e-9 * (weights.mean() or 1.0)).x
        result[row] = np.maximum.accumulate(fitted)
    largest = float(np.abs(result - values).max()) if len(falling) else 0.0
    return result, Projection(len(falling), largest)


def compile_table(scores: FloatArray, values: FloatArray, error: float = DEFAULT_ERROR) -> Curves:
    """Return curves with few knots through the tabulated functions, one row of `values` each.

    Between the chosen knots a straight line stays within `error`, relative to min(p, 1 − p), of every tabulated value.
    """
    values = np.clip(values, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    keep = _stretch(scores, np.ascontiguousarray(values.T), error)
    return Curves.of([(scores[mask], row[mask]) for mask, row in zip(keep, values, strict=True)])


def compile_functions(
    function: Callable[[NDArray[np.int64], FloatArray], FloatArray],
    number: int,
    *,
    breaks: FloatArray | None = None,
    error: float = DEFAULT_ERROR,
) -> Curves:
    """Return the curves of p = σ(function(which, logits)) for which = 0 … number − 1.

    `function` takes a column of curve numbers and a row of logits and returns a logit for every pair. It must not fall.
    """
    scores = dense_scores(breaks)
    logits = logit(scores)
    pairs = []
    for start in range(0, number, _TOGETHER):  # many curves are looked at in blocks, to bound the memory
        which = np.arange(start, min(start + _TOGETHER, number))[:, None]
        pairs += compile_table(scores, sigmoid(function(which, logits)), error).pairs()
    return Curves.of(pairs)


def compile_lines(lines: Lines, error: float = DEFAULT_ERROR) -> tuple[Curves, float]:
    """Return the curves of lines in logit space, and the largest relative error they have inside the lines' knots.

    Up to a few thousand curves get knots of their own, within `error`. More share one grid, as fine as a bounded memory
    allows; what error that leaves is measured.
    """
    number = len(lines.values)
    if number <= _SHARED_FROM:
        breaks = _steep_scores(lines)
        curves = compile_functions(lambda which, l: lines.rows(which[:, 0]).at(l), number, breaks=breaks, error=error)
        return curves, error
    logits = _shared_logits(lines.knots, _MOST_KNOTS // number)
    values = np.maximum.accumulate(sigmoid(lines.at(logits)), axis=1)
    curves = Curves.sharing(sigmoid(logits), np.clip(values, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR))
    inside = logits[(logits >= lines.knots[0]) & (logits <= lines.knots[-1])]
    middles = 0.5 * (inside[1:] + inside[:-1])
    worst = 0.0
    for start in range(0, number, _TOGETHER):
        part = lines.rows(np.arange(start, min(start + _TOGETHER, number)))
        exact, ends = sigmoid(part.at(middles)), sigmoid(part.at(inside))
        share = (sigmoid(middles) - sigmoid(inside[:-1])) / np.diff(sigmoid(inside))
        straight = ends[:, :-1] * (1.0 - share) + ends[:, 1:] * share
        worst = max(worst, float((np.abs(straight - exact) / np.minimum(exact, 1.0 - exact)).max(initial=0.0)))
    return curves, worst


def family_curves(family: CurveFamily, table: NDArray[np.int32]) -> tuple[Curves, float]:
    """Return the curve of no known value, then one for each row of codes; and their largest relative error."""
    nothing = np.full((1, family.fields), -1, dtype=np.int64)
    codes = np.concatenate([nothing, table.astype(np.int64)]) if family.fields else nothing
    return compile_lines(family.lines(codes))


def _steep_scores(lines: Lines) -> FloatArray:
    """Return the lines' own knots, and more points between them where a line is steep."""
    ends = np.concatenate([[-_LOGIT_EDGE], lines.knots, [_LOGIT_EDGE]])
    ends = np.unique(np.clip(ends, -_LOGIT_EDGE, _LOGIT_EDGE))
    heights = lines.at(ends)
    steepest = (np.diff(heights, axis=1) / np.diff(ends)).max(axis=0)
    parts = [ends]
    for low, high, slope in zip(ends[:-1], ends[1:], np.minimum(steepest, 16.0), strict=True):
        if slope > 1.0:
            parts.append(np.linspace(low, high, int(np.ceil((high - low) * DENSE_PER_LOGIT * slope)) + 1))
    return sigmoid(np.concatenate(parts))


def _shared_logits(knots: FloatArray, budget: int) -> FloatArray:
    """Return the logits of a grid for many curves: even between the lines' own knots, four to a unit beyond them."""
    width = float(knots[-1] - knots[0])
    left = np.arange(-_LOGIT_EDGE, knots[0], 0.25)
    right = np.arange(_LOGIT_EDGE, knots[-1], -0.25)[::-1]
    steps = int(np.clip(budget - len(left) - len(right) - len(knots), 16, DENSE_PER_LOGIT * max(width, 1.0)))
    even = np.linspace(knots[0], knots[-1], steps)
    grid: FloatArray = np.unique(np.concatenate([left, even, knots, right]))
    return np.clip(grid, -_LOGIT_EDGE, _LOGIT_EDGE)


def _stretch(scores: FloatArray, by_point: FloatArray, error: float) -> NDArray[np.bool_]:
    """Return which points to keep as knots, a row a curve; `by_point[i]` are the values of all curves at point i.

    A line from the last knot is stretched as far as the cone of slopes permits that the points passed over allow. All
    curves are walked at once.
    """
    before = by_point[0]
    keep = np.zeros((len(before), len(scores)), dtype=bool)
    keep[:, [0, -1]] = True
    anchor_x, anchor_y = np.full(len(before), scores[0]), before.copy()
    low, high = np.full(len(before), -np.inf), np.full(len(before), np.inf)
    for i, here in enumerate(by_point[1:], start=1):
        jump = scores[i] == scores[i - 1]
        if jump:
            broken = np.ones(len(here), dtype=bool)
        else:
            slope = (here - anchor_y) / (scores[i] - anchor_x)
            broken = (slope < low) | (slope > high)
        if broken.any():
            # The line cannot reach this point: it ends at the one before, and the next line starts there.
            keep[broken, i - 1] = True
            anchor_x[broken], anchor_y[broken] = scores[i - 1], before[broken]
            low[broken], high[broken] = -np.inf, np.inf
        if jump:
            keep[:, i] = True
            anchor_x[:], anchor_y[:] = scores[i], here
        else:
            run, rise = scores[i] - anchor_x, here - anchor_y
            # Half of the bound is kept for what happens between two points of the table.
            allowed = 0.5 * error * np.minimum(here, 1.0 - here)
            low = np.maximum(low, (rise - allowed) / run)
            high = np.minimum(high, (rise + allowed) / run)
        before = here
    return keep
