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

    @property
    def clear(self) -> bool:
        """Whether the method is better beyond noise: p < 0.05 over seeds or, of one seed, all of the interval below 0.

        Where neither is known, it is enough to be better.
        """
        if not np.isnan(self.p_value):
            return self.difference < 0.0 and self.p_value < 0.05
        return self.difference < 0.0 and (self.rows is None or self.rows[1] < 0.0)

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
    methods: Mapping[str, Sequence[Trial]],
    figure: str,
    baselines: Sequence[str],
    title: str,
    *,
    suffix: str = "",
    factor: float = 1.0,
    digits: int = 4,
) -> str:
    """Return what is left of "MCNet beats its baselines" in one table, by a figure whose lowest value is the best.

    A method beats the best baseline if it is better beyond noise (`PairedTest.clear`).
    """
    tests = {name: paired_test(methods, name, figure, baselines) for name in methods}
    levels = {name: factor * float(np.mean(errors(trials, figure))) for name, trials in methods.items()}
    best = min(baselines, key=lambda name: levels[name])
    parts, beats = [], []
    for training in TRAININGS:
        names = {v: f"MCNet-{v}{suffix}, {training}" for v in ("None", "Field")}
        found = {variant: name for variant, name in names.items() if name in levels}
        if found:
            parts.append(f"{training} {' and '.join(f'{levels[name]:.{digits}g}' for name in found.values())}")
            better = [variant for variant, name in found.items() if tests[name].clear]
            level = [v for v, name in found.items() if tests[name].difference < 0.0 and v not in better]
            beats.append(
                f"{training} {' and '.join(better) or 'neither'}"
                + (f" ({' and '.join(level)} lower, within noise)" if level else "")
            )
    return (
        f"{title} of MCNet-None{suffix} and MCNet-Field{suffix} {'; '.join(parts)}; best baseline "
        f"{levels[best]:.{digits}g} ({best}). What beats it: {'; '.join(beats)}."
    )
