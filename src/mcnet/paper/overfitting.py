"""The tables of overfitting: PCOC and AUC after every second epoch."""

from mcnet.networks.training import RowSchedule
from mcnet.paper.literal import LiteralRecipe, predict_literal, train_literal
from mcnet.paper.pages import Cell, Page, Table, Value
from mcnet.paper.published import OVERFITTING
from mcnet.paper.settings import Settings
from mcnet.paper.tasks import Task
from mcnet.paper.trials import Trial, column, judge
from mcnet.paper.with_features import batch_for, fit_with_features

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
    spans = []
    for (task_name, model), by_epoch in results.items():
        means = {e: Value.of(column(trials, "auc")).mean for e, trials in by_epoch.items()}
        biases = {e: Value.of(column(trials, "pcoc")).mean for e, trials in by_epoch.items()}
        spans.append(
            f"{task_name}, {model}: AUC {means[2]:.4f} → {means[10]:.4f}, PCOC {biases[2]:.3f} → {biases[10]:.3f}"
        )
    return Page(
        "overfitting",
        "Robustness against overfitting (tables)",
        CLAIM,
        f"From 2 to 10 epochs, {'; '.join(spans)}; at a learning rate of 1e-5 the pure calibrator hardly leaves its "
        "start, so its steadiness says little about overfitting.",
        tables,
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
        schedule = RowSchedule(epochs, batch_for(len(task.validation)), rate=1e-3, decay=1e-5, seed=seed)
        fitted = fit_with_features("MCNet-None", task, seed, schedule)
        found[epochs] = judge(task, fitted.predict(task.test), fitted.predict(task.validation))
    return found
