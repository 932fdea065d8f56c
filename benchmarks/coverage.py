"""Coverage of 90 % intervals over several kinds of truth: the share of rows whose true probability they contain."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

import mcnet
from benchmarks import report
from mcnet.datasets.simulator import SimulatedField, simulate

Rows = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]
FIRST_SEED = 5_000
"""Smaller ones had part in choosing how much prior strengths are inflated, and how likely a misfit is."""
JUDGED = 3_000
"""Rows of a fit at which its intervals are judged."""
LEAST, MOST = 0.86, 0.97
"""What coverage is to be within."""


def simulated(rows: int, seed: int, values: int = 4, exponent: float = 1.0, **options: object) -> Rows:
    """Return rows of the simulator with one field: scores, labels, field, truth."""
    fields = None if values == 4 else {"field": SimulatedField.zipf(values, exponent)}
    log = simulate(rows, fields=fields, seed=seed, **options)
    return log.score, log.label, dict(log.fields), log.probability


def two_fields(rows: int, seed: int, interaction: float = 0.0) -> Rows:
    """Return rows of the simulator with fields of 6 and 4 values."""
    fields = {"a": SimulatedField.zipf(6), "b": SimulatedField.zipf(4)}
    log = simulate(rows, fields=fields, seed=seed, interaction=interaction)
    return log.score, log.label, dict(log.fields), log.probability


def formula(rows: int, seed: int, bent: bool) -> Rows:
    """Return rows whose truth is a line in logit space, or a line plus a sine and a tanh, for each of 4 values."""
    draw = np.random.default_rng(seed)
    value = draw.choice(4, rows, p=np.array([12, 6, 4, 3]) / 25.0)
    x = draw.normal(-3.0, 1.2, rows)
    offset, slope, phase = draw.normal(0.0, 0.3, 4), np.exp(draw.normal(0.0, 0.1, 4)), draw.uniform(0.0, 6.0, 4)
    z = offset[value] + slope[value] * x
    if bent:
        z = offset[value] + 0.9 * slope[value] * x + 0.25 * np.sin(1.5 * x + phase[value]) + 0.3 * np.tanh(x + 3.0)
    truth = expit(z)
    return expit(x), (draw.random(rows) < truth).astype(float), {"field": value}, truth


def stepped(rows: int, seed: int, slope: float, own: bool = False) -> Rows:
    """Return rows whose truth jumps by 1.5 logits at one score, or at one of its own for each of 4 values."""
    draw = np.random.default_rng(seed)
    value = draw.choice(4, rows, p=np.array([12, 6, 4, 3]) / 25.0)
    x = draw.normal(-3.0, 1.2, rows)
    level, at = draw.normal(-3.0, 0.3, 4), draw.uniform(-4.0, -2.0, 4 if own else 1) * np.ones(4)
    truth = expit(level[value] + slope * (x + 3.0) + 1.5 * ((x > at[value]) - 0.5))
    return expit(x), (draw.random(rows) < truth).astype(float), {"field": value}, truth


def two_plateaus(rows: int, seed: int) -> Rows:
    """Return rows without a field whose true rate is 5 % below some score and 30 % above it."""
    draw = np.random.default_rng(seed)
    score = draw.random(rows)
    truth = np.where(score < draw.uniform(0.3, 0.7), 0.05, 0.3)
    return score, (draw.random(rows) < truth).astype(float), {}, truth


Truth = Callable[[int, int], Rows]
SIZES = (5_000, 50_000, 500_000)
SMOOTH: dict[str, Truth] = {
    "simulator, 4 values": simulated,
    "simulator, 4 values, rate 20 %": lambda rows, seed: simulated(rows, seed, rate=0.2),
    "simulator, 30 values": lambda rows, seed: simulated(rows, seed, 30),
    "simulator, 50 values with heavy-tailed sizes": lambda rows, seed: simulated(rows, seed, 50, exponent=2.0),
    "simulator, 200 values": lambda rows, seed: simulated(rows, seed, 200),
    "line in logit space, 4 values": lambda rows, seed: formula(rows, seed, bent=False),
    "line + sine + tanh, 4 values": lambda rows, seed: formula(rows, seed, bent=True),
    "two fields, 6 × 4 values": two_fields,
    "two fields that interact": lambda rows, seed: two_fields(rows, seed, 0.2),
}
ROUGH: dict[str, Truth] = {
    "simulator with kinks, 4 values": lambda rows, seed: simulated(rows, seed, shape="kink"),
    "step on a slope, 4 values": lambda rows, seed: stepped(rows, seed, 0.5),
    "step between plateaus, 4 values": lambda rows, seed: stepped(rows, seed, 0.0),
    "step between plateaus, another one per value": lambda rows, seed: stepped(rows, seed, 0.0, own=True),
    "step between plateaus, no field": two_plateaus,
}


@dataclass(frozen=True)
class Intervals:
    """Coverage and mean width in logits of 90 % intervals, and the same of the posterior without its misfit."""

    covered: float
    width: float
    covered_before: float
    width_before: float


def intervals(make: Truth, rows: int, seed: int) -> Intervals:
    """Fit one draw and judge its intervals at some of its rows."""
    scores, labels, field, truth = make(rows, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = mcnet.BayesMCNet().fit(scores, labels, field=field or None).model_
    judged = np.random.default_rng(seed).choice(rows, JUDGED, replace=False)
    asked = {name: column[judged] for name, column in field.items()} or None
    found: list[float] = []
    for model in (fitted, replace(fitted, uncertainty=replace(fitted.uncertainty, misfit=None))):
        low, high = model.interval(scores[judged], asked, level=0.9)
        found.append(float(np.mean((low <= truth[judged]) & (truth[judged] <= high))))
        found.append(float(np.mean(np.log(high / low * (1.0 - low) / (1.0 - high)))))
    return Intervals(*found)


def main(full: bool = False) -> None:
    """Judge every truth at every size: 50 seeds in the full form, in the quick one 10 and no 500,000 rows."""
    seeds, sizes = (50, SIZES) if full else (10, SIZES[:2])
    drawn = {}
    for name, make in {**SMOOTH, **ROUGH}.items():
        for rows in sizes:
            drawn[name, rows] = [intervals(make, rows, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
            print("  ".join(_line(name, rows, drawn[name, rows])), flush=True)
    report.keep("coverage", section(drawn), full)


def section(drawn: dict[tuple[str, int], list[Intervals]]) -> str:
    """Return the section of the page, from the intervals of every truth and size."""
    within = sum(LEAST <= np.mean([each.covered for each in seeds]) <= MOST for seeds in drawn.values())
    smooth = [_growth(seeds) for (name, _), seeds in drawn.items() if name in SMOOTH]
    rough = [_growth(seeds) for (name, _), seeds in drawn.items() if name in ROUGH]
    head = ["truth", "rows", "seeds", "coverage", "without the misfit", "mean width (logits)", "of it the misfit"]
    return f"""## Coverage of intervals

Share of rows whose true probability is inside the 90 % interval: mean over seeds ± its standard error. The
seeds had part in one choice only: that with two fields a misfit is common to all contexts. *Without the misfit* is
the posterior alone, as intervals were before residuals had a say.
Within {100 * LEAST:.0f} to {100 * MOST:.0f} %: {within} of {len(drawn)} lines. The misfit widens intervals of smooth
truths (the first {len(smooth)} lines) by {100 * np.mean(smooth):.1f} % on average, of rough ones by
{100 * np.mean(rough):.0f} %.

{report.table(head, [_line(*key, seeds) for key, seeds in drawn.items()])}
"""


def _growth(drawn: list[Intervals]) -> float:
    return float(np.mean([each.width for each in drawn]) / np.mean([each.width_before for each in drawn]) - 1.0)


def _line(name: str, rows: int, drawn: list[Intervals]) -> list[str]:
    covered = [each.covered for each in drawn]
    error = np.std(covered) / np.sqrt(len(drawn))
    return [
        name,
        f"{rows:,}",
        str(len(drawn)),
        f"{100 * np.mean(covered):.1f} % ± {100 * error:.1f}",
        f"{100 * np.mean([each.covered_before for each in drawn]):.1f} %",
        f"{np.mean([each.width for each in drawn]):.3f}",
        f"{100 * _growth(drawn):+.1f} %",
    ]


if __name__ == "__main__":
    main()
