"""Paired t-tests over seeds: is a method better than the best baseline?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_rel

from reproduction.trials import Trial, column

__all__ = ["difference", "errors", "paired_test"]


@dataclass(frozen=True)
class PairedTest:
    """A method against the baseline with the lowest mean error: difference of the means (below 0: better) and p."""

    baseline: str
    difference: float
    p_value: float

    def text(self, digits: int) -> str:
        """Return the test as a cell of a table."""
        p = "" if np.isnan(self.p_value) else f", p = {self.p_value:.2g}"
        return f"{self.difference:+.{digits}f} ({self.baseline}){p}"


def errors(trials: Sequence[Trial], figure: str) -> list[float]:
    """Return what is best at 0: the distance of PCOC from 1, or the figure itself."""
    found = column(trials, figure)
    return [abs(value - 1.0) for value in found] if figure == "pcoc" else found


def paired_test(
    methods: Mapping[str, Sequence[Trial]], method: str, figure: str, baselines: Sequence[str]
) -> PairedTest:
    """Compare a method with the best baseline, seed by seed; one seed gives no p-value (NaN)."""
    best = min(baselines, key=lambda name: float(np.mean(errors(methods[name], figure))))
    return PairedTest(best, *difference(errors(methods[method], figure), errors(methods[best], figure)))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the mean difference, seed by seed, and p of its paired t-test; NaN where there is nothing to test."""
    gap = np.subtract(ours, theirs)
    p = float(ttest_rel(ours, theirs).pvalue) if len(gap) > 1 and gap.std() > 0.0 else float("nan")
    return float(gap.mean()), p
