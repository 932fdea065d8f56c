"""A family of curves: every combination of field values has one, made from a few numbers for each value."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import PROBABILITY_FLOOR, FloatArray, IntArray

LARGEST_LOGIT = float(np.log1p(-PROBABILITY_FLOOR) - np.log(PROBABILITY_FLOOR))
"""No calibrated logit is beyond ± this."""
_EXACT_POWER = 22


def believable(calibrated: FloatArray, logits: FloatArray, limit: float) -> FloatArray:
    """Return calibrated logits kept within ± limit, or within the score's own logit where that lies beyond.

    Both bounds rise with the score, so the order is kept.
    """
    if limit == np.inf:
        return calibrated
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
        return self._straight(
            lambda knot: self.values.take(knot, axis=1), self.first_slope[:, None], self.last_slope[:, None], logits
        )

    def each(self, which: NDArray[Any], logits: FloatArray) -> FloatArray:
        """Return the calibrated logit of each row, at its own logit on its own curve."""
        first = which.astype(np.int64) * len(self.knots)
        return self._straight(
            lambda knot: self.values.take(first + knot), self.first_slope[which], self.last_slope[which], logits
        )

    def _straight(
        self,
        values: Callable[[IntArray], FloatArray],
        first_slope: FloatArray,
        last_slope: FloatArray,
        logits: FloatArray,
    ) -> FloatArray:
        """Interpolate between the `values` at the knots to both sides."""
        piece = np.clip(np.searchsorted(self.knots, logits, side="right") - 1, 0, max(len(self.knots) - 2, 0))
        result = values(piece)
        if len(self.knots) > 1:
            width = self.knots[piece + 1] - self.knots[piece]
            share = np.clip((logits - self.knots[piece]) / width, 0.0, 1.0)
            following = values(piece + 1)
            result *= 1.0 - share
            following *= share
            result += following
        before, beyond = logits - self.knots[0], logits - self.knots[-1]
        if logits.size and float(before.min()) < 0.0:
            result += first_slope * np.minimum(before, 0.0)
        if logits.size and float(beyond.max()) > 0.0:
            result += last_slope * np.maximum(beyond, 0.0)
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
        index = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        known = (one >= 0) & (two >= 0) & (two < self.size) & (self.keys[index] == key)
        return np.where(known, index, -1)

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

    def columns(self, codes: IntArray) -> list[IntArray]:
        """Return the codes of contexts `[contexts, fields]` in each field, then in each combination."""
        return [*codes.T, *(combination.codes(codes) for combination in self.combinations)]

    @cached_property
    def common(self) -> FloatArray:
        """The log-slope of each panel of the common curve, then its offset."""
        return np.append(self.log_slope, self.offset)

    @cached_property
    def by_number(self) -> FloatArray:
        """How each number moves these: `[numbers, panels + 1]`."""
        return np.ascontiguousarray(np.column_stack([self.log_slope_by.T, self.offset_by]))

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
        moved = np.zeros((len(codes), len(self.offset_by)))
        for column, numbers in zip(self.columns(codes), self.numbers, strict=True):
            known = (column >= 0) & (column < len(numbers))
            moved[known] += numbers[column[known]]
        return moved

    def rounded(self) -> "CurveFamily":
        """Return the family with numbers of nine significant digits: what is served is what is written."""
        return replace(
            self,
            offset=float(round_to_digits(np.array([self.offset]), 9)[0]),
            log_slope=round_to_digits(self.log_slope, 9),
            offset_by=round_to_digits(self.offset_by, 9),
            log_slope_by=round_to_digits(self.log_slope_by, 9),
            numbers=tuple(round_to_digits(part, 9) for part in self.numbers),
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
        decimals = digits - 1.0 - np.floor(np.log10(np.abs(values)))
    # Powers of ten up to 22 are exact: then a whole number divided by one is the number that its digits spell.
    plain = np.abs(decimals) <= _EXACT_POWER
    scale = 10.0 ** np.where(plain, np.abs(decimals), 0.0)
    up = decimals >= 0.0
    whole = np.round(np.where(up, values * scale, values / scale))
    result: FloatArray = np.where(up, whole / scale, whole * scale)
    result[~plain] = [float(f"{value:.{digits}g}") for value in values[~plain].tolist()]
    return result


# Check a family of curves: they must rise for every combination of field values.

_LARGEST_LOG_SLOPE = 300.0
"""Beyond this, exp of a log-slope times the width of a panel may overflow."""

_LARGEST_CHECKED_LOGIT = 1e6


def family_problem(family: CurveFamily, sizes: Sequence[int]) -> str | None:
    """Return what is wrong with a family for fields of this many values each, or None.

    Values beyond a field's numbers share the common curve.
    With knots in order and finite numbers, every curve of the family rises: its slopes are exponentials.
    """
    knots, moves = len(family.knots), len(family.offset_by)
    if knots == 0 or not 0 <= family.origin < knots:
        return f"a family of curves has {knots} knots and its origin at knot {family.origin}"
    if family.log_slope.shape != (knots + 1,) or family.log_slope_by.shape != (knots + 1, moves):
        return f"a family of curves with {knots} knots needs {knots + 1} log-slopes"
    if family.fields != len(sizes):
        return f"a family of curves is for {family.fields} fields, and there are {len(sizes)}"
    for combination in family.combinations:
        problem = _combination_problem(combination, sizes)
        if problem:
            return problem
    expected = [*sizes, *(len(combination.keys) for combination in family.combinations)]
    for part, size in zip(family.numbers, expected, strict=True):
        if part.ndim != 2 or len(part) > size or part.shape[1] != moves:
            return f"a family of curves has numbers of shape {part.shape} for {size} values of a field"
    parts = (family.knots, family.log_slope, family.offset_by, family.log_slope_by, *family.numbers)
    if not (all(np.isfinite(part).all() for part in parts) and np.isfinite(family.offset)):
        return "a number of a family of curves is not finite"
    if not (np.diff(family.knots) > 0.0).all() or np.abs(family.knots).max() > _LARGEST_CHECKED_LOGIT:
        return "the knots of a family of curves are not in order"
    if not family.limit > 0.0:
        return f"the limit of a family of curves is {family.limit}; it must be above 0"
    # However the values are combined, a number is at most the sum of the largest ones.
    largest = sum((np.abs(part).max(axis=0, initial=0.0) for part in family.numbers), np.zeros(len(family.offset_by)))
    log_slope = np.abs(family.log_slope) + np.abs(family.log_slope_by) @ largest
    if log_slope.max() > _LARGEST_LOG_SLOPE:
        return (
            f"a log-slope of a family of curves may be {log_slope.max():.3g}; it must be at most {_LARGEST_LOG_SLOPE:g}"
        )
    if abs(family.offset) + np.abs(family.offset_by) @ largest > _LARGEST_CHECKED_LOGIT:
        return "an offset of a family of curves is too large"
    return None


def _combination_problem(combination: Combination, sizes: Sequence[int]) -> str | None:
    first, second = combination.first, combination.second
    if not (0 <= first < len(sizes) and 0 <= second < len(sizes) and first != second):
        return f"a family of curves combines the fields {first} and {second} of {len(sizes)}"
    if not 0 < combination.size <= sizes[second]:
        return f"a combination of fields counts {combination.size} values where there are {sizes[second]}"
    keys = combination.keys
    if len(keys) and not (keys[0] >= 0 and keys[-1] < sizes[first] * sizes[second] and (np.diff(keys) > 0).all()):
        return "the pairs of values of a combination are not in order, or not pairs of values"
    return None


# Contexts are worked on some at a time.

CONTEXTS_PER_BLOCK = 4_096
"""Contexts computed at a time, to bound the memory."""


def blocks_of_contexts(which: NDArray[Any], number: int, size: int) -> Iterator[tuple[slice, IntArray]]:
    """Yield blocks of so many contexts, and the rows of each block; `which` is the context of each row."""
    order, starts = np.argsort(which, kind="stable"), range(0, number, size)
    ends = np.searchsorted(which[order], [*starts, number])
    for start, (begin, end) in zip(starts, pairwise(ends), strict=True):
        yield slice(start, start + size), order[begin:end]
