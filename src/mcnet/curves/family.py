"""A family of curves: every combination of field values has one, made from a few numbers for each value."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray, IntArray

__all__ = ["Combination", "CurveFamily", "Lines", "believable", "round_to_digits"]

_EXACT_POWER = 22


def believable(calibrated: FloatArray, logits: FloatArray, limit: float) -> FloatArray:
    """Return calibrated logits kept within ± limit, or within the score's own logit where that lies beyond.

    Both bounds rise with the score, so the order is kept.
    """
    return np.clip(calibrated, np.minimum(logits, -limit), np.maximum(logits, limit))


class Lines(NamedTuple):
    """Curves in logit space, straight between shared knots and straight on beyond them."""

    knots: FloatArray
    """Logits of scores, in order: `[knots]`."""
    values: FloatArray
    """Calibrated logits at the knots: `[curves, knots]`."""
    first_slope: FloatArray
    last_slope: FloatArray
    limit: float = np.inf
    """No calibrated logit is beyond ± this, unless the score's own is: what so many rows can tell from 0 and 1."""

    def rows(self, which: NDArray[Any] | slice) -> "Lines":
        """Return the curves chosen."""
        return Lines(self.knots, self.values[which], self.first_slope[which], self.last_slope[which], self.limit)

    def at(self, logits: FloatArray) -> FloatArray:
        """Return the calibrated logits of all curves at the logits: `[curves, logits]`."""
        return self._straight(slice(None), self.first_slope[:, None], self.last_slope[:, None], logits)

    def each(self, which: NDArray[Any], logits: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row, at its own logit on its own curve."""
        return self._straight(which, self.first_slope[which], self.last_slope[which], logits)

    def _straight(
        self, which: NDArray[Any] | slice, first_slope: FloatArray, last_slope: FloatArray, logits: FloatArray
    ) -> FloatArray:
        piece = np.clip(np.searchsorted(self.knots, logits, side="right") - 1, 0, max(len(self.knots) - 2, 0))
        if len(self.knots) > 1:
            width = self.knots[piece + 1] - self.knots[piece]
            share = np.clip((logits - self.knots[piece]) / width, 0.0, 1.0)
            inside = self.values[which, piece] * (1.0 - share) + self.values[which, piece + 1] * share
        else:
            inside = self.values[which, piece]
        before = np.minimum(logits - self.knots[0], 0.0)
        beyond = np.maximum(logits - self.knots[-1], 0.0)
        result: FloatArray = inside + first_slope * before + last_slope * beyond
        return believable(result, logits, self.limit)


@dataclass(frozen=True)
class Combination:
    """Two fields taken together as one more field; `keys` are the known pairs as code₁ · size₂ + code₂, in order."""

    first: int
    second: int
    size: int
    keys: IntArray

    def codes(self, codes: IntArray) -> IntArray:
        """Return the combination's code in each row of `codes` `[rows, fields]`, -1 for a pair that is not known."""
        one, two = codes[:, self.first].astype(np.int64), codes[:, self.second].astype(np.int64)
        if len(self.keys) == 0:
            return np.full(len(codes), -1, dtype=np.int64)
        key = one * self.size + two
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        known = (one >= 0) & (two >= 0) & (two < self.size) & (self.keys[place] == key)
        return np.where(known, place, -1)

    def pairs(self) -> IntArray:
        """Return the known pairs as rows of codes that `codes` can read."""
        rows = np.full((len(self.keys), 1 + max(self.first, self.second)), -1, dtype=np.int64)
        rows[:, self.first], rows[:, self.second] = np.divmod(self.keys, self.size)
        return rows


@dataclass(frozen=True, eq=False)
class CurveFamily:
    """logit p = a_c + ∫ exp(log-slope_c(t)) dt, where a context's offset and log-slope add up over its field values.

    `numbers[f][v]` are the few numbers of value v of field f (then of the combinations); `offset_by` and
    `log_slope_by` say how they move the offset and the log-slope of each panel. Panels lie between the knots; the first
    and the last one have no end. A negative code is an unseen value: it moves nothing.
    """

    knots: FloatArray
    origin: int
    offset: float
    log_slope: FloatArray
    offset_by: FloatArray
    log_slope_by: FloatArray
    numbers: tuple[FloatArray, ...]
    combinations: tuple[Combination, ...] = ()
    limit: float = np.inf

    @property
    def fields(self) -> int:
        """Return the number of fields."""
        return len(self.numbers) - len(self.combinations)

    def lines(self, codes: NDArray[Any]) -> Lines:
        """Return the curves of contexts given by their codes `[contexts, fields]`."""
        moved = self.moved(np.asarray(codes, dtype=np.int64).reshape(len(codes), self.fields))
        # Not a matrix product: its rounding depends on how many contexts are computed together.
        slopes = np.exp(self.log_slope + np.einsum("cn,pn->cp", moved, self.log_slope_by))
        rises = slopes[:, 1:-1] * np.diff(self.knots)
        climbed = np.concatenate([np.zeros((len(moved), 1)), np.cumsum(rises, axis=1)], axis=1)
        start = self.offset + np.einsum("cn,n->c", moved, self.offset_by) - climbed[:, self.origin]
        return Lines(self.knots, start[:, None] + climbed, slopes[:, 0], slopes[:, -1], self.limit)

    def moved(self, codes: IntArray) -> FloatArray:
        """Return the numbers of each context `[contexts, numbers]`: the sum over its known values."""
        columns = [codes[:, field] for field in range(self.fields)]
        columns += [combination.codes(codes) for combination in self.combinations]
        moved = np.zeros((len(codes), len(self.offset_by)))
        for column, numbers in zip(columns, self.numbers, strict=True):
            known = (column >= 0) & (column < len(numbers))
            moved[known] += numbers[column[known]]
        return moved

    def rounded(self, digits: int = 9) -> "CurveFamily":
        """Return the family with numbers of this many significant digits: what is served is what is written."""
        return CurveFamily(
            knots=self.knots,
            origin=self.origin,
            offset=float(round_to_digits(np.array([self.offset]), digits)[0]),
            log_slope=round_to_digits(self.log_slope, digits),
            offset_by=round_to_digits(self.offset_by, digits),
            log_slope_by=round_to_digits(self.log_slope_by, digits),
            numbers=tuple(round_to_digits(part, digits) for part in self.numbers),
            combinations=self.combinations,
            limit=self.limit,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the family as plain lists and numbers."""
        return {
            "knots": self.knots.tolist(),
            "origin": self.origin,
            "limit": self.limit if np.isfinite(self.limit) else None,
            "offset": self.offset,
            "log_slope": self.log_slope.tolist(),
            "offset_by": self.offset_by.tolist(),
            "log_slope_by": self.log_slope_by.tolist(),
            "numbers": [part.tolist() for part in self.numbers],
            "combinations": [
                {"first": c.first, "second": c.second, "size": c.size, "keys": c.keys.tolist()}
                for c in self.combinations
            ],
        }

    @staticmethod
    def from_dict(document: dict[str, Any]) -> "CurveFamily":
        """Return the family that to_dict described."""
        moved_by = np.array(document["offset_by"], dtype=np.float64)
        return CurveFamily(
            np.array(document["knots"], dtype=np.float64),
            int(document["origin"]),
            float(document["offset"]),
            np.array(document["log_slope"], dtype=np.float64),
            moved_by,
            np.array(document["log_slope_by"], dtype=np.float64).reshape(-1, len(moved_by)),
            tuple(np.array(part, dtype=np.float64).reshape(-1, len(moved_by)) for part in document["numbers"]),
            tuple(
                Combination(c["first"], c["second"], c["size"], np.array(c["keys"], dtype=np.int64))
                for c in document["combinations"]
            ),
            np.inf if document["limit"] is None else float(document["limit"]),
        )


def round_to_digits(values: FloatArray, digits: int) -> FloatArray:
    """Return numbers of this many significant digits, each the float that its digits spell."""
    with np.errstate(divide="ignore"):
        places = digits - 1.0 - np.floor(np.log10(np.abs(values)))
    # Powers of ten up to 22 are exact: then a whole number divided by one is the number that its digits spell.
    plain = np.abs(places) <= _EXACT_POWER
    scale = 10.0 ** np.where(plain, np.abs(places), 0.0)
    up = places >= 0.0
    whole = np.round(np.where(up, values * scale, values / scale))
    result: FloatArray = np.where(up, whole / scale, whole * scale)
    result[~plain] = [float(f"{value:.{digits}g}") for value in values[~plain].tolist()]
    return result
