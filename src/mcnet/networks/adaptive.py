"""The networks of AdaCalib, what they observe, and their training beside an auxiliary network."""

import copy
import dataclasses
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, sigmoid
from mcnet.calibrators.training_state import TrainingState
from mcnet.networks.bank import interpolate
from mcnet.networks.objective import (
    Penalties,
    balance_loss,
    log_loss_from_logits,
    log_loss_from_probabilities,
    order_loss,
)
from mcnet.networks.optimise import Descent, Schedule, Step, descend
from mcnet.networks.training import RowFunction, training_state, with_arrays
from mcnet.networks.training_points import TrainingCells, as_codes, pad_cells, with_unseen

# What AdaCalib observes at its knots: where they lie, how many rows and positives are around them.

# Knots closer than this, in logits, would make the function a cliff.
LEAST_GAP = 0.02


@dataclass(frozen=True)
class NodeStatistics:
    """Knots and discretised statistics `[C, nodes]`, candidates side by side, and facts about contexts.

    `allowed` says which candidates a context has the data for, `mass` is its standardised log-weight, `keys`
    identify contexts by their field codes, and `pooled` is the one that stands in for combinations never
    seen.
    """

    knots: FloatArray
    rate: NDArray[np.int64]
    count: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    mass: NDArray[np.float32]
    keys: NDArray[np.int64]
    pooled: NDArray[np.int64]


def _quantiles(points: FloatArray, weight: FloatArray, bins: int) -> FloatArray:
    """Return knots at the ends and at equal-mass quantiles between, at least `LEAST_GAP` apart."""
    through = np.cumsum(weight) - weight / 2.0
    inner = np.interp(np.arange(1, bins) / bins * weight.sum(), through, points)
    knots = np.concatenate([points[:1], inner, points[-1:]])
    ladder = LEAST_GAP * np.arange(bins + 1)
    return np.asarray(np.maximum.accumulate(knots - ladder) + ladder)


def _around(values: FloatArray) -> FloatArray:
    """Return totals of bins → totals at knots: an end belongs to its bin, a knot between to both neighbours."""
    return np.concatenate([values[:1], values[:-1] + values[1:], values[-1:]])


def _levels(values: FloatArray, levels: int) -> NDArray[np.int64]:
    cuts = np.quantile(values, np.arange(1, levels) / levels)
    return np.searchsorted(cuts, values, side="right").astype(np.int64)


def _parts(candidates: tuple[int, ...]) -> list[slice]:
    """Return where the knots of each candidate number of bins lie among those of all, side by side."""
    ends = list(accumulate(n + 1 for n in candidates))
    return [slice(start, end) for start, end in pairwise([0, *ends])]


def node_statistics(
    cells: TrainingCells, candidates: tuple[int, ...], levels: int, keys: NDArray[np.int64], pooled: int
) -> NodeStatistics:
    """Return knots and statistics of every context for every candidate number of bins."""
    contexts, nodes = len(cells.codes), sum(n + 1 for n in candidates)
    knots, odds, size = (np.zeros((contexts, nodes)) for _ in range(3))
    allowed = np.zeros((contexts, len(candidates)), dtype=bool)
    mass = np.bincount(cells.context, weights=cells.weight, minlength=contexts)
    order = np.lexsort((cells.logit, cells.context))
    starts = np.searchsorted(cells.context[order], np.arange(contexts + 1))
    everything = np.argsort(cells.logit, kind="stable")
    for c in range(contexts):
        # A context without rows borrows the knots of all.
        index = order[starts[c] : starts[c + 1]] if mass[c] > 0 else everything
        points, weight, positives = cells.logit[index], cells.weight[index], cells.positives[index]
        rarer = min(positives.sum(), (weight - positives).sum())
        for i, (n, part) in enumerate(zip(candidates, _parts(candidates), strict=True)):
            knots[c, part] = _quantiles(points, weight, n)
            where = np.searchsorted(knots[c, part][1:-1], points, side="right")
            total = _around(np.bincount(where, weights=weight, minlength=n).astype(np.float64))
            hits = _around(np.bincount(where, weights=positives, minlength=n).astype(np.float64))
            odds[c, part] = np.log((hits + 0.5) / (total - hits + 0.5))
            size[c, part] = np.log1p(total)
            allowed[c, i] = n == min(candidates) or rarer >= n
    log_mass = np.log1p(mass)
    spread = log_mass.std()
    return NodeStatistics(
        knots=knots,
        rate=_levels(odds, levels),
        count=_levels(size, levels),
        allowed=allowed,
        mass=((log_mass - log_mass.mean()) / (spread if spread > 0 else 1.0)).astype(np.float32),
        keys=keys,
        pooled=np.asarray(pooled, dtype=np.int64),
    )


# AdaCalib: a piecewise linear function for every field value, read off its statistics by a network.
#
# For a field value z and a number of bins n, knots lie at equal-mass edges of the logits of z; the value at a
# knot is the knot itself plus a network of what was observed there (positive rate and count, discretised and
# embedded). Several numbers of bins are tried at once, p¹ … pᵐ, and a second network chooses among them by
# softmax weights α (those of a Gumbel-softmax without its noise, so that training is deterministic). The
# objective is Σᵢ ℓ(pⁱ) + ℓ(Σᵢ αᵢ pⁱ): the second term, absent in print, is what gives the choice a gradient.


@dataclass(frozen=True)
class AdaptiveConfig:
    """Everything that decides an AdaCalib fit, besides the data.

    `candidates` are the numbers of bins to choose from; `levels` is the number of ids a statistic is
    discretised to, `temperature` that of the softmax.
    """

    candidates: tuple[int, ...] = (5, 10, 20)
    levels: int = 50
    embedding: int = 16
    hidden: int = 64
    temperature: float = 1.0
    penalties: Penalties = field(default_factory=Penalties)
    schedule: Schedule = field(default_factory=lambda: Schedule(steps=300, peak=1e-2, cycles=4))
    cells: int = 192
    seed: int = 0
    device: str = "cpu"


class AdaptiveFunction(RowFunction):
    """Piecewise linear functions, one for each context and number of bins, and the choice among them."""

    space = "logit"
    work = 2e3

    def __init__(self, config: AdaptiveConfig, sizes: tuple[int, ...], statistics: NodeStatistics) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        for name, values in dataclasses.asdict(statistics).items():
            self.register_buffer(name, torch.as_tensor(values))
        generator = torch.Generator().manual_seed(int(config.seed))

        def table(*shape: int) -> nn.Parameter:
            bound = shape[0] ** -0.5 if len(shape) == 2 else 0.0
            return nn.Parameter((torch.rand(*shape, generator=generator) * 2.0 - 1.0) * bound)

        width, hidden, choices = config.embedding, config.hidden, len(config.candidates)
        nodes = sum(n + 1 for n in config.candidates)
        self.rate_table = nn.Parameter(torch.randn(config.levels, width, generator=generator))
        self.count_table = nn.Parameter(torch.randn(config.levels, width, generator=generator))
        self.node_table = nn.Parameter(torch.randn(nodes, width, generator=generator))
        self.context_table = nn.Parameter(torch.randn(len(statistics.keys), width, generator=generator))
        self.value_layers = nn.ParameterList(
            [
                table(3 * width, hidden),
                table(hidden),
                table(hidden, hidden),
                table(hidden),
                table(hidden, 1),
                table(1),
            ]
        )
        self.choice_layers = nn.ParameterList(
            [table(1 + width, hidden), table(hidden), table(hidden, choices), table(choices)]
        )
        for last in (self.value_layers[4], self.choice_layers[2]):
            nn.init.zeros_(last)
        # One level for each number of bins, which can be solved for: no candidate ends with a bias of its own.
        self.level = nn.Parameter(torch.zeros(choices))

    def node_values(self) -> Tensor:
        """Return the values `[C, nodes]` at the knots of every context, candidates side by side."""
        rate, count = self.get_buffer("rate"), self.get_buffer("count")
        index = self.node_table.expand(len(rate), -1, -1)
        values = torch.cat([self.rate_table[rate], self.count_table[count], index], dim=-1)
        values = _network(values, self.value_layers)[..., 0]
        sizes = torch.tensor([n + 1 for n in self.config.candidates], device=values.device)
        return self.get_buffer("knots").to(values.dtype) + values + self.level.repeat_interleave(sizes)

    def choice(self) -> Tensor:
        """Return log-weights `[C, candidates]` of the numbers of bins a context has enough data for."""
        inputs = torch.cat([self.get_buffer("mass")[:, None], self.context_table], dim=-1)
        return _network(inputs, self.choice_layers).masked_fill(~self.get_buffer("allowed"), -1e4)

    def candidates(self, points: Tensor, context: Tensor, values: Tensor) -> Tensor:
        """Return logits `[candidates, C', P]` for points `[C', P]` that belong to contexts `[C']`."""
        knots, parts = self.get_buffer("knots")[context], _parts(self.config.candidates)
        return torch.stack([interpolate(knots[:, part], values[context][:, part], points) for part in parts])

    def falls(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return pairs of neighbouring values that must not fall."""
        lines = [values[:, part] for part in _parts(self.config.candidates)]
        return torch.cat([line[:, :-1] for line in lines], dim=1), torch.cat([line[:, 1:] for line in lines], dim=1)

    def order_penalty(self) -> Tensor:
        """Return how far values fall from knot to knot, over contexts and candidates."""
        return order_loss(*self.falls(self.node_values()))

    def context_of(self, codes: Tensor) -> Tensor:
        """Return the context of rows with these field codes; combinations never seen have the pooled one."""
        keys = self.get_buffer("keys")
        if not self.sizes:
            return torch.zeros(len(codes), dtype=torch.int64, device=codes.device)
        radix = torch.tensor(_radix(self.sizes), device=codes.device)
        limit = torch.tensor(self.sizes, device=codes.device)
        wanted = (torch.minimum(codes, limit) * radix).sum(-1)
        ordered, order = torch.sort(keys)
        at = torch.searchsorted(ordered, wanted).clamp_max(len(keys) - 1)
        pooled = int(self.get_buffer("pooled"))
        return torch.where(ordered[at] == wanted, order[at], pooled)

    def at_rows(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return logits at rows: with soft weights in training, with the chosen number of bins otherwise."""
        context = self.context_of(codes)
        logits = self.candidates(points[:, None], context, self.node_values())[..., 0]
        weights = self.choice()[context]
        if self.training and torch.is_grad_enabled():
            alpha = functional.softmax(weights / self.config.temperature, dim=-1)
            return torch.logit((alpha.T * torch.sigmoid(logits)).sum(0), eps=SCORE_FLOOR)
        return torch.gather(logits, 0, weights.argmax(-1)[None])[0]


def _network(values: Tensor, layers: nn.ParameterList) -> Tensor:
    for i in range(0, len(layers), 2):
        values = values @ layers[i] + layers[i + 1]
        values = functional.relu(values) if i + 2 < len(layers) else values
    return values


def _radix(sizes: tuple[int, ...]) -> list[int]:
    """Return what each field's code is multiplied by to make one number of a combination."""
    radix = [1]
    for size in sizes[:-1]:
        radix.append(radix[-1] * (size + 1))
    return radix


class _AdaptiveObjective:
    """AdaCalib's objective, repaired, on a rectangle of cells: context × points."""

    def __init__(self, function: AdaptiveFunction, cells: TrainingCells, originals: int) -> None:
        self.function, self.originals, self.config = function, originals, function.config
        device = function.rate_table.device
        grid = pad_cells(cells, cells.logit, np.empty(0), self.config.cells)
        self.points = torch.as_tensor(grid.points[0], device=device)
        self.weight = torch.as_tensor(grid.weight[0], dtype=torch.float32, device=device)
        self.positives = torch.as_tensor(grid.positives[0], dtype=torch.float32, device=device)
        self.context = torch.arange(len(cells.codes), device=device)
        self.mass = float(grid.weight.sum())
        self.work = float(self.weight.numel() * len(self.config.candidates) * 50)
        self.order = self.config.penalties.order_in("logit")

    def evaluate(self) -> Step:
        """Return the loss at the current parameters."""
        function, values = self.function, self.function.node_values()
        logits = function.candidates(self.points, self.context, values)
        loss = torch.stack([log_loss_from_logits(part, self.weight, self.positives) for part in logits]).sum()
        alpha = functional.softmax(function.choice() / self.config.temperature, dim=-1)
        mixture = (alpha.T[..., None] * torch.sigmoid(logits)).sum(0)
        loss = loss + log_loss_from_probabilities(mixture, self.weight, self.positives, least=SCORE_FLOOR)
        if self.order > 0:
            loss = loss + self.order * order_loss(*function.falls(values))
        if self.config.penalties.balance > 0:
            real = slice(0, self.originals)
            group = self.context[real, None].expand_as(self.weight[real])
            loss = loss + self.config.penalties.balance * balance_loss(
                mixture[real],
                self.weight[real],
                self.positives[real],
                group,
                self.originals,
                self.config.penalties.normalise,
            )
        return Step(loss)

    @torch.no_grad()
    def solve(self, enough: float = 1e-2) -> None:
        """Bring every candidate's level to its optimum, so that its probabilities sum to the positives.

        The pooled context, a copy of all rows for values never seen, has no say in it: its error would be made up for
        by an error of the others.
        """
        real = slice(0, self.originals)
        for _ in range(8):
            values = self.function.node_values()
            logits = self.function.candidates(self.points[real], self.context[real], values)
            p = torch.sigmoid(logits).double()
            missing = (self.positives[real] - self.weight[real] * p).sum((-1, -2))
            curvature = (self.weight[real] * p * (1.0 - p)).sum((-1, -2))
            step = (missing / curvature.clamp_min(1e-12)).clamp(-1.0, 1.0)
            self.function.level.add_(step.to(self.function.level.dtype))


@torch.no_grad()
def _settle(function: AdaptiveFunction, cells: TrainingCells) -> None:
    """Move all levels alike, so that the probabilities of the numbers of bins chosen sum to the positives."""
    device = function.rate_table.device
    points, weight = (torch.as_tensor(values, device=device) for values in (cells.logit, cells.weight))
    codes = torch.as_tensor(as_codes(cells.codes[cells.context], len(cells.logit), cells.sizes), device=device)
    for _ in range(8):
        p = torch.sigmoid(function.at_rows(points, codes).double())
        missing, curvature = cells.positives.sum() - (weight * p).sum(), (weight * p * (1.0 - p)).sum()
        function.level.add_((missing / curvature.clamp_min(1e-12)).clamp(-1.0, 1.0).to(function.level.dtype))


@dataclass(frozen=True)
class AdaptiveFit:
    """A trained AdaCalib: predicts, tells how its training went, and can be written down as plain tensors."""

    function: AdaptiveFunction
    config: AdaptiveConfig
    descent: Descent
    order_loss: float

    @torch.no_grad()
    def predict(self, logit: FloatArray, codes: NDArray[np.integer] | None = None) -> FloatArray:
        """Return calibrated probabilities of rows with these logits and field codes."""
        table = as_codes(codes, len(logit), self.function.sizes)
        device = self.function.rate_table.device
        points = torch.as_tensor(np.asarray(logit, dtype=np.float64), device=device)
        values = self.function.at_rows(points, torch.as_tensor(table, device=device))
        return np.asarray(torch.sigmoid(values.double()).cpu().numpy())

    @torch.no_grad()
    def choices(self) -> NDArray[np.int64]:
        """Return the number of bins chosen for every context, the pooled one included."""
        chosen = self.function.choice().argmax(-1).cpu().numpy()
        return np.asarray(np.asarray(self.config.candidates)[chosen])

    def kinks(self) -> FloatArray:
        """Return the scores at which the function has kinks: the knots of every context."""
        return sigmoid(np.asarray(self.function.get_buffer("knots").cpu().numpy(), dtype=np.float64).ravel())

    def jumps(self) -> None:
        """Return the scores at which the function jumps: none."""
        return

    def on_rows(self, codes: NDArray[np.int64]) -> AdaptiveFunction:
        """Return a copy of the function, to be trained on rows."""
        return copy.deepcopy(self.function)

    @torch.no_grad()
    def with_function(self, function: AdaptiveFunction) -> "AdaptiveFit":
        """Return the fit with the function that `on_rows` returned and that training has changed since."""
        return dataclasses.replace(self, function=function, order_loss=float(function.order_penalty()))

    def state(self) -> TrainingState:
        """Return every tensor of the function as an array, and what it takes to restore it."""
        return training_state(self.function, self.function.sizes, self.config, self.descent, self.order_loss)


def restore_adaptive(state: TrainingState) -> AdaptiveFit:
    """Return the fit that `AdaptiveFit.state` wrote down."""
    config = msgspec.convert(state.about["config"], AdaptiveConfig)
    statistics = NodeStatistics(**{part.name: state.arrays[part.name] for part in dataclasses.fields(NodeStatistics)})
    function = AdaptiveFunction(config, tuple(state.about["sizes"]), statistics)
    function = with_arrays(function, state.arrays).to(config.device)
    return AdaptiveFit(function, config, Descent(**state.about["descent"]), state.about["order_loss"])


def fit_adaptive(cells: TrainingCells, config: AdaptiveConfig, warm: AdaptiveFit | None = None) -> AdaptiveFit:
    """Train AdaCalib on weighted cells, full batch.

    With `warm`, knots and statistics are taken anew from the cells, while the networks continue from the
    previous fit; this needs the same contexts.
    """
    full = with_unseen(cells, 1.0) if cells.sizes else cells
    pooled = len(cells.codes) if cells.sizes else 0
    keys = full.codes @ np.asarray(_radix(cells.sizes)[: len(cells.sizes)], dtype=np.int64)
    statistics = node_statistics(full, config.candidates, config.levels, keys, pooled)
    function = AdaptiveFunction(config, cells.sizes, statistics).to(config.device)
    if warm is not None:
        function.load_state_dict({**function.state_dict(), **dict(warm.function.named_parameters())})
    objective = _AdaptiveObjective(function, full, len(cells.codes))
    descent = descend(objective, function.parameters(), config.schedule)
    _settle(function, cells)
    with torch.no_grad():
        before, after = function.falls(function.node_values()[: len(cells.codes)])
        violation = float(order_loss(before.double(), after.double()))
    return AdaptiveFit(function, config, descent, violation)
