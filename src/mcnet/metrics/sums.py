"""Probabilities, labels and weights that are judged, and their sums per field value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcnet._shared.arrays import FloatArray, IndexArray, MaskArray, sums_by
from mcnet.errors import InputError
from mcnet.rows.columns import check_lengths, without_mask

# The columns every metric works on: probability, label (a fraction when rows are aggregated), weight.


def columns(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the three columns as float64, with weight 1 where none is given.

    A row of weight `w` and label `y` stands for `w·y` positive and `w·(1−y)` negative rows, everywhere in
    this package.

    >>> columns([0.1, 0.2], [0, 1])
    (array([0.1, 0.2]), array([0., 1.]), array([1., 1.]))
    """
    p = np.asarray(without_mask(probabilities), dtype=np.float64)
    y = np.asarray(without_mask(labels), dtype=np.float64)
    w = np.ones(p.shape) if weight is None else np.asarray(without_mask(weight), dtype=np.float64)
    for name, column in (("probabilities", p), ("labels", y), ("weight", w)):
        if column.ndim != 1:
            raise InputError(f"{name} has {column.ndim} dimensions; pass one value per row (a flat array)")
        if column.size != p.size:
            raise InputError(
                f"{name} has {column.size} rows but probabilities has {p.size}; pass columns of the same rows"
            )
        if not np.isfinite(column).all():
            row = int(np.argmin(np.isfinite(column)))
            raise InputError(f"{name} has a value missing, NaN or infinite in row {row}; leave such rows out")
    if p.size == 0:
        raise InputError("there are no rows to evaluate; pass at least one")
    if not w.any():
        raise InputError(f"the weights of all {p.size} rows are 0; at least one row must count")
    return p, y, w


def is_whole(column: FloatArray) -> bool:
    """Tell whether every value is 0 or 1; a look at a few of them settles the usual case."""
    return all(bool(((part == 0.0) | (part == 1.0)).all()) for part in (column[:100], column))


def order_by_probability(p: FloatArray) -> npt.NDArray[np.intp] | slice:
    """Return an index that sorts `p`; for a sorted column it is a slice, which costs nothing to apply."""
    if p.size < 2 or bool((p[1:] >= p[:-1]).all()):
        return slice(None)
    return np.argsort(p)


# What a group of rows (a field value, a bin) leaves behind: five sums, enough for any calibration error.


@dataclass(frozen=True)
class GroupSums:
    """Five sums for each group: Σw, Σwy, Σwp, Σwp² and Σwyp.

    They add, so the sums of a field follow from those of its contexts, and those of the whole from either.
    """

    weight: FloatArray
    positives: FloatArray
    predicted: FloatArray
    predicted_squared: FloatArray
    predicted_positive: FloatArray

    def __len__(self) -> int:
        return self.weight.size

    def merged(self, codes: IndexArray, count: int) -> "GroupSums":
        """Add groups together: group `i` goes into the new group `codes[i]`, out of `count`."""
        return GroupSums(*(sums_by(codes, column, count) for column in self.columns()))

    def total(self) -> "GroupSums":
        """Add all groups into one."""
        return GroupSums(*(column.sum(keepdims=True) for column in self.columns()))

    def where(self, kept: MaskArray | npt.NDArray[np.intp]) -> "GroupSums":
        """Keep only the groups marked true, or numbered."""
        return GroupSums(*(column[kept] for column in self.columns()))

    @property
    def noise_variance(self) -> FloatArray:
        """Variance of the number of positives if the probabilities are true: Σwp(1−p)."""
        return np.maximum(self.predicted - self.predicted_squared, 0.0)

    def second_moment(self, a: FloatArray | float, b: FloatArray | float, c: FloatArray | float) -> FloatArray:
        """Return Σw(a·y − b·p − c)² of each group, every row split into its positive and negative part."""
        moment = (
            a * a * self.positives
            + b * b * self.predicted_squared
            + c * c * self.weight
            - 2 * a * b * self.predicted_positive
            - 2 * a * c * self.positives
            + 2 * b * c * self.predicted
        )
        return np.maximum(moment, 0.0)

    def columns(self) -> tuple[FloatArray, ...]:
        """Return the five sums."""
        return tuple(vars(self).values())


def group_sums(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    codes: npt.ArrayLike | None = None,
    weight: npt.ArrayLike | None = None,
    *,
    count: int | None = None,
) -> GroupSums:
    """Sum the rows by group; `codes` numbers the groups from 0, and without it all rows are one group.

    >>> group_sums([0.1, 0.3, 0.2], [0, 1, 0], [0, 0, 1]).predicted
    array([0.4, 0.2])
    """
    p, y, w = columns(probabilities, labels, weight)
    groups = np.zeros(p.size, dtype=np.intp) if codes is None else np.asarray(codes).astype(np.intp, copy=False)
    check_lengths(probabilities=p, codes=groups)
    size = int(groups.max()) + 1 if count is None else count
    wp = w * p
    return GroupSums(*(sums_by(groups, column, size) for column in (w, w * y, wp, wp * p, wp * y)))


def joined_sums(parts: Sequence[GroupSums]) -> GroupSums:
    """Return the groups of several parts one after the other."""
    return GroupSums(*(np.concatenate(columns) for columns in zip(*(part.columns() for part in parts), strict=True)))
