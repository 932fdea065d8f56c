"""What calibrators give networks and take back: settings, points of a sketch, features of rows, compiled curves."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, logit, sums_by
from mcnet.calibrators.parameters import check_count
from mcnet.calibrators.training_state import TrainingState
from mcnet.curves.compile import DENSE_PER_LOGIT, Projection, compile_table, dense_scores, project_monotone
from mcnet.curves.curves import Curves
from mcnet.errors import InputError
from mcnet.rows.columns import as_array, as_floats, check_lengths
from mcnet.rows.contexts import Contexts, distinct_contexts
from mcnet.rows.fields import field_columns
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import equal_mass_cuts

# Checks of the settings of networks, in words: choices, rates, widths, where they are trained.

_CHOICES = {
    "activation": ("silu", "tanh", "relu"),
    "balance": ("global", "field"),
    "derivative": ("sigmoid", "softplus", "elu"),
    "lower": ("zero", "edge", "centre"),
    "quadrature": ("plain", "lean"),
    "space": ("logit", "probability"),
    "standardise": ("none", "global", "bin"),
    "start": ("identity", "random", "torch"),
    "training": ("sketch", "rows"),
}


def check_choices(**settings: Any) -> None:
    """Raise unless each setting, given by its name, is one of the words it can be."""
    for name, value in settings.items():
        known = _networks() if name == "network" else _CHOICES[name]
        if value not in known:
            raise InputError(f"{name} is {value!r}; it must be one of {', '.join(known)}")


def _networks() -> Collection[str]:
    from mcnet.networks.kinds import NETWORKS

    return NETWORKS


def check_switch(name: str, value: Any) -> None:
    """Raise unless a setting is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {value!r}; it must be True or False")


def check_unused(made: Callable[..., Any], given: Mapping[str, Any], unused: Collection[str], why: str) -> None:
    """Raise if a setting that does not count has another value than the default of the constructor."""
    known = inspect.signature(made).parameters
    for name in unused:
        if given[name] != known[name].default:
            raise InputError(f"{name} is {given[name]!r}, but {why}; leave {name} at {known[name].default!r}")


def check_used_by_kind(made: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise if a setting that this kind of network does not use has another value than its default."""
    from mcnet.networks.kinds import unused_settings

    network = given["network"]
    check_unused(made, given, unused_settings(network), f"the network {network!r} does not use it")


def check_widths(name: str, widths: Any) -> None:
    """Raise unless a setting has the width of each hidden layer, at least one."""
    if not isinstance(widths, list | tuple) or not widths:
        raise InputError(f"{name} is {widths!r}; it has the width of each hidden layer, such as (128, 128)")
    for index, size in enumerate(widths):
        check_count(f"{name}[{index}]", size)


def check_rate(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise unless a setting is a finite number ≥ 0, or > 0."""
    number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not number or float(value) < 0.0 or (above_zero and float(value) == 0.0):
        raise InputError(f"{name} is {value!r}; it must be a number {'> 0' if above_zero else '≥ 0'}")


def check_seed(seed: Any) -> None:
    """Raise unless the seed is a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise InputError(f"seed is {seed!r}; it must be a whole number")


def check_device(device: Any) -> None:
    """Raise unless torch can use the device."""
    if device == "cpu":
        return
    if not str(device).startswith("cuda"):
        raise InputError(f"device is {device!r}; it must be 'cpu' or 'cuda'")
    import torch

    if not torch.cuda.is_available():
        raise InputError(f"device is {device!r}, but there is none here that torch can use; take 'cpu'")


# Weighted cells as the networks want them: cut into bins of equal mass, thinned, padded to one rectangle.


@dataclass(frozen=True)
class TrainingCells:
    """Everything a calibrator needs to know about the rows: weighted points and their contexts.

    `logit`, `context`, `weight` and `positives` have one entry per cell. Row `c` of `codes` has the field
    values of context `c`, one column per field (no columns: no field). `sizes` is the number of values of each
    field; a code equal to the size, or any other code outside `0 … size − 1`, means a value never seen.
    """

    logit: FloatArray
    context: IntArray
    weight: FloatArray
    positives: FloatArray
    codes: IntArray
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        logit: FloatArray,
        weight: FloatArray,
        positives: FloatArray,
        context: IntArray | None = None,
        codes: IntArray | None = None,
        sizes: tuple[int, ...] | None = None,
    ) -> "TrainingCells":
        """Return TrainingCells from plain arrays; one context without fields if none is given."""
        logit = np.asarray(logit, dtype=np.float64)
        if context is None:
            context, codes = np.zeros(len(logit), dtype=np.int64), np.empty((1, 0), dtype=np.int64)
        context = np.asarray(context, dtype=np.int64)
        if codes is None:
            codes = np.arange(int(context.max(initial=0)) + 1)[:, None]
        codes = np.asarray(codes, dtype=np.int64)
        if sizes is None:
            sizes = tuple(int(n) for n in codes.max(axis=0, initial=-1) + 1)
        weight = np.asarray(weight, dtype=np.float64)
        positives = np.asarray(positives, dtype=np.float64)
        if not len(logit) == len(context) == len(weight) == len(positives):
            raise InputError("logit, context, weight and positives must have one entry per cell each")
        if len(logit) == 0 or not weight.sum() > 0:
            raise InputError("there is nothing to fit: no cell has a positive weight")
        if not np.isfinite(logit).all() or not np.isfinite(weight).all() or not np.isfinite(positives).all():
            raise InputError("logit, weight and positives must be finite in every cell")
        if (weight < 0).any() or (positives < 0).any() or (positives > weight * (1 + 1e-9)).any():
            raise InputError("every cell needs 0 ≤ positives ≤ weight")
        if context.min() < 0 or context.max() >= len(codes):
            raise InputError(f"context codes must lie in 0 … {len(codes) - 1}, one row of `codes` each")
        keep = weight > 0
        return cls(logit[keep], context[keep], weight[keep], positives[keep], codes, sizes)


def as_codes(codes: NDArray[np.integer] | None, rows: int, sizes: tuple[int, ...]) -> IntArray:
    """Return field codes as `[rows, fields]`, where every value never seen becomes the code `size` of its field."""
    if codes is None:
        if sizes:
            raise InputError(f"the function was fitted with {len(sizes)} field(s); their codes are needed")
        return np.empty((rows, 0), dtype=np.int64)
    table = np.asarray(codes, dtype=np.int64)
    table = table[:, None] if table.ndim == 1 else table
    if table.shape != (rows, len(sizes)):
        raise InputError(f"codes have shape {table.shape}, expected {(rows, len(sizes))}")
    limit = np.asarray(sizes, dtype=np.int64)
    return np.where((table < 0) | (table >= limit), limit, table)


def with_unseen(cells: TrainingCells, share: float) -> TrainingCells:
    """Add contexts in which a field value is unknown, so that unseen values get the pooled curve.

    The expectation of replacing field values at random: one field at a time and all together, with `share` of
    the mass. The added contexts come after the original ones.
    """
    fields = len(cells.sizes)
    if fields == 0 or share <= 0:
        return cells
    limit = np.asarray(cells.sizes, dtype=np.int64)
    hidden = [np.arange(fields)] if fields == 1 else [np.arange(fields), *np.arange(fields)[:, None]]
    codes, parts, count = [cells.codes], [cells.context], len(cells.codes)
    for fields_hidden in hidden:
        masked = cells.codes.copy()
        masked[:, fields_hidden] = limit[fields_hidden]
        distinct, inverse = distinct_contexts(masked)
        codes.append(distinct)
        parts.append(count + inverse[cells.context])
        count += len(distinct)
    copies = len(hidden)
    scale = np.repeat([1.0, share / copies], [len(cells.logit), copies * len(cells.logit)])
    return TrainingCells(
        logit=np.tile(cells.logit, 1 + copies),
        context=np.concatenate(parts),
        weight=np.tile(cells.weight, 1 + copies) * scale,
        positives=np.tile(cells.positives, 1 + copies) * scale,
        codes=np.concatenate(codes),
        sizes=cells.sizes,
    )


def shared_codes(cells: TrainingCells, own: int) -> IntArray:
    """Return the codes `[contexts, fields]` with all but the `own` values of each field that have the most mass unseen.

    >>> cells = TrainingCells.of([0.0, 1.0, 2.0], [5.0, 1.0, 3.0], [1.0, 0.0, 1.0], [0, 1, 2])
    >>> shared_codes(cells, 2).ravel()
    array([0, 3, 2])
    """
    result = cells.codes.copy()
    for i, size in enumerate(cells.sizes):
        mass = np.bincount(cells.codes[cells.context, i], weights=cells.weight, minlength=size + 1)[:size]
        if size > own:
            small = np.ones(size + 1, dtype=bool)
            small[np.argsort(-mass, kind="stable")[:own]] = False
            result[small[result[:, i]], i] = size
    return result


def midpoint_edges(points: FloatArray, weight: FloatArray, bins: int) -> FloatArray:
    """Return interior edges of at most `bins` bins of equal mass, each midway between two distinct points.

    >>> midpoint_edges(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), 2)
    array([2.5])
    """
    distinct, inverse = np.unique(points, return_inverse=True)
    cut = equal_mass_cuts(inverse, weight, bins)
    return np.asarray((distinct[cut] + distinct[cut + 1]) / 2.0)


@dataclass(frozen=True)
class PaddedCells:
    """TrainingCells in a rectangle: bin × context × at most P points, padded with points of weight zero."""

    points: FloatArray
    weight: FloatArray
    positives: FloatArray


def pad_cells(cells: TrainingCells, points: FloatArray, edges: FloatArray, count: int) -> PaddedCells:
    """Put every cell into its bin and merge neighbours: at most `count`, of equal mass, a bin and context."""
    bins, contexts = len(edges) + 1, len(cells.codes)
    bin_of = np.searchsorted(edges, points, side="right")
    group = bin_of * contexts + cells.context
    order = np.lexsort((points, group))
    group, weight = group[order], cells.weight[order]
    mass = np.bincount(group, weights=weight, minlength=bins * contexts)
    through = np.cumsum(weight)
    before = np.concatenate([[0.0], np.cumsum(mass)])[group]
    middle = (through - weight / 2.0 - before) / mass[group]
    slot = np.clip((middle * count).astype(np.int64), 0, count - 1)
    flat = group * count + slot
    size = bins * contexts * count

    def total(values: FloatArray) -> FloatArray:
        sums = np.bincount(flat, weights=values, minlength=size)
        return np.asarray(sums, dtype=np.float64).reshape(bins, contexts, count)

    merged = total(weight)
    ends = np.concatenate([[points.min()], edges, [points.max()]])
    centre = np.broadcast_to(((ends[:-1] + ends[1:]) / 2.0)[:, None, None], merged.shape)
    mean = np.divide(total(weight * points[order]), merged, out=centre.copy(), where=merged > 0)
    return PaddedCells(mean, merged, total(cells.positives[order]))


# From a trained function of (logit, field codes) to one curve per context.

_SCORES_PER_LOGIT = 4 * DENSE_PER_LOGIT
# How far beside a jump, in logits, its two values are asked: the logit of a score may miss the edge by a rounding.
_BESIDE_JUMP = 1e-9
_CURVES_PER_BLOCK = 64


class TrainedFunction(Protocol):
    """A trained function of the logit and the field codes."""

    def state(self) -> TrainingState:
        """Return the function as arrays and what it takes to restore it."""

    def predict(self, logit: FloatArray, codes: NDArray[Any]) -> FloatArray:
        """Return the probability of each row from its logit and its field codes `[rows, fields]`."""

    def kinks(self) -> FloatArray | None:
        """Return the scores at which the function has kinks."""

    def jumps(self) -> FloatArray | None:
        """Return the scores at which the function jumps."""


def compiled_curves(
    function: TrainedFunction, contexts: Contexts, sketch: Sketch, *, guarantee: bool
) -> tuple[Curves, Projection]:
    """Return the pooled curve and one per context; with `guarantee`, what falls is projected."""
    scores = dense_scores(function.kinks(), function.jumps(), per_logit=_SCORES_PER_LOGIT)
    logits = logit(scores)
    jump = np.flatnonzero(scores[:-1] == scores[1:])
    logits[jump] -= _BESIDE_JUMP
    logits[jump + 1] += _BESIDE_JUMP
    fields = len(contexts.names)
    codes = np.full((1, fields), -1, dtype=np.int64)
    if fields:
        codes = np.concatenate([codes, contexts.table.astype(np.int64)])
    pairs, moved, largest = [], 0, 0.0
    masses = _masses(sketch, contexts, scores) if guarantee else None
    for start in range(0, len(codes), _CURVES_PER_BLOCK):  # in blocks, to bound the memory
        part = codes[start : start + _CURVES_PER_BLOCK]
        asked = np.tile(logits, len(part)), np.repeat(part, len(logits), axis=0)
        values = function.predict(*asked).reshape(len(part), -1)
        if masses is not None:
            values, projection = project_monotone(values, masses(start, len(part)))
            moved, largest = moved + projection.curves, max(largest, projection.largest)
        pairs += compile_table(scores, values).pairs()
    curves = Curves.of(pairs)
    if masses is None:
        falling = sum(bool((np.diff(values) < 0.0).any()) for _, values in pairs)
        return curves, Projection(falling, curves.largest_drop())
    return curves, Projection(moved, largest)


def _masses(sketch: Sketch, contexts: Contexts, scores: FloatArray) -> Callable[[int, int], FloatArray]:
    """Return how much weight lies at each of the scores, for blocks of curves (the pooled one first)."""
    index = np.minimum(np.searchsorted(scores, sketch.score), len(scores) - 1)
    pooled = sums_by(index, sketch.weight, len(scores))
    known = bool(contexts.names and sketch.contexts.names)
    which = contexts.lookup(sketch.contexts.columns(sketch.context)) if known else np.zeros(0, dtype=np.int32)

    def block(start: int, number: int) -> FloatArray:
        mass = np.tile(pooled * 1e-6, (number, 1))
        for row in range(number):
            if start + row == 0:
                mass[row] = pooled
            elif known:
                own = which == start + row - 1
                mass[row] += sums_by(index[own], sketch.weight[own], len(scores))
        return mass

    return block


# Features of rows, as a network takes them: standardised numbers, and categories as codes into a vocabulary.


class EncodedFeatures(NamedTuple):
    """Features ready for a network: numbers `[rows, n]`, and codes of categories `[rows, m]`."""

    numbers: NDArray[np.float32]
    categories: NDArray[np.int64]

    def rows(self, which: NDArray[Any]) -> "EncodedFeatures":
        """Return some of the rows."""
        return EncodedFeatures(self.numbers[which], self.categories[which])


@dataclass(frozen=True)
class NumberColumn:
    """How a column of numbers is encoded: in standard deviations from the mean, within the range that was fitted.

    A missing value counts as the mean; if some were missing in the fit, an indicator beside the number says so.
    """

    name: str
    mean: float
    spread: float
    low: float
    high: float
    indicator: bool

    @staticmethod
    def learn(name: str, values: FloatArray) -> "NumberColumn":
        """Return the encoding of a column."""
        present = values[~np.isnan(values)]
        if len(present) == 0:
            return NumberColumn(name, 0.0, 1.0, 0.0, 0.0, indicator=False)
        spread = float(present.std())
        return NumberColumn(
            name,
            float(present.mean()),
            spread if spread > 0.0 else 1.0,
            float(present.min()),
            float(present.max()),
            indicator=len(present) < len(values),
        )

    def encode(self, values: FloatArray) -> list[FloatArray]:
        """Return the number and, if there is one, its indicator."""
        missing = np.isnan(values)
        number = (np.clip(np.where(missing, self.mean, values), self.low, self.high) - self.mean) / self.spread
        return [number, missing.astype(np.float64)] if self.indicator else [number]


@dataclass(frozen=True)
class CategoryColumn:
    """The vocabulary of a column of categories; what is not in it has the code after the last one."""

    name: str
    values: tuple[str | None, ...]

    def encode(self, values: Any) -> NDArray[np.int64]:
        """Return the code of each row."""
        (column,) = field_columns({self.name: values})
        index = {value: code for code, value in enumerate(self.values)}
        table = np.array([index.get(value, len(index)) for value in column.values], dtype=np.int64)
        return table[column.codes]


@dataclass(frozen=True)
class FeatureEncoding:
    """The columns that a network was trained on; the same ones, by name, must come again.

    >>> encoding = FeatureEncoding.learn({"price": [1.0, None, 3.0], "device": ["phone", "web", "phone"]})
    >>> encoding.encode({"device": ["web", "tv"], "price": [3.0, None]})
    EncodedFeatures(numbers=array([[1., 0.],
           [0., 1.]], dtype=float32), categories=array([[1],
           [2]]))
    """

    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]
    named: bool
    """Whether columns go by their names (a table) or by their positions (an array)."""

    @staticmethod
    def learn(features: Any) -> "FeatureEncoding":
        """Return the encoding of features: a 2-D array of numbers, or a table (pandas, Polars, Arrow, a mapping).

        In a table, columns of numbers are numbers, and columns of text, categories or booleans are categories.
        """
        numbers, categories = [], []
        columns = _columns(features)
        for name, values in columns.items():
            if _is_number(name, values):
                numbers.append(NumberColumn.learn(name, _numbers(name, values)))
            else:
                (column,) = field_columns({name: values})
                categories.append(CategoryColumn(name, column.values))
        return FeatureEncoding(tuple(numbers), tuple(categories), not isinstance(features, np.ndarray))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of known values of each column of categories."""
        return tuple(len(column.values) for column in self.categories)

    def encode(self, features: Any) -> EncodedFeatures:
        """Return features of the same columns, encoded; refuse missing, surplus and unnamed ones."""
        columns = _columns(features)
        self._check(list(columns), named=not isinstance(features, np.ndarray))
        rows = len(next(iter(columns.values())))
        numbers = [part for n in self.numbers for part in n.encode(_numbers(n.name, columns[n.name]))]
        categories = [column.encode(columns[column.name]) for column in self.categories]
        return EncodedFeatures(
            np.column_stack(numbers).astype(np.float32) if numbers else np.zeros((rows, 0), dtype=np.float32),
            np.column_stack(categories) if categories else np.zeros((rows, 0), dtype=np.int64),
        )

    def _check(self, given: list[str], *, named: bool) -> None:
        needed = [number.name for number in self.numbers] + [category.name for category in self.categories]
        if named != self.named:
            kinds = ("an array without names", "a table with named columns")
            raise InputError(f"features are {kinds[named]}, but were {kinds[self.named]} in fit; pass the same kind")
        if set(given) == set(needed):
            return
        if not named:
            raise InputError(f"features have {len(given)} columns, but had {len(needed)} in fit; pass the same columns")
        lacking = [name for name in needed if name not in given]
        surplus = [name for name in given if name not in needed]
        result = [f"lack {', '.join(lacking)}"] if lacking else []
        result += [f"have an unknown {', '.join(surplus)}"] if surplus else []
        raise InputError(f"features {' and '.join(result)}; pass the columns of the fit: {', '.join(needed)}")


def _columns(features: Any) -> dict[str, Any]:
    """Return the columns by name (by position, for an array), all of one length."""
    if isinstance(features, np.ndarray):
        if features.ndim != 2:
            raise InputError(f"features have shape {features.shape}; pass a row for each score: [rows, columns]")
        columns = {str(index): features[:, index] for index in range(features.shape[1])}
    elif isinstance(features, Mapping):
        columns = {str(name): values for name, values in features.items()}
    elif hasattr(features, "columns"):
        names = list(features.column_names if hasattr(features, "column_names") else features.columns)
        columns = {str(name): features[name] for name in names}
        if len(columns) < len(names):
            raise InputError(f"two columns of features have one name: {', '.join(map(str, names))}; give each its own")
    else:
        raise InputError(
            f"features are {type(features).__name__}; pass a 2-D NumPy array or a table with named columns"
        )
    if not columns:
        raise InputError("features have no columns; give at least one, or leave auxiliary=True out")
    check_lengths(**{f"feature {name}": values for name, values in columns.items()})
    return columns


def _is_number(name: str, values: Any) -> bool:
    """Tell whether a column holds numbers or categories; refuse what is neither."""
    dtype: Any = getattr(values, "dtype", None)
    if hasattr(dtype, "is_numeric"):  # Polars
        number, category = dtype.is_numeric(), not (dtype.is_temporal() or dtype.is_nested())
    else:
        kind = dtype.kind if hasattr(dtype, "kind") else as_array(values, f"feature {name}").dtype.kind
        if kind == "O" and isinstance(values, list) and not any(isinstance(v, str | bool) for v in values):
            kind = "f"  # a plain list of numbers, some of them None
        number, category = kind in "iuf", kind in "bOUST"
    if not number and not category:
        raise InputError(f"feature {name!r} is of type {dtype}; make it a number (days, seconds) or text")
    return bool(number)


def _numbers(name: str, values: Any) -> FloatArray:
    """Return a column as float64, missing values as NaN."""
    if hasattr(getattr(values, "dtype", None), "is_decimal") and values.dtype.is_decimal():
        values = values.cast(float)  # a Polars column of decimals would come as objects
    numbers = as_floats(values, f"feature {name!r}")
    if np.isinf(numbers).any():
        raise InputError(f"feature {name!r} is infinite in row {int(np.isinf(numbers).argmax())}; give it a number")
    return numbers
