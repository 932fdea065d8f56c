"""The figure of sensitivity: bins, learning rate and β of the literal training."""

from dataclasses import replace
from typing import Any

import numpy as np

from reproduction.literal import LiteralRecipe, predict_literal, train_literal
from reproduction.pages import Cell, Page, Table, Value
from reproduction.plots import draw_lines
from reproduction.settings import SeenTasks, Settings, listed, quick_note
from reproduction.tasks import Task
from reproduction.trials import BAYES, MCNETS, Contender, Trial, column, judge, run_trial, settings_note, trained_note

CLAIM = (
    "MCNet-None hardly depends on the number of bins but on learning rate and β; MCNet-Field gets worse with more bins "
    "and better with a larger learning rate. The best learning rates are 1e-5 (None) and 1e-3 (Field)."
)

Grid = dict[str, tuple[float, ...]]
QUICK_GRID: Grid = {"bins": (5, 20), "rate": (1e-5, 1e-3), "order": (0.1, 1.0)}
FULL_GRID: Grid = {"bins": (5, 10, 20, 40), "rate": (1e-5, 1e-4, 1e-3), "order": (0.1, 0.5, 1.0, 5.0)}
TITLES = {"bins": "bins", "rate": "learning rate", "order": "β"}
ANCHORS = (Contender("Base", "base"), *(row for row in MCNETS if row.training != "as printed"), BAYES)
VARIANTS = tuple(row for row in MCNETS if row.training == "as printed")

Results = dict[tuple[str, str, float], list[Trial]]


def sensitivity(settings: Settings) -> Page:
    """Train literally over a grid of each parameter, the others at the paper's values."""
    grid = QUICK_GRID if settings.quick else FULL_GRID
    results: Results = {}
    anchors: dict[str, list[Trial]] = {}
    seen = SeenTasks()
    for seed in range(settings.seeds):
        task = seen.add(settings.source.tasks(seed, wanted=("CTR (AliExpress)",))[0], seed)
        for variant in VARIANTS:
            name, known = variant.name, dict[LiteralRecipe, Trial]()
            for parameter, values in grid.items():
                for value in values:
                    settings.say(f"{name}, {TITLES[parameter]} = {value:g}, seed {seed}")
                    recipe = _recipe(variant.sees_field, parameter, value, seed)
                    if recipe not in known:  # the paper's own values are part of every grid
                        known[recipe] = _trial(task, recipe)
                    results.setdefault((name, parameter, value), []).append(known[recipe])
        for contender in ANCHORS:
            anchors.setdefault(contender.name, []).append(run_trial(contender, task, seed, settings.progress))
    lines: list[tuple[Cell, ...]] = []
    for (name, parameter, value), trials in results.items():
        lines.append((name, TITLES[parameter], f"{value:g}", *_figures(trials)))
    lines += [(name, "–", "–", *_figures(trials)) for name, trials in anchors.items()]
    headings = ("Method", "parameter", "value", "PCOC", "F-RCE", "log-loss", "PCOC fitted")
    shift = ", with the paper's shift" if settings.source.simulated else ""
    rows = {"F-RCE": _panels(results, grid, "f_rce"), "PCOC": _panels(results, grid, "pcoc")}
    return Page(
        "sensitivity",
        "Sensitivity to bins, learning rate and β (figure)",
        CLAIM,
        _finding(results, grid),
        [Table("grid", f"{task.name}, test rows{shift}", headings, lines), seen.table()],
        {"lines": draw_lines(rows)},
        notes=(
            "One parameter varies, the others have the paper's values.",
            settings_note((*VARIANTS, *ANCHORS)),
            *trained_note({(name, task.name): [trial.trained for trial in trials] for name, trials in anchors.items()}),
            *quick_note(settings, *(f"{TITLES[name]} of {listed(values)}" for name, values in grid.items())),
        ),
    )


def _recipe(field: bool, parameter: str, value: float, seed: int) -> LiteralRecipe:
    usual = LiteralRecipe(field=field, seed=seed)
    change: dict[str, Any] = {parameter: int(value) if parameter == "bins" else value}
    return replace(usual, rate=usual.learning_rate, **change) if parameter != "rate" else replace(usual, **change)


def _trial(task: Task, recipe: LiteralRecipe) -> Trial:
    fit = train_literal(task, recipe.as_long_as_printed(task))
    test, fitted = (predict_literal(fit, task, sample, recipe.field) for sample in (task.test, task.validation))
    return judge(task, test, fitted)


def _panels(results: Results, grid: Grid, name: str) -> list[tuple[str, tuple[float, ...], dict[str, list[float]]]]:
    return [
        (
            TITLES[parameter],
            values,
            {v.name: [float(np.mean(column(results[v.name, parameter, x], name))) for x in values] for v in VARIANTS},
        )
        for parameter, values in grid.items()
    ]


def _figures(trials: list[Trial]) -> tuple[Cell, ...]:
    return (
        Value.of(column(trials, "pcoc")),
        Value.percent(column(trials, "f_rce")),
        Value.of(column(trials, "log_loss"), digits=6),
        Value.of(column(trials, "fitted_pcoc")),
    )


def _finding(results: Results, grid: Grid) -> list[str]:
    """Return, from the table, how far each parameter moves the PCOC and which value has the lowest F-RCE."""
    parts = []
    for variant in VARIANTS:
        spans, best = {}, {}
        for parameter, values in grid.items():
            pcoc, f_rce = (
                {value: float(np.mean(column(results[variant.name, parameter, value], name))) for value in values}
                for name in ("pcoc", "f_rce")
            )
            spans[TITLES[parameter]] = max(pcoc.values()) - min(pcoc.values())
            best[TITLES[parameter]] = min(f_rce, key=lambda value: f_rce[value])
        widest = max(spans, key=lambda name: spans[name])
        moved = ", ".join(f"{span:.3f} over {name}" for name, span in spans.items())
        parts.append(
            f"The test PCOC of {variant.name} spans {moved}, most over {widest}; its F-RCE is lowest at "
            f"{', '.join(f'{value:g} ({name})' for name, value in best.items())}."
        )
    return parts
