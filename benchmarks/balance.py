"""The balance term: the spread of the fields' PCOCs with and without it, and what it costs in log-loss."""

import numpy as np

import mcnet
from benchmarks import report
from benchmarks.data import simulated
from mcnet.errors import McnetError

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


def main(full: bool = False) -> None:
    rows = 1_000_000 if full else 200_000
    log = simulated(rows, 4, 3, 1_000_000)
    before, test = log.calibration(), log.test()
    codes = test.fields["field"]
    due = np.bincount(codes, weights=test.probability)
    lines = []
    for name in METHODS:
        losses, spreads = [], []
        for alpha in (0.0, ALPHA):
            try:
                if METHODS[name][2] is False and alpha:
                    raise McnetError("it is given no field")
                model, reads = fitted(name, alpha, before)
            except McnetError as error:
                print(f"  {name}, alpha {alpha}: {error}", flush=True)
                continue
            p = model.predict(test.score, **({"field": codes} if reads else {}))
            losses.append(-(test.label * np.log(p) + (1 - test.label) * np.log1p(-p)))
            pcoc = np.bincount(codes, weights=p) / due
            spreads.append(float(pcoc.max() - pcoc.min()))
            print(f"  {name}, alpha {alpha}: spread {spreads[-1]:.4f}, log-loss {losses[-1].mean():.5f}", flush=True)
        if len(losses) < 2:
            lines.append([name, f"{spreads[0]:.4f}", "—", f"{losses[0].mean():.5f}", "given no field: no balance", "—"])
            continue
        change = losses[1] - losses[0]
        error = change.std(ddof=1) / np.sqrt(len(change))
        held = spreads[1] < spreads[0] and change.mean() <= error
        lines.append(
            [
                name,
                f"{spreads[0]:.4f}",
                f"{spreads[1]:.4f}",
                f"{losses[0].mean():.5f}",
                f"{1e5 * change.mean():+.2f} ± {1e5 * error:.2f}",
                "yes" if held else "**no**",
            ]
        )
    head = [
        "method",
        "spread, α = 0",
        f"spread, α = {ALPHA:g}",
        "log-loss, α = 0",
        "change × 10⁻⁵",
        "spread falls, loss kept",
    ]
    text = (
        f"## Balance\n\n{rows:,} fitted rows, 4 field values. The spread is the largest minus the smallest PCOC of a "
        "field on a million fresh rows, measured against the true probabilities, so that label noise does not blur it; "
        f"the change in log-loss is paired, with its standard error.\n\n{report.table(head, lines)}"
    )
    report.keep("balance", text, full)
