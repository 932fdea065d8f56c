"""What pulls at a bin in literal training: the gradients of log-loss and order penalty by the offset of each bin."""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from mcnet._shared.arrays import FloatArray
from mcnet.networks.bank import BankFit, BankOnSharedNodes
from mcnet.networks.objective import log_loss_from_probabilities
from mcnet.networks.optimise import FlatAdam
from reproduction.literal import LiteralRecipe
from reproduction.tasks import Task

__all__ = ["Forces", "bin_pcoc", "watch_forces"]


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
