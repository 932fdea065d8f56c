"""What it costs to take the wrong method: the distance to the truth by positives and by field values."""

import warnings

import numpy as np

import mcnet
from benchmarks import report
from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.metrics import kl_to_truth

METHODS = ("base", "platt", "beta", "isotonic", "sir", "platt-field", "per-field", "mcnet-bayes")
CASES = ((2_000, 4), (10_000, 4), (50_000, 4), (500_000, 4), (10_000, 200), (100_000, 200))
SEEDS = 5
TEST_ROWS = 200_000


def distances(rows: int, values: int, seed: int) -> tuple[float, list[float]]:
    """Return the positives of one draw, and each method's divergence from the truth on other rows, in 10⁻⁵."""
    field = SimulatedField.aliexpress() if values == 4 else SimulatedField.zipf(values)
    log = simulate(rows, test_rows=TEST_ROWS, fields={"field": field}, rate=0.02, seed=seed)
    fit, test = log.calibration(), log.test()
    sketch = mcnet.Sketch.from_rows(fit.score, fit.label, field={"field": fit.text("field")})
    found = []
    for name in METHODS:
        method = mcnet.calibrator(name)
        alone = method.field_use == "none"
        method.fit_sketch(sketch.pooled() if alone else sketch)
        p = method.predict(test.score, field=None if alone else {"field": test.text("field")})
        found.append(1e5 * kl_to_truth(p, test.probability).value)
    return sketch.total_positives, found


def main(full: bool = False) -> None:
    """Measure the methods that docs/which-method.md compares; quick and full are the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcnet.CalibrationWarning)
        lines = _lines()
    table = report.table(["rows", "positives", "field values", *(f"`{name}`" for name in METHODS)], lines)
    text = f"""## Which method when

KL divergence to the truth × 10⁻⁵ on {TEST_ROWS:,} other rows, at a rate of 2 %; mean of {SEEDS} draws, each with
another truth. Bold is the best and what is within a standard error of the difference to it.

{table}
"""
    report.keep("which_method", text, full)


def _lines() -> list[list[str]]:
    lines = []
    for rows, values in CASES:
        draws = [distances(rows, values, seed) for seed in range(SEEDS)]
        means = np.mean([found for _, found in draws], axis=0)
        positives = np.mean([number for number, _ in draws])
        # The best, and what cannot be told from it: within a standard error of their difference, draw by draw.
        gaps = np.array([found for _, found in draws]) - np.array([found for _, found in draws])[:, [means.argmin()]]
        as_good = gaps.mean(axis=0) <= gaps.std(axis=0, ddof=1) / np.sqrt(SEEDS)
        figures = [f"**{mean:.0f}**" if good else f"{mean:.0f}" for mean, good in zip(means, as_good, strict=True)]
        lines.append([f"{rows:,}", f"{positives:,.0f}", str(values), *figures])
        print(lines[-1], flush=True)
    return lines
