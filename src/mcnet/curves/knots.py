"""Place the knots of curves that are piecewise linear in logit space: more where a curve bends more.

A line of slope β takes the score s = σ(x) to p = σ(α + βx). A chord between two knots misses p by the square of
their distance times p''(s) / 8, and

    p''(s) · (ds/dx)² = β p (1 − p) · (β (1 − 2p) − (1 − 2s)),

so the density of knots that just keeps the bound is known everywhere, and all curves get theirs at once. The formula is
exact for close knots only; a long or steep chord is checked at its middle, and halved where it misses.
"""

from typing import NamedTuple

import numpy as np

from mcnet._shared.math import PROBABILITY_FLOOR, SCORE_FLOOR, sigmoid
from mcnet._shared.typing import FloatArray, IntArray, MaskArray
from mcnet.curves.curves import Curves
from mcnet.curves.family import Lines

__all__ = ["LOGIT_EDGE", "place_knots", "short", "tolerated"]

LOGIT_EDGE = float(np.log1p(-SCORE_FLOOR) - np.log(SCORE_FLOOR))
"""The logit of the highest score, and minus that of the lowest."""
_LARGEST = float(np.log1p(-PROBABILITY_FLOOR) - np.log(PROBABILITY_FLOOR))
_STEP = 0.4
"""How far apart, at most, the bend is looked at, in logits."""
_FILLED = 0.8
"""The share of the bound that knots are placed for; the rest is for what the density does not know."""
_CLOSE = 0.1
"""Up to this many logits, of the score and calibrated, the bend along a chord is as good as constant."""
_STEEP = 2.0
"""On a line of this slope the bend may change within a step."""
_CURVES_PER_BLOCK = 128
"""Curves worked on at the same time: few enough for the cache."""
_MOST_REFINEMENTS = 24
"""How often knots may be added where a line misses the function."""
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

    def between(self) -> MaskArray:
        """Return whether a point and its follower are of the same curve."""
        return np.equal(self.curve[1:], self.curve[:-1])


def place_knots(lines: Lines, error: float) -> Curves:
    """Return curves within `error`, relative to p, of the lines: one for each row of values."""
    number = len(lines.values)
    parts = [
        _placed(lines.rows(np.arange(start, min(start + _CURVES_PER_BLOCK, number))), error)
        for start in range(0, number, _CURVES_PER_BLOCK)
    ]
    sizes = np.concatenate([size for size, _, _ in parts])
    scores, values = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
    start = np.concatenate([[0], np.cumsum(sizes)])
    return Curves(scores, start, np.arange(number), values, start)


def _placed(lines: Lines, error: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return how many knots each curve has, then the scores and the probabilities of them all."""
    knots = _knots(_corners(lines), error)
    _, x, y = knots
    run, rise = np.diff(x), np.diff(y)
    left = np.flatnonzero(knots.between() & ((np.maximum(run, rise) > _CLOSE) | (rise > _STEEP * run)))
    for _ in range(_MOST_REFINEMENTS):
        missed = left[_misses(knots.logits, knots.calibrated, left, error)]
        if not len(missed):
            break
        middle = (0.5 * (part[missed] + part[missed + 1]) for part in knots[1:])
        knots = _inserted(knots, missed, _Points(knots.curve[missed], *middle))
        # Only the halves of what was halved need another look.
        halves = missed + np.arange(len(missed))
        left = np.sort(np.concatenate([halves, halves + 1]))
    return _probabilities(knots, len(lines.values))


def _corners(lines: Lines) -> _Points:
    """Return the points where the bounded lines change their slope, and others at most a step apart."""
    limit = min(lines.limit, _LARGEST)
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
    places, shares, values = [], [], []
    for bound in bounds:
        above = free - bound
        curve, piece = np.nonzero(above[:, :-1] * above[:, 1:] < 0.0)
        share = above[curve, piece] / (above[curve, piece] - above[curve, piece + 1])
        places.append(curve * len(grid) + piece)
        shares.append(share)
        values.append(bound[piece] + share * (bound[piece + 1] - bound[piece]))
    place, share, value = (np.concatenate(parts) for parts in (places, shares, values))
    order = np.lexsort((share, place))
    place, share, value = place[order], share[order], value[order]
    where = points.logits[place] + share * (points.logits[place + 1] - points.logits[place])
    return _inserted(points, place, _Points(points.curve[place], where, value))


def _inserted(points: _Points, place: IntArray, added: _Points) -> _Points:
    """Return the points with others inserted after those at the places."""
    if not len(place):
        return points
    return _Points(*(np.insert(old, place + 1, new) for old, new in zip(points, added, strict=True)))


def _knots(corners: _Points, error: float) -> _Points:
    """Return the corners at which the slope changes, and between them what knots the bend asks for."""
    curve, x, y = corners
    inside = corners.between()
    width = np.diff(x)
    inside &= width > 0.0
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


def _probabilities(knots: _Points, number: int) -> tuple[IntArray, FloatArray, FloatArray]:
    curve, x, y = knots
    scores, values = sigmoid(np.stack([x, y]))
    scores = np.clip(scores, SCORE_FLOOR, 1.0 - SCORE_FLOOR)
    keep = np.ones(len(x), dtype=bool)
    # Two knots at one score would be a jump.
    keep[1:] = (np.diff(scores) > 0.0) | ~knots.between()
    curve, scores = curve[keep], scores[keep]
    values = short(np.clip(values[keep], PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR))
    # Rounding may let a curve fall by a unit in the last place.
    for fallen in np.unique(curve[1:][(np.diff(values) < 0.0) & (curve[1:] == curve[:-1])]):
        part = np.flatnonzero(curve == fallen)
        values[part] = np.maximum.accumulate(values[part])
    return np.bincount(curve, minlength=number), scores, values
