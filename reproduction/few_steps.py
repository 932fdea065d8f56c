"""What the few steps of the paper's training can do: MCNet-None on conversions, whose rows fill few batches."""

from collections.abc import Mapping
from dataclasses import replace

from mcnet.networks.bank import BankFit
from reproduction.literal import START_WORDS, LiteralRecipe, follow_literal, predict_literal
from reproduction.pages import Cell, Table, Value
from reproduction.published import OVERFITTING, PERFORMANCE
from reproduction.tasks import Task
from reproduction.trials import Contender, Trial, column, judge, mcnet_row, run_trial

__all__ = ["FewSteps", "few_steps_sentence", "few_steps_table", "follow_few_steps"]

EPOCHS = (2, 10)
DRAWS = 3
"""How often torch's own start is drawn, which is random."""
RECIPES = (LiteralRecipe(), LiteralRecipe(start="torch"), LiteralRecipe(start="torch", scale=False))
ANCHORS = (Contender("Base", "base"), mcnet_row(False, "trained on"), mcnet_row(False, "with our priors"))
PRINTED = dict(zip((2, 4, 6, 8, 10), OVERFITTING["AliExpress", "MCNet-None"][0], strict=True))

FewSteps = dict[tuple[str, int], list[Trial]]
"""Trials by training and number of epochs, seed by seed; 0 epochs is what has none."""


def follow_few_steps(task: Task, seed: int, found: FewSteps) -> int:
    """Train on a task with the paper's settings from both starts, add what was found, return the steps per epoch."""
    for contender in ANCHORS:
        found.setdefault((contender.name, 0), []).append(run_trial(contender, task, seed))

    def look(fit: BankFit) -> Trial:
        test, fitted = (predict_literal(fit, task, sample, False) for sample in (task.test, task.validation))
        return judge(task, test, fitted)

    for recipe in RECIPES:
        for draw in range(DRAWS if recipe.start == "torch" else 1):
            for epochs, trial in follow_literal(task, replace(recipe, seed=seed + 1000 * draw), EPOCHS, look).items():
                found.setdefault((_name(recipe), epochs), []).append(trial)
    return -(-len(task.validation) // RECIPES[0].batch)


def _name(recipe: LiteralRecipe) -> str:
    return f"as printed, from {START_WORDS[recipe.start]}" + ("" if recipe.scale else ", no exp(r)")


def few_steps_table(task: Task, found: Mapping[tuple[str, int], list[Trial]], steps: int) -> Table:
    """Return the PCOC before and after few steps, beside the paper's where it is known for the task."""
    lines: list[tuple[Cell, ...]] = []
    for (name, epochs), trials in found.items():
        fitted, test = (Value.of(column(trials, figure)) for figure in ("fitted_pcoc", "pcoc"))
        lines.append((name, str(epochs) if epochs else "–", str(epochs * steps) if epochs else "–", fitted, test))
    headings: tuple[str, ...] = ("Training", "epochs", "steps", "PCOC fitted", "PCOC test")
    if task.published == "CVR (AliExpress)":
        headings = (*headings, "paper PCOC test")
        base = PERFORMANCE["CVR (AliExpress)"]["Base"][0]
        printed = {name: f"{base:.4f}" if name == "Base" else "–" for name, _ in found}
        lines = [
            (*line, f"{PRINTED[epochs]:.4f}" if epochs else printed[name])
            for line, (name, epochs) in zip(lines, found, strict=True)
        ]
    return Table("few-steps", f"MCNet-None on {task.name}, the paper's settings", headings, lines)


def few_steps_sentence(task: Task, found: Mapping[tuple[str, int], list[Trial]], steps: int) -> str:
    """Return, from the table, how far the few steps of the paper's training move the level."""

    def fitted(name: str, epochs: int = 0) -> float:
        return Value.of(column(found[name, epochs], "fitted_pcoc")).mean

    first, last = EPOCHS

    def span(name: str, epochs: int) -> str:
        levels = [f"{level:.3f}" for level in sorted(column(found[name, epochs], "fitted_pcoc"))]
        return levels[0] if levels[0] == levels[-1] else f"{levels[0]} to {levels[-1]}"

    moves = "; ".join(
        f"{name} {span(name, first)} and {span(name, last)}" for name in (_name(recipe) for recipe in RECIPES)
    )
    text = (
        f"On {task.name} an epoch has {steps} {'step' if steps == 1 else 'steps'}. At the paper's settings the PCOC on "
        f"the fitted rows after {first} and {last} epochs is {moves}; base scores {fitted('Base'):.3f}, trained on "
        f"{fitted('MCNet-None, trained on'):.3f}, with our priors {fitted('MCNet-None, with our priors'):.3f}."
    )
    if task.published == "CVR (AliExpress)":
        text += (
            f" The paper prints test PCOCs of {PRINTED[first]:.3f} and {PRINTED[last]:.3f} after {first} and {last} "
            f"epochs, where its base scores have {PERFORMANCE['CVR (AliExpress)']['Base'][0]:.3f}."
        )
    return text
