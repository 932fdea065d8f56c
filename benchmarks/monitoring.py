"""The monitor: false alarms on calibrated days and in streams with a broken hour, and the time until drift is found.

A day has about 1,000 positives at rates from 0.5 to 5 %. Simulated worlds of the level and of the slope are computed
together, as groups of one likelihood; a few years are watched by the whole monitor, field values included.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import beta

from benchmarks import report
from benchmarks.peers.environments import interpreter, variables
from mcnet._shared.arrays import logit, sigmoid
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.evidence import Evidence, period_likelihoods
from mcnet.tracking.monitor import Monitor, upper_half

ALPHA = 0.01
LEVEL_SHARE = 0.7
"""The part of alpha that the monitor gives to the level of all rows."""
LARGEST_VALUE_SHARE = 0.115
"""… and to the largest field value."""
PROBABILITY = np.linspace(0.005, 0.05, 6)
WIDE = sigmoid(np.linspace(-4.0, 1.0, 12))
"""Rates over which a shift of all logits bends: what a test of the slope must not take for a slope."""
POSITIVES = 1_000
SCRIPT = Path(__file__).parent / "peers" / "monitor_probcal.py"


def day(rng: np.random.Generator, worlds: int, effect: float = 0.0, over: float = 1.0) -> np.ndarray:
    """Return what the evidence asks of one day in each world, in which scores are `over` times too high."""
    weight = np.round(np.full(len(PROBABILITY), over * POSITIVES / PROBABILITY.sum()))
    odds = PROBABILITY / (1.0 - PROBABILITY) / over * np.exp(effect * rng.standard_normal((worlds, 1)))
    return likelihood(PROBABILITY, weight, rng.binomial(weight.astype(int), odds / (1.0 + odds)))


def slope_day(rng: np.random.Generator, worlds: int, effect: float) -> np.ndarray:
    """Return what the evidence of the slope asks of one day of 6,000 rows in each world, at rates from 2 to 73 %."""
    weight = np.full(len(WIDE), 6_000 / len(WIDE))
    truth = sigmoid(logit(WIDE) + effect * rng.standard_normal((worlds, 1)))
    positives = rng.binomial(weight.astype(int), truth).astype(float)
    sums = np.array([upper_half(WIDE, weight, labels) for labels in positives])
    return period_likelihoods(sums[:, :3])


def likelihood(probability: np.ndarray, weight: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """Return what the evidence asks of one period in each world, from the positives of its cells `[worlds, cells]`."""
    expected, information = weight @ probability, weight @ (probability * (1.0 - probability))
    sums = [positives.sum(axis=1), *(np.full(len(positives), part) for part in (expected, information))]
    return period_likelihoods(np.column_stack(sums))


def highest_evidence(
    worlds: int, days: int, effect: float, seed: int, of_day: Callable[..., np.ndarray] = day
) -> np.ndarray:
    """Return, for each calibrated world, the largest logarithm of the e-value that any day has."""
    rng, evidence, highest = np.random.default_rng(seed), Evidence.of_many(worlds), np.full(worlds, -np.inf)
    for _ in range(days):
        evidence.update(of_day(rng, worlds, effect))
        highest = np.maximum(highest, evidence.log_value)
    return highest


def watched_year(effect: float, seed: int) -> bool:
    """Tell whether the whole monitor, slope and field values included, raises an alarm in a calibrated year."""
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
        alarm = evidence.log_value >= np.log(1.0 / ALPHA / LEVEL_SHARE)
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


def hour(
    rng: np.random.Generator, effect: np.ndarray, positives: int, drift: float = 0.0, broken: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the evidence asks of one hour in each world, and its positives; `broken` worlds lose all of them."""
    weight = np.round(np.full(len(PROBABILITY), positives / PROBABILITY.sum()))
    odds = PROBABILITY / (1.0 - PROBABILITY) * np.exp(effect[:, None] + drift)
    labels = rng.binomial(weight.astype(int), odds / (1.0 + odds)).astype(float)
    if broken is not None:
        labels[broken] = 0.0
    return likelihood(PROBABILITY, weight, labels), labels.sum(axis=1)


def broken_hours(streams: int) -> str:
    """Return the share of streams with a false alarm: heavy-tailed period effects, and one hour without positives."""
    lines = []
    for scale in (0.05, 0.2):
        rng, evidence = np.random.default_rng([20_264, round(100 * scale)]), Evidence.of_many(streams)
        broken, highest = rng.integers(5, 60, streams), np.full(streams, -np.inf)
        for number in range(72):
            effect = scale * rng.standard_t(3, streams)
            evidence.update(hour(rng, effect, 300, broken=broken == number)[0])
            highest = np.maximum(highest, evidence.log_value)
        alarms = int((highest >= np.log(1.0 / ALPHA)).sum())
        low, high = binomial_interval(alarms, streams)
        lines.append([f"{scale:g}", f"{streams:,}", f"{alarms}", f"{alarms / streams:.2%}", f"{low:.2%} … {high:.2%}"])
        print("  ".join(lines[-1]), flush=True)
    headings = ["scale of Student-t(3) effects", "streams", "with an alarm", "share", "95 % interval"]
    return report.table(headings, lines)


def binomial_interval(number: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson for a share."""
    low = float(beta.ppf(0.025, number, of - number + 1)) if number else 0.0
    return low, float(beta.ppf(0.975, number + 1, of - number)) if number < of else 1.0


def drift_after_a_broken_hour(worlds: int) -> str:
    """Return how often a drift of PCOC 1.66 in the largest value is found, with and without a broken hour before it."""
    lines = []
    drift, limit = -np.log(1.66), np.log(1.0 / ALPHA / LARGEST_VALUE_SHARE)
    for positives in (300, 60):
        for before in (False, True):
            rng, evidence = np.random.default_rng([20_265, positives, before]), Evidence.of_many(worlds)
            known, found, at_best = np.zeros(worlds), [], []
            for _ in range(30):
                evidence.learn(hour(rng, 0.02 * rng.standard_normal(worlds), positives)[0])
            if before:
                evidence.update(hour(rng, np.zeros(worlds), positives, broken=np.ones(worlds, dtype=bool))[0])
            highest = np.full(worlds, -np.inf)
            for _ in range(4):
                marginals, labels = hour(rng, 0.02 * rng.standard_normal(worlds), positives, drift)
                evidence.update(marginals)
                highest = np.maximum(highest, evidence.log_value)
                known += drift * labels + positives * (1.0 - np.exp(drift))
                found.append(f"{np.mean(highest >= limit):.0%}")
                at_best.append(f"{np.mean(known >= limit):.0%}")
            lines.append([f"{positives}", "yes" if before else "no", *found[:4], at_best[1]])
            print("  ".join(lines[-1]), flush=True)
    headings = ["positives per hour", "broken hour before", *(f"within {n} h" for n in (1, 2, 3, 4)), "oracle, 2 h"]
    return report.table(headings, lines)


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


def hours(streams: int, worlds: int) -> str:
    """Return the part about broken hours."""
    return (
        f"Calibrated streams of 72 hours, 300 positives each, with heavy-tailed period effects and one hour in which "
        f"all positives were lost; the level has the whole of α:\n\n{broken_hours(streams)}\n\n"
        f"A drift of PCOC 1.66 in the largest field value, which has {LARGEST_VALUE_SHARE:g} of α, after 30 reference "
        f"hours with effects of 0.02 ({worlds:,} worlds). The oracle knows the size of the drift, when it began, "
        f"and that there are no period effects:\n\n{drift_after_a_broken_hour(worlds)}"
    )


def main(full: bool = False) -> None:
    worlds, delayed = (400, 500) if full else (100, 200)
    text = (
        f"## Monitor\n\nα = {ALPHA:g}, {POSITIVES:,} positives per day, {worlds:,} worlds "
        f"({delayed:,} for delays). False alarms in a year of calibrated days, the level and the slope each "
        f"with the whole of α; the slope at rates from 2 to 73 %:\n\n{false_alarms(worlds)}\n\n"
        f"Days until over-prediction that begins on the first watched day is found, with the part of α that the level "
        f"has ({LEVEL_SHARE:g}):\n\n{delays(delayed)}\n\n{hours(2_000 if full else 400, 500 if full else 200)}\n\n"
        f"The monitor of probcal 0.4, α = {ALPHA:g}:\n\n"
        f"{probcal_delays(20 if full else 5)}"
    )
    report.keep("monitoring", text, full)


if __name__ == "__main__":
    main()
