"""MCNet trained as the paper says, on rows in mini-batches: the runs that its tables and its appendix are about."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy
from sklearn.isotonic import isotonic_regression

from mcnet._shared.arrays import FloatArray, clip_scores, logit
from mcnet.networks.bank import BankConfig, BankFit, BankOnSharedNodes, fit_bank_on_rows, paper_config
from mcnet.networks.objective import TANGENT_BELOW, Penalties, balance_loss, log_loss_from_probabilities
from mcnet.networks.optimise import FlatAdam
from mcnet.networks.training import RowSchedule
from reproduction.tasks import Sample, Task

__all__ = [
    "START_WORDS",
    "Forces",
    "LiteralRecipe",
    "best_monotone_log_loss",
    "bin_pcoc",
    "follow_literal",
    "literal_settings",
    "objective_and_gradient",
    "predict_literal",
    "train_literal",
    "watch_forces",
]

T = TypeVar("T")

START_WORDS = {"identity": "the identity", "torch": "torch's own start"}


@dataclass(frozen=True)
class LiteralRecipe:
    """The paper's settings; `rate` None is its 1e-5 for MCNet-None and 1e-4 for MCNet-Field.

    `start` is where training starts, which the paper does not say: at the identity, or with weights and constants as
    torch's layers have them. `scale` is exp(r), which UMNN has and the printed formula does not; `decay` is the
    coefficient of the L2 term, which the paper has and does not give. With `falling` the learning rate falls to zero
    along a line, which the paper does not do. Below `tangent_below` the logarithm is continued by its tangent, as a
    function in probability space can leave (0, 1), of which the paper says nothing. `steps` sets the length of training
    whatever the number of rows, in place of `epochs`; `as_long_as_printed` gives fewer rows the steps of the paper's.
    """

    field: bool = False
    bins: int = 20
    rate: float | None = None
    order: float = 1.0
    balance: float = 0.0
    epochs: int = 2
    steps: int | None = None
    batch: int = 2048
    hidden: tuple[int, ...] = (128, 128)
    start: Literal["identity", "torch"] = "identity"
    scale: bool = True
    decay: float = 0.0
    falling: bool = False
    tangent_below: float = TANGENT_BELOW
    seed: int = 0

    def as_long_as_printed(self, task: Task) -> "LiteralRecipe":
        """Return it with as many steps as its epochs have on the paper's rows."""
        return self if self.steps is not None else replace(self, steps=task.printed_steps(self.epochs, self.batch))

    @property
    def learning_rate(self) -> float:
        """The learning rate: what was given, or the paper's."""
        return paper_config(field=self.field)[1].rate if self.rate is None else self.rate

    def sentence(self) -> str:
        """Return the settings in words.

        >>> LiteralRecipe(bins=10).sentence()[:61]
        '10 bins, ReLU networks of 128 × 128, embedding 128, probabili'
        """
        widths = " × ".join(map(str, self.hidden))
        balance = f", α = {self.balance:g}" if self.balance else ""
        balance += f", L2 of {self.decay:g}" if self.decay else ""
        falling = " falling to 0" if self.falling else ""
        length = f"{self.epochs} epochs" if self.steps is None else f"{self.steps:,} steps"
        return (
            f"{self.bins} bins, ReLU networks of {widths}, embedding 128, probability space, integrals from 0, "
            f"Adam at {self.learning_rate:g}{falling}, batches of {self.batch}, {length}, β = "
            f"{self.order:g}{balance}, from {START_WORDS[self.start]}{'' if self.scale else ', without exp(r)'}, log p "
            f"continued by its tangent below {self.tangent_below:g}"
        )


def literal_settings(recipe: LiteralRecipe) -> tuple[BankConfig, RowSchedule]:
    """Return the network and the schedule of a recipe: the paper's, with what the recipe changes."""
    config, schedule = paper_config(field=recipe.field)
    config = replace(
        config,
        bins=recipe.bins,
        shape=replace(config.shape, hidden=recipe.hidden, start=recipe.start, scale=recipe.scale),
        penalties=Penalties(order=recipe.order, balance=recipe.balance),
        seed=recipe.seed,
    )
    schedule = replace(
        schedule,
        rate=recipe.learning_rate,
        falling=recipe.falling,
        decay=recipe.decay,
        epochs=recipe.steps or recipe.epochs,  # an epoch has a step or more
        max_steps=recipe.steps,
        tangent_below=recipe.tangent_below,
        batch=recipe.batch,
        seed=recipe.seed,
    )
    return config, schedule


def train_literal(
    task: Task,
    recipe: LiteralRecipe,
    progress: Callable[[str], Any] | None = None,
    after_epoch: Callable[[int, BankFit], Any] | None = None,
) -> BankFit:
    """Train on the validation rows of a task.

    The rows of a bin share the nodes of their integrals: the values of the paper's T = 50 nodes per row up to 1e-6, at
    a fiftieth of the time or less.
    """
    config, schedule = literal_settings(recipe)

    def tell(done: int, total: int, loss: float) -> None:
        if progress is not None:
            progress(f"{task.name}: literal training, step {done} of {total}")

    rows = task.validation
    codes, sizes = _codes(task, rows, recipe.field)
    groups = rows.field[:, None] if recipe.balance else None
    scores, label = clip_scores(rows.score), rows.label.astype(np.float64)
    given: dict[str, Any] = {"steps": None, "progress": tell, "groups": groups, "after_epoch": after_epoch}
    given["score"] = scores
    return fit_bank_on_rows(logit(scores), label, codes, sizes, None, config, schedule, **given)


def follow_literal(
    task: Task,
    recipe: LiteralRecipe,
    epochs: Sequence[int],
    look: Callable[[BankFit], T],
    progress: Callable[[str], Any] | None = None,
) -> dict[int, T]:
    """Train once, and return what `look` sees of the fit after each of these numbers of epochs."""
    found: dict[int, T] = {}

    def after_epoch(done: int, fit: BankFit) -> None:
        if done in epochs:
            found[done] = look(fit)

    train_literal(task, replace(recipe, epochs=max(epochs)), progress, after_epoch)
    return found


def predict_literal(fit: BankFit, task: Task, sample: Sample, field: bool) -> FloatArray:
    """Return the probabilities that a literal run gives to rows; those outside (0, 1) are clipped, as they must be."""
    codes, _ = _codes(task, sample, field)
    scores = clip_scores(sample.score)
    return fit.predict(logit(scores), codes, score=scores)


def _codes(task: Task, sample: Sample, field: bool) -> tuple[NDArray[np.int64] | None, tuple[int, ...]]:
    if not field:
        return None, ()
    size = int(task.validation.field.max()) + 1
    return np.minimum(sample.field, size).astype(np.int64)[:, None], (size,)


def objective_and_gradient(fit: BankFit, task: Task, recipe: LiteralRecipe) -> tuple[float, float]:
    """Return the published objective over all fitted rows, log-loss + β · order + α · balance, and its gradient's norm.

    At an optimum the norm is 0, but for the kinks of ReLU and of the order term.
    """
    rows = task.validation
    codes, _ = _codes(task, rows, recipe.field)
    table = np.zeros((len(rows), 0), dtype=np.int64) if codes is None else codes
    function = fit.on_rows(table)
    parameters = list(function.bank.parameters())
    label, scores = torch.as_tensor(rows.label, dtype=torch.float32), torch.as_tensor(clip_scores(rows.score))
    given, ones = torch.as_tensor(table), torch.ones(len(rows))
    parts = torch.split(torch.arange(len(rows)), 65_536)
    # The balance term is of all rows at once: it pulls at a row's probability as at all of its field value.
    pulls = torch.zeros(len(rows))
    loss = 0.0
    if recipe.balance:
        with torch.no_grad():
            chance = torch.cat([function.at_rows(scores[index], given[index]) for index in parts])
        chance.requires_grad_()
        group = torch.as_tensor(rows.field, dtype=torch.int64)
        spread = recipe.balance * balance_loss(chance, ones, label, group, int(group.max()) + 1)
        (pulls,) = torch.autograd.grad(spread, chance)
        loss = float(spread.detach())
    total = [torch.zeros_like(p) for p in parameters]
    for index in parts:
        values = function.at_rows(scores[index], given[index])
        share = len(index) / len(rows)
        part = share * log_loss_from_probabilities(values, ones[index], label[index], recipe.tangent_below)
        part = part + share * recipe.order * function.order_penalty()
        loss += float(part.detach())
        found = torch.autograd.grad(part + (pulls[index] * values).sum(), parameters, materialize_grads=True)
        total = [a + b for a, b in zip(total, found, strict=True)]
    return loss, float(sum(float(g.double().square().sum()) for g in total) ** 0.5)


def best_monotone_log_loss(task: Task, field: bool) -> float:
    """Return the mean log-loss of isotonic regression on the fitted rows, by field value if `field`.

    No monotone function of the score has a lower one, so it bounds what is left to gain by training.
    """
    rows, total = task.validation, 0.0
    value = rows.field if field else np.zeros_like(rows.field)
    for group in np.unique(value):
        score, label = rows.score[value == group], rows.label[value == group].astype(np.float64)
        _, place, count = np.unique(score, return_inverse=True, return_counts=True)
        rate = isotonic_regression(np.bincount(place, label) / count, sample_weight=count)[place]
        total -= float((xlogy(label, rate) + xlog1py(1.0 - label, -rate)).sum())
    return total / len(rows)


# What pulls at a bin in literal training: the gradients of log-loss and order penalty by the offset of each bin.


@dataclass(frozen=True)
class Forces:
    """Mean gradients by the offset of each bin over an epoch, and their usual size: the median bin's root mean square.

    A positive gradient pushes the bin down, a negative one up.
    """

    log_loss: FloatArray
    order: FloatArray
    log_loss_size: float
    order_size: float


def watch_forces(fit: BankFit, task: Task, recipe: LiteralRecipe) -> Forces:
    """Train a literal MCNet-None for one more epoch, and return what pulled at its bins meanwhile."""
    bank = copy.deepcopy(fit.bank)
    function = BankOnSharedNodes(bank, torch.zeros((1, 0), dtype=torch.int64))
    adam = FlatAdam(bank.parameters(), (0.9, 0.999), 1e-8)
    points = torch.as_tensor(task.validation.score)
    label = torch.as_tensor(task.validation.label, dtype=torch.float32)
    offsets = bank.bias_weights[-1]
    pulls: dict[str, list[FloatArray]] = {"log_loss": [], "order": []}
    for rows in torch.split(torch.randperm(len(points), generator=torch.Generator().manual_seed(1)), recipe.batch):
        adam.zero()
        values = function.at_rows(points[rows], torch.zeros((len(rows), 0), dtype=torch.int64))
        terms = {
            "log_loss": log_loss_from_probabilities(values, torch.ones(len(rows)), label[rows]),
            "order": recipe.order * function.order_penalty(),
        }
        for name, term in terms.items():
            gradient = torch.autograd.grad(term, offsets, retain_graph=True, materialize_grads=True)[0]
            pulls[name].append(gradient[:, 0, 0].double().numpy().copy())
        sum(terms.values(), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
        adam.step(recipe.learning_rate)
    found = {name: np.array(values) for name, values in pulls.items()}
    sizes = {name: float(np.median(np.sqrt((values**2).mean(axis=0)))) for name, values in found.items()}
    return Forces(found["log_loss"].mean(0), found["order"].mean(0), sizes["log_loss"], sizes["order"])


def bin_pcoc(fit: BankFit, task: Task, probability: FloatArray) -> FloatArray:
    """Return the PCOC of the validation rows in each bin."""
    rows = task.validation
    place = np.searchsorted(fit.bank.edges.cpu().numpy(), rows.score, side="right")
    positives = np.bincount(place, rows.label, fit.bank.bins)
    return np.asarray(np.bincount(place, probability, fit.bank.bins) / np.maximum(positives, 1.0))
