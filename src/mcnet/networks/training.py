"""Train networks on rows, and an auxiliary network on features beside them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor, nn
from torch.nn import functional

from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError
from mcnet.networks.objective import TANGENT_BELOW, Penalties, balance_loss, log_loss_in
from mcnet.networks.optimise import Descent, FlatAdam, Progress, flush_denormals, threads_for
from mcnet.rows.contexts import distinct_contexts

# Trained networks as plain arrays, and back.

Arrays = Mapping[str, NDArray[Any]]
_Module = TypeVar("_Module", bound=nn.Module)


def arrays_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Return every tensor of a module by name, as an array."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def with_arrays(module: _Module, arrays: Arrays) -> _Module:
    """Return the module, with the tensors that `arrays_of` returned."""
    module.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
    return module


def training_state(
    module: nn.Module, sizes: tuple[int, ...], config: Any, descent: Descent, order_loss: float
) -> TrainingState:
    """Return a trained function as arrays, and what it takes to restore it, ready for JSON."""
    about = {"config": asdict(config), "sizes": list(sizes), "descent": asdict(descent), "order_loss": order_loss}
    return TrainingState(arrays_of(module), about)


# Training on rows in mini-batches: as the paper does it, and for whatever needs the features of a row.


class RowFunction(nn.Module):
    """A calibration function that can be evaluated, and differentiated, one row at a time."""

    space: str
    """Where the function lives: `"logit"` or `"probability"`."""
    work: float
    """Roughly how many multiplications a row takes."""

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return values for points `[B]` and field codes `[B, fields]`, in the units of the space."""
        raise NotImplementedError

    def order_penalty(self) -> Tensor:
        """Return the order loss at the current parameters."""
        raise NotImplementedError


class FixedFunction(RowFunction):
    """A function that stays as it is: its points are logits calibrated already."""

    space = "logit"
    work = 0.0

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the points themselves."""
        return points

    def order_penalty(self) -> Tensor:
        """Return 0: nothing falls that did not fall before."""
        return torch.zeros(())


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
        groups = codes if groups is None else groups
        _, group = distinct_contexts(np.asarray(groups))

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
        return Rows(*(column[index] for column in vars(self).values()))


@dataclass(frozen=True)
class RowSchedule:
    """How to train on rows: Adam over shuffled batches.

    `decay` is the coefficient of the L2 term. With `held_out` > 0 that share of the rows judges every epoch;
    training stops after `patience` epochs without a better log-loss and returns to the best. `unseen` is the
    chance that a row's field value or category is hidden, which teaches the networks what to do with values
    they have never seen. With `falling` the learning rate falls to zero along a line. `max_steps` cuts training short.
    In probability space the logarithm is continued by its tangent below `tangent_below`.
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
    tangent_below: float = TANGENT_BELOW


def split_rows(count: int, schedule: RowSchedule) -> tuple[Tensor, Tensor, torch.Generator]:
    """Return the rows that judge, the rows to train on, and what the schedule draws its batches from."""
    generator = torch.Generator().manual_seed(int(schedule.seed))
    order = torch.randperm(count, generator=generator)
    held = round(schedule.held_out * count)
    return order[:held], order[held:], generator


def descend_on_rows(
    function: RowFunction,
    rows: Rows,
    schedule: RowSchedule,
    penalties: Penalties,
    sizes: tuple[int, ...],
    auxiliary: "AuxiliaryNetwork | None" = None,
    progress: Progress | None = None,
    after_epoch: Callable[[int, Descent], None] | None = None,
) -> Descent:
    """Train a function, and an auxiliary network beside it if given, in place.

    `after_epoch` is called with the number of epochs done and how the training went until then.
    """
    if auxiliary is not None and function.space != "logit":
        raise InputError("an auxiliary network adds to logits: the function must live in logit space")
    modules = [function] if auxiliary is None else [function, auxiliary]
    adam = FlatAdam([p for m in modules for p in m.parameters()], (0.9, 0.999), 1e-8, schedule.decay)
    held, train, generator = split_rows(len(rows), schedule)
    held, train = held.to(rows.points.device), train.to(rows.points.device)
    order_weight = penalties.order_in(function.space)
    groups = int(rows.group.max()) + 1
    total = schedule.epochs * -(-len(train) // schedule.batch)
    total = min(total, schedule.max_steps or total)
    best, best_values, waited = float("inf"), adam.values.clone(), 0
    done, loss, remaining = 0, 0.0, float("nan")
    extra = 0 if auxiliary is None else sum(p.numel() for p in auxiliary.parameters() if p.ndim == 2)
    with flush_denormals(), threads_for(schedule.batch * (function.work + extra)):
        if len(held):
            best = held_out_loss(function, auxiliary, rows.take(held), schedule)
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
                positives = batch.weight * batch.label
                step = log_loss_in(function.space, values, batch.weight, positives, schedule.tangent_below)
                running, seen = running + float(step.detach()) * len(batch), seen + len(batch)
                if order_weight > 0:
                    step = step + order_weight * function.order_penalty()
                if penalties.balance > 0:
                    chance = torch.sigmoid(values) if function.space == "logit" else values
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
                loss = held_out_loss(function, auxiliary, rows.take(held), schedule)
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
    function: RowFunction, auxiliary: "AuxiliaryNetwork | None", batch: Rows, codes: Tensor, categories: Tensor
) -> Tensor:
    values = function.at_rows(batch.points, codes)
    return values if auxiliary is None else values + auxiliary(batch.numbers, categories)


@torch.no_grad()
def held_out_loss(
    function: RowFunction, auxiliary: "AuxiliaryNetwork | None", rows: Rows, schedule: RowSchedule
) -> float:
    """Return the mean log-loss on rows that training has not seen."""
    total, mass = 0.0, 0.0
    for index in torch.split(torch.arange(len(rows), device=rows.points.device), schedule.batch):
        part = rows.take(index)
        weight = float(part.weight.sum())
        values = _values(function, auxiliary, part, part.codes, part.categories)
        positives = part.weight * part.label
        loss = log_loss_in(function.space, values, part.weight, positives, schedule.tangent_below)
        total += float(loss) * weight
        mass += weight
    return total / mass


# An auxiliary network on the features of a row, trained together with any function in logit space.
#
# p = sigmoid(f(l, c) + g(x)). It starts at zero, so training starts from the calibrator alone. It may change
# the order of rows: that is its purpose.


class AuxiliaryNetwork(nn.Module):
    """A 2-layer network on standardised numbers and embedded categories, with one logit as its output.

    `sizes` is the number of values of each column of categories; the code `size` is a value never seen.
    """

    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        centre: NDArray[np.float64],
        spread: NDArray[np.float64],
        sizes: tuple[int, ...] = (),
        embedding: int = 16,
        hidden: tuple[int, int] = (128, 128),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.sizes = sizes
        self.shape = {"embedding": embedding, "hidden": list(hidden), "sizes": list(sizes)}
        self.register_buffer("centre", torch.as_tensor(np.array(centre), dtype=torch.float32))
        self.register_buffer("spread", torch.as_tensor(np.array(spread), dtype=torch.float32))
        generator = torch.Generator().manual_seed(int(seed))
        self.tables = nn.ParameterList()
        for size in sizes:
            table = 0.1 * torch.randn(size + 1, embedding, generator=generator)
            table[size] = 0.0  # values never seen start in the middle of the others
            self.tables.append(nn.Parameter(table))
        widths = (len(centre) + embedding * len(sizes), *hidden, 1)
        self.weights = nn.ParameterList()
        for into, out in pairwise(widths):
            bound = max(into, 1) ** -0.5
            weight = (torch.rand(into, out, generator=generator) * 2.0 - 1.0) * bound
            self.weights.append(nn.Parameter(torch.zeros_like(weight) if out == 1 else weight))
            self.weights.append(nn.Parameter(torch.zeros(out)))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Return the logit `[B]` to add, for numbers `[B, n]` and category codes `[B, m]`."""
        parts = [(numbers - self.centre) / self.spread]
        for i, (table, size) in enumerate(zip(self.tables, self.sizes, strict=True)):
            code = categories[:, i]
            parts.append(table[torch.where((code < 0) | (code >= size), size, code)])
        values = torch.cat(parts, dim=1)
        for i in range(0, len(self.weights), 2):
            values = torch.addmm(self.weights[i + 1], values, self.weights[i])
            values = functional.relu(values) if i + 2 < len(self.weights) else values
        return values[:, 0]

    @torch.no_grad()
    def logits(
        self, numbers: NDArray[np.floating], categories: NDArray[np.integer], batch: int = 8192
    ) -> NDArray[np.float64]:
        """Return the logits to add, for features as NumPy arrays."""
        result = np.empty(len(numbers))
        device = self.centre.device
        for start in range(0, len(numbers), batch):
            part = slice(start, start + batch)
            dense = torch.as_tensor(np.asarray(numbers[part]), dtype=torch.float32, device=device)
            codes = torch.as_tensor(np.asarray(categories[part]), dtype=torch.int64, device=device)
            result[part] = self(dense, codes).cpu().numpy()
        return result


def restore_auxiliary(arrays: Arrays, shape: Mapping[str, Any], device: str = "cpu") -> AuxiliaryNetwork:
    """Return the network of these tensors, given as arrays by name, and of this `AuxiliaryNetwork.shape`."""
    known = {"sizes": tuple(shape["sizes"]), "embedding": shape["embedding"], "hidden": tuple(shape["hidden"])}
    return with_arrays(AuxiliaryNetwork(arrays["centre"], arrays["spread"], **known), arrays).to(device)


@dataclass(frozen=True)
class AuxiliaryFit:
    """A calibration function and the auxiliary network trained beside it; `held` are the rows that judged them."""

    function: RowFunction
    auxiliary: AuxiliaryNetwork
    descent: Descent
    held: NDArray[np.int64]

    @torch.no_grad()
    def predict(
        self,
        logit: NDArray[np.float64],
        codes: NDArray[np.int64],
        numbers: NDArray[np.floating] | None = None,
        categories: NDArray[np.integer] | None = None,
        batch: int = 8192,
    ) -> NDArray[np.float64]:
        """Return calibrated probabilities of rows with these logits, field codes and features."""
        device = str(self.auxiliary.centre.device)
        rows = Rows.of(np.asarray(logit), np.zeros(len(logit)), codes, None, numbers, categories, device)
        parts = []
        for index in torch.split(torch.arange(len(rows), device=device), batch):
            part = rows.take(index)
            values = self.function.at_rows(part.points, part.codes).double()
            parts.append(values + self.auxiliary(part.numbers, part.categories).double())
        return np.asarray(expit(torch.cat(parts).cpu().numpy()))


def fit_with_auxiliary(
    function: RowFunction,
    logit: NDArray[np.float64],
    label: NDArray[np.float64],
    codes: NDArray[np.int64],
    field_sizes: tuple[int, ...],
    numbers: NDArray[np.floating] | None = None,
    categories: NDArray[np.integer] | None = None,
    sizes: tuple[int, ...] = (),
    weight: NDArray[np.float64] | None = None,
    hidden: tuple[int, int] = (128, 128),
    embedding: int = 16,
    penalties: Penalties | None = None,
    schedule: RowSchedule | None = None,
    progress: Progress | None = None,
    device: str = "cpu",
    groups: NDArray[np.integer] | None = None,
    after_epoch: Callable[[int, AuxiliaryFit], Any] | None = None,
) -> AuxiliaryFit:
    """Train a calibration function and an auxiliary network together, on rows.

    `numbers` is a dense feature matrix, `categories` integer codes with `sizes` values per column. The function
    is trained in place; give it one already fitted without features and only what features add is left to
    learn. With rows held out, what is returned is never worse on them than the start. `groups` are what the balance
    term compares, the field codes if not given. `after_epoch` is called with the number of epochs done and the fit as
    it is then, which goes on changing.
    """
    schedule = schedule or RowSchedule(epochs=10, rate=1e-3, decay=1e-5, held_out=0.1, unseen=0.02)
    dense = np.empty((len(logit), 0)) if numbers is None else np.asarray(numbers, dtype=np.float64)
    spread = dense.std(axis=0)
    network = AuxiliaryNetwork(
        dense.mean(axis=0), np.where(spread > 0, spread, 1.0), sizes, embedding, hidden, schedule.seed
    )
    network, _ = network.to(device), function.to(device)
    rows = Rows.of(np.asarray(logit), label, codes, weight, dense, categories, device, groups)
    held = split_rows(len(rows), schedule)[0].numpy()

    def tell(epoch: int, descent: Descent) -> None:
        if after_epoch is not None:
            after_epoch(epoch, AuxiliaryFit(function, network, descent, held))

    given = penalties or Penalties()
    descent = descend_on_rows(function, rows, schedule, given, field_sizes, network, progress, tell)
    return AuxiliaryFit(function, network, descent, held)
