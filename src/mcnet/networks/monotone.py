"""A bank of K monotone calibration functions, one for each bin of scores, evaluated as one batched program.

The function of bin k for context c is

    f(x, c) = e + o(c) + exp(r(c)) · ∫ₑˣ f₁(t, h(c)) dt,

with `f₁` a strictly positive network, `(o, r)` a second network and `h` an embedding of the context, all of
them private to the bin, and `e` the lower limit. Weights carry the bin as their first axis, so that K
networks are one matrix product a layer. It starts as the identity.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mcnet.errors import InputError
from mcnet.networks.quadrature import cumulative_rule, integrate, integrate_lean, panel_nodes

__all__ = ["BankShape", "MonotoneBank", "Ranges", "positive"]

Positive = Literal["sigmoid", "softplus", "elu"]

# The integrand never falls below this: its integral is strictly increasing in float32 too, and saturated
# units do not feed denormal numbers, which processors handle a hundred times slower, into the rest of the
# network.
FLOOR = 1e-4


@dataclass(frozen=True)
class BankShape:
    """The architecture of the bank.

    `space` is where the functions live: `"logit"` (inputs and outputs are logits) or `"probability"` (the
    paper). `lower` is the lower limit of the integral: `"zero"` (the paper), the left `"edge"` of the bin, or
    its `"centre"`, which makes offset and slope nearly independent of each other and so trains fastest.
    `standardise` says in what units the networks see their input: as it is, in standard deviations of all
    scores, or of the bin's own. With `direct`, every field value also adds two numbers of its own to offset
    and log-scale, past the bias network; these can be solved for, so that the fitted probabilities of a field
    value sum to its positives.
    """

    hidden: tuple[int, ...] = (128, 128)
    embedding: int = 128
    share_embedding: bool = False
    combine: Literal["sum", "concat"] = "sum"
    positive: Positive = "sigmoid"
    activation: Literal["silu", "tanh", "relu"] = "silu"
    scale: bool = True
    space: Literal["logit", "probability"] = "logit"
    lower: Literal["zero", "edge", "centre"] = "centre"
    standardise: Literal["none", "global", "bin"] = "bin"
    start: Literal["identity", "random"] = "identity"
    direct: bool = True


@dataclass(frozen=True)
class Ranges:
    """Where the bins lie: interior edges, the ends of each bin, mean and spread of the points in it."""

    edges: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.left)


def positive(kind: Positive, values: Tensor) -> Tensor:
    """Map any number to a strictly positive one."""
    if kind == "sigmoid":
        return FLOOR + (1.0 - FLOOR) * torch.sigmoid(values)
    if kind == "softplus":
        return FLOOR + functional.softplus(values)
    return FLOOR + functional.elu(values) + 1.0


def _uniform(generator: torch.Generator, *shape: int) -> nn.Parameter:
    bound = 1.0 / math.sqrt(max(shape[-2], 1))
    return nn.Parameter((torch.rand(*shape, generator=generator) * 2.0 - 1.0) * bound)


class MonotoneBank(nn.Module):
    """K monotone functions of a score and a context, as one batched network."""

    edges: Tensor
    left: Tensor
    right: Tensor
    shift: Tensor
    stretch: Tensor
    origin: Tensor

    def __init__(self, shape: BankShape, sizes: tuple[int, ...], ranges: Ranges, seed: int = 0) -> None:
        super().__init__()
        self.shape, self.sizes, bins = shape, sizes, ranges.bins
        centre = {"zero": np.zeros(bins), "edge": ranges.left, "centre": ranges.mean}[shape.lower]
        if shape.direct and not shape.scale:
            raise InputError("`direct` solves for offset and scale; without a scale it must be off")
        shift, stretch = _units(shape, ranges)
        for name, values in (
            ("edges", ranges.edges),
            ("left", ranges.left),
            ("right", ranges.right),
            ("shift", shift),
            ("stretch", stretch),
            ("origin", centre),
        ):
            self.register_buffer(name, torch.as_tensor(np.array(values, dtype=np.float64)))
        generator = torch.Generator().manual_seed(seed)
        tables = 1 if shape.share_embedding else bins
        self.tables = nn.ParameterList()
        for size in sizes:
            table = torch.randn(tables, size + 1, shape.embedding, generator=generator)
            table[:, size] = 0.0  # values never seen start from the shared curve
            self.tables.append(nn.Parameter(table))
        self.direct = nn.ParameterList(
            nn.Parameter(torch.zeros(bins, size + 1, 2)) for size in (sizes if shape.direct else ())
        )
        self.context_width = shape.embedding * (len(sizes) if shape.combine == "concat" else min(len(sizes), 1))
        widths = (self.context_width, *shape.hidden)
        self.score_weight = _uniform(generator, bins, 1, shape.hidden[0])
        self.derivative_weights = self._layers(generator, bins, widths, 1)
        self.bias_weights = self._layers(generator, bins, widths, 2 if shape.scale else 1)
        if shape.start == "identity":
            self._start_as_identity()

    @staticmethod
    def _layers(generator: torch.Generator, bins: int, widths: tuple[int, ...], outputs: int) -> nn.ParameterList:
        weights = nn.ParameterList()
        for into, out in zip(widths, (*widths[1:], outputs), strict=True):
            weights.append(_uniform(generator, bins, into, out))
            weights.append(nn.Parameter(torch.zeros(bins, 1, out)))
        return weights

    @torch.no_grad()
    def _start_as_identity(self) -> None:
        last, constant = self.derivative_weights[-2], self.derivative_weights[-1]
        last.zero_()
        self.bias_weights[-2].zero_()
        if self.shape.scale:
            height = positive(self.shape.positive, torch.zeros(()))
            self.bias_weights[-1][..., 1] = -height.log()
        else:
            # Without a scale a sigmoid cannot reach slope one: start steep, but where its gradient is alive.
            constant.fill_({"sigmoid": 2.0, "softplus": math.log(math.e - 1.0), "elu": 0.0}[self.shape.positive])

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.left)

    def embed(self, codes: Tensor) -> Tensor:
        """Return embeddings `[K, C, width]` of contexts given by their field codes `[C, fields]`."""
        parts = [table[:, codes[:, i]].expand(self.bins, -1, -1) for i, table in enumerate(self.tables)]
        if not parts:
            return self.score_weight.new_zeros(self.bins, len(codes), 0)
        return torch.cat(parts, dim=-1) if self.shape.combine == "concat" else torch.stack(parts).sum(dim=0)

    def _activate(self, values: Tensor) -> Tensor:
        if self.shape.activation == "silu":
            return functional.silu(values)
        return torch.tanh(values) if self.shape.activation == "tanh" else torch.relu(values)

    def derivative(self, points: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        """Return the positive network f₁ at points `[K, C or 1, n]` for contexts `[K, C, width]`: `[K, C, n]`.

        Outside the fitted range it keeps its value at the end. `weights` are the network's own unless given,
        which the lean integral needs, as it differentiates with respect to them itself.
        """
        score_weight, *layers = weights or (self.score_weight, *self.derivative_weights)
        low, high = self._reach()
        inside = torch.minimum(torch.maximum(points, low), high)
        inputs = ((inside - self.shift[:, None, None]) / self.stretch[:, None, None]).to(score_weight.dtype)
        # The score enters the first layer as one outer product, so a context's share is computed once, not at
        # every node.
        shared = torch.baddbmm(layers[1], context, layers[0])
        values = shared[:, :, None, :] + inputs[..., None] * score_weight[:, :, None, :]
        bins, contexts, nodes, _ = values.shape
        values = values.reshape(bins, contexts * nodes, -1)
        for weight, constant in zip(layers[2::2], layers[3::2], strict=True):
            values = torch.baddbmm(constant, self._activate(values), weight)
        return positive(self.shape.positive, values.reshape(bins, contexts, nodes))

    def bias(self, context: Tensor) -> Tensor:
        """Return the bias network: offset o and log-scale r, `[K, C, 2]`, for contexts `[K, C, width]`."""
        layers = tuple(self.bias_weights)  # cutting a ParameterList makes another one, which takes longer than all else
        values = torch.baddbmm(layers[1], context, layers[0])
        for weight, constant in zip(layers[2::2], layers[3::2], strict=True):
            values = torch.baddbmm(constant, self._activate(values), weight)
        return values if self.shape.scale else functional.pad(values, (0, 1))

    def offset_and_scale(self, codes: Tensor, context: Tensor) -> Tensor:
        """Return offset o and logarithm of the scale r, `[K, C, 2]`, with what the field values add directly."""
        values = self.bias(context)
        for i, table in enumerate(self.direct):
            values = values + table[:, codes[:, i]]
        return values

    def _reach(self) -> tuple[Tensor, Tensor]:
        """Return the ends of the interval on which each bin's derivative is free, `[K, 1, 1]`."""
        low, high = torch.minimum(self.left, self.origin), torch.maximum(self.right, self.origin)
        return low[:, None, None], high[:, None, None]

    def panels(self) -> NDArray[np.float64]:
        """Return the panel edges `[K, 3]` on which integrals are shared: the bin's ends and a point between."""
        left, right, split = (x.cpu().numpy() for x in (self.left, self.right, self.origin))
        if self.shape.lower == "edge":
            split = (left + right) / 2.0
        return np.sort(np.stack([left, split, right], axis=1), axis=1)

    def nodes(self, count: int) -> Tensor:
        """Return the nodes `[K, n]` at which the derivative is evaluated when integrals are shared."""
        return torch.as_tensor(panel_nodes(self.panels(), count), device=self.left.device)

    def rule(self, points: NDArray[np.float64], bins: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Return, for each point in its bin, the weights `[..., n]` of the nodes in the integral up to it."""
        return self.rules(count)(points, bins)

    def rules(self, count: int) -> Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]:
        """Return `rule` for this number of nodes, with what all calls have in common computed once."""
        panels, origin = self.panels(), self.origin.cpu().numpy()
        start = cumulative_rule(origin[:, None], panels, count)[:, 0, :]

        def rule(points: NDArray[np.float64], bins: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.asarray(cumulative_rule(points[..., None], panels[bins], count)[..., 0, :] - start[bins])

        return rule

    def forward(self, points: Tensor, bins: Tensor, codes: Tensor, steps: int = 50, lean: bool = False) -> Tensor:
        """Return the functions at rows with points `[B]`, bins `[B]`, codes `[B, fields]`; one quadrature per row."""
        slot, width = _slots(bins, self.bins)
        where = bins * width + slot
        upper = self.origin[:, None].repeat(1, width).view(-1).index_copy(0, where, points.to(self.origin.dtype))
        padded = codes.new_zeros(self.bins * width, codes.shape[1]).index_copy(0, where, codes)
        context = self._embed_rows(padded.view(self.bins, width, -1))
        bias = self.bias(context)
        bins_column = torch.arange(self.bins, device=codes.device)[:, None]
        for i, table in enumerate(self.direct):
            bias = bias + table[bins_column, padded.view(self.bins, width, -1)[..., i]]
        upper = upper.view(self.bins, width)
        lower = self.origin[:, None].expand_as(upper)
        rule = integrate_lean if lean else integrate
        dtype = context.dtype
        area = rule(
            lambda nodes, h, *weights: self.derivative(nodes, h, *weights).to(nodes.dtype),
            lower,
            upper,
            (context, self.score_weight, *self.derivative_weights),
            steps,
        )
        values = lower.to(dtype) + bias[..., 0] + bias[..., 1].exp() * area.to(dtype)
        return values.reshape(-1)[where]

    def edge_values(self, codes: Tensor, count: int = 16) -> tuple[Tensor, Tensor]:
        """Return the functions left and right of every interior edge, `[K − 1, C]` each, for these contexts."""
        context = self.embed(codes)
        bias = self.offset_and_scale(codes, context)
        derivative = self.derivative(self.nodes(count)[:, None, :], context)
        edges = self.edges.cpu().numpy()
        before = np.arange(self.bins - 1)
        sides = []
        for bins in (before, before + 1):
            rule = torch.as_tensor(self.rule(edges, bins, count), dtype=bias.dtype, device=bias.device)
            area = (derivative[bins] * rule[:, None, :]).sum(-1)
            origin = self.origin[bins].to(bias.dtype)[:, None]
            sides.append(origin + bias[bins, :, 0] + bias[bins, :, 1].exp() * area)
        return sides[0], sides[1]

    def _embed_rows(self, codes: Tensor) -> Tensor:
        """Return embeddings `[K, M, width]` where every bin has rows of its own, `codes` being `[K, M, fields]`."""
        bins = torch.arange(self.bins, device=codes.device)[:, None]
        rows = torch.zeros_like(bins) if self.shape.share_embedding else bins
        parts = [table[rows, codes[..., i]] for i, table in enumerate(self.tables)]
        if not parts:
            return self.score_weight.new_zeros(*codes.shape[:2], 0)
        return torch.cat(parts, dim=-1) if self.shape.combine == "concat" else torch.stack(parts).sum(dim=0)

    def bin_of(self, points: Tensor) -> Tensor:
        """Return the bin of each point; an edge belongs to the bin on its right."""
        return torch.searchsorted(self.edges, points.to(self.edges.dtype), right=True)


def _units(shape: BankShape, ranges: Ranges) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    ones = np.ones(ranges.bins)
    if shape.standardise == "none":
        return 0.0 * ones, ones
    if shape.standardise == "global":
        mean = ranges.mean.mean()
        spread = math.sqrt(float(np.mean((ranges.mean - mean) ** 2 + ranges.spread**2)))
        return mean * ones, (spread or 1.0) * ones
    return ranges.mean, np.where(ranges.spread > 0, ranges.spread, 1.0)


def _slots(bins: Tensor, count: int) -> tuple[Tensor, int]:
    """Return a place for every row inside its bin, and the number of places the fullest bin needs."""
    order = torch.argsort(bins, stable=True)
    sizes = torch.bincount(bins, minlength=count)
    first = torch.cumsum(sizes, 0) - sizes
    slot = torch.empty_like(bins)
    slot[order] = torch.arange(len(bins), device=bins.device) - first[bins[order]]
    return slot, max(int(sizes.max()), 1)
