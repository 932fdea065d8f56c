"""The balance term: the spread of the fields' PCOCs with and without it, and what it costs in log-loss."""

import numpy as np

import mcnet
from benchmarks import report
from benchmarks.data import simulated
from mcnet.rows.simulate import SimulatedLog

ALPHA = 10.0
METHODS = {
    "MCNet-None": (mcnet.MCNet, {}, False),
    "MCNet-Field": (mcnet.MCNet, {}, True),
    "MCNet-Field, per-bin": (mcnet.MCNet, {"architecture": "per-bin"}, True),
    "NeuCalib": (mcnet.NeuCalib, {}, None),
    "AdaCalib": (mcnet.AdaCalib, {}, True),
}


def fitted(name: str, alpha: float, log: object) -> tuple[object, bool]:
    """Return the fitted calibrator and whether it reads the field when predicting."""
    made, parameters, with_field = METHODS[name]
    model = made(alpha_balance=alpha, **parameters)
    # NeuCalib reads the field for the balance term alone.
    given = alpha > 0 if with_field is None else with_field
    model.fit(log.score, log.label, **({"field": log.fields["field"]} if given else {}))
    return model, bool(model.model_.contexts.names)


def spread(codes: np.ndarray, p: np.ndarray, due: np.ndarray) -> float:
    """Return the largest minus the smallest PCOC of a field value."""
    pcoc = np.bincount(codes, weights=p) / np.bincount(codes, weights=due)
    return float(pcoc.max() - pcoc.min())


def main(full: bool = False) -> None:
    rows = 3_000_000 if full else 1_000_000
    log = simulated(rows, 4, 3, 1_000_000)
    before, test = log.calibration(), log.test()
    lines = []
    for name in METHODS:
        losses, fitted_spreads, spreads = [], [], []
        for alpha in (0.0, ALPHA):
            if METHODS[name][2] is False and alpha:
                continue  # it is given no field to balance
            model, reads = fitted(name, alpha, before)

            def predict(part: SimulatedLog, model: object = model, reads: bool = reads) -> np.ndarray:
                return model.predict(part.score, **({"field": part.fields["field"]} if reads else {}))

            p = predict(test)
            losses.append(-(test.label * np.log(p) + (1 - test.label) * np.log1p(-p)))
            spreads.append(spread(test.fields["field"], p, test.probability))
            fitted_spreads.append(spread(before.fields["field"], predict(before), before.label))
            print(f"  {name}, alpha {alpha}: spread {spreads[-1]:.4f}, log-loss {losses[-1].mean():.5f}", flush=True)
        lines.append([name, *_cells(losses, fitted_spreads, spreads)])
        report.keep("balance", _section(rows, lines), full)


def _section(rows: int, lines: list[list[str]]) -> str:
    head = ["method", "spread, fitted rows", "spread, fresh rows", "log-loss, α = 0", "its change × 10⁻⁵", "held"]
    return (
        f"## Balance\n\nα = 0 → α = {ALPHA:g}; {rows:,} fitted rows, 4 field values. The spread is the largest minus "
        "the smallest PCOC of a field: on the fitted rows against their labels, on a million fresh rows against the "
        "true probabilities, so that label noise does not blur it; the change in log-loss is paired, with its standard "
        "error. Held: the spread on fresh rows falls and the log-loss does not rise by more than its standard error. "
        f"MCNet-None sees no field, so there is nothing to balance.\n\n{report.table(head, lines)}"
    )


def _cells(losses: list[np.ndarray], fitted_spreads: list[float], spreads: list[float]) -> list[str]:
    both = [" → ".join(f"{value:.4f}" for value in pair) for pair in (fitted_spreads, spreads)]
    cells = [*both, f"{losses[0].mean():.5f}"]
    if len(losses) < 2:
        return [*cells, "—", "—"]
    change = losses[1] - losses[0]
    error = change.std(ddof=1) / np.sqrt(len(change))
    held = spreads[1] < spreads[0] and change.mean() <= error
    return [*cells, f"{1e5 * change.mean():+.2f} ± {1e5 * error:.2f}", "yes" if held else "**no**"]
