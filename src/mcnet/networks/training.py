"""Training on rows in mini-batches: as the paper does it, and for whatever needs the features of a row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcnet.errors import InputError
from mcnet.networks.losses import balance_loss, log_loss_from_logits, log_loss_from_probabilities
from mcnet.networks.objective import Penalties
from mcnet.networks.optimise import Descent, FlatAdam, Progress, flush_denormals, threads_for

__all__ = ["FeatureNetwork", "RowFunction", "RowSchedule", "Rows", "descend_on_rows", "split_rows"]


class RowFunction(Protocol):
    """A calibration function that can be evaluated, and differentiated, one row at a time."""

    @property
    def space(self) -> str:
        """Where the function lives: `"logit"` or `"probability"`."""

    @property
    def module(self) -> nn.Module:
        """The module with the parameters."""

    @property
    def work(self) -> float:
        """Roughly how many multiplications a row takes."""

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return values for points `[B]` and field codes `[B, fields]`, in the units of the space."""

    def order_penalty(self) -> Tensor:
        """Return the order loss at the current parameters."""


class FeatureNetwork(nn.Module):
    """A network on features, numbers `[B, n]` and category codes `[B, m]`, that adds a logit to every row."""

    sizes: tuple[int, ...]
    """The number of values of each column of categories; the code `size` is a value never seen."""


@dataclass(frozen=True)
class Rows:
    """Labelled rows as tensors: points in the units of the space, labels, weights, codes and features."""

    points: Tensor
    label: Tensor
    weight: Tensor
    codes: Tensor
    group: Tensor
    numbers: Tensor
    categories: Tensor

    @classmethod
    def of(
        cls,
        points: NDArray[np.float64],
        label: NDArray[np.float64],
        codes: NDArray[np.int64],
        weight: NDArray[np.float64] | None = None,
        numbers: NDArray[np.floating] | None = None,
        categories: NDArray[np.integer] | None = None,
        device: str = "cpu",
        groups: NDArray[np.integer] | None = None,
    ) -> "Rows":
        """Return rows from NumPy arrays.

        `numbers` and `categories` are the features of the auxiliary network; `groups` `[rows, fields]` are what the
        balance term compares, the codes if not given.
        """
        count = len(points)
        if count == 0 or len(label) != count or len(codes) != count:
            raise InputError("points, label and codes must have one entry per row each, and at least one row")
        groups = codes if groups is None else groups
        group = np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1) if groups.shape[1] else np.zeros(count)

        def floats(values: NDArray[np.floating]) -> Tensor:
            return torch.as_tensor(np.asarray(values), dtype=torch.float32, device=device)

        def integers(values: NDArray[np.integer]) -> Tensor:
            return torch.as_tensor(np.asarray(values), dtype=torch.int64, device=device)

        return cls(
            points=torch.as_tensor(np.asarray(points), dtype=torch.float64, device=device),
            label=floats(label),
            weight=floats(np.ones(count) if weight is None else weight),
            codes=integers(codes),
            group=integers(group.astype(np.int64)),
            numbers=floats(np.empty((count, 0)) if numbers is None else numbers),
            categories=integers(np.empty((count, 0), dtype=np.int64) if categories is None else categories),
        )

    def __len__(self) -> int:
        return len(self.points)

    def take(self, index: Tensor) -> "Rows":
        """Return some of the rows."""
        return Rows(
            self.points[index],
            self.label[index],
            self.weight[index],
            self.codes[index],
            self.group[index],
            self.numbers[index],
            self.categories[index],
        )


@dataclass(frozen=True)
class RowSchedule:
    """How to train on rows: Adam over shuffled batches.

    `decay` is the coefficient of the L2 term. With `held_out` > 0 that share of the rows judges every epoch;
    training stops after `patience` epochs without a better log-loss and returns to the best. `unseen` is the
    chance that a row's field value or category is hidden, which teaches the networks what to do with values
    they have never seen. With `falling` the learning rate falls to zero along a line. `max_steps` cuts training short.
    """

    epochs: int = 2
    batch: int = 2048
    rate: float = 1e-4
    falling: bool = False
    decay: float = 0.0
    held_out: float = 0.0
    patience: int = 2
    unseen: float = 0.0
    seed: int = 0
    max_steps: int | None = None


def split_rows(count: int, schedule: RowSchedule) -> tuple[Tensor, Tensor, torch.Generator]:
    """Return the rows that judge, the rows to train on, and what the schedule draws its batches from."""
    generator = torch.Generator().manual_seed(schedule.seed)
    order = torch.randperm(count, generator=generator)
    held = round(schedule.held_out * count)
    return order[:held], order[held:], generator


def descend_on_rows(
    function: RowFunction,
    rows: Rows,
    schedule: RowSchedule,
    penalties: Penalties,
    sizes: tuple[int, ...],
    auxiliary: FeatureNetwork | None = None,
    progress: Progress | None = None,
    after_epoch: Callable[[int, Descent], None] | None = None,
) -> Descent:
    """Train a function, and an auxiliary network beside it if given, in place.

    `after_epoch` is called with the number of epochs done and how the training went until then.
    """
    if auxiliary is not None and function.space != "logit":
        raise InputError("an auxiliary network adds to logits: the function must live in logit space")
    modules = [function.module] if auxiliary is None else [function.module, auxiliary]
    adam = FlatAdam([p for m in modules for p in m.parameters()], (0.9, 0.999), 1e-8, schedule.decay)
    held, train, generator = split_rows(len(rows), schedule)
    held, train = held.to(rows.points.device), train.to(rows.points.device)
    order_weight = penalties.order_in(function.space)
    groups = int(rows.group.max()) + 1
    total = schedule.epochs * -(-len(train) // schedule.batch)
    total = min(total, schedule.max_steps or total)
    best, best_values, waited, done, loss, remaining = (
        float("inf"),
        adam.values.clone(),
        0,
        0,
        0.0,
        float("nan"),
    )
    extra = 0 if auxiliary is None else sum(p.numel() for p in auxiliary.parameters() if p.ndim == 2)
    with flush_denormals(), threads_for(schedule.batch * (function.work + extra)):
        if len(held):
            best = held_out_loss(function, auxiliary, rows.take(held), schedule.batch)
        for epoch in range(schedule.epochs):
            running, seen = 0.0, 0
            for index in _batches(train, schedule.batch, generator):
                batch = rows.take(index)
                adam.zero()
                codes = _hidden(batch.codes, sizes, schedule.unseen, generator)
                categories = batch.categories
                if auxiliary is not None:
                    categories = _hidden(categories, auxiliary.sizes, schedule.unseen, generator)
                values = _values(function, auxiliary, batch, codes, categories)
                step = _log_loss(function.space, values, batch)
                running, seen = running + float(step.detach()) * len(batch), seen + len(batch)
                if order_weight > 0:
                    step = step + order_weight * function.order_penalty()
                if penalties.balance > 0:
                    chance = torch.sigmoid(values) if function.space == "logit" else values
                    positives = batch.weight * batch.label
                    step = step + penalties.balance * balance_loss(
                        chance, batch.weight, positives, batch.group, groups, penalties.normalise
                    )
                step.backward()  # type: ignore[no-untyped-call]
                adam.step(schedule.rate * (1.0 - done / total if schedule.falling else 1.0))
                done += 1
                if progress is not None and (done % 10 == 0 or done == total):
                    progress(done, total, float(step.detach()))
                if done >= total:
                    break
            previous, loss = loss, running / max(seen, 1)
            remaining = abs(previous - loss) * len(rows) if epoch else float("nan")
            if len(held):
                loss = held_out_loss(function, auxiliary, rows.take(held), schedule.batch)
                if loss < best:
                    best, best_values, waited = loss, adam.values.clone(), 0
                else:
                    waited += 1
            if after_epoch is not None:
                after_epoch(epoch + 1, Descent(loss, done, False, remaining))
            if done >= total or waited >= schedule.patience:
                break
    if len(held):
        loss = best
        adam.values.copy_(best_values)
    adam.release()
    return Descent(loss, done, waited >= schedule.patience, remaining)


def _batches(index: Tensor, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    shuffled = index[torch.randperm(len(index), generator=generator).to(index.device)]
    for start in range(0, len(shuffled), size):
        yield shuffled[start : start + size]


def _hidden(codes: Tensor, sizes: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
    if share <= 0 or not sizes:
        return codes
    hide = torch.rand(codes.shape, generator=generator).to(codes.device) < share
    return torch.where(hide, torch.tensor(sizes, device=codes.device), codes)


def _values(
    function: RowFunction, auxiliary: FeatureNetwork | None, batch: Rows, codes: Tensor, categories: Tensor
) -> Tensor:
    values = function.at_rows(batch.points, codes)
    return values if auxiliary is None else values + auxiliary(batch.numbers, categories)


def _log_loss(space: str, values: Tensor, batch: Rows) -> Tensor:
    rule = log_loss_from_logits if space == "logit" else log_loss_from_probabilities
    return rule(values, batch.weight, batch.weight * batch.label)


@torch.no_grad()
def held_out_loss(function: RowFunction, auxiliary: FeatureNetwork | None, rows: Rows, batch: int) -> float:
    """Return the mean log-loss on rows that training has not seen."""
    total, mass = 0.0, 0.0
    for index in torch.split(torch.arange(len(rows), device=rows.points.device), batch):
        part = rows.take(index)
        weight = float(part.weight.sum())
        values = _values(function, auxiliary, part, part.codes, part.categories)
        total += float(_log_loss(function.space, values, part)) * weight
        mass += weight
    return total / mass
