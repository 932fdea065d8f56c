"""Is a method better than the best baseline? What each training beats, paired t-tests, the bootstrap over rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_rel

from reproduction.trials import TRAININGS, Trial, column

__all__ = ["difference", "errors", "paired_test", "remains"]


@dataclass(frozen=True)
class PairedTest:
    """A method against the baseline with the lowest mean error: difference of the means (below 0: better) and p.

    p is over seeds: other simulated worlds or, where the rows are given, other starts of training on the same rows.
    """

    baseline: str
    difference: float
    p_value: float
    rows: tuple[float, float] | None = None
    """The 95 % interval of the difference over test rows, of the first seed."""

    def text(self, digits: int) -> str:
        """Return the test as a cell of a table."""
        p = "" if np.isnan(self.p_value) else f", p = {self.p_value:.2g}"
        rows = "" if self.rows is None else f", rows {self.rows[0]:+.{digits}f} to {self.rows[1]:+.{digits}f}"
        return f"{self.difference:+.{digits}f} ({self.baseline}){p}{rows}"


def errors(trials: Sequence[Trial], figure: str) -> list[float]:
    """Return what is best at 0: the distance of PCOC from 1, or the figure itself."""
    found = column(trials, figure)
    return [abs(value - 1.0) for value in found] if figure == "pcoc" else found


def paired_test(
    methods: Mapping[str, Sequence[Trial]], method: str, figure: str, baselines: Sequence[str]
) -> PairedTest:
    """Compare a method with the best baseline, seed by seed; one seed gives no p-value (NaN)."""
    best = min(baselines, key=lambda name: float(np.mean(errors(methods[name], figure))))
    ours, theirs = methods[method][0].parts, methods[best][0].parts
    rows = None
    if ours is not None and theirs is not None:
        low, high = np.quantile(ours.drawn(figure) - theirs.drawn(figure), [0.025, 0.975])
        rows = float(low), float(high)
    return PairedTest(best, *difference(errors(methods[method], figure), errors(methods[best], figure)), rows)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the mean difference, seed by seed, and p of its paired t-test; NaN where there is nothing to test."""
    gap = np.subtract(ours, theirs)
    p = float(ttest_rel(ours, theirs).pvalue) if len(gap) > 1 and gap.std() > 0.0 else float("nan")
    return float(gap.mean()), p


def remains(
    levels: Mapping[str, float], baselines: Sequence[str], title: str, suffix: str = "", digits: int = 4
) -> str:
    """Return what is left of "MCNet beats its baselines" in one table, where the lowest level is the best.

    >>> remains({"SIR": 2.0, "MCNet-None, as printed": 3.0, "MCNet-Field, as printed": 1.0}, ["SIR"], "KL")
    'KL of MCNet-None and MCNet-Field as printed 3 and 1; best baseline 2 (SIR). What beats it: as printed Field.'
    """
    best = min(baselines, key=lambda name: levels[name])
    parts, beats = [], []
    for training in TRAININGS:
        names = {v: f"MCNet-{v}{suffix}, {training}" for v in ("None", "Field")}
        found = {variant: levels[name] for variant, name in names.items() if name in levels}
        if found:
            parts.append(f"{training} {' and '.join(f'{level:.{digits}g}' for level in found.values())}")
            better = [variant for variant, level in found.items() if level < levels[best]]
            beats.append(f"{training} {' and '.join(better) or 'neither'}")
    return (
        f"{title} of MCNet-None{suffix} and MCNet-Field{suffix} {'; '.join(parts)}; best baseline "
        f"{levels[best]:.{digits}g} ({best}). What beats it: {'; '.join(beats)}."
    )
