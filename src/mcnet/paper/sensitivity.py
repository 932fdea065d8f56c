"""The figure of sensitivity: bins, learning rate and β of the literal training."""

from dataclasses import replace
from typing import Any

import numpy as np

from mcnet.paper.literal import LiteralRecipe, predict_literal, train_literal
from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.plots import draw_lines
from mcnet.paper.settings import Settings
from mcnet.paper.tasks import Task
from mcnet.paper.trials import MCNET_FIELD, MCNET_NONE, Contender, Trial, column, contenders, judge, run_trial

__all__ = ["sensitivity"]

CLAIM = (
    "MCNet-None hardly depends on the number of bins but on learning rate and β; MCNet-Field gets worse with more bins "
    "and better with a larger learning rate. The best learning rates are 1e-5 (None) and 1e-3 (Field)."
)

QUICK_GRID: dict[str, tuple[float, ...]] = {"bins": (5, 20), "rate": (1e-5, 1e-3), "order": (0.1, 1.0)}
FULL_GRID: dict[str, tuple[float, ...]] = {
    "bins": (5, 10, 20, 40),
    "rate": (1e-5, 1e-4, 1e-3),
    "order": (0.1, 0.5, 1.0, 5.0),
}
TITLES = {"bins": "bins", "rate": "learning rate", "order": "β"}
QUICK_ROWS, FULL_ROWS = 40_000, 1_000_000


def sensitivity(settings: Settings) -> Page:
    """Train literally over a grid of each parameter, the others at the paper's values."""
    grid = QUICK_GRID if settings.quick else FULL_GRID
    results: dict[tuple[str, str, float], list[Trial]] = {}
    anchors: dict[tuple[str, str], list[Trial]] = {}
    converged = {made.name: made for made in contenders((MCNET_NONE, MCNET_FIELD), settings.quick)}
    for seed in range(settings.seeds):
        task = settings.source.tasks(seed, wanted=("CTR (AliExpress)",))[0]
        task = task.first(QUICK_ROWS if settings.quick else FULL_ROWS)
        for field in (False, True):
            variant = "MCNet-Field" if field else "MCNet-None"
            for parameter, values in grid.items():
                for value in values:
                    settings.say(f"{variant}, {TITLES[parameter]} = {value:g}, seed {seed}")
                    trial = _trial(task, field, parameter, value, seed, settings)
                    results.setdefault((variant, parameter, value), []).append(trial)
            anchors.setdefault((variant, "converged"), []).append(run_trial(converged[variant], task, seed))
        anchors.setdefault(("Base", "scores"), []).append(run_trial(Contender("Base", "base"), task, seed))
    lines: list[tuple[Cell, ...]] = []
    for (variant, parameter, value), trials in results.items():
        lines.append((variant, TITLES[parameter], f"{value:g}", *_figures(trials)))
    for (variant, what), trials in anchors.items():
        lines.append((variant, what, "–", *_figures(trials)))
    headings = ("Variant", "parameter", "value", "PCOC", "F-RCE", "log-loss", "PCOC fitted")
    panels = [
        (
            TITLES[parameter],
            values,
            {
                variant: [float(np.mean(column(results[variant, parameter, value], "f_rce"))) for value in values]
                for variant in ("MCNet-None", "MCNet-Field")
            },
        )
        for parameter, values in grid.items()
    ]
    return Page(
        "sensitivity",
        "Sensitivity to bins, learning rate and β (figure)",
        CLAIM,
        _finding(results, grid),
        [Table("grid", "Literal training on CTR (AliExpress), test rows", headings, lines)],
        {"f-rce": draw_lines(panels, "F-RCE")},
        notes=(
            f"Trained on the first {len(task.validation):,} validation rows for two epochs from the identity"
            + (", with networks of 2 × 32 and T = 8." if settings.quick else "."),
        ),
    )


def _trial(task: Task, field: bool, parameter: str, value: float, seed: int, settings: Settings) -> Trial:
    change: dict[str, Any] = {parameter: int(value) if parameter == "bins" else value}
    recipe = replace(LiteralRecipe(field=field, seed=seed, steps=10), **change)
    fit = train_literal(task, recipe.smaller() if settings.quick else recipe)
    return judge(task, predict_literal(fit, task, task.test, field), predict_literal(fit, task, task.validation, field))


def _figures(trials: list[Trial]) -> tuple[Cell, ...]:
    return (
        Value.of(column(trials, "pcoc")),
        Value.percent(column(trials, "f_rce")),
        Value.of(column(trials, "log_loss"), digits=6),
        Value.of(column(trials, "fitted_pcoc")),
    )


def _finding(results: dict[tuple[str, str, float], list[Trial]], grid: dict[str, tuple[float, ...]]) -> str:
    parts, widest = [], {}
    for variant in ("MCNet-None", "MCNet-Field"):
        spans = {}
        for parameter, values in grid.items():
            found = [float(np.mean(column(results[variant, parameter, value], "pcoc"))) for value in values]
            spans[TITLES[parameter]] = max(found) - min(found)
        parts.append(f"{variant} ({', '.join(f'{name} {span:.3f}' for name, span in spans.items())})")
        widest[variant] = max(spans, key=lambda name: spans[name])
    text = f"The PCOC of the test rows spans {' and '.join(parts)}."
    if set(widest.values()) == {TITLES["rate"]}:
        text += (
            " The learning rate, that is how far training gets, matters most for both: what is tuned is how "
            "under-trained the model is, and with it where between base and converged fit its PCOC comes to lie."
        )
    else:
        most = " and ".join(f"{name} for {variant}" for variant, name in widest.items())
        text += f" What matters most is {most}."
    return text
