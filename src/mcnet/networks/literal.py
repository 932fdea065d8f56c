"""MCNet as the paper trains it: the same bank, in probability space, on rows in mini-batches."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from mcnet.networks.bank import BankConfig, BankFit, order_violation, place_bins
from mcnet.networks.bank_of_contexts import BankOfContexts
from mcnet.networks.losses import order_loss
from mcnet.networks.monotone import BankShape, MonotoneBank
from mcnet.networks.objective import Penalties, Priors
from mcnet.networks.optimise import Descent, Progress
from mcnet.networks.shared_nodes import BankOnSharedNodes
from mcnet.networks.training import RowFunction, Rows, RowSchedule, descend_on_rows
from mcnet.networks.training_points import TrainingCells, as_codes

__all__ = ["BankOnRows", "fit_bank_on_rows", "paper_config"]


@dataclass
class BankOnRows(BankOfContexts):
    """A bank as a function of rows: `steps` + 1 Clenshaw–Curtis nodes for each of them."""

    steps: int = 50
    lean: bool = False

    @property
    def work(self) -> float:
        """Return how many multiplications one row takes."""
        return float((self.steps + 1) * sum(w[0].numel() for w in self.bank.derivative_weights))

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the functions at rows."""
        return self.bank(points, self.bank.bin_of(points), codes, self.steps, self.lean)  # type: ignore[no-any-return]

    def order_penalty(self) -> Tensor:
        """Return the order loss over the contexts."""
        return order_loss(*self.bank.edge_values(self.contexts))


def paper_config(field: bool) -> tuple[BankConfig, RowSchedule]:
    """Return the settings of the paper, for MCNet-Field or MCNet-None.

    Probability space, integrals from 0, sigmoid derivative, K = 20, β = 1, Adam on batches of 2048 rows with
    learning rate 1e-4 (Field) or 1e-5 (None). What the paper leaves open: ReLU inside, offset and scale from
    the bias network as in UMNN, and a start from the identity.
    """
    shape = BankShape(activation="relu", space="probability", lower="zero", standardise="none", direct=False)
    config = BankConfig(
        shape=shape,
        priors=Priors(*[np.inf] * 6),
        penalties=Penalties(order=1.0),
        least_positives=0.0,
        unseen=0.0,
    )
    return config, RowSchedule(rate=1e-4 if field else 1e-5)


def fit_bank_on_rows(
    logit: NDArray[np.float64],
    label: NDArray[np.float64],
    codes: NDArray[np.integer] | None = None,
    sizes: tuple[int, ...] = (),
    weight: NDArray[np.float64] | None = None,
    config: BankConfig | None = None,
    schedule: RowSchedule | None = None,
    steps: int | None = 50,
    lean: bool = False,
    warm: BankFit | None = None,
    progress: Progress | None = None,
    groups: NDArray[np.integer] | None = None,
    after_epoch: Callable[[int, BankFit], Any] | None = None,
) -> BankFit:
    """Train a bank on rows, with a quadrature of `steps` steps for each row, as published.

    Without a configuration it is the paper's; `codes` are `[rows, fields]` with `sizes` values each. `groups`
    `[rows, fields]` are what the balance term compares, if not the codes. With `steps` None the rows of a bin share
    their nodes: the same training, many times as fast. `after_epoch` is called with the number of epochs done and the
    fit as it is then, which goes on changing.
    """
    usual, usual_schedule = paper_config(field=bool(sizes))
    config, schedule = config or (warm.config if warm else usual), schedule or usual_schedule
    table = as_codes(codes, len(logit), sizes)
    contexts = np.unique(table, axis=0) if sizes else np.empty((1, 0), dtype=np.int64)
    mass = np.ones(len(logit)) if weight is None else np.asarray(weight, dtype=np.float64)
    TrainingCells.of(logit, mass, mass * label)
    points = np.asarray(logit, dtype=np.float64)
    points = points if config.shape.space == "logit" else expit(points)
    if warm is None:
        ranges = place_bins(points, mass, mass * label, config)
        bank = MonotoneBank(config.shape, sizes, ranges, config.seed)
    else:
        bank = copy.deepcopy(warm.bank)
    bank = bank.to(config.device)
    known = torch.as_tensor(contexts, device=config.device)
    function: RowFunction = BankOnSharedNodes(bank, known) if steps is None else BankOnRows(bank, known, steps, lean)
    rows = Rows.of(points, label, table, weight, device=config.device, groups=groups)

    def fitted(descent: Descent) -> BankFit:
        return BankFit(bank, config, descent, order_violation(bank, contexts))

    def tell(epoch: int, descent: Descent) -> None:
        if after_epoch is not None:
            after_epoch(epoch, fitted(descent))

    return fitted(descend_on_rows(function, rows, schedule, config.penalties, sizes, None, progress, tell))
