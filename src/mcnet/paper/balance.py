"""Table 3: the field-balance regulariser on the models of the paper, and on BayesMCNet."""

import numpy as np

from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.published import BALANCE
from mcnet.paper.settings import Settings
from mcnet.paper.trials import (
    BAYES,
    BAYES_NONE,
    MCNET_FIELD,
    MCNET_NONE,
    Contender,
    Trial,
    column,
    contenders,
    run_trial,
    settings_note,
)

__all__ = ["balance"]

CLAIM = "The field-balance regulariser lowers the standard deviation of the fields' PCOCs for all four models."

ALPHA = 1.0
MODELS = (
    MCNET_NONE,
    MCNET_FIELD,
    Contender("NeuCalib", "neucalib", parameters={"bins": 20}),
    Contender("AdaCalib", "adacalib", sees_field=True),
    BAYES_NONE,
    BAYES,
)


def balance(settings: Settings) -> Page:
    """Fit every model with and without the regulariser, and compare the PCOCs of the field values."""
    results: dict[tuple[str, bool], list[Trial]] = {}
    for seed in range(settings.seeds):
        task = settings.source.tasks(seed, wanted=("CTR (AliExpress)",), shift=True)[0]
        for contender in contenders(MODELS, settings.quick):
            for on in (False, True):
                alpha = ALPHA if on else 0.0
                trial = run_trial(contender, task, seed, settings.progress, alpha_balance=alpha)
                results.setdefault((contender.name, on), []).append(trial)
    values = len(results["MCNet-None", False][0].fields)
    return Page(
        "balance",
        "The field-balance regulariser (Table 3)",
        CLAIM,
        _finding(results),
        [_table(results, values, settings.source.simulated)],
        notes=(
            f"The paper does not give its coefficient α; here α = {ALPHA:g}. STD is the sample standard deviation over "
            "the field values, as in the paper's table. Its regulariser divides by all rows, so a value with "
            "nine tenths of them outweighs the others: it mostly lowers the overall bias.",
            settings_note(contenders(MODELS, settings.quick)),
        ),
    )


def _table(results: dict[tuple[str, bool], list[Trial]], values: int, simulated: bool) -> Table:
    headings = (
        "Model",
        "balance",
        "F-RCE",
        "AUC",
        "log-loss",
        "PCOC all",
        *(f"field {i}" for i in range(values)),
        "STD",
    )
    headings = (*headings, "paper STD") if simulated else headings
    lines: list[tuple[Cell, ...]] = []
    for (name, on), trials in results.items():
        line: tuple[Cell, ...] = (
            name,
            "yes" if on else "no",
            Value.percent(column(trials, "f_rce")),
            Value.of(column(trials, "auc")),
            Value.of(column(trials, "log_loss"), digits=6),
            Value.of(column(trials, "pcoc"), digits=3),
            *(Value.of([float(t.fields[i]) for t in trials], digits=3) for i in range(values)),
            Value.percent(column(trials, "pcoc_std")),
        )
        printed = f"{BALANCE[name, on][-1]:.2%}" if (name, on) in BALANCE else "–"
        lines.append((*line, printed) if simulated else line)
    return Table("fields", "PCOC by field value, with and without the regulariser", headings, lines)


def _finding(results: dict[tuple[str, bool], list[Trial]]) -> str:
    changes = {
        contender.name: float(
            np.mean(column(results[contender.name, True], "pcoc_std"))
            - np.mean(column(results[contender.name, False], "pcoc_std"))
        )
        for contender in MODELS
    }
    lower = [name for name, change in changes.items() if change < 0]
    shown = ", ".join(f"{name} {100 * change:+.2f}" for name, change in changes.items())
    kept = len(lower) == len(changes)
    verdict = "as the paper says" if kept else "not for every model, as the paper says"
    return f"The STD falls for {len(lower)} of {len(changes)} models ({shown} percentage points): {verdict}."
