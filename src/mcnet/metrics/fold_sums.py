"""Sums of field values within folds, where each fold was predicted by a fit on the other ones.

Summed over all folds, the positives that such fits expect of a field value are nearly those that it has, however wrong
each fit is: a value with more positives in one fold makes the other fits expect more. So the error of a field value is
looked at within a fold.
"""

from dataclasses import dataclass

from mcnet._shared.typing import FloatArray, IndexArray
from mcnet.metrics.fields import compact
from mcnet.metrics.group_sums import GroupSums, group_sums

__all__ = ["FoldSums"]


@dataclass(frozen=True)
class FoldSums:
    """The sums of each context in each fold, and which context and fold these are."""

    sums: GroupSums
    context: IndexArray
    fold: IndexArray

    @classmethod
    def of(cls, p: FloatArray, y: FloatArray, w: FloatArray, contexts: IndexArray, folds: IndexArray) -> "FoldSums":
        """Sum rows by context and fold."""
        count = int(folds.max()) + 1
        codes, pairs = compact(contexts * count + folds)
        return cls(group_sums(p, y, codes, w, count=len(pairs)), pairs // count, pairs % count)

    def of_values(self, members: IndexArray) -> GroupSums:
        """Return the sums of each value of one field in each fold, given the value of each context."""
        count = int(self.fold.max()) + 1
        codes, pairs = compact(members[self.context] * count + self.fold)
        return self.sums.merged(codes, len(pairs))
