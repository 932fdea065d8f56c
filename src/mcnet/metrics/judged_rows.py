"""The rows that an evaluation judges, prepared once for all metrics."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mcnet.metrics.binned import equal_mass_bins
from mcnet.metrics.estimate import Estimate
from mcnet.metrics.group_sums import GroupSums, group_sums
from mcnet.metrics.probability_columns import Floats
from mcnet.metrics.ranking import auc
from mcnet.metrics.settings import Settings

__all__ = ["JudgedRows", "JudgedSums"]


@dataclass(frozen=True)
class JudgedSums:
    """The sums of each value of a field, and the settings: what metrics that compare field values need."""

    settings: Settings
    sums: GroupSums


@dataclass(frozen=True)
class JudgedRows(JudgedSums):
    """Rows in the order of their probability; `sums` are those of the contexts, `codes` the context of each row.

    A row of weight w and label y stands for w·y positives and w·(1 − y) negatives.
    """

    p: Floats
    y: Floats
    w: Floats
    codes: npt.NDArray[np.intp]
    truth: Floats | None = None

    @cached_property
    def bins(self) -> npt.NDArray[np.intp]:
        """Return the bin of each row, for bins of equal mass."""
        return equal_mass_bins(self.p, self.w, self.settings.bins)

    @cached_property
    def bin_sums(self) -> GroupSums:
        """Return the sums of the bins of equal mass."""
        return group_sums(self.p, self.y, self.bins, self.w)

    @cached_property
    def auc(self) -> Estimate:
        """Return the AUC over all rows."""
        return auc(self.p, self.y, self.w, level=self.settings.level)
