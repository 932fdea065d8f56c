"""Evaluate a family of curves in contexts that have no compiled curve, with the order of scores exact.

Rounding must not let a curve fall, whatever the context and the processor. So every context is evaluated on one fixed
grid of scores and a row is interpolated between the two grid points around its score, exactly as a compiled curve is.
The value at a grid point needs no look at its neighbours, because each step that computes it is monotone in floating
point:

* the calibrated logit at a grid point is a running sum of non-negative rises plus slope · distance, cut off at the
  next panel's start; sums and products of ordered numbers stay ordered when rounded;
* it is rounded to a multiple of 2⁻²⁶; two different multiples give exponentials apart by 10⁻⁸ of their size, while
  the exponential function is computed to 10⁻¹⁵, so their order cannot change either.

The terms of a sum are added one by one in a fixed order and not by a matrix product, whose rounding depends on the
number of rows and on the processor.
"""

from bisect import bisect_right
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import PROBABILITY_FLOOR, clip_scores, logit, sigmoid
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.curves.family import CurveFamily, believable

__all__ = ["FamilyEvaluator"]

GRID_POINTS_PER_LOGIT = 512
"""At this distance a chord is within 1e-4, relative to p, of any curve of a slope up to 14."""
CONTEXTS_PER_BLOCK = 4_096
"""Contexts computed at a time, to bound the memory."""
REMEMBERED_CONTEXTS = 4_096
"""Contexts of single rows that are kept, about 4 kB each."""

_ROUNDING = 2.0**26
_LARGEST_LOGIT = float(np.log1p(-PROBABILITY_FLOOR) - np.log(PROBABILITY_FLOOR))


class _Contexts(NamedTuple):
    """Curves of contexts: calibrated logits at the family's knots `[contexts, knots]`, slopes `[contexts, panels]`."""

    values: FloatArray
    slopes: FloatArray


class FamilyEvaluator:
    """Evaluates one family again and again; keeps the grid and the contexts last asked for one by one."""

    def __init__(self, family: CurveFamily) -> None:
        """Start without a grid; it is made when first needed."""
        self.family = family
        self._remembered: dict[tuple[int, ...], tuple[list[float], list[float]]] = {}

    @cached_property
    def _grid(self) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """Return scores, logits, panels and signed distances from the panel's knot of all grid points, in order."""
        low, high = logit(clip_scores(np.array([0.0, 1.0])))
        knots = self.family.knots
        even = np.linspace(low, high, int((high - low) * GRID_POINTS_PER_LOGIT) + 1)
        logits = np.unique(np.concatenate([even, knots[(knots > low) & (knots < high)]]))
        scores = clip_scores(sigmoid(logits))
        scores[0], scores[-1] = clip_scores(np.array([0.0, 1.0]))
        rising = np.concatenate([[True], np.diff(np.maximum.accumulate(scores)) > 0.0])
        scores, logits = scores[rising], logits[rising]
        panel = np.searchsorted(knots, logits, side="right")
        return scores, logits, panel, logits - knots[np.maximum(panel - 1, 0)]

    @cached_property
    def _common(self) -> FloatArray:
        return np.append(self.family.log_slope, self.family.offset)

    @cached_property
    def _by_number(self) -> FloatArray:
        return np.column_stack([self.family.log_slope_by.T, self.family.offset_by])

    def predict(self, scores: FloatArray, codes: NDArray[Any]) -> FloatArray:
        """Return the probability of each row from its score and its codes `[rows, fields]`.

        Parameters
        ----------
        scores : a column of scores in [0, 1].
        codes : the codes of the row's values; a negative code is an unseen value.

        Returns
        -------
        Probabilities that never fall when the score rises; a row has the same one in every batch.
        """
        codes = np.asarray(codes, dtype=np.int64).reshape(len(scores), self.family.fields)
        result = np.empty(len(scores))
        order, first, which = _groups(codes)
        for start in range(0, len(first), CONTEXTS_PER_BLOCK):
            stop = min(start + CONTEXTS_PER_BLOCK, len(first))
            begin, end = np.searchsorted(which, [start, stop])
            rows = order[begin:end]
            contexts = self._contexts(codes[order[first[start:stop]]])
            result[rows] = self._rows(contexts, which[begin:end] - start, clip_scores(scores[rows]))
        return result

    def predict_one(self, score: float, codes: tuple[int, ...]) -> float:
        """Return what `predict` gives for one row."""
        remembered = self._remembered.get(codes)
        if remembered is None:
            if len(self._remembered) >= REMEMBERED_CONTEXTS:
                self._remembered.clear()
            values, slopes = self._contexts(np.array([codes], dtype=np.int64))
            remembered = self._remembered[codes] = values[0].tolist(), slopes[0].tolist()
        scores, limit = self._scores, min(self.family.limit, _LARGEST_LOGIT)
        score = min(max(score, scores[0]), scores[-1])
        left = min(bisect_right(scores, score) - 1, len(scores) - 2)
        # The steps of `_at` in plain numbers, which are the same to the bit; the exponential is NumPy's in both.
        logits = np.array([_one_logit(remembered, self._grid, point, limit) for point in (left, left + 1)])
        low, high = _monotone_sigmoid(logits).tolist()
        slope = (high - low) / (scores[left + 1] - scores[left])
        return float(min(slope * (score - scores[left]) + low, high))

    @cached_property
    def _scores(self) -> list[float]:
        scores: list[float] = self._grid[0].tolist()
        return scores

    def _contexts(self, codes: IntArray) -> _Contexts:
        family = self.family
        moved = family.moved(codes)
        # One column more: the offset is summed up beside the log-slopes.
        sums = np.repeat(self._common[None, :], len(codes), axis=0)
        if len(codes) == 1:
            terms = np.concatenate([sums, moved[0, :, None] * self._by_number])
            sums = np.add.accumulate(terms, axis=0)[-1:]
        else:
            for number, by_number in enumerate(self._by_number):
                sums += moved[:, number, None] * by_number
        offsets, slopes = sums[:, -1], np.exp(sums[:, :-1])
        climbed = np.zeros((len(codes), len(family.knots)))
        np.cumsum(slopes[:, 1:-1] * np.diff(family.knots), axis=1, out=climbed[:, 1:])
        return _Contexts((offsets - climbed[:, family.origin])[:, None] + climbed, slopes)

    def _rows(self, contexts: _Contexts, which: IntArray, scores: FloatArray) -> FloatArray:
        grid = self._grid[0]
        left = np.minimum(np.searchsorted(grid, scores, side="right") - 1, len(grid) - 2)
        low, high = self._at(contexts, which, left), self._at(contexts, which, left + 1)
        slope = (high - low) / (grid[left + 1] - grid[left])
        # Rounding may carry a line past its end by one unit in the last place.
        result: FloatArray = np.minimum(slope * (scores - grid[left]) + low, high)
        return result

    def _at(self, contexts: _Contexts, which: IntArray, point: IntArray) -> FloatArray:
        """Return the probability of each row's context at a point of the grid."""
        _, logits, panels, distances = self._grid
        panel, x = panels[point], logits[point]
        last = contexts.values.shape[1] - 1
        start = contexts.values[which, np.maximum(panel - 1, 0)]
        calibrated = start + contexts.slopes[which, panel] * distances[point]
        end = contexts.values[which, np.minimum(panel, last)]
        calibrated = np.where(panel <= last, np.minimum(calibrated, end), calibrated)
        calibrated = believable(calibrated, x, min(self.family.limit, _LARGEST_LOGIT))
        return _monotone_sigmoid(np.rint(calibrated * _ROUNDING) / _ROUNDING)


def _one_logit(
    context: tuple[list[float], list[float]],
    grid: tuple[FloatArray, FloatArray, IntArray, FloatArray],
    point: int,
    limit: float,
) -> float:
    """Return the rounded calibrated logit of one context at a point of the grid."""
    values, slopes = context
    x, panel, distance = grid[1].item(point), grid[2].item(point), grid[3].item(point)
    calibrated = values[max(panel - 1, 0)] + slopes[panel] * distance
    if panel < len(values):
        calibrated = min(calibrated, values[panel])
    calibrated = min(max(calibrated, min(x, -limit)), max(x, limit))
    return round(calibrated * _ROUNDING) / _ROUNDING


def _monotone_sigmoid(logits: FloatArray) -> FloatArray:
    """Return the sigmoid of multiples of 2⁻²⁶; the smaller of p and 1 − p is computed, which keeps their order."""
    small = np.exp(-np.abs(logits))
    rarer = small / (1.0 + small)
    p = np.where(logits > 0.0, 1.0 - rarer, rarer)
    return np.clip(p, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)


def _groups(codes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return rows ordered by context, where each context starts in that order, and the context of each ordered row."""
    order = np.lexsort(codes.T[::-1]) if codes.shape[1] else np.arange(len(codes))
    ordered = codes[order]
    starts = np.ones(len(codes), dtype=bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(starts), np.cumsum(starts) - 1
