"""The compiled curve against the exact model, on a grid ten times finer than the knots."""

import numpy as np
from scipy.special import expit, logit

import mcnet
from benchmarks import report
from benchmarks.data import simulated

FINER = 10


def fine(knots: np.ndarray) -> np.ndarray:
    """Return the scores between neighbouring knots, evenly spaced in logits; jumps have nothing between."""
    at = logit(knots)
    steps = np.linspace(0.0, 1.0, FINER + 1)[1:-1]
    wide = np.diff(at) > 1e-6
    return expit((at[:-1][wide, None] + np.diff(at)[wide, None] * steps).ravel())


def largest_errors(model: mcnet.BayesMCNet | mcnet.MCNet, values: int) -> tuple[float, float, int]:
    """Return the largest relative error of p and of 1 − p over all contexts, and the number of scores looked at."""
    worst, other, looked = 0.0, 0.0, 0
    for value in range(values):
        contexts = model.model_.contexts
        scores = fine(model.curves_.grid(contexts.find((value,)) + 1))
        field = np.full(len(scores), value)
        curve, exact = model.predict(scores, field=field), model.predict(scores, field=field, exact=True)
        inside = exact < 1.0 - 1e-9  # nearer to 1 the curve is cut off, as probabilities inside (0, 1) must be
        worst = max(worst, float(np.abs(curve / exact - 1).max()))
        other = max(other, float(np.abs((1 - curve) / (1 - exact) - 1)[inside].max()))
        looked += len(scores)
    return worst, other, looked


def main(full: bool = False) -> None:
    lines = []
    for method in ("mcnet-bayes", "mcnet"):
        for rows in (10_000, 1_000_000) if full or method == "mcnet-bayes" else (100_000,):
            log = simulated(rows, 4, 1, 0)
            model = mcnet.calibrator(method).fit(log.score, log.label, field=log.fields["field"])
            worst, other, looked = largest_errors(model, 4)
            moved = f"{getattr(model, 'order_violations_', 0.0):.1e}"
            held = "yes" if worst <= 1e-4 else "**no**"
            lines.append([method, f"{rows:,}", f"{looked:,}", f"{worst:.1e}", f"{other:.1e}", moved, held])
            print(lines[-1], flush=True)
    head = ["method", "rows", "scores", "error of p", "error of 1 − p", "moved by the guarantee", "p within 10⁻⁴"]
    text = (
        f"## The compiled curve\n\nAgainst the exact model, {FINER} times finer than the knots of every context's "
        "curve; errors are relative and the largest anywhere. What the order guarantee moves counts as error here."
        f"\n\n{report.table(head, lines)}"
    )
    report.keep("compiled", text, full)
