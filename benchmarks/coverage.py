"""Coverage of 90 % intervals over several kinds of truth: the share of rows whose true probability they contain."""

import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import expit

import mcnet
from benchmarks import report
from mcnet.datasets.simulator import SimulatedField, simulate

Rows = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]
FIRST_SEED = 1_000
"""Smaller ones had part in choosing how much prior strengths are inflated."""
JUDGED = 3_000
"""Rows of a fit at which its intervals are judged."""


def simulated(rows: int, seed: int, values: int = 4, **options: object) -> Rows:
    """Return rows of the simulator with one field: scores, labels, field, truth."""
    fields = None if values == 4 else {"field": SimulatedField.zipf(values)}
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


TRUTHS: dict[str, tuple[Callable[[int, int], Rows], tuple[int, ...]]] = {
    "simulator, 4 values": (simulated, (5_000, 20_000, 100_000)),
    "simulator, 4 values, rate 20 %": (lambda rows, seed: simulated(rows, seed, rate=0.2), (5_000, 50_000)),
    "simulator, 30 values": (lambda rows, seed: simulated(rows, seed, 30), (5_000, 50_000)),
    "simulator, 200 values": (lambda rows, seed: simulated(rows, seed, 200), (5_000, 50_000)),
    "simulator with kinks, 4 values": (lambda rows, seed: simulated(rows, seed, shape="kink"), (20_000,)),
    "line in logit space, 4 values": (lambda rows, seed: formula(rows, seed, bent=False), (5_000, 50_000)),
    "line + sine + tanh, 4 values": (lambda rows, seed: formula(rows, seed, bent=True), (5_000, 50_000)),
    "two fields, 6 × 4 values": (two_fields, (5_000, 50_000)),
    "two fields that interact": (lambda rows, seed: two_fields(rows, seed, 0.2), (5_000, 50_000)),
}


def coverage(make: Callable[[int, int], Rows], rows: int, seeds: int) -> tuple[float, float, float]:
    """Return the mean coverage of 90 % intervals over seeds, its standard error, and the mean width in logits."""
    covered, widths = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        scores, labels, field, truth = make(rows, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = mcnet.BayesMCNet().fit(scores, labels, field=field)
        judged = np.random.default_rng(seed).choice(rows, JUDGED, replace=False)
        asked = {name: column[judged] for name, column in field.items()}
        low, high = model.interval(scores[judged], asked, level=0.9)
        covered.append(np.mean((low <= truth[judged]) & (truth[judged] <= high)))
        widths.append(np.mean(np.log(high / low * (1.0 - low) / (1.0 - high))))
    return float(np.mean(covered)), float(np.std(covered) / np.sqrt(seeds)), float(np.mean(widths))


def main(full: bool = False) -> None:
    seeds = 100 if full else 20
    lines = []
    for name, (make, sizes) in TRUTHS.items():
        for rows in sizes:
            mean, error, width = coverage(make, rows, seeds)
            lines.append([name, f"{rows:,}", f"{100 * mean:.1f} % ± {100 * error:.1f}", f"{width:.2f}"])
            print("  ".join(lines[-1]), flush=True)
    head = ["truth", "rows", "coverage of 90 % intervals", "mean width (logits)"]
    text = (
        f"## Coverage of intervals\n\nMean over {seeds} seeds ± its standard error; none of the seeds had part in any "
        f"choice.\n\n{report.table(head, lines)}"
    )
    report.keep("coverage", text, full)


if __name__ == "__main__":
    main()
