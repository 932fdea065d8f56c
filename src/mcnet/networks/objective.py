"""The objective of MCNet on a sketch: likelihood, priors, order and balance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from mcnet._shared.arrays import FloatArray, clip_scores, logit
from mcnet.networks.monotone import MonotoneBank
from mcnet.networks.optimise import Step, newton
from mcnet.networks.training_points import PaddedCells, TrainingCells, shared_codes
from mcnet.rows.contexts import distinct_contexts

# The three terms of the training objective: log-loss, order between bins, balance between fields.
#
# Each is a small pure function of tensors. `weight` counts rows, `positives` the rows with label 1 among them,
# so a row is simply a cell of weight one.


TANGENT_BELOW = 1e-4
"""The logarithm of a probability is continued by its tangent from here on down, unless training says otherwise."""


def log_loss_from_logits(logits: Tensor, weight: Tensor, positives: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of labels whose probabilities are `sigmoid(logits)`."""
    return (weight * softplus(logits) - positives * logits).sum() / weight.sum()


def _log_with_tangent(values: Tensor, least: float) -> Tensor:
    """Return the logarithm, continued by its tangent below `least` so that gradients stay alive outside (0, 1).

    Above 1 it is 0: without that, a bin without positives would gain without end by falling below 0.
    """
    inside = values.clamp(least, 1.0)
    return inside.log() + (values - inside).clamp_max(0.0) / least


def log_loss_from_probabilities(
    probabilities: Tensor, weight: Tensor, positives: Tensor, least: float = TANGENT_BELOW
) -> Tensor:
    """Return the mean negative log-likelihood of labels with these probabilities, which may stray outside (0, 1).

    Below `least`, and above 1 − `least`, the logarithm is continued by its tangent.
    """
    gain = positives * _log_with_tangent(probabilities, least)
    gain = gain + (weight - positives) * _log_with_tangent(1.0 - probabilities, least)
    return -gain.sum() / weight.sum()


def log_loss_in(space: str, values: Tensor, weight: Tensor, positives: Tensor, least: float = TANGENT_BELOW) -> Tensor:
    """Return the mean negative log-likelihood of labels, where a function has these values in its space."""
    if space == "logit":
        return log_loss_from_logits(values, weight, positives)
    return log_loss_from_probabilities(values, weight, positives, least)


def order_loss(ends: Tensor, starts: Tensor, rounding: float = 0.0) -> Tensor:
    """Return how far each bin's function ends above the start of the next one, summed over edges and contexts.

    `ends[k]` is the function of bin k at its right edge, `starts[k]` that of bin k + 1 at the same edge: Σ
    max(ends − starts, 0). With `rounding` δ, violations smaller than δ count x²/2δ and larger ones x − δ/2,
    so that the loss has a second derivative for Newton's method to use.
    """
    violation = (ends - starts).clamp_min(0.0)
    if rounding <= 0:
        return violation.sum()
    small = violation.clamp_max(rounding)
    return (small * (violation - small / 2.0)).sum() / rounding


def balance_loss(
    probabilities: Tensor,
    weight: Tensor,
    positives: Tensor,
    group: Tensor,
    groups: int,
    normalise: Literal["global", "field"] = "global",
) -> Tensor:
    """Return the spread between field values of how much each is over-predicted.

    DIFF_c = (1/N) Σ_{rows of c} (p − y), with N all rows (`"global"`, as in the paper) or the rows of c
    (`"field"`); the result is the population standard deviation of DIFF over the values. `groups` is the number of
    all values, not of those in a batch: one without rows counts as zero in the first variant and is left out in the
    second.
    """
    excess = (weight * probabilities - positives).reshape(-1)
    present = int(group.max()) + 1
    sums = torch.zeros(present, dtype=excess.dtype, device=excess.device).index_add(0, group.reshape(-1), excess)
    if normalise == "global":
        difference, count = sums / weight.sum(), groups
    else:
        mass = torch.zeros_like(sums).index_add(0, group.reshape(-1), weight.reshape(-1).to(sums.dtype))
        difference = sums[mass > 0] / mass[mass > 0]
        count = difference.numel()
    if count < 2:
        return torch.zeros((), dtype=excess.dtype, device=excess.device)
    mean = difference.sum() / count
    # Values that no row has differ from the mean by the mean itself.
    variance = ((difference - mean).square().sum() + (count - difference.numel()) * mean.square()) / count
    # The tiny constant keeps the slope of the root finite where all values are in balance.
    return (variance + 1e-12).sqrt()


# The objective of a monotone bank on weighted cells: log-loss, order, balance, and Gaussian priors.

# A violation of the order this small, in the units of the space, is not punished in full: it keeps the loss
# smooth.
ROUNDING = 1e-2
# Bins are taken to be at least so many logits apart, so that the prior on bends stays finite.
_LEAST_APART = 1e-3


@dataclass(frozen=True)
class Priors:
    """Standard deviations of the Gaussian priors that make small data safe; infinity means none.

    `jump`: between the functions of adjacent bins at their edge, in logits. `bend`: between the logarithms of
    their slopes there, if their mean scores are one logit apart; its square grows with that distance, so that narrow
    bins describe functions as smooth as wide ones do. `slope`: of the logarithm of the mean slope in a bin, around
    slope one. `curve`: of the logarithm of the slope inside a bin, around its mean. `level` and `tilt`: of a context's
    function around the function of unseen values, in logits and in logarithm of slope.
    """

    jump: float = 0.003
    bend: float = 0.25
    slope: float = 1.0
    curve: float = 0.2
    level: float = 1.0
    tilt: float = 0.6


@dataclass(frozen=True)
class Penalties:
    """Coefficients of the paper's two regularisers.

    `order` multiplies the order loss, measured in the units of the space. `None` stands for 1 on
    probabilities and 0.01 on logits, and for nothing where a prior on jumps already joins the bins: there the
    hinge only slows training down. `balance` multiplies the field-balance loss.
    """

    order: float | None = None
    balance: float = 0.0
    normalise: Literal["global", "field"] = "global"

    def order_in(self, space: str, jump: float = np.inf) -> float:
        """Return the order coefficient to use in a space, beside a prior on jumps of that standard deviation."""
        if self.order is not None:
            return self.order
        return 0.0 if np.isfinite(jump) else {"logit": 0.01, "probability": 1.0}[space]


@dataclass(frozen=True)
class _Shapes:
    """What offset and scale act on: the integrals up to every cell and end of a bin, and the log-derivatives.

    Beside them what does not change during training: the lower limits, and the cells themselves.
    """

    area: Tensor
    log_derivative: Tensor
    origin: Tensor
    weight: Tensor
    positives: Tensor


class BankObjective:
    """The loss of a bank on a grid of cells, with every constant of the integral computed once."""

    def __init__(
        self,
        bank: MonotoneBank,
        cells: TrainingCells,
        grid: PaddedCells,
        originals: int,
        priors: Priors,
        penalties: Penalties,
        nodes: int,
        own_shapes: int,
    ) -> None:
        self.bank, self.priors, self.penalties = bank, priors, penalties
        self.originals = originals
        self.order = penalties.order_in(bank.shape.space, priors.jump)
        dtype, device = bank.dtype, bank.left.device
        # The two ends of a bin are added as points without weight: order and jumps are measured there.
        left, right = bank.left.cpu().numpy(), bank.right.cpu().numpy()
        ends = np.stack([left, right], axis=-1)[:, None, :]
        points = np.concatenate([grid.points, np.broadcast_to(ends, (*grid.points.shape[:2], 2))], axis=-1)
        bins = np.broadcast_to(np.arange(bank.bins)[:, None, None], points.shape)

        def tensor(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, dtype=dtype, device=device)

        self.nodes = bank.nodes(nodes)[:, None, :]
        # Without fields the contexts are groups of rows, for the balance term, that share one function.
        self.one_function = not cells.sizes
        self.codes = torch.as_tensor(cells.codes[:1] if self.one_function else cells.codes, device=device)
        shared = shared_codes(cells, own_shapes)[: len(self.codes)]
        self.shared = torch.as_tensor(shared, device=device)
        shapes, shape_of = distinct_contexts(shared)
        self.shapes = torch.as_tensor(shapes, device=device)
        self.shape_of = torch.as_tensor(shape_of, dtype=torch.int64, device=device)
        # Networks that have no value are integrated by a rule, which for cells that stay is a matrix.
        self.points = torch.as_tensor(points, device=device)
        self.matrix = None if bank.network.has_value else tensor(bank.rule(nodes)(points, bins))
        self.fixed = (bank.origin.to(dtype)[:, None], tensor(grid.weight), tensor(grid.positives))
        self.apart = tensor(_apart(grid, (left + right) / 2.0, bank.shape.space)[:, None])
        self.context = torch.arange(len(cells.codes), device=device)[None, :, None].expand(grid.weight.shape)
        self.mass = float(grid.weight.sum())
        layers = zip(bank.shape.hidden, (*bank.shape.hidden[1:], 1), strict=True)
        self.work = float(self.nodes.numel() * len(self.shapes) * sum(a * b for a, b in layers))

    def _functions(self, dtype: torch.dtype) -> tuple[Tensor, _Shapes]:
        """Return offset and log-scale `[K, C, 2]`, and the shapes they act on; contexts may share their networks."""
        context = self.bank.embed(self.shapes)
        bias = self.bank.bias(context)[:, self.shape_of]
        for i, table in enumerate(self.bank.direct):
            bias = bias + table[:, self.codes[:, i]]
        derivative = self.bank.derivative(self.nodes, context)[:, self.shape_of].to(dtype)
        if self.matrix is None:
            area = self.bank.rise(self.points, context[:, self.shape_of].expand(-1, self.points.shape[1], -1))
        else:
            area = torch.matmul(self.matrix.to(dtype), derivative[..., None])[..., 0]
        return bias.to(dtype), _Shapes(area.to(dtype), derivative.log(), *(part.to(dtype) for part in self.fixed))

    def evaluate(self) -> Step:
        """Return the loss now; its handle is the offset and log-scale of every bin and context."""
        bias, shapes = self._functions(self.bank.dtype)
        loss, curvature = self._loss(bias, shapes)
        return Step(loss, (bias,), (curvature,))

    @torch.no_grad()
    def settle(self) -> None:
        """Give the field values that shared the networks of unseen ones in training their embedding for good."""
        for i, table in enumerate(self.bank.tables):
            moved = self.codes[self.shared[:, i] != self.codes[:, i], i]
            if len(moved):
                table[:, moved] = table[:, -1:].clone()

    def solve(self, enough: float = 1e-2) -> None:
        """Bring what the field values add directly to offset and scale to their optimum, in float64."""
        tables = list(self.bank.direct) or [self.bank.bias_weights[-1]]
        if not self.bank.shape.scale:
            return
        with torch.no_grad():
            bias, shapes = self._functions(torch.float64)
        rows = [self.codes[:, i] for i in range(len(self.bank.direct))] or [self.codes.new_zeros(len(self.codes))]

        def moved(moves: list[Tensor]) -> Tensor:
            total = bias
            for move, row in zip(moves, rows, strict=True):
                total = total + move[:, row]
            return total

        def model_at(current: list[Tensor]) -> Callable[[list[Tensor]], Tensor]:
            model = self._model_at(moved(current), shapes)
            return lambda moves: model(moved(moves))

        moves = newton(
            lambda moves: self._loss(moved(moves), shapes)[0],
            [torch.zeros_like(t, dtype=torch.float64) for t in tables],
            self.mass,
            model_at if self.bank.shape.space == "logit" and self.penalties.balance == 0 else None,
            enough=enough,
        )
        with torch.no_grad():
            for table, move in zip(tables, moves, strict=True):
                table += move.to(table.dtype)

    @torch.no_grad()
    def _model_at(self, bias: Tensor, shapes: "_Shapes") -> Callable[[Tensor], Tensor]:
        """Return a function of the bias with the value, gradient and Hessian of the loss at `bias`.

        The log-loss of the cells is replaced by its second-order expansion in the two numbers of each bin and context,
        so that a product with the Hessian costs nothing per cell. For logit space without a balance term.
        """
        rise = bias[..., 1].exp()[..., None] * shapes.area
        cells, rise = ((shapes.origin + bias[..., 0])[..., None] + rise)[..., :-2], rise[..., :-2]
        chance = torch.sigmoid(cells)
        excess = (shapes.weight * chance - shapes.positives) / self.mass
        information = shapes.weight * chance * (1.0 - chance) / self.mass
        slope = torch.stack([excess.sum(-1), (excess * rise).sum(-1)], dim=-1)
        mixed = (information * rise).sum(-1)
        corner = (information * rise.square() + excess * rise).sum(-1)
        bend = torch.stack([information.sum(-1), mixed, mixed, corner], dim=-1).reshape(*mixed.shape, 2, 2)
        if self.one_function:
            slope, bend = slope.sum(1, keepdim=True), bend.sum(1, keepdim=True)
        base = log_loss_from_logits(cells, shapes.weight, shapes.positives)

        def model(at: Tensor) -> Tensor:
            step = at - bias
            curved = torch.matmul(bend, step[..., None])[..., 0]
            rise_at_ends = at[..., 1].exp()[..., None] * shapes.area[..., -2:]
            edges = (shapes.origin + at[..., 0])[..., None] + rise_at_ends
            return base + (step * (slope + 0.5 * curved)).sum() + self._order_and_priors(edges, at, shapes)

        return model

    def _loss(self, bias: Tensor, shapes: "_Shapes") -> tuple[Tensor, Tensor]:
        """Return the whole loss, and its approximate second derivative by each entry of `bias`."""
        rise = bias[..., 1].exp()[..., None] * shapes.area
        values = (shapes.origin + bias[..., 0])[..., None] + rise
        cells = values[..., :-2]
        if self.bank.shape.space == "logit":
            loss = log_loss_from_logits(cells, shapes.weight, shapes.positives)
            chance = torch.sigmoid(cells)
            information = chance * (1.0 - chance)
        else:
            loss = log_loss_from_probabilities(cells, shapes.weight, shapes.positives)
            chance = cells
            information = 1.0 / (cells * (1.0 - cells)).clamp_min(1e-4)
        if self.penalties.balance > 0:
            real = slice(0, self.originals)
            loss = loss + self.penalties.balance * balance_loss(
                chance[:, real],
                shapes.weight[:, real],
                shapes.positives[:, real],
                self.context[:, real],
                self.originals,
                self.penalties.normalise,
            )
        loss = loss + self._order_and_priors(values[..., -2:], bias, shapes)
        information = (shapes.weight * information).detach() / self.mass
        squares = torch.stack([torch.ones_like(information), rise[..., :-2].detach() ** 2], dim=-1)
        curvature = (information[..., None] * squares).sum(-2)
        return loss, curvature.sum(1, keepdim=True) if self.one_function else curvature

    def _order_and_priors(self, edges: Tensor, bias: Tensor, shapes: "_Shapes") -> Tensor:
        """Return what depends on the functions at the ends of their bins and on their slopes: order and priors."""
        edges = edges[:, :1] if self.one_function else edges
        loss = self._surprise(edges, shapes.log_derivative + bias[..., 1:]) / self.mass
        if self.order > 0:
            loss = loss + self.order * order_loss(edges[:-1, :, 1], edges[1:, :, 0], ROUNDING)
        return loss

    def _surprise(self, edges: Tensor, log_slope: Tensor) -> Tensor:
        """Return the negative log of the prior density, up to a constant; `edges` are the values at a bin's ends."""
        priors, start, end = self.priors, edges[..., 0], edges[..., 1]
        total = edges.new_zeros(())

        def add(difference: Tensor, deviation: float) -> Tensor:
            return difference.square().sum() / (2.0 * deviation**2)

        mean = log_slope.mean(-1)
        if np.isfinite(priors.slope):
            total = total + add(mean, priors.slope)
        if np.isfinite(priors.curve):
            total = total + add(log_slope - mean[..., None], priors.curve) / log_slope.shape[-1]
        if self.bank.bins > 1:
            if np.isfinite(priors.jump):
                total = total + add(start[1:] - end[:-1], priors.jump)
            if np.isfinite(priors.bend):
                bends = (log_slope[1:, :, -2] - log_slope[:-1, :, -1]) / self.apart.sqrt()
                total = total + add(bends, priors.bend)
        if len(self.codes) > self.originals:
            shared = slice(self.originals, self.originals + 1)
            others = slice(0, self.originals)
            if np.isfinite(priors.level):
                middle = (start + end) / 2.0
                gap = (middle[:, others] - middle[:, shared]) / self.bank.bins**0.5
                total = total + add(gap, priors.level)
            if np.isfinite(priors.tilt):
                total = total + add(mean[:, others] - mean[:, shared], priors.tilt)
        return total


def _apart(grid: PaddedCells, middle: FloatArray, space: str) -> FloatArray:
    """Return how far apart the mean scores of adjacent bins (without rows: their middles) are, `[K − 1]`, in logits."""
    mass = grid.weight.sum(axis=(1, 2))
    mean = (grid.weight * grid.points).sum(axis=(1, 2)) / np.where(mass > 0, mass, 1.0)
    mean = np.where(mass > 0, mean, middle)
    return np.maximum(np.diff(mean if space == "logit" else logit(clip_scores(mean))), _LEAST_APART)
