"""The tables of overfitting: PCOC and AUC after every second epoch."""

from collections.abc import Callable

from mcnet.networks.bank import BankFit
from reproduction.literal import LiteralRecipe, follow_literal, predict_literal
from reproduction.pages import Cell, Page, Table, Value
from reproduction.published import OVERFITTING
from reproduction.settings import SeenTasks, Settings, quick_note
from reproduction.tasks import Task
from reproduction.trials import BAYES_NONE, Trial, column, judge, mcnet_row, run_trial, settings_note, trained_note
from reproduction.with_features import BesideRecipe, FittedBeside, fit_beside

CLAIM = "On CVR, PCOC and AUC hardly change between 2 and 10 epochs, with or without the auxiliary network."

PRINTED = (2, 4, 6, 8, 10)
EPOCHS = PRINTED
TASKS = ("CVR (AliExpress)", "CVR (Huawei Browser)")
ANCHORS = (mcnet_row(False, "trained on"), mcnet_row(False, "with our priors"), BAYES_NONE)

SIMULATED = (
    "The scores are those of a base predictor trained on features of the training rows; test rows have the paper's "
    "shift.",
)

ByEpoch = dict[int, list[Trial]]


def overfitting(settings: Settings) -> Page:
    """Follow literal training, and that of an auxiliary network, over ten epochs."""
    results: dict[tuple[str, str], ByEpoch] = {}
    seen, steps = SeenTasks(), dict[str, int]()
    followed: dict[str, Callable[[Task, int], dict[int, Trial]]] = {
        "MCNet-None, as printed": _literal,
        "MCNet-None-Aux, as printed": lambda task, seed: _beside(task, BesideRecipe(seed=seed)),
        "MCNet-None-Aux, with our priors": lambda task, seed: _beside(
            task, BesideRecipe(training="with our priors", seed=seed)
        ),
    }
    for seed in range(settings.seeds):
        for task in settings.source.tasks(seed, wanted=TASKS, trained="all"):
            seen.add(task, seed)
            steps[task.name] = task.printed_steps(1, LiteralRecipe().batch)
            for name, follow in followed.items():
                settings.say(f"{task.name}, seed {seed}: {name}")
                for epochs, trial in follow(task, seed).items():
                    results.setdefault((task.name, name), {}).setdefault(epochs, []).append(trial)
            for contender in ANCHORS:
                trial = run_trial(contender, task, seed, settings.progress)
                for epochs in EPOCHS:  # these have no epochs: they stand at their optimum
                    results.setdefault((task.name, contender.name), {}).setdefault(epochs, []).append(trial)
    beside = (BesideRecipe(), BesideRecipe(training="with our priors"))
    recipes = (f"MCNet-None-Aux, {recipe.training} = {recipe.sentence()}" for recipe in beside)
    return Page(
        "overfitting",
        "Robustness against overfitting (tables)",
        CLAIM,
        _finding(results, list(followed)),
        [*(_table(results, figure, place) for place, figure in enumerate(("pcoc", "auc"))), seen.table()],
        notes=(
            *(SIMULATED if settings.source.simulated else ()),
            f"{settings_note((mcnet_row(False, 'as printed'), *ANCHORS))} {'; '.join(recipes)}. Those as printed go on "
            f"to {EPOCHS[-1]} epochs. None of them stops early; `WithFeatures` does.",
            *trained_note(
                {
                    (name, task): [trial.trained for trial in by_epoch[EPOCHS[-1]]]
                    for (task, name), by_epoch in results.items()
                }
            ),
            "An epoch of a training as printed has as many steps as one of the paper's rows: "
            f"{'; '.join(f'{name} {count}' for name, count in steps.items())}. Others have epochs of the rows here.",
            *quick_note(settings),
        ),
    )


def _table(results: dict[tuple[str, str], ByEpoch], figure: str, place: int) -> Table:
    lines: list[tuple[Cell, ...]] = []
    for (task, name), by_epoch in results.items():
        lines.append((task, name, *(Value.of(column(by_epoch[epochs], figure)) for epochs in EPOCHS)))
        method, _, training = name.partition(", ")
        printed = OVERFITTING.get((task.partition("(")[2].rstrip(")"), method))
        if printed is not None and training == "as printed":
            by_number = dict(zip(PRINTED, printed[place], strict=True))
            lines.append(("paper", method, *(Value(by_number[epochs]) for epochs in EPOCHS)))
    headings = ("Task", "Method", *(f"{epochs} epochs" for epochs in EPOCHS))
    return Table(figure, f"{figure.upper()} after every second epoch", headings, lines)


def _finding(results: dict[tuple[str, str], ByEpoch], followed: list[str]) -> list[str]:
    first, last = EPOCHS[0], EPOCHS[-1]
    spans, lost = [], []
    for (task, name), by_epoch in results.items():
        if name not in followed:
            continue
        auc, bias = (
            {epochs: Value.of(column(trials, figure)).mean for epochs, trials in by_epoch.items()}
            for figure in ("auc", "pcoc")
        )
        low, high, start, end = (f"{x:.3f}" for x in (min(bias.values()), max(bias.values()), bias[first], bias[last]))
        beyond = f" ({low} to {high} on the way)" if {low, high} != {start, end} else ""
        spans.append(
            f"{task}, {name}, from {first} to {last} epochs: AUC {auc[first]:.4f} → {auc[last]:.4f}, PCOC "
            f"{start} → {end}{beyond}."
        )
        if max(auc.values()) - auc[last] > 0.002:
            lost.append(f"{name} on {task} ({max(auc.values()) - auc[last]:.4f})")
    verdict = (
        f"The AUC falls from its best by more than 0.002 for {'; '.join(lost)}." if lost else "No AUC falls by 0.002."
    )
    return [*spans, verdict]


def _literal(task: Task, seed: int) -> dict[int, Trial]:
    def look(fit: BankFit) -> Trial:
        test, fitted = (predict_literal(fit, task, sample, False) for sample in (task.test, task.validation))
        return judge(task, test, fitted)

    batch = LiteralRecipe().batch
    found = follow_literal(task, LiteralRecipe(seed=seed), [task.passes(epochs, batch) for epochs in EPOCHS], look)
    return {epochs: found[task.passes(epochs, batch)] for epochs in EPOCHS}


def _beside(task: Task, recipe: BesideRecipe) -> dict[int, Trial]:
    printed = recipe.training == "as printed"
    ends = {task.passes(epochs, LiteralRecipe().batch) if printed else epochs: epochs for epochs in EPOCHS}
    found: dict[int, Trial] = {}

    def look(done: int, fitted: FittedBeside) -> None:
        if done in ends:
            found[ends[done]] = judge(task, fitted.predict(task.test), fitted.predict(task.validation))

    fit_beside(task, BesideRecipe(recipe.field, recipe.training, max(EPOCHS), recipe.seed), look)
    return found
