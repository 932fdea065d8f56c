"""Curves: the one representation of every fitted calibrator, and the uncertainty of a family of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, clip_probabilities
from mcnet.curves.family import CurveFamily, round_to_digits
from mcnet.errors import InputError


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
        if self.grids == 1:
            rows, runs = slopes.reshape(len(self), -1), np.diff(self.knots)
            np.divide(np.diff(self.probabilities.reshape(rows.shape), axis=1), runs, out=rows[:, :-1], where=runs > 0.0)
            return slopes
        to_knot = np.repeat(self.grid_start[self.grid_of] - self.value_start[:-1], np.diff(self.value_start))
        knots = self.knots[to_knot + np.arange(len(slopes))]
        run = np.diff(knots)
        run[self.value_start[1:-1] - 1] = 0.0  # from one curve to the next
        np.divide(np.diff(self.probabilities), run, out=slopes[:-1], where=run > 0.0)
        return slopes

    def bounded(self) -> "Curves":
        """Return the curves with every probability moved into [PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR]."""
        return replace(self, probabilities=clip_probabilities(self.probabilities))

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


# The uncertainty of a family of curves: variances at a few scores per field value, which add up over the fields.


@dataclass(frozen=True, eq=False)
class CurveUncertainty:
    """Posterior variances of calibrated logits, from which credible bands are made.

    The variance of a context at `places` (raw logits, in order) is `common` plus what each of its field values adds:
    `known[f]` `[values, places of the field]`, or `unseen[f]` for a value that was not fitted. Fields with very many
    values give theirs at every few places only: `steps[f]` says at every how many. After the fields come the
    combinations of two fields, as in the family.
    """

    family: CurveFamily
    places: FloatArray
    common: FloatArray
    known: tuple[FloatArray, ...]
    unseen: tuple[FloatArray, ...]
    steps: tuple[int, ...]

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the credible intervals of calibrated logits: (low, high), of shape `[contexts, logits]`."""
        codes = np.asarray(codes, dtype=np.int64).reshape(len(codes), self.family.fields)
        # The logits between which curves and standard deviations are straight.
        corners = np.unique(np.concatenate([self.places, self.family.knots]))
        middle = self.family.lines(codes).at(corners)
        reach = NormalDist().inv_cdf(0.5 + 0.5 * level) * interpolated(self.places, self.deviations(codes), corners)
        below = np.maximum.accumulate(middle - reach, axis=1)
        above = np.minimum.accumulate((middle + reach)[:, ::-1], axis=1)[:, ::-1]
        left, share = piece_and_share(corners, logits)
        # Rounding must not carry a line past its end.
        low, high = (
            np.minimum(part[:, left] + share * (part[:, left + 1] - part[:, left]), part[:, left + 1])
            for part in (below, above)
        )
        return low, high

    def deviations(self, codes: IntArray) -> FloatArray:
        """Return the posterior standard deviation of contexts at the places: `[contexts, places]`."""
        variance = np.repeat(self.common[None, :], len(codes), axis=0)
        parts = zip(self.family.columns(codes), self.known, self.unseen, self.steps, strict=True)
        for column, known, unseen, step in parts:
            rows = np.concatenate([known, unseen[None, :]])
            index = np.where((column >= 0) & (column < len(known)), column, len(known))
            added, number = rows[index], len(self.places)
            if step > 1:  # on straight lines between the places that the field gives
                given = kept_places(step, number).astype(np.float64)
                added = interpolated(given, added, np.arange(number, dtype=np.float64))
            variance += added
        return np.asarray(np.sqrt(variance))

    def rounded(self) -> "CurveUncertainty":
        """Return the uncertainty with variances of three digits: what is served is what is written."""
        return replace(
            self,
            places=round_to_digits(self.places, 9),
            common=round_to_digits(self.common, 3),
            known=tuple(round_to_digits(part, 3) for part in self.known),
            unseen=tuple(round_to_digits(part, 3) for part in self.unseen),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers; the family is a part of the model."""
        return {
            "places": self.places.tolist(),
            "common": self.common.tolist(),
            "known": [part.tolist() for part in self.known],
            "unseen": [part.tolist() for part in self.unseen],
            "steps": list(self.steps),
        }

    @staticmethod
    def from_dict(document: dict[str, Any], family: CurveFamily) -> "CurveUncertainty":
        """Return what `to_dict` described, for the family of the same model."""
        places, common = (np.array(document[name], dtype=np.float64) for name in ("places", "common"))
        steps = tuple(int(step) for step in document["steps"])
        unseen = tuple(np.array(part, dtype=np.float64) for part in document["unseen"])
        if len(document["known"]) != len(unseen):
            raise ValueError("the uncertainty has other fields than the family of curves")
        known = tuple(
            np.array(part, dtype=np.float64).reshape(len(part), len(row))
            for part, row in zip(document["known"], unseen, strict=True)
        )
        if [len(part) for part in known] != [len(part) for part in family.numbers] or len(steps) != len(known):
            raise ValueError("the uncertainty has other field values than the family of curves")
        if len(places) < 2 or len(common) != len(places) or np.any(np.diff(places) <= 0.0):
            raise ValueError("the places of the uncertainty are not in order")
        for step, row in zip(steps, unseen, strict=True):
            if step < 1 or row.shape != (len(kept_places(step, len(places))),):
                raise ValueError("a field's variances do not fit the places of the uncertainty")
        if not all(np.all(np.isfinite(part) & (part >= 0.0)) for part in (places**2, common, *unseen, *known)):
            raise ValueError("a variance of the uncertainty is not a finite number from 0 on")
        return CurveUncertainty(family, places, common, known, unseen, steps)


def kept_places(step: int, number: int) -> IntArray:
    """Return which of the places a field gives its variances at: every so many, the first and the last."""
    return np.unique(np.append(np.arange(0, number, step), number - 1))


def interpolated(places: FloatArray, values: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return lines through values `[lines, places]` at the places wanted; constant beyond the ends."""
    left, share = piece_and_share(places, wanted)
    return np.asarray(values[:, left] * (1.0 - share) + values[:, left + 1] * share)


def piece_and_share(places: FloatArray, wanted: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the place left of each that is wanted, and how far it is to the next one, from 0 to 1."""
    left = np.clip(np.searchsorted(places, wanted, side="right") - 1, 0, len(places) - 2)
    return left, np.clip((wanted - places[left]) / (places[left + 1] - places[left]), 0.0, 1.0)
