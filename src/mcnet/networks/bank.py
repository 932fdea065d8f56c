"""The networks of MCNet and of NeuCalib's line plot, trained on a sketch, and on rows as the paper prints it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor, nn

from mcnet._shared.arrays import FloatArray, IntArray, clip_scores
from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError
from mcnet.networks.monotone import BankShape, Functions, MonotoneBank, Ranges, Rule
from mcnet.networks.objective import BankObjective, Penalties, Priors, order_loss
from mcnet.networks.optimise import Descent, Progress, Schedule, descend
from mcnet.networks.training import (
    Arrays,
    RowFunction,
    Rows,
    RowSchedule,
    arrays_of,
    descend_on_rows,
    training_state,
    with_arrays,
)
from mcnet.networks.training_points import TrainingCells, as_codes, midpoint_edges, pad_cells, with_unseen
from mcnet.rows.contexts import distinct_contexts

# Piecewise linear functions of the logit in torch: NeuCalib's line plot trained on rows, and lines per context.


def interpolate(knots: Tensor, values: Tensor, points: Tensor) -> Tensor:
    """Return piecewise linear functions through knots and values `[..., n]` at points `[..., P]`."""
    inside = torch.searchsorted(knots[..., 1:-1].contiguous(), points.contiguous(), right=True)
    left, right = torch.gather(knots, -1, inside), torch.gather(knots, -1, inside + 1)
    low, high = torch.gather(values, -1, inside), torch.gather(values, -1, inside + 1)
    share = ((points - left) / (right - left)).to(values.dtype)
    return low + share * (high - low)


class LineFunction(RowFunction):
    """A line plot that can be trained on rows, alone or beside an auxiliary network."""

    knots: Tensor
    space = "logit"
    work = 10.0

    def __init__(self, knots: FloatArray, values: FloatArray | None = None) -> None:
        super().__init__()
        self.register_buffer("knots", torch.as_tensor(np.array(knots, dtype=np.float64)))
        # What is learnt is the distance from the identity, so weight decay pulls towards no change.
        moves = np.zeros(len(knots)) if values is None else np.asarray(values) - knots
        self.moves = nn.Parameter(torch.as_tensor(moves, dtype=torch.float32))

    @property
    def values(self) -> Tensor:
        """The values at the knots."""
        return self.knots.to(self.moves.dtype) + self.moves

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the function at rows; field codes make no difference."""
        return interpolate(self.knots, self.values, points)

    def order_penalty(self) -> Tensor:
        """Return how far the values fall from knot to knot."""
        values = self.values
        return order_loss(values[:-1], values[1:])


# Fit a monotone bank on weighted cells, and use what was fitted: `fit_bank(cells)` → `BankFit`.

MANY_BINS = 10
"""From so many bins on, half the quadrature nodes measure the same loss."""
_NODES_TO_PREDICT = {"silu": 8, "tanh": 8, "relu": 16}
_MOST_FINE_CELLS = 200_000


@dataclass(frozen=True)
class BankConfig:
    """Everything that decides a fit, besides the data.

    `bins` is the number of bins wanted; there are fewer when scores are few, or when a bin would have fewer
    than `least_positives` positives (or negatives). `cells` is the most points per bin and context,
    `nodes` the number of quadrature nodes in each half of a bin (half as many from ten bins on, which are
    narrow), `unseen` the share of mass that teaches the curve of unseen field values. The `own_shapes` values of a
    field with the most rows have networks of their own; all others share those of unseen values, and differ from them
    by the offset and scale of each bin.
    """

    bins: int = 20
    shape: BankShape = field(default_factory=BankShape)
    priors: Priors = field(default_factory=Priors)
    penalties: Penalties = field(default_factory=Penalties)
    schedule: Schedule = field(default_factory=lambda: Schedule(steps=200, rows_per_step=1000.0))
    least_positives: float = 100.0
    cells: int = 24
    nodes: int = 6
    own_shapes: int = 32
    unseen: float = 0.03
    seed: int = 0
    device: str = "cpu"


def affordable_bins(weight: float, positives: float, config: BankConfig) -> int:
    """Return as many bins as are wanted, but no more than keep enough rows of the rarer class in each."""
    rarer = min(positives, weight - positives)
    return max(1, min(config.bins, int(rarer // max(config.least_positives, 1e-9))))


def points_in(space: str, logit: FloatArray, score: FloatArray | None = None) -> FloatArray:
    """Return rows as points of a space: their logits, or their scores, which a logit and back moves by a rounding."""
    if space == "logit":
        return np.asarray(logit, dtype=np.float64)
    return np.asarray(expit(logit) if score is None else score, dtype=np.float64)


def place_bins(points: FloatArray, weight: FloatArray, positives: FloatArray, config: BankConfig) -> Ranges:
    """Return bins of equal mass over the points, as many as the configuration and the data allow."""
    edges = midpoint_edges(points, weight, affordable_bins(float(weight.sum()), float(positives.sum()), config))
    where = np.searchsorted(edges, points, side="right")
    mass = np.bincount(where, weights=weight)
    mean = np.bincount(where, weights=weight * points) / mass
    spread = np.sqrt(np.bincount(where, weights=weight * (points - mean[where]) ** 2) / mass)
    return Ranges(
        edges=edges,
        left=np.concatenate([[points.min()], edges]),
        right=np.concatenate([edges, [points.max()]]),
        mean=mean,
        spread=spread,
    )


@dataclass(frozen=True)
class BankFit:
    """A trained bank: predicts, tells how its training went, and can be written down as plain tensors."""

    bank: MonotoneBank
    config: BankConfig
    descent: Descent
    order_loss: float

    def values(
        self,
        logit: FloatArray,
        codes: NDArray[np.integer] | None = None,
        nodes: int | None = None,
        score: FloatArray | None = None,
    ) -> FloatArray:
        """Return the functions themselves, unclipped: logits in logit space, probabilities in probability space.

        In probability space `score`, if given, decides on which side of an edge a row lies.
        """
        points = points_in(self.bank.shape.space, logit, score)
        table = as_codes(codes, len(points), self.bank.sizes)
        bins = np.searchsorted(self.bank.edges.cpu().numpy(), points, side="right").astype(np.int64)
        result = np.empty(len(points))
        if self.bank.network.has_value:
            bank = copy.deepcopy(self.bank).double()
            for start in range(0, len(points), 8192):
                rows = slice(start, start + 8192)
                parts = (torch.as_tensor(x[rows], device=bank.left.device) for x in (points, bins, table))
                with torch.no_grad():
                    result[rows] = bank(*parts).cpu().numpy()
            return result
        nodes = nodes or _NODES_TO_PREDICT[self.bank.shape.activation]
        contexts, context = distinct_contexts(table)
        derivative, offset, scale = self._at_nodes(contexts, nodes)
        rule = self.bank.rule(nodes)
        for part in range(0, len(points), 65536):
            rows = slice(part, part + 65536)
            k, c = bins[rows], context[rows]
            area = np.einsum("ij,ij->i", rule(points[rows], k), derivative[k, c])
            result[rows] = offset[k, c] + scale[k, c] * area
        return result

    def predict(
        self,
        logit: FloatArray,
        codes: NDArray[np.integer] | None = None,
        nodes: int | None = None,
        score: FloatArray | None = None,
    ) -> FloatArray:
        """Return calibrated probabilities of rows with these logits and field codes `[rows, fields]`.

        The derivative network is evaluated once at 2 · `nodes` nodes of every bin and context, in float64,
        and integrated up to each row. Without `nodes` there are enough for the smoothness of the network. `score` as
        in `values`.
        """
        values = self.values(logit, codes, nodes, score)
        return np.asarray(expit(values) if self.bank.shape.space == "logit" else clip_scores(values))

    @torch.no_grad()
    def _at_nodes(self, contexts: NDArray[np.int64], count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        bank = copy.deepcopy(self.bank).double()
        functions = bank.at_nodes(bank.nodes(count)[:, None, :], torch.as_tensor(contexts, device=bank.left.device))
        derivative, offset, scale = (values.cpu().numpy() for values in functions)
        return derivative, offset, scale

    def kinks(self) -> None:
        """Return the scores at which the function has kinks: none, it is smooth inside a bin."""
        return

    def jumps(self) -> FloatArray:
        """Return the edges between the bins as scores: the function jumps there."""
        edges: FloatArray = self.bank.edges.cpu().numpy().astype(np.float64)
        return np.asarray(expit(edges)) if self.bank.shape.space == "logit" else edges

    def on_rows(self, codes: IntArray) -> "BankOnSharedNodes":
        """Return a copy of the bank, to be trained on rows with these field codes; it watches their order."""
        contexts, _ = distinct_contexts(codes)
        return BankOnSharedNodes(copy.deepcopy(self.bank), torch.as_tensor(contexts, device=self.bank.left.device))

    def with_function(self, function: "BankOnSharedNodes") -> "BankFit":
        """Return the fit with the bank that `on_rows` returned and that training has changed since."""
        violation = order_violation(function.bank, function.contexts.cpu().numpy())
        return replace(self, bank=function.bank, order_loss=violation)

    def state(self) -> TrainingState:
        """Return every tensor of the bank as an array, and what it takes to restore it."""
        return training_state(self.bank, self.bank.sizes, self.config, self.descent, self.order_loss)


def restore_bank(state: TrainingState) -> BankFit:
    """Return the fit that `BankFit.state` wrote down."""
    config = msgspec.convert(state.about["config"], BankConfig)
    bank = _bank_of(config.shape, tuple(state.about["sizes"]), state.arrays).to(config.device)
    return BankFit(bank, config, Descent(**state.about["descent"]), state.about["order_loss"])


def _bank_of(shape: BankShape, sizes: tuple[int, ...], arrays: Arrays) -> MonotoneBank:
    """Return the bank of these tensors, given as arrays by name."""
    ranges = Ranges(*(arrays[name] for name in ("edges", "left", "right", "shift", "stretch")))
    return with_arrays(MonotoneBank(shape, sizes, ranges), arrays)


def fit_bank(
    cells: TrainingCells,
    config: BankConfig,
    warm: BankFit | None = None,
    progress: Progress | None = None,
) -> BankFit:
    """Train a bank of monotone functions on weighted cells, full batch, until it has converged.

    The cost depends on bins, contexts and nodes, not on the number of rows or cells. With `warm`, training
    continues from a previous fit: its bins and weights are kept, and a field may have gained values since.
    """
    points = points_in(config.shape.space, cells.logit)
    if warm is None:
        ranges = place_bins(points, cells.weight, cells.positives, config)
        bank = MonotoneBank(config.shape, cells.sizes, ranges, config.seed)
    else:
        bank = _continued(warm, cells, config)
    bank = bank.to(config.device)
    nodes = config.nodes if bank.bins < MANY_BINS else -(-config.nodes // 2)
    objective = _objective(bank, cells, config, config.cells, nodes)
    descent = descend(objective, bank.parameters(), config.schedule, progress)
    if config.schedule.cycles:
        nodes = _NODES_TO_PREDICT[bank.shape.activation]
        _objective(bank, cells, config, _fine_cells(bank, cells, config), nodes).solve(config.schedule.solved)
    objective.settle()
    return BankFit(bank, config, descent, order_violation(bank, cells.codes if cells.sizes else cells.codes[:1], nodes))


def _objective(bank: MonotoneBank, cells: TrainingCells, config: BankConfig, points: int, nodes: int) -> BankObjective:
    """Return the loss on at most so many points per bin and context, with so many nodes in each half of a bin."""
    full = with_unseen(cells, config.unseen)
    at = points_in(config.shape.space, full.logit)
    grid = pad_cells(full, at, bank.edges.cpu().numpy(), points)
    terms = (config.priors, config.penalties, nodes, config.own_shapes)
    return BankObjective(bank, full, grid, len(cells.codes), *terms)


def _fine_cells(bank: MonotoneBank, cells: TrainingCells, config: BankConfig) -> int:
    """Return how many points per bin and context measure the level of the rows themselves, in bounded memory.

    The few points and nodes of training miss it in a last bin that is wide, by up to 2 %.
    """
    return int(np.clip(_MOST_FINE_CELLS // (bank.bins * len(cells.codes)), config.cells, 256))


@torch.no_grad()
def order_violation(bank: MonotoneBank, codes: NDArray[np.int64], nodes: int = 16) -> float:
    """Return the paper's order loss of a bank over the contexts given: 0 when adjacent functions never cross."""
    double = copy.deepcopy(bank).double()
    return float(order_loss(*double.edge_values(torch.as_tensor(codes, device=bank.left.device), nodes)))


def _continued(warm: BankFit, cells: TrainingCells, config: BankConfig) -> MonotoneBank:
    """Return a copy of the previous bank, with a row in its tables for every field value that is new."""
    old = warm.bank
    if config.shape != old.shape:
        raise InputError("a warm start needs the architecture of the previous fit")
    if len(cells.sizes) != len(old.sizes) or any(n < m for n, m in zip(cells.sizes, old.sizes, strict=False)):
        raise InputError("a warm start needs the fields of the previous fit, with their values first")
    arrays = arrays_of(old)
    for i, (size, before) in enumerate(zip(cells.sizes, old.sizes, strict=True)):
        for name in (f"tables.{i}", f"direct.{i}"):
            if name in arrays:
                # A new value starts as what it was until now: an unseen one.
                known, unseen = arrays[name][:, :before], arrays[name][:, before:]
                arrays[name] = np.concatenate([known, np.repeat(unseen, size - before + 1, axis=1)], axis=1)
    return _bank_of(config.shape, cells.sizes, arrays)


# Train MCNet on rows as the paper prints it, with integrals that may share their nodes.

# A bank on rows whose integrals share their nodes: many rows, one evaluation of the networks per bin and context.
#
# The published training evaluates f₁ at T + 1 nodes for every row. But f₁ of a bin depends on the node and the context
# alone, so rows of the same bin and context can share the nodes: the integral up to each row is a fixed linear
# combination of the values there. The loss and its gradient are those of the row-by-row quadrature, up to the error of
# either rule; a step takes a hundredth of the multiplications.


class BankOfContexts(RowFunction):
    """A bank, and the field codes `[C, fields]` of the contexts over which the order penalty is summed."""

    def __init__(self, bank: MonotoneBank, contexts: Tensor) -> None:
        super().__init__()
        self.bank, self.contexts = bank, contexts
        self.space, self.work = bank.shape.space, bank.work


class BankOnSharedNodes(BankOfContexts):
    """A bank as a function of rows; `nodes` Gauss nodes in each of a bin's two panels, shared by its rows."""

    def __init__(self, bank: MonotoneBank, contexts: Tensor, nodes: int = 6) -> None:
        super().__init__(bank, contexts)
        self.nodes = nodes
        # The functions of the contexts as the last call of `at_rows` found them: the order penalty of the same step.
        self._kept: Functions | None = None

    @cached_property
    def _places(self) -> Tensor:
        return self.bank.nodes(self.nodes)[:, None, :]

    @cached_property
    def _at_edges(self) -> tuple[Tensor, Tensor]:
        """Return the rules `[K − 1, 1, n]` of the integrals up to the edges, from the bin on the left and the right."""
        edges, before = self.bank.edges.cpu().numpy(), np.arange(self.bank.bins - 1)
        left, right = (self._weights(edges, bins)[:, None, :] for bins in (before, before + 1))
        return left, right

    @cached_property
    def _rule(self) -> Rule:
        return self.bank.rule(self.nodes)

    def _weights(self, points: FloatArray, bins: IntArray) -> Tensor:
        weights = self._rule(points, bins)
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

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return the functions at rows."""
        bins, key = self.bank.bin_of(points), self._key(codes)
        keys, order = self._keys
        index = torch.searchsorted(keys, key).clamp_max(len(keys) - 1)
        if bool((keys[index] == key).all()):
            context = order[index]
            derivative, offset, scale = self._kept = self.bank.at_nodes(self._places, self.contexts)
        else:
            self._kept = None
            contexts, context = torch.unique(codes, dim=0, return_inverse=True)
            derivative, offset, scale = self.bank.at_nodes(self._places, contexts)
        weights = self._weights(points.detach().cpu().numpy(), bins.cpu().numpy())
        which = bins * derivative.shape[1] + context
        area = (weights * derivative.flatten(0, 1).index_select(0, which)).sum(-1)
        return offset.flatten().index_select(0, which) + scale.flatten().index_select(0, which) * area

    def order_penalty(self) -> Tensor:
        """Return the order loss over the contexts; after `at_rows`, at the parameters of that call."""
        derivative, offset, scale = self._kept or self.bank.at_nodes(self._places, self.contexts)
        self._kept = None
        left, right = self._at_edges
        ends = offset[:-1] + scale[:-1] * (derivative[:-1] * left).sum(-1)
        starts = offset[1:] + scale[1:] * (derivative[1:] * right).sum(-1)
        return order_loss(ends, starts)


# MCNet as the paper trains it: the same bank, in probability space, on rows in mini-batches.


class BankOnRows(BankOfContexts):
    """A bank as a function of rows: `steps` + 1 Clenshaw–Curtis nodes for each of them."""

    def __init__(self, bank: MonotoneBank, contexts: Tensor, steps: int = 50, lean: bool = False) -> None:
        super().__init__(bank, contexts)
        self.steps, self.lean = steps, lean
        self.work = bank.work if bank.network.has_value else (steps + 1) * bank.work

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
        priors=Priors(*[np.inf] * 6),  # they are ours; the paper has none
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
    contexts, _ = distinct_contexts(table)
    mass = np.ones(len(logit)) if weight is None else np.asarray(weight, dtype=np.float64)
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
