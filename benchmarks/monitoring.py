"""The monitor: false alarms in years of calibrated days, and days until over-prediction is found.

A day has about 1,000 positives at rates from 0.5 to 5 %. Simulated worlds of the level and of the slope are computed
together, as groups of one likelihood; a few years are watched by the whole monitor, field values included.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.peers.environments import interpreter, variables
from mcnet._shared.arrays import logit, sigmoid
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.evidence import Evidence, Marginals, PeriodLikelihoods, slope_likelihoods
from mcnet.tracking.monitor import Monitor

ALPHA = 0.01
LEVEL_SHARE = 0.7
"""The part of alpha that the monitor gives to the level of all rows."""
PROBABILITY = np.linspace(0.005, 0.05, 6)
WIDE = sigmoid(np.linspace(-4.0, 1.0, 12))
"""Rates over which a shift of all logits bends: what a test of the slope must not take for a slope."""
POSITIVES = 1_000
SCRIPT = Path(__file__).parent / "peers" / "monitor_probcal.py"


def day(rng: np.random.Generator, worlds: int, effect: float = 0.0, over: float = 1.0) -> Marginals:
    """Return what the evidence asks of one day in each world, in which scores are `over` times too high."""
    weight = np.round(np.full(len(PROBABILITY), over * POSITIVES / PROBABILITY.sum()))
    odds = PROBABILITY / (1.0 - PROBABILITY) / over * np.exp(effect * rng.standard_normal((worlds, 1)))
    positives = rng.binomial(weight.astype(int), odds / (1.0 + odds)).astype(float)
    codes = np.repeat(np.arange(worlds), len(PROBABILITY))
    cells = (np.tile(PROBABILITY, worlds), np.tile(weight, worlds), positives.ravel())
    (found,) = PeriodLikelihoods.of_groups(*cells, [(codes, worlds)])
    return stacked(found)


def slope_day(rng: np.random.Generator, worlds: int, effect: float) -> Marginals:
    """Return what the evidence of the slope asks of one day of 6,000 rows in each world, at rates from 2 to 73 %."""
    direction = np.linspace(-1.7, 1.7, len(WIDE))
    weight = np.full(len(WIDE), 6_000 / len(WIDE))
    truth = sigmoid(logit(WIDE) + effect * rng.standard_normal((worlds, 1)))
    positives = rng.binomial(weight.astype(int), truth).astype(float)
    codes = np.repeat(np.arange(worlds), len(WIDE))
    parts = (np.tile(part, worlds) for part in (WIDE, weight))
    return stacked(slope_likelihoods(*parts, positives.ravel(), np.tile(direction, worlds), codes, worlds))


def stacked(likelihoods: PeriodLikelihoods) -> Marginals:
    """Return what the evidence asks of all groups, as arrays."""
    marginals = likelihoods.marginals()
    return Marginals(np.array([one.null for one in marginals]), np.array([one.mixture for one in marginals]))


def highest_evidence(
    worlds: int, days: int, effect: float, seed: int, of_day: Callable[..., Marginals] = day
) -> np.ndarray:
    """Return, for each calibrated world, the largest logarithm of the e-value that any day has."""
    rng, evidence, highest = np.random.default_rng(seed), Evidence.of_many(worlds), np.full(worlds, -np.inf)
    for _ in range(days):
        evidence.update(of_day(rng, worlds, effect))
        highest = np.maximum(highest, evidence.log_values())
    return highest


def watched_year(effect: float, seed: int) -> bool:
    """Tell whether the whole monitor, with its level, slope and field values, raises an alarm in a calibrated year."""
    rng, monitor = np.random.default_rng([20_263, seed]), Monitor(ALPHA)
    for number in range(365):
        score = sigmoid(rng.uniform(-4.0, 1.0, 3_000))
        field = {"country": rng.choice(["NL", "FR", "DE", "BE"], 3_000, p=[0.6, 0.25, 0.1, 0.05])}
        truth = sigmoid(logit(score) + effect * rng.standard_normal())
        if monitor.update(Sketch.from_rows(score, rng.random(3_000) < truth, field=field, resolution=64), number):
            return True
    return False


def days_until_found(
    worlds: int, over: float, reference: int, seed: int, bound: float = np.inf, effect: float = 0.0, most: int = 120
) -> np.ndarray:
    """Return, for each world, after how many days over-prediction that begins on the first is found."""
    rng, evidence, found = np.random.default_rng(seed), Evidence.of_many(worlds, bound), np.full(worlds, np.inf)
    for _ in range(reference):
        evidence.learn(day(rng, worlds, effect))
    for number in range(1, most + 1):
        evidence.update(day(rng, worlds, effect, over))
        alarm = evidence.log_values() >= np.log(1.0 / ALPHA / LEVEL_SHARE)
        found[alarm & np.isinf(found)] = number
        if np.isfinite(found).all():
            break
    return found


def false_alarms(worlds: int) -> str:
    """Return the share of calibrated years with an alarm, by what is watched and the size of period effects."""
    lines = []
    for what, of_day in (("level", day), ("slope", slope_day)):
        for effect in (0.0, 0.1, 0.3, 0.5):
            begin = time.perf_counter()
            highest = highest_evidence(worlds, 365, effect, 20_262 + round(100 * effect), of_day)
            share = float(np.mean(highest >= np.log(1.0 / ALPHA)))
            lines.append([what, f"{effect:g}", f"{worlds:,}", f"{share:.2%}", f"{np.quantile(highest, 0.99):.1f}"])
            print("  ".join(lines[-1]), f"({time.perf_counter() - begin:.0f} s)", flush=True)
    years = max(worlds // 20, 2)
    for effect in (0.0, 0.3):
        alarms = sum(watched_year(effect, seed) for seed in range(years))
        lines.append(["the whole monitor, 4 field values", f"{effect:g}", f"{years:,}", f"{alarms / years:.2%}", ""])
        print("  ".join(lines[-1]), flush=True)
    headings = ["watched", "period effect", "years", "share with an alarm", "99 % quantile of log evidence"]
    return report.table(headings, lines)


def delays(worlds: int) -> str:
    """Return the days until over-prediction is found, by its size and what the monitor knows of period effects."""
    lines = []
    settings: list[tuple[str, int, float, float]] = [
        ("period_effects=0", 0, 0.0, 0.0),
        ("120 reference days", 120, np.inf, 0.0),
        ("30 reference days", 30, np.inf, 0.0),
        ("cold start", 0, np.inf, 0.0),
        ("120 reference days, effects of 0.1", 120, np.inf, 0.1),
    ]
    for over in (1.1, 1.05):
        for name, reference, bound, effect in settings:
            found = days_until_found(worlds, over, reference, 20_261, bound, effect)
            middle, late = (f"{np.quantile(found, q, method='higher'):.0f}" for q in (0.5, 0.95))
            lines.append([f"{over - 1.0:.0%}", name, *(figure.replace("inf", "> 120") for figure in (middle, late))])
            print("  ".join(lines[-1]), flush=True)
    return report.table(["over-prediction", "monitor", "median days", "95 % within"], lines)


def probcal_delays(worlds: int) -> str:
    """Return what the monitor of probcal 0.4 does on the same kind of days; it reads rows, so few worlds are run."""
    lines = []
    try:
        python = interpreter("probcal")
    except (OSError, subprocess.CalledProcessError):
        return "probcal could not be installed when this was run."
    for name, over, effect, days in (
        ("10 % over-prediction", 1.1, 0.0, 15),
        ("5 % over-prediction", 1.05, 0.0, 25),
        ("calibrated, period effects of 0.1", 1.0, 0.1, 10),
    ):
        words = [str(python), str(SCRIPT), *map(str, (over, effect, days, worlds))]
        done = subprocess.run(words, env=variables("probcal"), capture_output=True, text=True, check=True)
        found = np.array([np.inf if alarm is None else alarm for alarm in json.loads(done.stdout)])
        middle, late = (f"{np.quantile(found, q, method='higher'):.0f}" for q in (0.5, 0.95))
        late = late.replace("inf", f"> {days}")
        lines.append([name, f"{worlds}", f"{np.mean(np.isfinite(found)):.0%} in {days} days", middle, late])
        print("  ".join(lines[-1]), flush=True)
    return report.table(["world", "worlds", "with an alarm", "median days", "95 % within"], lines)


def main(full: bool = False) -> None:
    worlds, delayed = (1_000, 500) if full else (200, 200)
    text = (
        f"## Monitor\n\nα = {ALPHA:g}, {POSITIVES:,} positives per day, {worlds:,} worlds "
        f"({delayed:,} for delays). False alarms in a year of calibrated days, the level and the slope each "
        f"with the whole of α; the slope at rates from 2 to 73 %:\n\n{false_alarms(worlds)}\n\n"
        f"Days until over-prediction that begins on the first watched day is found, with the part of α that the level "
        f"has ({LEVEL_SHARE:g}):\n\n{delays(delayed)}\n\nThe monitor of probcal 0.4, α = {ALPHA:g}:\n\n"
        f"{probcal_delays(20 if full else 5)}"
    )
    report.keep("monitoring", text, full)


if __name__ == "__main__":
    main()
