"""Integrals of a function up to many points: by plain Clenshaw–Curtis, with little memory, or shared.

Three ways to the same number, and when each one pays:

* `integrate`: T + 1 evaluations a point, differentiated by autograd. The obvious reference.
* `integrate_lean`: the same value, but the backward pass integrates the gradient instead of storing the
  graph, a few nodes at a time, so its memory does not grow with T.
* `cumulative_rule`: many points that lie on the same few panels share one set of nodes; the integral up to
  each point is a fixed linear combination of the values at the nodes. This is what makes training on a sketch
  cheap.

Nothing here knows about calibration.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["clenshaw_curtis", "cumulative_rule", "integrate", "integrate_lean", "panel_nodes"]

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
                    found = torch.autograd.grad(
                        values,
                        [held[i] for i in needed],
                        grad_outputs=(out * width)[..., None] * weight,
                        allow_unused=True,
                    )
                    for i, gradient in zip(needed, found, strict=True):
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
