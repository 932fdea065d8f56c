"""Weighted cells as the networks want them: cut into bins of equal mass, thinned, padded to one rectangle."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.errors import InputError
from mcnet.sketch.equal_mass import equal_mass_cuts

__all__ = ["PaddedCells", "TrainingCells", "as_codes", "midpoint_edges", "pad_cells", "shared_codes", "with_unseen"]


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

    @property
    def mass(self) -> float:
        """The total weight N."""
        return float(self.weight.sum())


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
        distinct, inverse = np.unique(masked, axis=0, return_inverse=True)
        codes.append(distinct)
        parts.append(count + inverse.reshape(-1)[cells.context])
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
    """TrainingCells in a rectangle: bin × context × at most P points, padded with points of weight zero.

    `left` and `right` are the ends of each bin; the outer ones are the outermost points.
    """

    points: FloatArray
    weight: FloatArray
    positives: FloatArray
    left: FloatArray
    right: FloatArray


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
    lowest, highest = points.min(), points.max()
    left, right = np.concatenate([[lowest], edges]), np.concatenate([edges, [highest]])
    centre = np.broadcast_to(((left + right) / 2.0)[:, None, None], merged.shape)
    mean = np.divide(total(weight * points[order]), merged, out=centre.copy(), where=merged > 0)
    return PaddedCells(mean, merged, total(cells.positives[order]), left, right)
