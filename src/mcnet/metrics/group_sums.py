"""What a group of rows (a field value, a bin) leaves behind: five sums, enough for any calibration error."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray, IndexArray, MaskArray
from mcnet.metrics.probability_columns import columns

__all__ = ["GroupSums", "group_sums", "joined_sums"]


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
        return GroupSums(*(_added(codes, column, count) for column in self.columns()))

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
        return (
            self.weight,
            self.positives,
            self.predicted,
            self.predicted_squared,
            self.predicted_positive,
        )


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
    size = int(groups.max()) + 1 if count is None else count
    wp = w * p
    return GroupSums(*(_added(groups, column, size) for column in (w, w * y, wp, wp * p, wp * y)))


def joined_sums(parts: Sequence[GroupSums]) -> GroupSums:
    """Return the groups of several parts one after the other."""
    return GroupSums(*(np.concatenate(columns) for columns in zip(*(part.columns() for part in parts), strict=True)))


def _added(codes: IndexArray, column: FloatArray, count: int) -> FloatArray:
    return np.bincount(codes, column, count).astype(np.float64, copy=False)
