"""The headline: what a PCOC of 0.9745 on shifted test rows takes, and what can give it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.networks.bank import BankFit
from reproduction.few_steps import FewSteps, few_steps_sentence, few_steps_table, follow_few_steps
from reproduction.kept_trainings import KeptTrainings, Look, Training
from reproduction.literal import (
    START_WORDS,
    Forces,
    LiteralRecipe,
    bin_pcoc,
    follow_literal,
    predict_literal,
    watch_forces,
)
from reproduction.pages import Cell, Page, Table, Value
from reproduction.plots import draw_bins
from reproduction.published import PERFORMANCE, PERFORMANCE_STD
from reproduction.settings import SeenTasks, Settings, listed, quick_note
from reproduction.tasks import MOST_TEST_ROWS, Task
from reproduction.trials import (
    BAYES_NONE,
    Contender,
    Trial,
    column,
    judge,
    mcnet_row,
    run_trial,
    settings_note,
    trained_note,
)

CLAIM = (
    "MCNet-None has a PCOC of 0.9745 on the CTR of AliExpress, where every baseline has 0.78 to 0.86; its figures "
    "fluctuate with β, and β = 1 is best."
)

PRINTED_STD = PERFORMANCE_STD["CTR (AliExpress)"]["MCNet-None"][0]
"""The standard deviation that the paper prints for it, over three runs."""
ANCHORS = (
    Contender("Base", "base"),
    Contender("Histogram Binning", "histogram", parameters={"bins": 20}),
    mcnet_row(False, "trained on"),
    mcnet_row(False, "with our priors"),
    BAYES_NONE,
)
STARTS: tuple[Literal["identity", "torch"], ...] = ("identity", "torch")


@dataclass(frozen=True)
class Grid:
    """The trainings compared.

    Starts × learning rates × β; with the last β, the same without exp(r), as the formula is printed, and with an L2
    term at the first learning rate; the rate falls to zero in one more run of the boldest setting. As torch's own start
    is random, it is drawn `draws` times at the first learning rate and the last β, the paper's.
    """

    orders: tuple[float, ...] = (0.0, 0.01, 0.1, 1.0)
    rates: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    epochs: tuple[int, ...] = (2, 5, 10)
    decays: tuple[float, ...] = (1e-5, 1e-3)
    draws: int = 3

    def starts(self, recipe: LiteralRecipe, seed: int) -> list[LiteralRecipe]:
        """Return the recipe from each start that it is trained from, for the rows of a seed."""
        several = recipe.start == "torch" and not recipe.decay
        several = several and (recipe.rate, recipe.order) == (self.rates[0], self.orders[-1])
        return [replace(recipe, seed=seed + 1000 * draw) for draw in range(self.draws if several else 1)]


class Level(NamedTuple):
    """The PCOC of a training on the rows it was fitted to, and on the test rows."""

    fitted: float
    test: float


Results = dict[tuple[LiteralRecipe, int], list[Look]]
"""What was seen of each training after each number of epochs, seed by seed and start by start."""

FULL, QUICK = Grid(), Grid((0.0, 1.0), (1e-5, 1e-3), decays=(1e-3,))


def headline(settings: Settings) -> Page:
    """Train MCNet-None over β, learning rate, epochs, start, scale and L2, on rows that move as the paper's do."""
    grid = QUICK if settings.quick else FULL
    seen, anchors, ratios = SeenTasks(), dict[str, list[Trial]](), list[float]()
    results: Results = {}
    few: FewSteps = {}
    forces: dict[float, Forces] = {}
    kept, trainings = KeptTrainings(settings.out / "headline-trainings"), 0
    for seed in range(settings.seeds):
        task, *others = settings.source.tasks(seed, wanted=("CTR (AliExpress)", "CVR (AliExpress)"), shift=True)
        for other in others[:1]:
            settings.say(f"seed {seed}: {other.name}")
            small, steps = seen.add(other, seed), follow_few_steps(other, seed, few)
        whole, task = task, seen.add(task.judged_on(MOST_TEST_ROWS), seed)
        every = -(-len(whole.test) // len(task.test))
        ratios.append(float(task.validation.label.mean() / task.test.label.mean()))
        for contender in ANCHORS:
            anchors.setdefault(contender.name, []).append(run_trial(contender, task, seed, settings.progress))
        for recipe in _recipes(grid):
            settings.say(f"seed {seed}: {_short(recipe)}")
            for start in grid.starts(recipe, seed):
                training = _train(task, start, grid, kept)
                trainings += 1
                for epochs, look in training.looks.items():
                    results.setdefault((recipe, epochs), []).append(look)
            if seed == 0 and training.forces is not None:
                forces[recipe.order] = training.forces
    kept.tell(settings, "headline", trainings)
    ratio = Value.of(ratios).mean
    bins = {
        f"β = {recipe.order:g}": results[recipe, grid.epochs[-1]][0].bins
        for recipe in _recipes(grid)
        if _is_boldest(recipe, grid)
    }
    known = PERFORMANCE.get(task.published or "")
    printed = known["MCNet-None"][0] if known else None
    rates = ", validation and test rates as in the paper" if settings.source.simulated else ""
    caption = f"MCNet-None on {task.name}{rates}"
    share = "" if every == 1 else f" Trainings are judged on one test row in {every}."
    return Page(
        "headline",
        "The headline PCOC",
        CLAIM,
        [
            *_finding(results, anchors, ratio, printed),
            _reason(forces, bins, grid),
            *([few_steps_sentence(small, few, steps)] if few else []),
        ],
        [
            _table(results, anchors, caption),
            *([few_steps_table(small, few, steps)] if few else []),
            seen.table(),
        ],
        {"bins": draw_bins(bins, forces)},
        notes=(
            f"The figure: after {grid.epochs[-1]} epochs at a learning rate of {grid.rates[-1]:g} from the identity, "
            "the PCOC of the fitted rows of each bin, and the mean gradients by the offset of each bin over one more "
            "epoch (above 0: the bin is pushed down).",
            f"β, learning rate, epochs, start, scale and L2 of trainings are those of the table.{share} Torch's own "
            f"start is drawn {grid.draws} times at a learning rate of {grid.rates[0]:g} and β = {grid.orders[-1]:g} "
            "without an L2 term, and once otherwise. *Falls* counts "
            "neighbours in the order of scores that are put in the opposite order inside a field value; *clipped* is "
            "the share of test rows for which the function left (0, 1).",
            settings_note((*ANCHORS, mcnet_row(False, "as printed"))),
            *trained_note({(name, task.name): [trial.trained for trial in trials] for name, trials in anchors.items()}),
            *quick_note(
                settings,
                f"β of {listed(grid.orders)}; learning rates of {listed(grid.rates)}; {listed(grid.epochs)} epochs",
            ),
        ),
    )


def _recipes(grid: Grid) -> list[LiteralRecipe]:
    found = [
        LiteralRecipe(order=order, rate=rate, start=start)
        for start, rate, order in product(STARTS, grid.rates, grid.orders)
    ]
    last = grid.orders[-1]
    found += [LiteralRecipe(order=last, rate=r, start=s, scale=False) for s, r in product(STARTS, grid.rates)]
    found += [LiteralRecipe(order=last, rate=grid.rates[0], start=s, decay=d) for s, d in product(STARTS, grid.decays)]
    return [*found, LiteralRecipe(order=last, rate=grid.rates[-1], falling=True)]


def _is_boldest(recipe: LiteralRecipe, grid: Grid) -> bool:
    plain = recipe.start == "identity" and recipe.scale and not recipe.decay and not recipe.falling
    return plain and recipe.rate == grid.rates[-1] and recipe.order in (grid.orders[0], grid.orders[-1])


def _short(recipe: LiteralRecipe) -> str:
    falling = ", falling to 0" if recipe.falling else ""
    return f"{_from(recipe)}, learning rate {recipe.learning_rate:g}{falling}, β = {recipe.order:g}"


def _from(recipe: LiteralRecipe) -> str:
    """Return start, scale and L2 of a training in words."""
    scale = "" if recipe.scale else ", no exp(r)"
    decay = f", L2 of {recipe.decay:g}" if recipe.decay else ""
    return f"from {START_WORDS[recipe.start]}{scale}{decay}"


def _train(task: Task, recipe: LiteralRecipe, grid: Grid, kept: KeptTrainings) -> Training:
    """Train, or find what an earlier run with the same rows and settings kept."""
    boldest = _is_boldest(recipe, grid)
    key = kept.key(task, recipe, grid.epochs, boldest)
    found = kept.read(key)
    if found is not None:
        return found
    fits: list[BankFit] = []

    def look(fit: BankFit) -> Look:
        fits[:] = [fit]
        return _look(task, fit)

    looks = follow_literal(task, recipe, grid.epochs, look)
    training = Training(looks, watch_forces(fits[0], task, recipe) if boldest else None)
    kept.write(key, training)
    return training


def _look(task: Task, fit: BankFit) -> Look:
    fitted, test = (predict_literal(fit, task, sample, False) for sample in (task.validation, task.test))
    return Look(judge(task, test, fitted), bin_pcoc(fit, task, fitted))


def _table(results: Results, anchors: dict[str, list[Trial]], caption: str) -> Table:
    lines: list[tuple[Cell, ...]] = [(name, "–", "–", "–", *_figures(trials)) for name, trials in anchors.items()]
    for (recipe, epochs), looks in results.items():
        rate = f"{recipe.learning_rate:g}" + (" falling to 0" if recipe.falling else "")
        figures = _figures([look.trial for look in looks])
        lines.append((f"as printed, {_from(recipe)}", rate, f"{recipe.order:g}", str(epochs), *figures))
    headings = (
        "Training",
        "learning rate",
        "β",
        "epochs",
        "PCOC fitted",
        "PCOC test",
        "F-RCE",
        "log-loss",
        "falls",
        "clipped",
    )
    return Table("trainings", caption, headings, lines)


def _figures(trials: list[Trial]) -> tuple[Cell, ...]:
    return (
        Value.of(column(trials, "fitted_pcoc")),
        Value.of(column(trials, "pcoc")),
        Value.percent(column(trials, "f_rce")),
        Value.of(column(trials, "log_loss"), digits=6),
        Value.of(column(trials, "violations"), digits=0),
        Value.percent(column(trials, "clipped")),
    )


def _finding(results: Results, anchors: dict[str, list[Trial]], ratio: float, printed: float | None) -> list[str]:
    """Return, from the table, the levels that trainings reach, and which of them come near what the paper prints."""
    level = anchors["Histogram Binning"]
    right = Value.of(column(level, "pcoc")).mean / Value.of(column(level, "fitted_pcoc")).mean
    seen = {
        key: [Level(look.trial["fitted_pcoc"], look.trial["pcoc"]) for look in looks] for key, looks in results.items()
    }
    levels = {key: Level(*np.mean(found, axis=0)) for key, found in seen.items()}
    text = (
        f"The validation rate is {ratio:.3f} of the test rate. A fit that is right about its own rows has a test PCOC "
        f"of {right:.3f} (histogram binning, right by construction), which is the ratio only if scores do not move."
    )
    if printed is not None:
        text += f" {printed} on the test rows takes a PCOC of {printed / right:.2f} on the rows it was fitted to."
    sentences = [text]
    for start in STARTS:
        parts = []
        for order in dict.fromkeys(recipe.order for recipe, _ in levels):
            chosen = [v for (r, _), v in seen.items() if r.start == start and r.order == order and _is_plain(r)]
            fitted, test = zip(*(level for those in chosen for level in those), strict=True)
            parts.append(f"β = {order:g}: fitted PCOC {_span(fitted)}, test {_span(test)}")
        sentences.append(f"From {START_WORDS[start]}, {'; '.join(parts)}.")
    sentences += _draws(seen)
    last = max(epochs for _, epochs in levels)
    others = [(r, v) for (r, epochs), v in levels.items() if epochs == last and (not r.scale or r.decay)]
    if others:
        shown = "; ".join(f"{_short(r)}: {v.fitted:.3f} and {v.test:.3f}" for r, v in others)
        sentences.append(f"Without exp(r), or with an L2 term, after {last} epochs (fitted and test PCOC): {shown}.")
    return sentences if printed is None else [*sentences, _nearest(levels, printed)]


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def _draws(seen: dict[tuple[LiteralRecipe, int], list[Level]]) -> list[str]:
    """Return how far apart trainings end that differ by the draw of their start alone."""
    usual, parts = min(map(len, seen.values())), dict[str, list[str]]()
    for (recipe, epochs), levels in seen.items():
        if len(levels) > usual:
            text = f"after {epochs} epochs {_span([level.fitted for level in levels])}"
            parts.setdefault(f"{_short(recipe)}, {len(levels)} trainings", []).append(text)
    return [f"Fitted PCOC {name}: {', '.join(texts)}." for name, texts in parts.items()]


def _is_plain(recipe: LiteralRecipe) -> bool:
    return recipe.scale and not recipe.decay and not recipe.falling


def _nearest(levels: dict[tuple[LiteralRecipe, int], Level], printed: float) -> str:
    """Return how many trainings come within two of the paper's standard deviations, and the nearest of all."""
    paper = LiteralRecipe().learning_rate
    near = [key for key, level in levels.items() if abs(level.test - printed) <= 2.0 * PRINTED_STD]
    usual = [level.test for (recipe, _), level in levels.items() if recipe.learning_rate == paper]
    text = (
        f"Within two standard deviations of {printed} (the paper prints {PRINTED_STD}) are {len(near)} of the "
        f"{len(levels)} lines of the table."
    )
    if usual:
        text += f" At the paper's learning rate of {paper:g} the highest test PCOC is {max(usual):.3f}."
    (recipe, epochs), best = min(levels.items(), key=lambda item: abs(item[1].test - printed))
    return (
        f"{text} Nearest to {printed} is {best.test:.3f}, {_short(recipe)}, {epochs} epochs; it predicts "
        f"{best.fitted:.2f} times the positives of its own rows."
    )


def _reason(forces: dict[float, Forces], bins: dict[str, FloatArray], grid: Grid) -> str:
    """Return what the penalty does to the level, in figures of this run; nothing else is claimed."""
    strong, order = forces[grid.orders[-1]], grid.orders[-1]
    pcoc = bins[f"β = {order:g}"]
    text = (
        f"What β = {order:g} does to the level: at an edge out of order the penalty pulls the bin on the left down and "
        "the one on the right up, by β each, however small the fault and however many the rows. Over all bins its "
        f"pulls sum to {abs(strong.order.sum()):.4f}: it can only pass a pull on from bin to bin. The log-loss pulls "
        "at an offset in probability space by (p − y) / p(1 − p): it balances relative errors, not errors. Per step "
        f"the penalty's pull on a bin is {strong.order_size / max(strong.log_loss_size, 1e-12):.0f} times that of the "
        "log-loss, so Adam's step length follows the penalty."
    )
    down = int(np.argmin(np.append(strong.order > 0.0, False)))  # how many of the lowest bins are pushed down
    if 0 < down < len(pcoc):
        lowest = "the lowest bin" if down == 1 else f"the {down} lowest bins"
        lower, upper = pcoc[:down], pcoc[down:]
        levels = f"{lower[0]:.2f}" if down == 1 else f"{lower.min():.2f} to {lower.max():.2f}"
        text += (
            f" Over an epoch it pushes {lowest} down and, taken together, the {len(upper)} above up. In the former the "
            f"PCOC on the fitted rows is {levels}; of the bins above, "
            f"{int((upper > 1.0).sum())} predict too many, up to {upper.max():.2f} times."
        )
    return text
