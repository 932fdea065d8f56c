"""Curves as straight pieces, and field values to curves as plain tables: what every target writes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, IntArray, ScoreType
from mcnet._shared.messages import warn
from mcnet.curves.compile import family_curves
from mcnet.curves.curves import Curves
from mcnet.curves.family import CurveFamily
from mcnet.curves.rising_sum import RisingSum
from mcnet.errors import InputError, NotSupportedError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document
from mcnet.rows.contexts import Contexts
from mcnet.version import __version__

# Curves as straight pieces: the one form from which every export computes the bits that predict computes.

LOWEST_SCORE = SCORE_FLOOR
HIGHEST_SCORE = 1.0 - SCORE_FLOOR

_BEYOND = 2.0  # where the last piece stops: right of every score


@dataclass(frozen=True, eq=False)
class Pieces:
    """Every curve cut at its knots into pieces min(slope · (x − start) + value, ceiling), x the clipped score.

    A piece holds from its start up to its stop, where the next one starts. Pieces that no clipped score reaches are
    left out, so the first piece of a curve needs no comparison, and jumps, flat ends and falling curves need no case
    of their own: a jump is two pieces that do not meet, a flat end has slope 0, and the ceiling only undoes the last
    bit that rounding may carry a line past its end. Curves that share a grid share the starts and stops.
    """

    starts: FloatArray
    stops: FloatArray
    grid_begin: IntArray
    grid_size: IntArray
    grid_of: IntArray
    values: FloatArray
    ends: FloatArray
    slopes: FloatArray
    curve_begin: IntArray

    @staticmethod
    def of(curves: Curves) -> "Pieces":
        """Return the pieces of the curves.

        >>> pieces = Pieces.of(Curves.of([(np.array([0.25, 0.5, 0.5]), np.array([0.1, 0.2, 0.3]))]))
        >>> pieces.starts, pieces.slopes
        (array([0.  , 0.25, 0.5 ]), array([0. , 0.4, 0. ]))
        """
        starts, stops, kept, leads = [], [], [], []
        for grid in range(curves.grids):
            knots = curves.knots[curves.grid_start[grid] : curves.grid_start[grid + 1]]
            following = np.concatenate([knots[1:], [_BEYOND]])
            reached = (knots < following) & (following > LOWEST_SCORE) & (knots <= HIGHEST_SCORE)
            lead = bool(knots[0] > LOWEST_SCORE)  # the flat piece left of the first knot
            kept.append(reached)
            leads.append(lead)
            starts.append(np.concatenate([[0.0] * lead, knots[reached]]))
            stops.append(np.concatenate([knots[:lead], following[reached]]))
        values, ends, slopes = [], [], []
        for curve in range(len(curves)):
            grid = int(curves.grid_of[curve])
            reached, lead = kept[grid], leads[grid]
            here = curves.values(curve)
            there = np.concatenate([here[1:], here[-1:]])
            slope = curves.slopes[curves.value_start[curve] : curves.value_start[curve + 1]]
            values.append(np.concatenate([here[:lead], here[reached]]))
            ends.append(np.concatenate([here[:lead], there[reached]]))
            slopes.append(np.concatenate([[0.0] * lead, slope[reached]]))
        return Pieces(
            np.concatenate(starts),
            np.concatenate(stops),
            _begins(starts),
            np.array([len(part) for part in starts], dtype=np.int64),
            curves.grid_of,
            np.concatenate(values),
            np.concatenate(ends),
            np.concatenate(slopes),
            _begins(values),
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def curves(self) -> int:
        """Return how many curves there are."""
        return len(self.grid_of)

    @property
    def grids(self) -> int:
        """Return how many different grids there are."""
        return len(self.grid_begin)

    @property
    def ceilings(self) -> FloatArray:
        """Return the value that each piece never exceeds."""
        return np.maximum(self.values, self.ends)

    def of_grid(self, grid: int) -> slice:
        """Return where the starts and stops of a grid are."""
        begin = int(self.grid_begin[grid])
        return slice(begin, begin + int(self.grid_size[grid]))

    def of_curve(self, curve: int) -> slice:
        """Return where the values, ends and slopes of a curve are."""
        begin = int(self.curve_begin[curve])
        return slice(begin, begin + int(self.grid_size[self.grid_of[curve]]))

    def columns(self) -> dict[str, FloatArray | IntArray]:
        """Return a table with one row per piece of every curve: curve, low, high, value, slope, ceiling."""
        grids = [self.of_grid(int(grid)) for grid in self.grid_of]
        return {
            "curve": np.repeat(np.arange(self.curves), self.grid_size[self.grid_of]),
            "low": np.concatenate([self.starts[grid] for grid in grids]),
            "high": np.concatenate([self.stops[grid] for grid in grids]),
            "value": self.values,
            "slope": self.slopes,
            "ceiling": self.ceilings,
        }


def _begins(parts: list[FloatArray]) -> IntArray:
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.cumsum(lengths) - lengths


# Field values to curves: the lookup of Contexts as plain tables that any language can search.


@dataclass(frozen=True)
class ContextMap:
    """Each field value has a digit, each combination of digits may have a curve; every other one has curve 0.

    Digit 0 is "any value not listed". A combination is the whole number Σ digit · stride.
    """

    names: tuple[str, ...]
    digits: tuple[dict[str | None, int], ...]
    strides: tuple[int, ...]
    curves: dict[int, int]

    @staticmethod
    def of(contexts: Contexts) -> "ContextMap":
        """Return the map of a model's contexts; refuse texts that no file could hold.

        >>> from mcnet.rows.fields import field_columns
        >>> contexts, _ = Contexts.of(field_columns({"country": ["NL", None]}), 2)
        >>> found = ContextMap.of(contexts)
        >>> found.digits, found.curves
        (({'NL': 1, None: 2},), {1: 1, 2: 2})
        """
        for name, values in zip(contexts.names, contexts.values, strict=True):
            for value in (name, *values):
                _check_text(name, value)
        digits = tuple({value: code + 1 for code, value in enumerate(values)} for values in contexts.values)
        radix = [len(values) + 1 for values in contexts.values]
        strides = [1] * len(radix)
        for field in range(len(radix) - 2, -1, -1):
            strides[field] = strides[field + 1] * radix[field + 1]
        if radix and strides[0] * radix[0] >= 2**62:
            raise NotSupportedError("the fields have too many values together to be exported; fit with fewer fields")
        rows = contexts.table.tolist() if contexts.names else []
        curves = {
            sum((code + 1) * stride for code, stride in zip(row, strides, strict=True)): number + 1
            for number, row in enumerate(rows)
        }
        return ContextMap(contexts.names, digits, tuple(strides), curves)

    @property
    def most(self) -> int:
        """Return the number above those of all combinations."""
        return self.strides[0] * (len(self.digits[0]) + 1) if self.strides else 1

    @cached_property
    def combinations(self) -> list[tuple[tuple[int, ...], int]]:
        """Return the digits and the curve of every combination that has one, in order of the digits."""
        result = []
        for key, curve in sorted(self.curves.items()):
            digits = []
            for stride in self.strides:
                digit, key = divmod(key, stride)
                digits.append(digit)
            result.append((tuple(digits), curve))
        return result


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return the name wanted, or that with a number if it is taken.

    >>> free_name("score", ["score", "country"])
    'score_2'
    """
    names = set(taken)
    if wanted not in names:
        return wanted
    return next(name for number in count(2) if (name := f"{wanted}_{number}") not in names)


def _check_text(field: str, value: str | None) -> None:
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise InputError(
            f"field {field!r} holds {value!r}, which is not valid Unicode text; clean it and refit"
        ) from None


# The curves to export: those of the model, and those of combinations that its family computes on demand.

MOST_COMBINATIONS = 100_000
"""Up to this many combinations of field values are compiled for an export, each to its own curve."""

LARGE_BYTES = 50_000_000
"""A larger export is announced with its size."""


@dataclass(frozen=True, eq=False)
class PairIndex:
    """The known pairs of values of two fields: those of first code i have the second codes `seconds[begin[i]:…]`."""

    first: int
    second: int
    begin: IntArray
    seconds: IntArray


@dataclass(frozen=True, eq=False)
class Parts:
    """A sum of rising terms as plain tables: see `curves/rising_sum.py`.

    `common` are the log-slopes of all panels, then the offset; `moves[i, k]` is by how much number k moves entry i.
    `numbers` are those of the values of `fields`, then those of `pairs`.
    """

    family: CurveFamily
    limit: float
    common: FloatArray
    moves: FloatArray
    fields: tuple[int, ...]
    pairs: tuple[PairIndex, ...]
    numbers: tuple[FloatArray, ...]

    @staticmethod
    def of(rising_sum: RisingSum) -> "Parts":
        """Return the tables; fields and pairs of fields without a number are left out."""
        family = rising_sum.family
        moves = np.concatenate([family.log_slope_by, family.offset_by[None, :]])
        fields = tuple(field for field in range(family.fields) if len(family.numbers[field]))
        numbers, pairs = [family.numbers[field] for field in fields], []
        for combination, part in zip(family.combinations, family.numbers[family.fields :], strict=True):
            first, second = np.divmod(combination.keys[: len(part)], combination.size)
            if len(part):
                begin = np.searchsorted(first, np.arange(int(first[-1]) + 2))
                pairs.append(PairIndex(combination.first, combination.second, begin, second))
                numbers.append(part)
        return Parts(
            family,
            rising_sum.limit,
            np.append(family.log_slope, family.offset),
            moves,
            fields,
            tuple(pairs),
            tuple(numbers),
        )

    @property
    def width(self) -> int:
        """Return how many numbers a value has."""
        return int(self.moves.shape[1])


@dataclass(frozen=True, eq=False)
class Exported:
    """Contexts and their curves, as in a model; the last `added` of them were compiled for the export."""

    contexts: Contexts
    curves: Curves
    added: int = 0
    error: float = 0.0
    """How far a curve that was added may be from predict, relative to p."""
    parts: Parts | None = None
    """What computes the combinations that have no curve; None if all others have curve 0."""

    @staticmethod
    def in_parts(model: CalibrationModel) -> "Exported":
        """Return all that predict can be asked for, in parts that add up if the model is evaluated so."""
        if not model.sums_up:
            return Exported.of(model)
        whole = Exported(model.contexts, model.curves, parts=Parts.of(model.rising_sum))
        return whole.of_needed_fields()

    @staticmethod
    def of(model: CalibrationModel) -> "Exported":
        """Return all that predict can be asked for, as curves; refuse more combinations than a file can hold."""
        contexts = model.contexts
        if not model.sums_up:
            return Exported(contexts, model.curves).of_needed_fields()
        assert model.family is not None
        every = contexts.completed(MOST_COMBINATIONS)
        if not every.complete:
            number = float(np.prod([len(known) + 1.0 for known in contexts.values])) - 1
            raise NotSupportedError(
                f"{' × '.join(model.fields)} have {number:,.0f} combinations of values, and an export holds at most "
                f"{MOST_COMBINATIONS:,}; fit with fewer fields or fewer values, or serve this model with predict"
            )
        known = set(map(tuple, contexts.table.tolist()))
        missing = every.table[[tuple(row) not in known for row in every.table.tolist()]]
        added, error = family_curves(model.family, missing)
        # The model's own come first and stay as they are: their numbers and their bits are those of predict.
        table = np.concatenate([contexts.table, missing])
        curves = Curves.of(model.curves.pairs() + added.pairs()[1:])
        return Exported(replace(contexts, table=table), curves, len(missing), error).of_needed_fields()

    def of_needed_fields(self) -> "Exported":
        """Return the same without the fields that the fit has found useless: rows need not have them."""
        contexts, needed = self.contexts, self.contexts.needed
        if len(needed) == len(contexts.names):
            return self
        kept = [place for place, name in enumerate(contexts.names) if name in needed]
        new = {place: number for number, place in enumerate(kept)}
        values = tuple(contexts.values[place] for place in kept)
        edges = {name: edges for name, edges in contexts.edges.items() if name in needed}
        parts = self.parts
        if parts is not None:
            pairs = tuple(replace(pair, first=new[pair.first], second=new[pair.second]) for pair in parts.pairs)
            parts = replace(parts, fields=tuple(new[field] for field in parts.fields), pairs=pairs)
        return replace(self, contexts=Contexts(needed, values, contexts.table[:, kept], edges), parts=parts)


def checked_score_type(model: CalibrationModel, score_type: ScoreType | None) -> ScoreType:
    """Return what an export takes: as asked for, or what the model was fitted on."""
    if score_type not in (None, "probability", "logit"):
        raise InputError(f"score_type is {score_type!r}; it must be 'probability' or 'logit'")
    return score_type or model.score_type


def warn_of_size(what: str, size: float, pieces: int) -> None:
    """Warn of a file of many megabytes, before it is written."""
    if size > LARGE_BYTES:
        warn(
            f"the {what} will have about {size / 1e6:,.0f} MB, since the curves have {pieces:,} pieces; "
            "a Parquet table is the smallest export, ONNX the next, and fewer field values make each smaller"
        )


# The origin of an export: checksum, method and provenance of the model, and what was left out.


def stamp(model: CalibrationModel, exported: Exported, score_type: ScoreType | None = None) -> dict[str, Any]:
    """Return the origin of an export; the checksum is the one in the saved model's file."""
    origin = {
        "producer": f"mcnet {__version__}",
        "method": model.method,
        "checksum": model_document(model)["checksum"],
        "fields": list(exported.contexts.names),
        "curves": len(exported.curves),
        "monotone": model.monotone,
        "score_type": score_type or model.score_type,
        "provenance": model.provenance,
    }
    if exported.parts is not None:
        origin["evaluation"] = model.evaluation
    if exported.added:
        origin["compiled_for_export"] = {"curves": exported.added, "relative_error": exported.error}
    if model.without_features:
        origin["left_out"] = "the network on features: these are the curves that serve rows without features"
    return origin


def stamp_line(origin: dict[str, Any]) -> str:
    """Return the origin as one line of JSON in plain ASCII that cannot end or open a comment of C or SQL."""
    string = json.dumps(origin, ensure_ascii=True, allow_nan=False)
    # Written by its number, a slash is neither half of a comment's mark; a question mark would be half of a trigraph.
    return string.replace("/", "\\u002f").replace("?", "\\u003f")
