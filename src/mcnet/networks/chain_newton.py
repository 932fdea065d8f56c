"""Newton's method for chains: tables `[K, rows, 2]` in which a bin interacts with its neighbours only.

The second derivatives inside a row are block-tridiagonal along the bins. Six products with the Hessian are
enough to read them all off, a batched Cholesky factor inverts them, and conjugate gradients take care of what
couples the rows.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["newton"]

Loss = Callable[[list[Tensor]], Tensor]

# Conjugate gradients stop at this share of the squared residual: the next Newton step corrects the rest.
_RESIDUAL = 1e-3


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


def _product(gradient: list[Tensor], parameters: list[Tensor], vector: list[Tensor]) -> list[Tensor]:
    """Return the Hessian times a vector."""
    # The derivative of a number, not of tensors with given outer gradients: that would import a compiler.
    along = sum(((g * v).sum() for g, v in zip(gradient, vector, strict=True)), gradient[0].new_zeros(()))
    found = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
    return list(found)


def _chains(gradient: list[Tensor], parameters: list[Tensor], which: int, least: float) -> Tensor:
    """Return Cholesky factors `[rows, 2K, 2K]` of the Hessian inside each row of one table."""
    table = parameters[which]
    bins, rows, width = table.shape
    hessian = table.new_zeros(rows, bins, width, bins, width)
    for colour in range(min(3, bins)):
        for entry in range(width):
            probe = [torch.zeros_like(p) for p in parameters]
            probe[which][colour::3, :, entry] = 1.0
            column = _product(gradient, parameters, probe)[which]
            # Bins three apart do not interact, so each entry of the product belongs to the probe next to it.
            for k in range(bins):
                near = [j for j in (k - 1, k, k + 1) if 0 <= j < bins and j % 3 == colour]
                for j in near:
                    hessian[:, k, :, j, entry] = column[k]
    square = hessian.reshape(rows, bins * width, bins * width)
    square = (square + square.transpose(1, 2)) / 2.0
    diagonal = square.diagonal(dim1=1, dim2=2)
    lift = least + 1e-9 * diagonal.abs()
    for _ in range(12):
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(square + torch.diag_embed(lift))
        if not bool(failed.any()):
            return factor
        # Not convex here: damp towards plain descent until it is.
        lift = torch.where(failed[:, None] > 0, 10.0 * lift + 1e-3 * diagonal.abs(), lift)
    return torch.diag_embed(diagonal.abs() + least).sqrt()


def _conditioned(factors: list[Tensor], vector: list[Tensor]) -> list[Tensor]:
    result = []
    for factor, part in zip(factors, vector, strict=True):
        flat = part.transpose(0, 1).reshape(part.shape[1], -1, 1)
        solved = torch.cholesky_solve(flat, factor)
        result.append(solved.reshape(part.shape[1], part.shape[0], part.shape[2]).transpose(0, 1))
    return result


def _direction(gradient: list[Tensor], parameters: list[Tensor], factors: list[Tensor], rounds: int) -> list[Tensor]:
    """Solve H d = −g by preconditioned conjugate gradients."""
    residual = [-g.detach() for g in gradient]
    conditioned = _conditioned(factors, residual)
    move, search = [torch.zeros_like(r) for r in residual], conditioned
    size = first = _dot(residual, conditioned)
    for i in range(rounds):
        if size <= _RESIDUAL * first:
            break
        product = _product(gradient, parameters, search)
        bend = _dot(search, product)
        if bend <= 0:
            return conditioned if i == 0 else move
        length = size / bend
        move = [m + length * p for m, p in zip(move, search, strict=True)]
        residual = [r - length * h for r, h in zip(residual, product, strict=True)]
        conditioned = _conditioned(factors, residual)
        previous, size = size, _dot(residual, conditioned)
        search = [c + (size / previous) * p for c, p in zip(conditioned, search, strict=True)]
    return move


def newton(
    loss: Loss,
    start: list[Tensor],
    mass: float,
    model_at: Callable[[list[Tensor]], Loss] | None = None,
    steps: int = 20,
    rounds: int = 30,
    enough: float = 1e-2,
) -> list[Tensor]:
    """Minimise `loss` from `start` until a step would gain less than `enough` nats over all `mass` rows.

    `model_at(point)` may return a cheaper function that has the value, gradient and Hessian of `loss` at the point.
    """
    current = [s.clone() for s in start]
    for _ in range(steps):
        parameters = [c.detach().requires_grad_() for c in current]
        value = (loss if model_at is None else model_at(current))(parameters)
        gradient = list(torch.autograd.grad(value, parameters, create_graph=True))
        # One row's worth of curvature keeps directions finite that no row and no prior speaks for.
        factors = [_chains(gradient, parameters, i, 1.0 / mass) for i in range(len(parameters))]
        move = _direction(gradient, parameters, factors, rounds)
        promise = -_dot([g.detach() for g in gradient], move)
        if promise * mass < enough:
            break
        moved = _line_search(loss, current, move, float(value.detach()), promise)
        if moved is None:
            break
        current = moved
    return current


@torch.no_grad()
def _line_search(
    loss: Loss, current: list[Tensor], move: list[Tensor], value: float, promise: float
) -> list[Tensor] | None:
    length = 1.0
    for _ in range(20):
        trial = [c + length * m for c, m in zip(current, move, strict=True)]
        if float(loss(trial)) <= value - 1e-4 * length * promise:
            return trial
        length /= 2.0
    return None
