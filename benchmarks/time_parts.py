"""Worlds that move in parts: how far the tracker is from the known rate of each field value, period by period.

The error is the logarithm of predicted ÷ true rate of a field value in the coming period, over a fixed distribution of
scores. Beside the tracker: the same without values apart (as it was before), and BayesMCNet fitted in every judged
period with one memory, the best of three in hindsight.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import numpy as np

import mcnet
from benchmarks import report

PERIODS, CHANGE, JUDGED_EVERY = 50, 30, 2
ROWS, VALUES = 6_000, 12
MEAN_LOGIT = -3.2
SEEDS, QUICK_SEEDS = 10, 2
HALF_LIVES = (2.0, 8.0, np.inf)
NONE_APART = 1e-200
GAP = 23
GRID = np.linspace(MEAN_LOGIT - 3.0, MEAN_LOGIT + 3.0, 120)
DENSITY = np.exp(-0.5 * (GRID - MEAN_LOGIT) ** 2) / np.exp(-0.5 * (GRID - MEAN_LOGIT) ** 2).sum()
AFTER = (1, 2, 3, 5, 10)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


@dataclass(frozen=True)
class Truth:
    """logit p = offset[t, c] + MEAN_LOGIT + slope[t, c] · (x − MEAN_LOGIT) in period t and value c."""

    offset: np.ndarray
    slope: np.ndarray
    moved: np.ndarray
    """The values that move by themselves."""
    first: np.ndarray
    """The first period of each value."""
    gap_at: int | None = None

    def logit(self, t: int, code: np.ndarray | int, raw: np.ndarray) -> np.ndarray:
        return np.asarray(self.offset[t, code] + MEAN_LOGIT + self.slope[t, code] * (raw - MEAN_LOGIT))


def still(rng: np.random.Generator, values: int = VALUES) -> Truth:
    offset = np.tile(rng.normal(0.0, 0.3, values), (PERIODS + 1, 1))
    return Truth(offset, np.ones_like(offset), np.zeros(values, dtype=bool), np.zeros(values, dtype=int))


def moved(truth: Truth, *codes: int) -> Truth:
    truth.moved[list(codes)] = True
    return truth


def drops(rng: np.random.Generator) -> Truth:
    truth = moved(still(rng), 0)
    truth.offset[CHANGE:, 0] -= 0.6
    return truth


def wander(rng: np.random.Generator) -> Truth:
    truth = moved(still(rng, 50), 0, 1, 2)
    truth.offset[10:, :3] += np.cumsum(rng.normal(0.0, 0.15, (PERIODS - 9, 3)), axis=0)
    return truth


def slope_changes(rng: np.random.Generator) -> Truth:
    truth = moved(still(rng), 0)
    truth.slope[CHANGE:, 0] = 0.6
    return truth


def new_value(rng: np.random.Generator) -> Truth:
    truth = moved(still(rng), 0)
    truth.first[0] = CHANGE
    return truth


def common_jump(rng: np.random.Generator) -> Truth:
    truth = still(rng)
    truth.offset[CHANGE:] += 0.6
    return truth


def both(rng: np.random.Generator) -> Truth:
    truth = drops(rng)
    truth.offset[:] += np.cumsum(rng.normal(0.0, 0.1, PERIODS + 1))[:, None]
    return truth


def gap(rng: np.random.Generator) -> Truth:
    truth = common_jump(rng)
    return Truth(truth.offset, truth.slope, truth.moved, truth.first, gap_at=CHANGE + 3)


WORLDS: dict[str, Callable[[np.random.Generator], Truth]] = {
    "still": still,
    "one value drops by 0.6": drops,
    "three of fifty values wander": wander,
    "the slope of a value changes to 0.6": slope_changes,
    "a new value appears": new_value,
    "the level jumps by 0.6": common_jump,
    "the level wanders, one value drops": both,
    f"the level jumps, three periods later a gap of {GAP}": gap,
}


class OneMemory:
    """BayesMCNet, fitted when it is asked."""

    def __init__(self, half_life: float) -> None:
        self.fading, self.past = 0.5 ** (1.0 / half_life), None

    def update_sketch(self, sketch: mcnet.Sketch, period: int) -> None:
        old = self.past if self.fading == 1.0 or self.past is None else self.fading * self.past
        self.past = sketch if old is None else old + sketch

    @property
    def model_(self) -> mcnet.CalibrationModel:
        return mcnet.BayesMCNet(isotonic_share=0.0).fit_sketch(self.past).model_


def errors(truth: Truth, forecaster: object, rng: np.random.Generator) -> np.ndarray:
    """Return the errors after each judged period from the change on `[periods, values]`, NaN for others."""
    values = truth.offset.shape[1]
    share = rng.dirichlet(np.full(values, 3.0))
    share[0] = max(share[0], 0.25 if values == VALUES else 0.05)
    names, result = np.array([f"v{code}" for code in range(values)]), np.full((PERIODS, values), np.nan)
    clock = 0
    for t in range(PERIODS):
        there = np.where(truth.first <= t, share, 0.0)
        code = rng.choice(values, ROWS, p=there / there.sum())
        raw = rng.normal(MEAN_LOGIT, 1.0, ROWS)
        label = rng.random(ROWS) < sigmoid(truth.logit(t, code, raw))
        clock += 1 if t != truth.gap_at else 1 + GAP
        forecaster.update_sketch(mcnet.Sketch.from_rows(sigmoid(raw), label, field=names[code], resolution=64), clock)
        since = t + 1 - CHANGE
        if since < 0 or not (since in AFTER or since % JUDGED_EVERY == 0):
            continue
        model = forecaster.model_
        for value in np.flatnonzero(truth.first <= t):
            said = DENSITY @ model.predict(sigmoid(GRID), [names[value]] * len(GRID))
            result[t, value] = np.log(said / (DENSITY @ sigmoid(truth.logit(t + 1, value, GRID))))
    return result


def runs(name: str, seeds: int) -> dict[str, np.ndarray]:
    """Return the errors of each forecaster `[seeds, periods, values]`, and which values moved under "moved"."""
    result: dict[str, list[np.ndarray]] = {}
    for seed in range(seeds):
        truth = WORLDS[name](np.random.default_rng([seed, 0]))

        def judge(label: str, forecaster: object, truth: Truth = truth, seed: int = seed) -> None:
            result.setdefault(label, []).append(errors(truth, forecaster, np.random.default_rng([seed, 1])))

        judge("tracker", mcnet.Tracker())
        with mock.patch("mcnet.tracking.forecast.PRIOR_APART", NONE_APART):
            judge("as one", mcnet.Tracker())
        for half_life in HALF_LIVES:
            judge(f"memory {half_life:g}", OneMemory(half_life))
    return {label: np.array(found) for label, found in result.items()} | {"moved": truth.moved}


def rms(found: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(found**2))) if np.isfinite(found).any() else float("nan")


def main(full: bool = False) -> None:
    seeds = SEEDS if full else QUICK_SEEDS
    lines, after = [], []
    for name in WORLDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = runs(name, seeds)
        apart = found.pop("moved")
        best = min((label for label in found if label.startswith("memory")), key=lambda label: rms(found[label]))
        figures = [rms(found[label][:, :, which]) for which in (apart, ~apart) for label in ("tracker", "as one", best)]
        hindsight = "everything" if best == "memory inf" else best
        lines.append([name, *("—" if np.isnan(figure) else f"{figure:.3f}" for figure in figures), hindsight])
        print("  ", *lines[-1], flush=True)
        if name == "one value drops by 0.6":
            for label in ("tracker", "as one"):
                means = [np.mean(np.abs(found[label][:, CHANGE + n - 1, 0])) for n in AFTER]
                after.append([{"tracker": "Tracker()", "as one": "without values apart"}[label]])
                after[-1] += [f"{mean:.2f}" for mean in means]
    head = ("world", "moved values: Tracker()", "without values apart", "best memory", "other values: Tracker()")
    text = f"""## Time: worlds that move in parts

Root mean square of log(predicted ÷ true rate) of a field value in the coming period, from the change in period {CHANGE}
on; {ROWS:,} rows per period, {seeds} seeds. The best memory is that of BayesMCNet with half-life 2, 8 or
everything, chosen in hindsight.

{report.table((*head, "without values apart", "best memory", "which"), lines)}

The value that drops, mean absolute error after so many periods:

{report.table(("", *map(str, AFTER)), after)}
"""
    report.keep("time_parts", text, full)


if __name__ == "__main__":
    import sys

    main("--full" in sys.argv)
