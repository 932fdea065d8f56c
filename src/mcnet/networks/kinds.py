"""The kinds of monotone network that a bin of MCNet can have, and what a new kind needs.

Inside bin k MCNet is f(x, c) = e + o(c) + exp(r(c)) · G(x, h(c)): `e` is the centre or another fixed point of the bin,
`(o, r)` a bias network, `h` an embedding of the context, and G a network that rises with x and is 0 at e. G is what
this file is about:

- "umnn": the integral of a positive network, which MCNet computes by quadrature (the paper).
- "lmn": x plus a network whose slope stays within ±1 (Lipschitz monotonic network). No integral.
- "minmax": the smallest of groups' largest of rising lines, rounded off (smooth min-max network). No integral.

A fourth kind is one class, here or in a file of your own, derived from `MonotoneNetwork`, and one line in `NETWORKS`
(docs/mcnet-in-training.md has an example): its constructor makes the weights of all bins, `slope` returns a positive
number, and `value`, if it has one, the function whose slope that is; `uses` says which settings of `MCNet` it needs.
Bins, contexts, training on a sketch and on rows, compiled curves and saved states then work as for the others; the
tests in `tests/networks/test_kinds.py` run over every kind of the table.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from mcnet.networks.monotone import BankShape

FLOOR = 1e-4
"""No slope falls below this: values rise in float32 too, and saturated units feed no denormal numbers, which processors
handle a hundred times slower, into the rest of a network."""


def positive(kind: str, values: Tensor) -> Tensor:
    """Map any number to a strictly positive one."""
    if kind == "sigmoid":
        return FLOOR + (1.0 - FLOOR) * torch.sigmoid(values)
    if kind == "softplus":
        return FLOOR + functional.softplus(values)
    return FLOOR + functional.elu(values) + 1.0


def activate(kind: str, values: Tensor) -> Tensor:
    """Apply the activation of a hidden layer."""
    if kind == "silu":
        return functional.silu(values)
    return torch.tanh(values) if kind == "tanh" else torch.relu(values)


def uniform(generator: torch.Generator, *shape: int, inputs: int | None = None) -> nn.Parameter:
    """Return numbers between ±1/√inputs; the inputs of a weight are its last axis but one unless given."""
    bound = 1.0 / math.sqrt(max(shape[-2] if inputs is None else inputs, 1))
    return nn.Parameter((torch.rand(*shape, generator=generator) * 2.0 - 1.0) * bound)


def layers(
    generator: torch.Generator, bins: int, widths: tuple[int, ...], outputs: int, as_torch: int | None = None
) -> nn.ParameterList:
    """Return weight and constant of each layer of K networks, `[K, in, out]` and `[K, 1, out]`.

    Constants start at 0. With `as_torch`, the number of inputs of the first layer, weights and constants start as
    those of `torch.nn.Linear`: between ±1/√inputs.
    """
    made = nn.ParameterList()
    for index, (into, out) in enumerate(zip(widths, (*widths[1:], outputs), strict=True)):
        inputs = None if as_torch is None else as_torch if index == 0 else into
        made.append(uniform(generator, bins, into, out, inputs=inputs))
        made.append(
            nn.Parameter(torch.zeros(bins, 1, out))
            if inputs is None
            else uniform(generator, bins, 1, out, inputs=inputs)
        )
    return made


class MonotoneNetwork(nn.Module):
    """K networks, one per bin, of a score and the embedding of a context; each rises with the score.

    Scores come in the units of their bin, `[K, C or 1, n]`, contexts as `[K, C, width]` with width 0 where there is no
    field; results are `[K, C, n]`.
    """

    has_value = False
    """Whether `value` is there; without it MCNet integrates the slope."""
    uses: tuple[str, ...] = ()
    """The settings in `OF_SOME_KINDS` that count; `steps` and `quadrature` count for every kind without `value`."""

    def __init__(self, shape: "BankShape", bins: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape

    def start_as_identity(self) -> float:
        """Make the slope the same everywhere, or nearly so, and return it."""
        raise NotImplementedError

    def slope(self, inputs: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        """Return the slope by the score, above 0; `weights` are those of `parameters()` unless given."""
        raise NotImplementedError

    def value(self, inputs: Tensor, context: Tensor) -> Tensor:
        """Return the function whose derivative is `slope`, up to a constant."""
        raise NotImplementedError


class PositiveNetwork(MonotoneNetwork):
    """The derivative of an unconstrained monotone network (UMNN): any network, made positive by its last step."""

    uses = ("derivative",)

    def __init__(self, shape: "BankShape", bins: int, width: int, generator: torch.Generator) -> None:
        super().__init__(shape, bins, width, generator)
        # A torch layer counts the score and the embedding, which is there, as zeros, where no field is.
        inputs = 1 + (width or shape.embedding) if shape.start == "torch" else None
        self.score_weight = uniform(generator, bins, 1, shape.hidden[0], inputs=inputs)
        self.derivative_weights = layers(generator, bins, (width, *shape.hidden), 1, inputs)

    @torch.no_grad()
    def start_as_identity(self) -> float:
        """See MonotoneNetwork; without a scale a sigmoid cannot reach slope 1 and starts at 0.88."""
        self.derivative_weights[-2].zero_()
        if not self.shape.scale:
            # Steep, but where its gradient is alive.
            start = {"sigmoid": 2.0, "softplus": math.log(math.e - 1.0), "elu": 0.0}[self.shape.positive]
            self.derivative_weights[-1].fill_(start)
        return float(positive(self.shape.positive, torch.zeros(())))

    def slope(self, inputs: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        """See MonotoneNetwork."""
        score_weight, *hidden = weights or (self.score_weight, *self.derivative_weights)
        # The score enters the first layer as one outer product, so a context's share is computed once, not at
        # every node.
        shared = torch.baddbmm(hidden[1], context, hidden[0])
        values = shared[:, :, None, :] + inputs[..., None] * score_weight[:, :, None, :]
        bins, contexts, nodes, _ = values.shape
        values = values.reshape(bins, contexts * nodes, -1)
        for weight, constant in zip(hidden[2::2], hidden[3::2], strict=True):
            values = torch.baddbmm(constant, activate(self.shape.activation, values), weight)
        return positive(self.shape.positive, values.reshape(bins, contexts, nodes))


class LipschitzNetwork(MonotoneNetwork):
    """A Lipschitz monotonic network (LMN): (1 + ε) · x + g(x, c) with −1 ≤ g′ ≤ 1, so the slope lies in [ε, 2 + ε].

    The weights that a score passes through sum to 1 at most, in absolute value, for each unit, and a hidden layer sorts
    its units in pairs, which bends the function without making it steeper. The context enters the first layer freely.
    """

    has_value = True

    def __init__(self, shape: "BankShape", bins: int, width: int, generator: torch.Generator) -> None:
        super().__init__(shape, bins, width, generator)
        inputs = 1 + (width or shape.embedding) if shape.start == "torch" else None
        self.score_weight = uniform(generator, bins, 1, shape.hidden[0], inputs=inputs)
        # Kinks spread over the bin: constants between ±1 in the units of its scores.
        self.layers = layers(generator, bins, (width, *shape.hidden), 1, inputs)
        if shape.start != "torch":
            for constant in list(self.layers)[1:-1:2]:
                nn.init.uniform_(constant, -1.0, 1.0, generator=generator)

    @torch.no_grad()
    def start_as_identity(self) -> float:
        """See MonotoneNetwork."""
        self.layers[-2].zero_()
        return 1.0 + FLOOR

    def slope(self, inputs: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        """See MonotoneNetwork."""
        return self._both(inputs, context, weights)[1]

    def value(self, inputs: Tensor, context: Tensor) -> Tensor:
        """See MonotoneNetwork."""
        return self._both(inputs, context, ())[0]

    def _both(self, inputs: Tensor, context: Tensor, weights: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        score_weight, *hidden = weights or (self.score_weight, *self.layers)
        rise = score_weight.clamp(-1.0, 1.0)[:, :, None, :]
        values = torch.baddbmm(hidden[1], context, hidden[0])[:, :, None, :] + inputs[..., None] * rise
        slopes = rise.expand_as(values)
        shape = values.shape[:3]
        for weight, constant in zip(hidden[2::2], hidden[3::2], strict=True):
            values, slopes = _sorted_pairs(values, slopes)
            bounded = weight / weight.abs().sum(1, keepdim=True).clamp_min(1.0)
            values = torch.baddbmm(constant, values.flatten(1, 2), bounded).view(*shape, -1)
            slopes = torch.bmm(slopes.flatten(1, 2), bounded).view(*shape, -1)
        return (1.0 + FLOOR) * inputs + values[..., 0], 1.0 + FLOOR + slopes[..., 0]


def _sorted_pairs(values: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return units sorted in pairs, and their slopes in the same order; an odd one stays last."""
    even = values.shape[-1] // 2 * 2
    first, second = values[..., 0:even:2], values[..., 1:even:2]
    above = first >= second
    one, other = slopes[..., 0:even:2], slopes[..., 1:even:2]
    return (
        torch.cat([torch.maximum(first, second), torch.minimum(first, second), values[..., even:]], dim=-1),
        torch.cat([torch.where(above, one, other), torch.where(above, other, one), slopes[..., even:]], dim=-1),
    )


class MinMaxNetwork(MonotoneNetwork):
    """A smooth min-max network: the soft minimum, over groups, of the soft maximum of rising lines.

    There are as many lines as the first hidden layer is wide, in about its square root of groups. Their slopes are
    exponentials, and softmax weights are positive, so the slope is. The context moves the lines up and down.
    """

    has_value = True

    def __init__(self, shape: "BankShape", bins: int, width: int, generator: torch.Generator) -> None:
        super().__init__(shape, bins, width, generator)
        lines = shape.hidden[0]
        self.groups = next(count for count in range(math.isqrt(lines), 0, -1) if lines % count == 0)
        spread = 1.0 if shape.start == "torch" else 0.3
        self.log_slope = nn.Parameter((torch.rand(bins, 1, lines, generator=generator) * 2.0 - 1.0) * spread)
        self.offset = nn.Parameter(torch.rand(bins, 1, lines, generator=generator) * 2.0 - 1.0)
        self.context_weight = uniform(generator, bins, width, lines)
        self.log_sharpness = nn.Parameter(torch.zeros(bins, 1, 1))

    @torch.no_grad()
    def start_as_identity(self) -> float:
        """See MonotoneNetwork: lines of one slope would stay one line, so it is near the identity, not on it."""
        self.context_weight.zero_()
        return 1.0 + FLOOR

    def slope(self, inputs: Tensor, context: Tensor, *weights: Tensor) -> Tensor:
        """See MonotoneNetwork."""
        log_slope, offset, context_weight, log_sharpness = weights or tuple(self.parameters())
        lines, _ = self._lines(inputs, context, log_slope, offset, context_weight, log_sharpness)
        tops = torch.logsumexp(lines, dim=-1)
        rise = self._by_group(log_slope.exp()[:, :, None])
        by_group = (torch.softmax(lines, dim=-1) * rise).sum(-1)
        return FLOOR + (torch.softmax(-tops, dim=-1) * by_group).sum(-1)

    def value(self, inputs: Tensor, context: Tensor) -> Tensor:
        """See MonotoneNetwork."""
        lines, sharp = self._lines(inputs, context, *self.parameters())
        return FLOOR * inputs - torch.logsumexp(-torch.logsumexp(lines, dim=-1), dim=-1) / sharp[..., 0]

    def _lines(
        self, inputs: Tensor, context: Tensor, log_slope: Tensor, offset: Tensor, weight: Tensor, sharpness: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the lines times the sharpness, `[K, C, n, groups, lines of a group]`, and the sharpness."""
        sharp = 3.0 * sharpness.exp()[:, :, None]
        at = torch.baddbmm(offset, context, weight)[:, :, None, :] + inputs[..., None] * log_slope.exp()[:, :, None]
        return self._by_group(sharp * at), sharp

    def _by_group(self, lines: Tensor) -> Tensor:
        return lines.reshape(*lines.shape[:-1], self.groups, -1)


OF_SOME_KINDS = ("derivative", "steps", "quadrature")
"""The settings of `MCNet` that not every kind uses."""

NETWORKS: dict[str, type[MonotoneNetwork]] = {
    "umnn": PositiveNetwork,
    "lmn": LipschitzNetwork,
    "minmax": MinMaxNetwork,
}
"""The kinds by the name that `MCNet(network=…)` takes."""


def unused_settings(network: str) -> tuple[str, ...]:
    """Return the settings that a kind of network does not use.

    >>> unused_settings("umnn"), unused_settings("lmn")
    ((), ('derivative', 'steps', 'quadrature'))
    """
    kind = NETWORKS[network]
    uses = kind.uses if kind.has_value else (*kind.uses, "steps", "quadrature")
    return tuple(name for name in OF_SOME_KINDS if name not in uses)
