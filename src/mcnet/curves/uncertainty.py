"""The uncertainty of a family of curves: variances at a few scores per field value, which add up over the fields."""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.curves.family import CurveFamily, round_to_digits

__all__ = ["CurveUncertainty", "interpolated", "kept_places"]

CONTEXTS_PER_BLOCK = 2_048
"""Contexts whose bands are computed together, to bound the memory."""


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
        """Return the credible interval of each row's calibrated logit: (low, high).

        Parameters
        ----------
        logits : the raw logit of each row.
        codes : the codes of its field values `[rows, fields]`; a negative code is an unseen value.
        level : the probability that the interval is to contain the truth with.

        Returns
        -------
        Bounds that rise with the logit. At every place they are the curve ± z standard deviations, unless another
        place says more: as curves rise, a lower bound at a lower score holds here too, and an upper bound at a higher
        one.
        """
        codes = np.asarray(codes, dtype=np.int64).reshape(len(logits), self.family.fields)
        distinct, which = codes[:1], np.zeros(len(codes), dtype=np.int64)
        if codes.shape[1]:
            distinct, which = np.unique(codes, axis=0, return_inverse=True)
            which = which.reshape(-1)
        low, high = np.empty(len(logits)), np.empty(len(logits))
        order = np.argsort(which, kind="stable")
        starts = range(0, len(distinct), CONTEXTS_PER_BLOCK)
        ends = np.searchsorted(which[order], [*starts, len(distinct)])
        z = NormalDist().inv_cdf(0.5 + 0.5 * level)
        for start, first, last in zip(starts, ends[:-1], ends[1:], strict=True):
            rows = order[first:last]
            contexts = distinct[start : start + CONTEXTS_PER_BLOCK]
            middle = self.family.lines(contexts).at(self._corners)
            reach = z * interpolated(self.places, self.deviations(contexts), self._corners)
            below = np.maximum.accumulate(middle - reach, axis=1)
            above = np.minimum.accumulate((middle + reach)[:, ::-1], axis=1)[:, ::-1]
            low[rows] = self._between(below, which[rows] - start, logits[rows])
            high[rows] = self._between(above, which[rows] - start, logits[rows])
        return low, high

    def deviations(self, codes: IntArray) -> FloatArray:
        """Return the posterior standard deviation of contexts at the places: `[contexts, places]`."""
        columns = [codes[:, field] for field in range(self.family.fields)]
        columns += [combination.codes(codes) for combination in self.family.combinations]
        variance = np.repeat(self.common[None, :], len(codes), axis=0)
        for column, known, unseen, step in zip(columns, self.known, self.unseen, self.steps, strict=True):
            rows = np.concatenate([known, unseen[None, :]])
            place = np.where((column >= 0) & (column < len(known)), column, len(known))
            variance += _spread_out(rows[place], step, len(self.places))
        return np.asarray(np.sqrt(variance))

    def _between(self, values: FloatArray, which: IntArray, logits: FloatArray) -> FloatArray:
        """Return each row's value on its own line through the corners; constant beyond the first and the last one."""
        corners = self._corners
        left = np.clip(np.searchsorted(corners, logits, side="right") - 1, 0, len(corners) - 2)
        share = np.clip((logits - corners[left]) / (corners[left + 1] - corners[left]), 0.0, 1.0)
        start, end = values[which, left], values[which, left + 1]
        # Rounding must not carry a line past its end.
        result: FloatArray = np.minimum(start + share * (end - start), end)
        return result

    @cached_property
    def _corners(self) -> FloatArray:
        """The logits between which curves and standard deviations are straight."""
        return np.unique(np.concatenate([self.places, self.family.knots]))

    def rounded(self) -> "CurveUncertainty":
        """Return the uncertainty with variances of three digits: what is served is what is written."""
        return CurveUncertainty(
            self.family,
            round_to_digits(self.places, 9),
            round_to_digits(self.common, 3),
            tuple(round_to_digits(part, 3) for part in self.known),
            tuple(round_to_digits(part, 3) for part in self.unseen),
            self.steps,
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
        """Return what `to_dict` described, for the family of the same model.

        Raises
        ------
        ValueError
            If the numbers do not belong to the family, or are not variances at rising places.
        """
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


def _spread_out(values: FloatArray, step: int, number: int) -> FloatArray:
    """Return values given at some places at all of them, on straight lines between."""
    if step == 1:
        return values
    return interpolated(kept_places(step, number).astype(np.float64), values, np.arange(number, dtype=np.float64))


def interpolated(places: FloatArray, values: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return lines through values `[lines, places]` at the places wanted; constant beyond the ends."""
    left = np.clip(np.searchsorted(places, wanted, side="right") - 1, 0, len(places) - 2)
    share = np.clip((wanted - places[left]) / (places[left + 1] - places[left]), 0.0, 1.0)
    return np.asarray(values[:, left] * (1.0 - share) + values[:, left + 1] * share)
