"""Curves: the one representation of every fitted calibrator."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mcnet._shared.math import PROBABILITY_FLOOR
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.errors import InputError

__all__ = ["Curves"]


@dataclass(frozen=True, eq=False)
class Curves:
    """Piecewise-linear curves from score to probability; two knots at one score are a jump.

    Curve c has the knots `grid(c)` and the probabilities `values(c)`; curves may share a grid. Left of the first knot
    and right of the last one a curve is constant; at a jump the right value holds, as in np.interp.
    """

    knots: FloatArray
    grid_start: IntArray
    grid_of: IntArray
    probabilities: FloatArray
    value_start: IntArray

    @staticmethod
    def of(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> "Curves":
        """Return the curves with the given (knots, probabilities); equal grids are stored once.

        >>> curves = Curves.of([(np.array([0.1, 0.9]), np.array([0.2, 0.4]))])
        >>> curves.grid(0), curves.values(0)
        (array([0.1, 0.9]), array([0.2, 0.4]))
        """
        numbers: dict[bytes, int] = {}
        grids: list[FloatArray] = []
        grid_of = []
        for knots, probabilities in pairs:
            if len(knots) != len(probabilities) or len(knots) == 0:
                raise InputError(f"a curve has {len(knots)} knots and {len(probabilities)} probabilities; one each")
            key = np.ascontiguousarray(knots, dtype=np.float64).tobytes()
            if key not in numbers:
                numbers[key] = len(grids)
                grids.append(np.asarray(knots, dtype=np.float64))
            grid_of.append(numbers[key])
        return Curves(
            np.concatenate(grids),
            _starts([len(grid) for grid in grids]),
            np.array(grid_of, dtype=np.int64),
            np.concatenate([np.asarray(values, dtype=np.float64) for _, values in pairs]),
            _starts([len(values) for _, values in pairs]),
        )

    @staticmethod
    def sharing(knots: FloatArray, probabilities: FloatArray) -> "Curves":
        """Return curves on one grid of knots, a row of `probabilities` each."""
        number, size = probabilities.shape
        return Curves(
            np.asarray(knots, dtype=np.float64),
            np.array([0, size], dtype=np.int64),
            np.zeros(number, dtype=np.int64),
            np.ascontiguousarray(probabilities).ravel(),
            np.arange(number + 1, dtype=np.int64) * size,
        )

    @staticmethod
    def constant(probability: float, number: int = 1) -> "Curves":
        """Return curves that give the same probability everywhere."""
        return Curves.of([(np.array([0.5]), np.array([probability]))] * number)

    def __len__(self) -> int:
        return len(self.grid_of)

    @property
    def grids(self) -> int:
        """Return how many different grids of knots there are."""
        return len(self.grid_start) - 1

    def grid(self, curve: int) -> FloatArray:
        """Return the knots (scores) of a curve."""
        grid = self.grid_of[curve]
        return self.knots[self.grid_start[grid] : self.grid_start[grid + 1]]

    def values(self, curve: int) -> FloatArray:
        """Return the probabilities of a curve at its knots."""
        return self.probabilities[self.value_start[curve] : self.value_start[curve + 1]]

    def pairs(self) -> list[tuple[FloatArray, FloatArray]]:
        """Return (knots, probabilities) of every curve."""
        return [(self.grid(curve), self.values(curve)) for curve in range(len(self))]

    @cached_property
    def slopes(self) -> FloatArray:
        """Return the slope right of each knot of each curve; 0 at jumps and at the last knot."""
        slopes = np.zeros(len(self.probabilities))
        runs = np.diff(self.knots)
        if self.grids == 1:
            rows = slopes.reshape(len(self), -1)
            np.divide(np.diff(self.probabilities.reshape(rows.shape), axis=1), runs, out=rows[:, :-1], where=runs > 0.0)
            return slopes
        for curve, grid in enumerate(self.grid_of.tolist()):
            first, last = self.value_start[curve], self.value_start[curve + 1] - 1
            start = self.grid_start[grid]
            run = runs[start : start + last - first]
            rise = np.diff(self.probabilities[first : last + 1])
            np.divide(rise, run, out=slopes[first:last], where=run > 0.0)
        return slopes

    def bounded(self) -> "Curves":
        """Return the curves with every probability moved into [PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR]."""
        inside = np.clip(self.probabilities, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
        return Curves(self.knots, self.grid_start, self.grid_of, inside, self.value_start)

    def largest_drop(self) -> float:
        """Return by how much, at most, a curve falls anywhere from a lower score to a higher one."""
        falls = self.probabilities[1:] < self.probabilities[:-1]
        falls[self.value_start[1:-1] - 1] = False  # from one curve to the next is no fall
        worst = 0.0
        for curve in np.unique(np.searchsorted(self.value_start, np.flatnonzero(falls), side="right") - 1):
            values = self.values(int(curve))
            worst = max(worst, float((np.maximum.accumulate(values) - values).max()))
        return worst

    def problem(self, *, number: int, monotone: bool) -> str | None:
        """Return what is wrong, or None: so many curves, knots in order, probabilities inside (0, 1), monotone."""
        if len(self) != number:
            return f"there are {len(self)} curves for {number - 1} contexts and the pooled one"
        if not (np.isfinite(self.knots).all() and np.isfinite(self.probabilities).all()):
            return "a knot or a probability is not a finite number"
        wrong = (self.knots < 0.0) | (self.knots > 1.0)
        wrong[1:] |= np.diff(self.knots) < 0.0
        first = self.grid_start[:-1]
        wrong[first] = (self.knots[first] < 0.0) | (self.knots[first] > 1.0)  # from one grid to the next may be a fall
        if wrong.any():
            grid = int(np.searchsorted(self.grid_start, np.argmax(wrong), side="right")) - 1
            return f"the knots of grid {grid} are not in order inside [0, 1]"
        if self.probabilities.min() <= 0.0 or self.probabilities.max() >= 1.0:
            return "a probability is not inside (0, 1)"
        if monotone and self.largest_drop() > 0.0:
            return "a curve falls, but the model claims to be monotone"
        return None


def _starts(lengths: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
