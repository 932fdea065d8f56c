"""Worlds that move in parts: how far the tracker is from the known rate of each field value, period by period.

The error is the logarithm of predicted ÷ true rate of a field value in the coming period, over a fixed distribution of
scores. Beside the tracker: the same without values apart (as it was before), and BayesMCNet fitted in every judged
period with one memory, the best of three in hindsight. What is measured is kept after each seed, and taken from there
by a run with --resume.
"""

import json
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from unittest import mock

import numpy as np

import mcnet
from benchmarks import report
from benchmarks.peers import calling
from mcnet.tracking.forecast import PRIOR_APART

PERIODS, CHANGE, JUDGED_EVERY = 50, 30, 2
ROWS, VALUES = 6_000, 12
MEAN_LOGIT = -3.2
SEEDS, QUICK_SEEDS = 10, 2
FIRST_SEED = 200
"""Seeds that no setting of the tracker was chosen on."""
HALF_LIVES = (2.0, 8.0, np.inf)
NONE_APART = 1e-200
GAP, GAPS, ROWS_AFTER = 23, (0, 23, 100), (3, 200, 2_000)
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


class Rows:
    """The rows of each period of a world."""

    def __init__(self, truth: Truth, seed: int) -> None:
        self.truth, self.rng, self.values = truth, np.random.default_rng([seed, 1]), truth.offset.shape[1]
        self.share = self.rng.dirichlet(np.full(self.values, 3.0))
        self.share[0] = max(self.share[0], 0.25 if self.values == VALUES else 0.05)
        self.names = np.array([f"v{code}" for code in range(self.values)])

    def period(self, t: int, rows: int = ROWS) -> mcnet.Sketch:
        there = np.where(self.truth.first <= t, self.share, 0.0)
        code = self.rng.choice(self.values, rows, p=there / there.sum())
        raw = self.rng.normal(MEAN_LOGIT, 1.0, rows)
        label = self.rng.random(rows) < sigmoid(self.truth.logit(t, code, raw))
        return mcnet.Sketch.from_rows(sigmoid(raw), label, field=self.names[code], resolution=64)

    def logs(self, model: mcnet.CalibrationModel, t: int) -> np.ndarray:
        """Return the logarithm of predicted ÷ true rate of each value in a period; NaN for one that never was there."""
        result = np.full(self.values, np.nan)
        for value in np.flatnonzero(self.truth.first < t):
            said = DENSITY @ model.predict(sigmoid(GRID), [self.names[value]] * len(GRID))
            result[value] = np.log(said / (DENSITY @ sigmoid(self.truth.logit(t, value, GRID))))
        return result


def errors(truth: Truth, forecasters: dict[str, object], seed: int) -> dict[str, list[list[float]]]:
    """Return the errors of each forecaster after each judged period from the change on `[periods, values]`."""
    rows, clock = Rows(truth, seed), 0
    result: dict[str, list[list[float]]] = {label: [] for label in forecasters}
    for t in range(PERIODS):
        clock += 1 if t != truth.gap_at else 1 + GAP
        sketch, since = rows.period(t), t + 1 - CHANGE
        for label, forecaster in forecasters.items():
            with mock.patch("mcnet.tracking.forecast.PRIOR_APART", NONE_APART if label == "as one" else PRIOR_APART):
                forecaster.update_sketch(sketch, clock)
        if since >= 0 and (since in AFTER or since % JUDGED_EVERY == 0):
            for label, forecaster in forecasters.items():
                result[label].append(rows.logs(forecaster.model_, t + 1).tolist())
    return result


def run(name: str, seed: int) -> dict[str, np.ndarray]:
    """Return the errors of each forecaster `[periods, values]`, and which values moved under "moved"."""
    path = report.KEPT / "parts" / f"{list(WORLDS).index(name)}-{seed}.json"
    truth = WORLDS[name](np.random.default_rng([seed, 0]))
    if not (calling.RESUME and path.exists()):
        with mock.patch("mcnet.tracking.forecast.PRIOR_APART", NONE_APART):
            as_one = mcnet.Tracker()
        forecasters = {"tracker": mcnet.Tracker(), "as one": as_one}
        forecasters |= {f"memory {half_life:g}": OneMemory(half_life) for half_life in HALF_LIVES}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(errors(truth, forecasters, seed)))
    found = json.loads(path.read_text())
    return {label: np.array(one, dtype=float) for label, one in found.items()} | {"moved": truth.moved}


def after_gaps(seed: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Return how far the first rows after a gap move a value, and how far they leave values from the truth (rms).

    The level has jumped three periods before, so that a short memory is trusted.
    """
    truth = common_jump(np.random.default_rng([seed, 0]))
    rows, tracker, now = Rows(truth, seed), mcnet.Tracker(), CHANGE + 3
    for t in range(now):
        tracker.update_sketch(rows.period(t), t)
    before, state, result = rows.logs(tracker.model_, now + 1), rows.rng.bit_generator.state, {}
    for gap in GAPS:
        for number in ROWS_AFTER:
            rows.rng.bit_generator.state = state
            other = deepcopy(tracker).update_sketch(rows.period(now, number), now + gap)
            after = rows.logs(other.model_, now + 1)
            result[gap, number] = float(np.expm1(np.abs(after - before).max())), rms(after)
    return result


def rms(found: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean(found**2))) if np.isfinite(found).any() else float("nan")


def main(full: bool = False) -> None:
    warnings.simplefilter("ignore")
    measured: list[dict[str, dict[str, np.ndarray]]] = []
    gaps: list[dict[tuple[int, int], tuple[float, float]]] = []
    for seed in range(FIRST_SEED, FIRST_SEED + (SEEDS if full else QUICK_SEEDS)):
        gaps.append(after_gaps(seed))
        measured.append({name: run(name, seed) for name in WORLDS})
        print("   seed", seed, flush=True)
        keep(measured, gaps, full)


def keep(measured: list[dict[str, dict[str, np.ndarray]]], gaps: list, full: bool) -> None:
    """Keep the section with the seeds that are measured so far."""
    lines, after = [], []
    for name in WORLDS:
        found = {label: np.stack([one[name][label] for one in measured]) for label in measured[0][name]}
        apart = found.pop("moved")[0]
        best = min((label for label in found if label.startswith("memory")), key=lambda label: rms(found[label]))
        figures = [rms(found[label][:, :, which]) for which in (apart, ~apart) for label in ("tracker", "as one", best)]
        hindsight = "everything" if best == "memory inf" else best
        lines.append([name, *("—" if np.isnan(figure) else f"{figure:.3f}" for figure in figures), hindsight])
        if name == "one value drops by 0.6":
            judged = [n for n in range(PERIODS - CHANGE + 1) if n in AFTER or n % JUDGED_EVERY == 0]
            for label, shown in (("tracker", "Tracker()"), ("as one", "without values apart")):
                means = [np.mean(np.abs(found[label][:, judged.index(n), 0])) for n in AFTER]
                after.append([shown, *(f"{mean:.2f}" for mean in means)])
    moves = []
    for gap in GAPS:
        for rows in ROWS_AFTER:
            far, error = np.array([one[gap, rows] for one in gaps]).T
            moves.append([gap, f"{rows:,}", f"{np.median(far):.1%}", f"{far.max():.1%}", f"{np.mean(error):.3f}"])
    head = ("world", "moved values: Tracker()", "without values apart", "best memory", "other values: Tracker()")
    text = f"""## Time: worlds that move in parts

Root mean square of log(predicted ÷ true rate) of a field value in the coming period, from the change in period {CHANGE}
on; {ROWS:,} rows per period, {len(measured)} seeds on which no setting was chosen. The best memory is that of
BayesMCNet with half-life 2, 8 or everything, chosen in hindsight.

{report.table((*head, "without values apart", "best memory", "which"), lines)}

The value that drops, mean absolute error after so many periods:

{report.table(("", *map(str, AFTER)), after)}

The first rows after a gap, three periods after the level of all values jumped by 0.6 logits: how far they move the mean
probability of the field value that moves farthest, and how far they leave all values from the truth.

{report.table(("empty periods", "rows", "largest move: median", "largest", "error after it"), moves)}
"""
    report.keep("time_parts", text, full)


if __name__ == "__main__":
    import sys

    main("--full" in sys.argv)
