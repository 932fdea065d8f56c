"""The tables of overfitting: PCOC and AUC after every second epoch."""

from mcnet.paper.literal import LiteralRecipe, predict_literal, train_literal
from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.published import OVERFITTING
from mcnet.paper.settings import Settings
from mcnet.paper.tasks import Task
from mcnet.paper.trials import Trial, column, judge
from mcnet.paper.with_features import fit_epochs

__all__ = ["overfitting"]

CLAIM = "On CVR, PCOC and AUC hardly change between 2 and 10 epochs, with or without the auxiliary network."

PRINTED = (2, 4, 6, 8, 10)
EPOCHS = PRINTED


def overfitting(settings: Settings) -> Page:
    """Follow the literal training, and that of an auxiliary network, over ten epochs."""
    results: dict[tuple[str, str], dict[int, list[Trial]]] = {}
    for seed in range(settings.seeds):
        for task in settings.source.tasks(seed, wanted=("CVR (AliExpress)",), trained="all"):
            if settings.quick:
                task = task.first(20_000)
            for model, follow in (("MCNet-None", _literal), ("MCNet-None-Aux", _with_features)):
                for epochs, trial in follow(task, seed, settings).items():
                    found = results.setdefault((task.name, model), {})
                    found.setdefault(epochs, []).append(trial)
    tables = []
    for place, name in enumerate(("pcoc", "auc")):
        lines: list[tuple[Cell, ...]] = []
        for (task_name, model), by_epoch in results.items():
            lines.append((task_name, model, *(Value.of(column(by_epoch[epochs], name)) for epochs in EPOCHS)))
            if settings.source.simulated:
                printed = dict(zip(PRINTED, OVERFITTING["AliExpress", model][place], strict=True))
                lines.append(("paper", model, *(Value(printed[epochs]) for epochs in EPOCHS)))
        headings = ("Task", "Method", *(f"{epochs} epochs" for epochs in EPOCHS))
        tables.append(Table(name, f"{name.upper()} after every second epoch", headings, lines))
    return Page("overfitting", "Robustness against overfitting (tables)", CLAIM, _finding(results), tables)


def _finding(results: dict[tuple[str, str], dict[int, list[Trial]]]) -> str:
    first, last = EPOCHS[0], EPOCHS[-1]
    spans, lost = [], []
    for (task_name, model), by_epoch in results.items():
        auc, bias = (
            {epochs: Value.of(column(trials, name)).mean for epochs, trials in by_epoch.items()}
            for name in ("auc", "pcoc")
        )
        spans.append(
            f"{task_name}, {model}: AUC {auc[first]:.4f} → {auc[last]:.4f}, PCOC {bias[first]:.3f} → {bias[last]:.3f}"
        )
        if auc[first] - auc[last] > 0.002:
            lost.append(model)
    verdict = (
        f" Without early stopping {' and '.join(lost)} does overfit here, where rows are fewer than in the paper."
        if lost
        else " Nothing overfits."
    )
    return (
        f"From {first} to {last} epochs, {'; '.join(spans)}.{verdict} At a learning rate of 1e-5 the pure calibrator "
        "hardly leaves its start, so its steadiness says little about overfitting."
    )


def _literal(task: Task, seed: int, settings: Settings) -> dict[int, Trial]:
    recipe = LiteralRecipe(epochs=2, seed=seed, steps=10)
    recipe = recipe.smaller() if settings.quick else recipe
    fit, found = None, {}
    for epochs in EPOCHS:
        settings.say(f"{task.name}, seed {seed}: MCNet-None, {epochs} epochs")
        fit = train_literal(task, recipe, warm=fit)
        found[epochs] = judge(
            task, predict_literal(fit, task, task.test, False), predict_literal(fit, task, task.validation, False)
        )
    return found


def _with_features(task: Task, seed: int, settings: Settings) -> dict[int, Trial]:
    found = {}
    for epochs in EPOCHS:
        settings.say(f"{task.name}, seed {seed}: MCNet-None-Aux, {epochs} epochs")
        fitted = fit_epochs(task, epochs, seed)
        found[epochs] = judge(task, fitted.predict(task.test), fitted.predict(task.validation))
    return found
