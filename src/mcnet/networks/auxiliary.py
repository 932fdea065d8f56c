"""An auxiliary network on the features of a row, trained together with any function in logit space.

p = sigmoid(f(l, c) + g(x)). It starts at zero, so training starts from the calibrator alone. It may change
the order of rows: that is its purpose.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor, nn
from torch.nn import functional

from mcnet.networks.objective import Penalties
from mcnet.networks.optimise import Descent, Progress
from mcnet.networks.training import FeatureNetwork, RowFunction, Rows, RowSchedule, descend_on_rows, split_rows

__all__ = ["AuxiliaryFit", "AuxiliaryNetwork", "fit_with_auxiliary", "restore_auxiliary"]


class AuxiliaryNetwork(FeatureNetwork):
    """A 2-layer network on standardised numbers and embedded categories, with one logit as its output."""

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
        generator = torch.Generator().manual_seed(seed)
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
        found = np.empty(len(numbers))
        device = self.centre.device
        for start in range(0, len(numbers), batch):
            part = slice(start, start + batch)
            dense = torch.as_tensor(np.asarray(numbers[part]), dtype=torch.float32, device=device)
            codes = torch.as_tensor(np.asarray(categories[part]), dtype=torch.int64, device=device)
            found[part] = self(dense, codes).cpu().numpy()
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every tensor by name, as an array."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}


def restore_auxiliary(
    state: Mapping[str, NDArray[Any]], shape: Mapping[str, Any], device: str = "cpu"
) -> AuxiliaryNetwork:
    """Return the network that `AuxiliaryNetwork.state`, as arrays, and `AuxiliaryNetwork.shape` wrote down."""
    known = {"sizes": tuple(shape["sizes"]), "embedding": shape["embedding"], "hidden": tuple(shape["hidden"])}
    network = AuxiliaryNetwork(state["centre"], state["spread"], **known)
    network.load_state_dict({name: torch.as_tensor(array) for name, array in state.items()})
    return network.to(device)


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

    def state(self) -> dict[str, Tensor]:
        """Return every tensor of both parts by name, ready for safetensors."""
        named = {"function": self.function.module, "auxiliary": self.auxiliary}
        return {
            f"{part}.{name}": tensor.detach().cpu().clone().contiguous()
            for part, module in named.items()
            for name, tensor in module.state_dict().items()
        }

    def description(self) -> dict[str, Any]:
        """Return the shape of the auxiliary network, ready for JSON."""
        return dict(self.auxiliary.shape)


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
    network, _ = network.to(device), function.module.to(device)
    rows = Rows.of(np.asarray(logit), label, codes, weight, dense, categories, device, groups)
    held = split_rows(len(rows), schedule)[0].numpy()

    def tell(epoch: int, descent: Descent) -> None:
        if after_epoch is not None:
            after_epoch(epoch, AuxiliaryFit(function, network, descent, held))

    given = penalties or Penalties()
    descent = descend_on_rows(function, rows, schedule, given, field_sizes, network, progress, tell)
    return AuxiliaryFit(function, network, descent, held)
