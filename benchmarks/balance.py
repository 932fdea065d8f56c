"""The balance term: the spread of the fields' PCOCs with and without it, and what it costs in log-loss."""

import numpy as np

import mcnet
from benchmarks import report
from mcnet.datasets.simulator import SimulatedLog, simulate

ALPHA = 1.0
METHODS = {
    "BayesMCNet, one curve": (mcnet.BayesMCNet, {"field_aware": False}),
    "BayesMCNet": (mcnet.BayesMCNet, {}),
    "MCNet-Field": (mcnet.MCNet, {"bins": 20}),
    "NeuCalib": (mcnet.NeuCalib, {}),
    "AdaCalib": (mcnet.AdaCalib, {}),
}


def predictions(name: str, alpha: float, before: SimulatedLog, test: SimulatedLog) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of the fitted and of the fresh rows."""
    made, parameters = METHODS[name]
    model = made(alpha_balance=alpha, **parameters)
    wanted = {} if model.field_use == "none" else {"field": before.fields["field"]}
    model.fit(before.score, before.label, **wanted)
    reads = bool(model.model_.contexts.names)  # some need the field for the balance term alone
    first, second = (
        model.predict(part.score, **({"field": part.fields["field"]} if reads else {})) for part in (before, test)
    )
    return first, second


def spread(codes: np.ndarray, p: np.ndarray, due: np.ndarray) -> float:
    """Return the standard deviation of the field values' PCOCs, as in the paper's table."""
    pcoc = np.bincount(codes, weights=p) / np.bincount(codes, weights=due)
    return float(pcoc.std(ddof=1))


def loss(part: SimulatedLog, p: np.ndarray) -> np.ndarray:
    """Return the log-loss of every row."""
    return -(part.label * np.log(p) + (1 - part.label) * np.log1p(-p))


def main(full: bool = False) -> None:
    rows, seeds = (3_000_000, 5) if full else (1_000_000, 3)
    # method → (fitted spread, fresh spread) at both α, the paired change of the log-loss, its error, the loss's error
    found: dict[str, list[tuple[float, ...]]] = {}
    floors = []
    for seed in range(seeds):
        log = simulate(rows, test_rows=1_000_000, seed=seed)
        before, test = log.calibration(), log.test()
        floors.append(spread(before.fields["field"], before.probability, before.label))
        for name in METHODS:
            (fitted, fresh), (fitted_on, fresh_on) = (predictions(name, alpha, before, test) for alpha in (0.0, ALPHA))
            change, off = loss(test, fresh_on) - loss(test, fresh), loss(test, fresh)
            found.setdefault(name, []).append(
                (
                    *(spread(before.fields["field"], p, before.label) for p in (fitted, fitted_on)),
                    *(spread(test.fields["field"], p, test.probability) for p in (fresh, fresh_on)),
                    off.mean(),
                    change.mean(),
                    change.std() / np.sqrt(len(change)),
                    off.std() / np.sqrt(len(off)),
                )
            )
            print(f"  seed {seed}, {name}: {np.round(found[name][-1], 6).tolist()}", flush=True)
        held = {name: _held(np.mean(runs, axis=0), len(runs)) for name, runs in found.items()}
        report.keep("balance", _section(rows, found, floors), full, held)


def _held(means: np.ndarray, seeds: int) -> bool:
    """Tell whether the spread on the fitted rows fell, at no more log-loss than its standard error."""
    fitted, fitted_on, _, _, _, change, _, own = means
    return bool(fitted_on < fitted and change <= own / np.sqrt(seeds))


def _section(rows: int, found: dict[str, list[tuple[float, ...]]], floors: list[float]) -> str:
    head = [
        "method",
        "STD, fitted rows",
        "STD, fresh rows",
        "log-loss",
        "its change × 10⁻⁵",
        "its error × 10⁻⁵",
        "held",
    ]
    lines = []
    for name, runs in found.items():
        fitted, fitted_on, fresh, fresh_on, mean, change, paired, own = np.mean(runs, axis=0)
        held = _held(np.mean(runs, axis=0), len(runs))
        lines.append(
            [
                name,
                f"{fitted:.4f} → {fitted_on:.4f}",
                f"{fresh:.4f} → {fresh_on:.4f}",
                f"{mean:.5f}",
                f"{1e5 * change:+.2f} ± {1e5 * paired / np.sqrt(len(runs)):.2f}",
                f"{1e5 * own / np.sqrt(len(runs)):.1f}",
                "yes" if held else "**no**",
            ]
        )
    return (
        f"## Balance\n\nα = 0 → α = {ALPHA:g}; {rows:,} fitted rows, 4 field values of 1 to 92 % of the rows, mean "
        f"over {len(floors)} seeds. STD is that of the field values' PCOCs: on the fitted rows against their labels, "
        "on a million fresh rows against the true probabilities. The change in log-loss on the fresh rows is paired, "
        "with its standard error; beside it the standard error of the log-loss itself. Held: the STD on the fitted "
        "rows falls, and the log-loss rises by no more than its standard error. On fresh rows no fit can do better "
        f"than the labels it saw: their noise alone makes an STD of {np.mean(floors):.4f}, so that a method which "
        f"follows every value ends there.\n\n{report.table(head, lines)}"
    )
