"""Train MCNet on rows as the paper prints it, with integrals that may share their nodes."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcnet._shared.arrays import FloatArray, IntArray
from mcnet.networks.bank import BankConfig, BankFit, order_violation, place_bins, points_in
from mcnet.networks.monotone import BankOfContexts, BankShape, MonotoneBank
from mcnet.networks.objective import Penalties, Priors, order_loss
from mcnet.networks.optimise import Descent, Progress
from mcnet.networks.training import RowFunction, Rows, RowSchedule, descend_on_rows
from mcnet.networks.training_points import TrainingCells, as_codes

# A bank on rows whose integrals share their nodes: many rows, one evaluation of the networks per bin and context.
#
# The published training evaluates f₁ at T + 1 nodes for every row. But f₁ of a bin depends on the node and the context
# alone, so rows of the same bin and context can share the nodes: the integral up to each row is a fixed linear
# combination of the values there. The loss and its gradient are those of the row-by-row quadrature, up to the error of
# either rule; a step takes a hundredth of the multiplications.

Functions = tuple[Tensor, Tensor, Tensor]
"""Derivative at the nodes `[K, C, n]`, offset with the lower limit, and scale `[K, C]`."""


@dataclass
class BankOnSharedNodes(BankOfContexts):
    """A bank as a function of rows; `nodes` Gauss nodes in each of a bin's two panels, shared by its rows."""

    nodes: int = 6
    # The functions of the contexts as the last call of `at_rows` found them: the order penalty of the same step.
    _kept: Functions | None = field(default=None, init=False, repr=False)

    @property
    def work(self) -> float:
        """Multiplications for one row: those of a bin and context are shared by its rows, so there are few."""
        return self.bank.work

    @cached_property
    def _places(self) -> Tensor:
        return self.bank.nodes(self.nodes)[:, None, :]

    @cached_property
    def _at_edges(self) -> tuple[Tensor, Tensor]:
        """Return the rules `[K − 1, 1, n]` of the integrals up to the edges, from the bin on the left and the right."""
        edges, before = self.bank.edges.cpu().numpy(), np.arange(self.bank.bins - 1)
        left, right = (self._rule(edges, bins)[:, None, :] for bins in (before, before + 1))
        return left, right

    @cached_property
    def _rules(self) -> Callable[[FloatArray, IntArray], FloatArray]:
        return self.bank.rules(self.nodes)

    def _rule(self, points: FloatArray, bins: IntArray) -> Tensor:
        weights = self._rules(points, bins)
        return torch.as_tensor(weights, dtype=self.bank.dtype, device=self.bank.left.device)

    @cached_property
    def _keys(self) -> tuple[Tensor, Tensor]:
        """Return one ascending number per context, and the contexts in that order."""
        return torch.sort(self._key(self.contexts))

    def _key(self, codes: Tensor) -> Tensor:
        key = codes.new_zeros(len(codes))
        for i, size in enumerate(self.bank.sizes):
            key = key * (size + 1) + codes[:, i]
        return key

    def _functions(self, contexts: Tensor) -> Functions:
        embedded = self.bank.embed(contexts)
        bias = self.bank.offset_and_scale(contexts, embedded)
        derivative = self.bank.derivative(self._places, embedded)
        return derivative, bias[..., 0] + self.bank.origin.to(bias.dtype)[:, None], bias[..., 1].exp()

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the functions at rows."""
        bins, key = self.bank.bin_of(points), self._key(codes)
        keys, order = self._keys
        index = torch.searchsorted(keys, key).clamp_max(len(keys) - 1)
        if bool((keys[index] == key).all()):
            context = order[index]
            derivative, offset, scale = self._kept = self._functions(self.contexts)
        else:
            self._kept = None
            contexts, context = torch.unique(codes, dim=0, return_inverse=True)
            derivative, offset, scale = self._functions(contexts)
        rule = self._rule(points.detach().cpu().numpy(), bins.cpu().numpy())
        which = bins * derivative.shape[1] + context
        area = (rule * derivative.flatten(0, 1).index_select(0, which)).sum(-1)
        return offset.flatten().index_select(0, which) + scale.flatten().index_select(0, which) * area

    def order_penalty(self) -> Tensor:
        """Return the order loss over the contexts; after `at_rows`, at the parameters of that call."""
        derivative, offset, scale = self._kept or self._functions(self.contexts)
        self._kept = None
        left, right = self._at_edges
        ends = offset[:-1] + scale[:-1] * (derivative[:-1] * left).sum(-1)
        starts = offset[1:] + scale[1:] * (derivative[1:] * right).sum(-1)
        return order_loss(ends, starts)


# MCNet as the paper trains it: the same bank, in probability space, on rows in mini-batches.


@dataclass
class BankOnRows(BankOfContexts):
    """A bank as a function of rows: `steps` + 1 Clenshaw–Curtis nodes for each of them."""

    steps: int = 50
    lean: bool = False

    @property
    def work(self) -> float:
        """Return how many multiplications one row takes."""
        return self.bank.work if self.bank.network.has_value else (self.steps + 1) * self.bank.work

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
    score: NDArray[np.float64] | None = None,
) -> BankFit:
    """Train a bank on rows, with a quadrature of `steps` steps for each row, as published.

    Without a configuration it is the paper's; `codes` are `[rows, fields]` with `sizes` values each. `groups`
    `[rows, fields]` are what the balance term compares, if not the codes. With `steps` None the rows of a bin share
    their nodes: the same training, many times as fast. `after_epoch` is called with the number of epochs done and the
    fit as it is then, which goes on changing. In probability space the rows are put into bins by `score`, if given,
    and not by what a logit and back makes of it.
    """
    usual, usual_schedule = paper_config(field=bool(sizes))
    config, schedule = config or (warm.config if warm else usual), schedule or usual_schedule
    table = as_codes(codes, len(logit), sizes)
    contexts = np.unique(table, axis=0) if sizes else np.empty((1, 0), dtype=np.int64)
    mass = np.ones(len(logit)) if weight is None else np.asarray(weight, dtype=np.float64)
    TrainingCells.of(logit, mass, mass * label)
    points = points_in(config.shape.space, logit, score)
    if warm is None:
        ranges = place_bins(points, mass, mass * label, config)
        bank = MonotoneBank(config.shape, sizes, ranges, config.seed)
    else:
        bank = copy.deepcopy(warm.bank)
    bank = bank.to(config.device)
    known = torch.as_tensor(contexts, device=config.device)
    shared = steps is None and not bank.network.has_value
    function: RowFunction = BankOnSharedNodes(bank, known) if shared else BankOnRows(bank, known, steps or 1, lean)
    rows = Rows.of(points, label, table, weight, device=config.device, groups=groups)

    def fitted(descent: Descent) -> BankFit:
        return BankFit(bank, config, descent, order_violation(bank, contexts))

    def tell(epoch: int, descent: Descent) -> None:
        if after_epoch is not None:
            after_epoch(epoch, fitted(descent))

    return fitted(descend_on_rows(function, rows, schedule, config.penalties, sizes, None, progress, tell))
