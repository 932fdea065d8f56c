"""BayesMCNet: shapes of φ, numbers of panels and classical calibrators against the known truth.

Run `python -m benchmarks.bayes_shapes` for everything, or name tables: networks, shapes, panels, bends,
classical, many, families. Figures are mean KL to the truth × 1e-5 over seeds (lower is better) on 100,000 fresh rows.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
import warnings
from functools import partial

import numpy as np
from scipy.interpolate import BSpline
from scipy.special import logit

import mcnet
from benchmarks import report
from mcnet._shared.arrays import FloatArray
from mcnet.bayes.fit import fit_bayes
from mcnet.bayes.model import Panels, continued, step_basis
from mcnet.datasets.simulator import SimulatedField, SimulatedLog, simulate
from mcnet.metrics import kl_to_truth
from mcnet.rows.fields import field_columns

SIZES = (5_000, 20_000, 100_000, 1_000_000, 3_000_000)
FAMILIES = {
    "default": {},
    "kinks": {"shape": "kink", "frequency": 1.5},
    "steep slopes": {"slope": 0.4},
    "wild fields": {"field": {"slope_spread": 0.5, "shift_spread": 0.8, "ripple": 0.8}},
    "plain fields": {"field": {"slope_spread": 0.0, "shift_spread": 0.1, "ripple": 0.0}},
    "rate 0.5 %": {"rate": 0.005},
    "rate 30 %": {"rate": 0.3},
    "weak score": {"spread": 0.2},
    "strong score": {"spread": 2.5},
}


def shape_basis(panels: Panels, shape: str, functions: int) -> FloatArray:
    """Return the log-slope in each panel as a combination of functions: `[panels, functions]`.

    "step" gives every panel its own level; "linear" and "cubic" are B-splines of that degree, sampled at the middles of
    the panels, with knots at every (panels / functions)-th of them; "network" is a layer of tanh units that turn at
    such knots.
    """
    inner = len(panels.mass) - 2
    functions = min(functions, inner)
    degree = {"step": 0, "linear": 1, "cubic": 3, "network": 1}[shape]
    if shape == "step" or functions <= degree:
        return step_basis(panels)
    middles = 0.5 * (panels.edges[1:] + panels.edges[:-1])
    places = np.linspace(0.0, inner - 1.0, functions - degree + 1)
    knots = np.interp(places, np.arange(inner), middles)
    if shape == "network":
        units = np.tanh((middles[:, None] - knots[1:]) / np.gradient(knots)[1:])
        return continued(panels, np.column_stack([np.ones(inner), units]))
    padded = np.concatenate([np.repeat(knots[0], degree), knots, np.repeat(knots[-1], degree)])
    return continued(panels, BSpline.design_matrix(middles, padded, degree).toarray())


def draw(rows: int, seed: int, values: int = 4, family: str = "default") -> SimulatedLog:
    options = dict(FAMILIES[family])
    spread = options.pop("field", {})
    spec = SimulatedField.aliexpress(**spread) if values == 4 else SimulatedField.zipf(values, **spread)
    return simulate(rows, test_rows=100_000, fields={"field": spec}, seed=seed, **options)


def bayes(log: SimulatedLog, **options: object) -> tuple[float, float]:
    """Fit with options that the estimator does not have, on the cells that it would see."""
    before, test = log.calibration(), log.test()
    sketch = mcnet.Sketch.from_rows(before.score, before.label, field=before.fields["field"])
    values = len(sketch.contexts)
    given = (sketch.logit, sketch.context, sketch.weight, sketch.positives, np.arange(values)[:, None], [values])
    start = time.process_time()
    model = fit_bayes(*given, **options)
    seconds = time.process_time() - start
    codes = sketch.contexts.field_codes(field_columns(test.fields["field"]))
    return kl_to_truth(model.curve(codes, logit(test.score)), test.probability).value, seconds


def default(log: SimulatedLog) -> tuple[float, float]:
    return classical(log, "mcnet-bayes")


def classical(log: SimulatedLog, method: str, **parameters: object) -> tuple[float, float]:
    before, test = log.calibration(), log.test()
    calibrator = mcnet.calibrator(method, **parameters)
    with_field = method in ("mcnet-bayes", "mcnet", "platt-field", "per-field")
    start = time.process_time()
    calibrator.fit(before.score, before.label, **({"field": before.text("field")} if with_field else {}))
    seconds = time.process_time() - start
    p = calibrator.predict(test.score, **({"field": test.text("field")} if with_field else {}))
    return kl_to_truth(np.clip(p, 1e-6, 1 - 1e-6), test.probability).value, seconds


def table(title: str, columns: dict[str, object], rows: dict[str, object], seeds: int) -> None:
    """One line per row, one figure per column; `rows[name](log)` gives the KL and the seconds."""
    print(f"\n### {title}\n\n| | " + " | ".join(columns) + " | seconds (last column) |")
    print("|---" * (len(columns) + 2) + "|")
    results: dict[str, list[str]] = {name: [] for name in rows}
    seconds = dict.fromkeys(rows, 0.0)
    for make in columns.values():
        logs = [make(seed) for seed in range(seeds)]
        for name, run in rows.items():
            runs = [run(log) for log in logs]
            results[name].append(f"{1e5 * np.mean([kl for kl, _ in runs]):.2f}")
            seconds[name] = float(np.mean([took for _, took in runs]))
    for name, figures in results.items():
        print(f"| {name} | " + " | ".join(figures) + f" | {seconds[name]:.2f} |", flush=True)


def by_size(values: int = 4, sizes: tuple[int, ...] = SIZES) -> dict[str, object]:
    return {f"{rows:,}": lambda seed, rows=rows: draw(rows, seed, values) for rows in sizes}


def with_options(**options: object) -> object:
    return lambda log: bayes(log, **options)


CLASSICAL = {name: lambda log, name=name: classical(log, name) for name in ("isotonic", "per-field", "platt-field")}


def main(full: bool = False) -> None:
    """Keep the tables on which the docs rely; quick and full are the same."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        tables(["networks", "shapes"])
    head = "KL divergence to the truth × 10⁻⁵ on 100,000 fresh rows, mean of 3 seeds; seconds are CPU time."
    report.keep("bayes_shapes", f"## BayesMCNet: shapes, and networks\n\n{head}\n{printed.getvalue()}", full)


def tables(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    wanted = names or ["networks", "shapes", "panels", "bends", "classical", "many", "families"]
    if "networks" in wanted:
        rows = {"mcnet-bayes": default}
        for bins in (5, 20, "auto"):
            rows[f"mcnet, bins={bins}"] = lambda log, bins=bins: classical(log, "mcnet", bins=bins)
        table("Bayes and networks, 4 values", by_size(4, SIZES[:4]), rows, 3)
    if "shapes" in wanted:
        shapes = [("step", 48), ("linear", 12), ("linear", 24), ("cubic", 12), ("cubic", 24), ("network", 12)]
        rows = {
            f"{s} × {k}": with_options(basis=partial(shape_basis, shape=s, functions=k), panels=48) for s, k in shapes
        }
        table("Shapes of φ, 4 values", by_size(4, SIZES[:4]), rows, 3)
    if "panels" in wanted:
        rows = {f"{n} panels": with_options(panels=n) for n in (8, 16, 24, 32, 48, 96)}
        table("Panels of a step φ, 4 values", by_size(), rows, 3)
    if "bends" in wanted:
        rows = {f"{n} bends": with_options(bends=n) for n in (1, 2, 4, 8, 16, 47)}
        table("Bends of a value, 200 values", by_size(200, SIZES[:4]), rows, 2)
    if "classical" in wanted:
        table("4 values", by_size(4, SIZES[:4]), {"mcnet-bayes": default, **CLASSICAL}, 5)
    if "many" in wanted:
        table("200 values", by_size(200, SIZES[:4]), {"mcnet-bayes": default, **CLASSICAL}, 5)
    if "families" in wanted:
        for rows in (5_000, 100_000):
            columns = {name: lambda seed, f=name, n=rows: draw(n, seed, 4, f) for name in FAMILIES}
            table(f"Families, {rows:,} rows, 4 values", columns, {"mcnet-bayes": default, **CLASSICAL}, 5)


if __name__ == "__main__":
    tables(sys.argv[1:])
