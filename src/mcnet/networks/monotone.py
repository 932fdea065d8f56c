"""Monotone networks: the integral of a positive network per bin and context, and its quadrature."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcnet.errors import InputError
from mcnet.networks.kinds import NETWORKS, activate, layers

# Integrals of a function up to many points: by plain Clenshaw–Curtis, with little memory, or shared.
#
# Three ways to the same number, and when each one pays:
#
# * `integrate`: T + 1 evaluations a point, differentiated by autograd. The obvious reference.
# * `integrate_lean`: the same value, but the backward pass integrates the gradient instead of storing the
#   graph, a few nodes at a time, so its memory does not grow with T.
# * `cumulative_rule`: many points that lie on the same few panels share one set of nodes; the integral up to
#   each point is a fixed linear combination of the values at the nodes. This is what makes training on a sketch
#   cheap.
#
# Nothing here knows about calibration.

Integrand = Callable[..., Tensor]


@functools.cache
def clenshaw_curtis(steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes in [−1, 1], ascending, and weights of the Clenshaw–Curtis rule with `steps` + 1 nodes.

    Exact for polynomials of degree `steps`:

    >>> nodes, weights = clenshaw_curtis(4)
    >>> round(float(weights @ nodes**4), 12)
    0.4
    """
    if steps < 1:
        raise ValueError(f"the Clenshaw–Curtis rule needs at least one step, got {steps}")
    index = np.arange(steps + 1)
    frequency = np.arange(1, steps // 2 + 1)
    # The cosine series of the integral; its last term counts half when `steps` is even (the textbook rule).
    factor = np.where(2 * frequency == steps, 1.0, 2.0) / (4.0 * frequency**2 - 1.0)
    weights = (1.0 - np.cos(2.0 * np.pi * np.outer(index, frequency) / steps) @ factor) * 2.0 / steps
    weights[[0, -1]] /= 2.0
    nodes = -np.cos(np.pi * index / steps)
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights


def _rule(steps: int, like: Tensor) -> tuple[Tensor, Tensor]:
    nodes, weights = clenshaw_curtis(steps)
    # Positions as fractions of the interval: 0 at the lower limit, 1 at the upper.
    fractions = torch.as_tensor((nodes + 1.0) / 2.0, dtype=like.dtype, device=like.device)
    return fractions, torch.as_tensor(weights / 2.0, dtype=like.dtype, device=like.device)


def integrate(
    integrand: Integrand, lower: Tensor, upper: Tensor, inputs: Sequence[Tensor] = (), steps: int = 50
) -> Tensor:
    """Return the integral of `integrand(nodes, *inputs)` from `lower` to `upper`, element by element.

    `integrand` receives nodes of shape `[*upper.shape, T + 1]` and returns values of that shape. The result
    is signed: upper limits below the lower one are welcome.
    """
    fractions, weights = _rule(steps, upper)
    width = upper - lower
    nodes = lower[..., None] + width[..., None] * fractions
    return (integrand(nodes, *inputs) @ weights) * width


class _LeanIntegral(torch.autograd.Function):
    """Clenshaw–Curtis whose backward pass integrates gradients instead of storing the forward graph."""

    @staticmethod
    def forward(
        ctx: Any,
        integrand: Integrand,
        steps: int,
        chunk: int,
        lower: Tensor,
        upper: Tensor,
        *inputs: Tensor,
    ) -> Tensor:
        ctx.integrand, ctx.steps, ctx.chunk = integrand, steps, chunk
        ctx.save_for_backward(lower, upper, *inputs)
        fractions, weights = _rule(steps, upper)
        width = upper - lower
        total = torch.zeros_like(width)
        for part, weight in zip(torch.split(fractions, chunk), torch.split(weights, chunk), strict=True):
            total += integrand(lower[..., None] + width[..., None] * part, *inputs) @ weight
        return total * width

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = outputs
        lower, upper, *inputs = ctx.saved_tensors
        fractions, weights = _rule(ctx.steps, upper)
        width = upper - lower
        needed = [i for i in range(len(inputs)) if ctx.needs_input_grad[5 + i]]
        gradients: list[Tensor | None] = [None] * len(inputs)
        if needed:
            with torch.enable_grad():
                held = [x.detach().requires_grad_(i in needed) for i, x in enumerate(inputs)]
                for part, weight in zip(
                    torch.split(fractions, ctx.chunk), torch.split(weights, ctx.chunk), strict=True
                ):
                    values = ctx.integrand(lower[..., None] + width[..., None] * part, *held)
                    result = torch.autograd.grad(
                        values,
                        [held[i] for i in needed],
                        grad_outputs=(out * width)[..., None] * weight,
                        allow_unused=True,
                    )
                    for i, gradient in zip(needed, result, strict=True):
                        previous = gradients[i]
                        if gradient is not None:
                            gradients[i] = gradient if previous is None else previous + gradient
        # Leibniz: the integral grows with its upper limit as fast as the integrand there.
        at_lower = -out * ctx.integrand(lower[..., None], *inputs)[..., 0] if ctx.needs_input_grad[3] else None
        at_upper = out * ctx.integrand(upper[..., None], *inputs)[..., 0] if ctx.needs_input_grad[4] else None
        return None, None, None, at_lower, at_upper, *gradients


def integrate_lean(
    integrand: Integrand,
    lower: Tensor,
    upper: Tensor,
    inputs: Sequence[Tensor] = (),
    steps: int = 50,
    chunk: int = 8,
) -> Tensor:
    """Like `integrate`, in memory that does not grow with the number of steps.

    Every tensor that should receive a gradient (parameters included) must be among `inputs`: the integrand is
    evaluated again in the backward pass, `chunk` nodes at a time. Gradients of gradients are not available.
    """
    lower, upper = lower.expand_as(upper), upper.expand_as(lower)
    result: Tensor = _LeanIntegral.apply(integrand, steps, chunk, lower, upper, *inputs)  # type: ignore[no-untyped-call]
    return result


def panel_nodes(edges: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return where a function must be known to integrate it up to any point of the panels between `edges`.

    For edges of shape `[..., M + 1]` the result has shape `[..., M · count + 2]`: `count` Gauss–Legendre
    nodes in each panel, then the two outer ends, whose values continue the function beyond the panels.
    """
    unit, _ = _gauss_legendre(count)
    left, right = edges[..., :-1, None], edges[..., 1:, None]
    inner = left + (right - left) * (unit + 1.0) / 2.0
    inner = inner.reshape(*edges.shape[:-1], -1)
    return np.concatenate([inner, edges[..., :1], edges[..., -1:]], axis=-1)


@functools.cache
def _gauss_legendre(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes in [−1, 1] and weights of Gauss's rule, computed once."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights


@functools.cache
def _legendre_transform(count: int) -> NDArray[np.float64]:
    """Return the matrix from values at the Gauss nodes to Legendre coefficients of the interpolating polynomial."""
    unit, weights = _gauss_legendre(count)
    basis = np.polynomial.legendre.legvander(unit, count - 1)
    return np.asarray((basis * weights[:, None]).T * (np.arange(count)[:, None] + 0.5))


def cumulative_rule(points: NDArray[np.float64], edges: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the matrix that turns values at `panel_nodes(edges, count)` into integrals up to each point.

    For points `[..., P]` and edges `[..., M + 1]` (leading axes alike) the result is `[..., P, M · count +
    2]`. Within a panel the interpolating polynomial is integrated exactly; over a whole panel this is Gauss's
    rule, exact to degree 2 · `count` − 1. Beyond the outer edges the function is taken to stay at its value
    there.

    >>> edges = np.array([0.0, 1.0, 2.0])
    >>> rule = cumulative_rule(np.array([0.5, 1.5, 3.0]), edges, 4)
    >>> (rule @ panel_nodes(edges, 4) ** 2).round(6)
    array([0.041667, 1.125   , 6.666667])
    """
    panels = edges.shape[-1] - 1
    left, right = edges[..., None, :-1], edges[..., None, 1:]
    width = right - left
    safe = np.where(width > 0, width, 1.0)
    position = np.clip((points[..., None] - left) / safe * 2.0 - 1.0, -1.0, 1.0)
    position = np.where(width > 0, position, -1.0)
    basis = np.polynomial.legendre.legvander(position, count)
    # ∫₋₁ᵘ P_m = (P_{m+1}(u) − P_{m−1}(u)) / (2m + 1), and u + 1 for m = 0.
    integral = np.empty((*position.shape, count))
    integral[..., 0] = position + 1.0
    order = np.arange(1, count)
    integral[..., 1:] = (basis[..., 2:] - basis[..., :-2]) / (2.0 * order + 1.0)
    inner = (integral @ _legendre_transform(count)) * (width / 2.0)[..., None]
    inner = inner.reshape(*points.shape, panels * count)
    below = np.minimum(points - edges[..., :1], 0.0)[..., None]
    above = np.maximum(points - edges[..., -1:], 0.0)[..., None]
    return np.concatenate([inner, below, above], axis=-1)


# A bank of K monotone calibration functions, one for each bin of scores, evaluated as one batched program.
#
# The function of bin k for context c is
#
#     f(x, c) = e + o(c) + exp(r(c)) · ∫ₑˣ f₁(t, h(c)) dt,
#
# with `f₁` a strictly positive network, `(o, r)` a second network and `h` an embedding of the context, all of
# them private to the bin, and `e` the lower limit. Weights carry the bin as their first axis, so that K
# networks are one matrix product per layer. It starts as the identity. The kind of network decides how the integral
# is found (`kinds.py`): by quadrature of f₁, or in closed form.

Rule = Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]
Positive = Literal["sigmoid", "softplus", "elu"]


@dataclass(frozen=True)
class BankShape:
    """The architecture of the bank.

    `space` is where the functions live: `"logit"` (inputs and outputs are logits) or `"probability"` (the
    paper). `lower` is the lower limit of the integral: `"zero"` (the paper), the left `"edge"` of the bin, or
    its `"centre"`, which makes offset and slope nearly independent of each other and so trains fastest.
    `standardise` says in what units the networks see their input: as it is, in standard deviations of all
    scores, or of the bin's own. `start` is the function before training: the identity, weights at random with
    constants of 0, or weights and constants as the layers of torch start. With `direct`, every field value also adds
    two numbers of its own to offset and log-scale, past the bias network; these can be solved for, so that the fitted
    probabilities of a field value sum to its positives. `network` is a kind of monotone network by its name.
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
    start: Literal["identity", "random", "torch"] = "identity"
    direct: bool = True
    network: str = "umnn"


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


Functions = tuple[Tensor, Tensor, Tensor]
"""Derivative at the nodes `[K, C, n]`, offset with the lower limit, and scale `[K, C]`."""


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
        generator = torch.Generator().manual_seed(int(seed))
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
        self.network = NETWORKS[shape.network](shape, bins, self.context_width, generator)
        inputs = (self.context_width or shape.embedding) if shape.start == "torch" else None
        widths = (self.context_width, *shape.hidden)
        self.bias_weights = layers(generator, bins, widths, 2 if shape.scale else 1, inputs)
        if shape.start == "identity":
            self._start_as_identity()

    @torch.no_grad()
    def _start_as_identity(self) -> None:
        slope = self.network.start_as_identity()
        self.bias_weights[-2].zero_()
        if self.shape.scale:
            self.bias_weights[-1][..., 1] = -math.log(slope)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in [n for n in state_dict if n.startswith((f"{prefix}score_weight", f"{prefix}derivative_weights"))]:
            # Saved when the bank itself had the weights of its one kind of network.
            state_dict[f"{prefix}network.{name.removeprefix(prefix)}"] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        first: nn.Parameter = self.bias_weights[0]
        return first.dtype

    @property
    def work(self) -> float:
        """Multiplications for the networks of one bin at one point."""
        return float(sum(p[0].numel() for p in self.network.parameters()))

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.left)

    def embed(self, codes: Tensor) -> Tensor:
        """Return embeddings `[K, C, width]` of contexts given by their field codes `[C, fields]`."""
        parts = [table[:, codes[:, i]].expand(self.bins, -1, -1) for i, table in enumerate(self.tables)]
        if not parts:
            return torch.zeros(self.bins, len(codes), 0, dtype=self.dtype, device=self.left.device)
        return torch.cat(parts, dim=-1) if self.shape.combine == "concat" else torch.stack(parts).sum(dim=0)

    def derivative(self, points: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        """Return the positive network f₁ at points `[K, C or 1, n]` for contexts `[K, C, width]`: `[K, C, n]`.

        Outside the fitted range it keeps its value at the end. `weights` are the network's own unless given,
        which the lean integral needs, as it differentiates with respect to them itself.
        """
        low, high = self._reach()
        return self.network.slope(self._inputs(torch.minimum(torch.maximum(points, low), high)), context, *weights)

    def _inputs(self, points: Tensor) -> Tensor:
        """Return points `[K, C or 1, n]` in the units of their bins."""
        return ((points - self.shift[:, None, None]) / self.stretch[:, None, None]).to(self.dtype)

    def rise(self, points: Tensor, context: Tensor) -> Tensor:
        """Return the integral of f₁ from the lower limit to points, in closed form; for networks that have a value."""
        origin = self.origin[:, None, None].expand(*points.shape[:2], 1)
        values = self.network.value(self._inputs(torch.cat([points, origin], dim=-1)), context)
        return (values[..., :-1] - values[..., -1:]) * self.stretch.to(values.dtype)[:, None, None]

    def bias(self, context: Tensor) -> Tensor:
        """Return the bias network: offset o and log-scale r, `[K, C, 2]`, for contexts `[K, C, width]`."""
        parts = tuple(self.bias_weights)  # cutting a ParameterList makes another one, which takes longer than all else
        values = torch.baddbmm(parts[1], context, parts[0])
        for weight, constant in zip(parts[2::2], parts[3::2], strict=True):
            values = torch.baddbmm(constant, activate(self.shape.activation, values), weight)
        return values if self.shape.scale else nn.functional.pad(values, (0, 1))

    def offset_and_scale(self, codes: Tensor, context: Tensor) -> Tensor:
        """Return offset o and logarithm of the scale r, `[K, C, 2]`, with what the field values add directly."""
        values = self.bias(context)
        for i, table in enumerate(self.direct):
            values = values + table[:, codes[:, i]]
        return values

    def at_nodes(self, nodes: Tensor, codes: Tensor) -> Functions:
        """Return the functions of contexts, with the derivative at nodes `[K, 1, n]`, so that integrals share them."""
        context = self.embed(codes)
        bias = self.offset_and_scale(codes, context)
        derivative = self.derivative(nodes, context)
        return derivative, bias[..., 0] + self.origin.to(bias.dtype)[:, None], bias[..., 1].exp()

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

    def rule(self, count: int) -> Rule:
        """Return a function of points and bins: the weights `[..., n]` of the nodes in the integral up to each."""
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
        area = self.area(lower, upper, context, steps, lean)
        values = lower.to(area.dtype) + bias[..., 0] + bias[..., 1].exp() * area
        return values.reshape(-1)[where]

    def area(self, lower: Tensor, upper: Tensor, context: Tensor, steps: int, lean: bool) -> Tensor:
        """Return the integral of f₁ from `lower`, the lower limits, to `upper` `[K, C]`, one quadrature each."""
        if self.network.has_value:
            return self.rise(upper[..., None], context)[..., 0]
        rule = integrate_lean if lean else integrate
        found = rule(
            lambda nodes, h, *weights: self.derivative(nodes, h, *weights).to(nodes.dtype),
            lower,
            upper,
            (context, *self.network.parameters()),
            steps,
        )
        return found.to(context.dtype)

    def edge_values(self, codes: Tensor, count: int = 16) -> tuple[Tensor, Tensor]:
        """Return the functions left and right of every interior edge, `[K − 1, C]` each, for these contexts."""
        context = self.embed(codes)
        bias = self.offset_and_scale(codes, context)
        if self.network.has_value:
            ends = torch.stack([torch.cat([self.left[:1], self.edges]), torch.cat([self.edges, self.right[-1:]])], -1)
            offset = self.origin.to(bias.dtype)[:, None] + bias[..., 0]
            values = offset[..., None] + bias[..., 1:].exp() * self.rise(ends[:, None, :], context)
            return values[:-1, :, 1], values[1:, :, 0]
        derivative = self.derivative(self.nodes(count)[:, None, :], context)
        edges, rule = self.edges.cpu().numpy(), self.rule(count)
        before = np.arange(self.bins - 1)
        sides = []
        for bins in (before, before + 1):
            weights = torch.as_tensor(rule(edges, bins), dtype=bias.dtype, device=bias.device)
            area = (derivative[bins] * weights[:, None, :]).sum(-1)
            origin = self.origin[bins].to(bias.dtype)[:, None]
            sides.append(origin + bias[bins, :, 0] + bias[bins, :, 1].exp() * area)
        return sides[0], sides[1]

    def _embed_rows(self, codes: Tensor) -> Tensor:
        """Return embeddings `[K, M, width]` where every bin has rows of its own, `codes` being `[K, M, fields]`."""
        bins = torch.arange(self.bins, device=codes.device)[:, None]
        rows = torch.zeros_like(bins) if self.shape.share_embedding else bins
        parts = [table[rows, codes[..., i]] for i, table in enumerate(self.tables)]
        if not parts:
            return torch.zeros(*codes.shape[:2], 0, dtype=self.dtype, device=self.left.device)
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
