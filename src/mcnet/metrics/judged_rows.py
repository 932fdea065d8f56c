"""The rows that are judged, and the settings of an evaluation."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mcnet._shared.arrays import FloatArray
from mcnet.metrics.calibration_error import equal_mass_bins
from mcnet.metrics.intervals import Estimate
from mcnet.metrics.scores import CLIP, auc, gauc, mean_auc
from mcnet.metrics.sums import GroupSums, group_sums, joined_sums

if TYPE_CHECKING:
    from mcnet.metrics.money import Money

# The settings of an evaluation.


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """What the metrics of an evaluation depend on besides the rows; see `mcnet.evaluate`."""

    epsilon: float = 0.01
    drop_empty: bool = False
    level: float = 0.95
    bins: int = 20
    clip: float = CLIP
    seed: int = 0


# The rows that an evaluation judges, prepared once for all metrics.


@dataclass(frozen=True)
class JudgedSums:
    """The sums of each value of a field, and the settings: what metrics that compare field values need."""

    settings: MetricSettings
    sums: GroupSums


@dataclass(frozen=True)
class JudgedRows(JudgedSums):
    """Rows in the order of their probability; `sums` are those of the contexts, `codes` the context of each row.

    A row of weight w and label y stands for w·y positives and w·(1 − y) negatives. `folds` number the fold of each row
    without gaps, if each fold was predicted by a fit on the other ones. Errors and the order of rows are then measured
    within folds: added up, folds hide the errors of the fits (see `FoldSums`), and rows of different folds are
    ordered by different fits. `money` is there if the rows have a value.
    """

    p: FloatArray
    y: FloatArray
    w: FloatArray
    codes: npt.NDArray[np.intp]
    truth: FloatArray | None = None
    folds: npt.NDArray[np.intp] | None = None
    money: "Money | None" = None

    @cached_property
    def parts(self) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Return probabilities, labels and weights of each fold; those of all rows if there are no folds."""
        if self.folds is None:
            return [(self.p, self.y, self.w)]
        inside = (self.folds == fold for fold in range(int(self.folds.max()) + 1))
        return [(self.p[rows], self.y[rows], self.w[rows]) for rows in inside]

    @cached_property
    def bins(self) -> npt.NDArray[np.intp]:
        """Return the bin of each row, for bins of equal mass."""
        return equal_mass_bins(self.p, self.w, self.settings.bins)

    @cached_property
    def bin_sums(self) -> GroupSums:
        """Return the sums of the bins of equal mass."""
        return group_sums(self.p, self.y, self.bins, self.w)

    @cached_property
    def compared_bins(self) -> GroupSums:
        """Return the sums of the bins of equal mass of each fold."""
        if self.folds is None:
            return self.bin_sums
        number = self.settings.bins
        return joined_sums([group_sums(p, y, equal_mass_bins(p, w, number), w) for p, y, w in self.parts])

    @cached_property
    def auc(self) -> Estimate:
        """Return the AUC over all rows, or the mean of those of the folds."""
        if self.folds is None:
            return auc(self.p, self.y, self.w, level=self.settings.level)
        return mean_auc(self.p, self.y, self.w, self.folds, level=self.settings.level, of="fold")

    @cached_property
    def gauc(self) -> Estimate:
        """Return the mean of the AUCs of the contexts, or of the contexts of each fold."""
        codes = self.codes if self.folds is None else self.codes * (int(self.folds.max()) + 1) + self.folds
        return gauc(self.p, self.y, codes, self.w, level=self.settings.level)
