"""Optimise networks: steps of Adam and of Newton's method."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

# Full-batch descent until what is left to gain no longer matters; it reports whether it got there.

# Gradients of a loss per row are so small that their squares, which Adam keeps, would be denormal numbers in
# float32.
SCALE = 2.0**24

Progress = Callable[[int, int, float], None]
"""Called with (steps done, steps at most, loss)."""


@dataclass(frozen=True)
class Step:
    """One evaluation of an objective: the loss per row, and the quantities by which convergence is judged.

    `handles` are tensors inside the graph that shift or tilt the fitted functions directly, `curvatures` the
    second derivatives of the loss by them. Without handles, convergence is judged by what the last cycle
    gained alone.
    """

    loss: Tensor
    handles: tuple[Tensor, ...] = ()
    curvatures: tuple[Tensor, ...] = ()


class Objective(Protocol):
    """What descent needs: the number of rows behind the loss, the cost of evaluating it, and the loss."""

    mass: float
    work: float

    def evaluate(self) -> Step:
        """Return the loss at the current parameters."""

    def solve(self, enough: float = 1e-2) -> None:
        """Bring those parameters that can be solved for to within `enough` nats of their optimum, given all others."""


@dataclass(frozen=True)
class Schedule:
    """How long and how boldly to descend.

    Adam in cycles of `steps`, each rising to its peak learning rate and then falling to zero along a cosine;
    every cycle after the first has half the steps and half the peak. Without cycles nothing is trained, only
    what can be solved for is. With `rows_per_step` the first cycle has one step per so many rows, at least 100 and at
    most `steps`: few rows tell too little for more steps to gain anything on rows held back. Descent has converged when
    the handles could gain, or the last cycle has gained, less than `tolerance` nats per row, or less than one nat in
    all, if that is more. What can be solved for is solved to `solved` nats in all.
    """

    steps: int = 200
    rows_per_step: float | None = None
    peak: float = 3e-3
    cycles: int = 6
    tolerance: float = 1e-7
    rise: float = 0.15
    solved: float = 1e-2

    def first_steps(self, rows: float) -> int:
        """Return the steps of the first cycle on so many rows.

        >>> [Schedule(steps=200, rows_per_step=1000).first_steps(rows) for rows in (5_000, 150_000, 3e6)]
        [100, 150, 200]
        """
        if self.rows_per_step is None:
            return self.steps
        return min(max(round(rows / self.rows_per_step), 100), self.steps)


@dataclass(frozen=True)
class Descent:
    """How a training went: loss, steps, whether it converged, and the nats (over all rows) left to gain."""

    loss: float
    steps: int
    converged: bool
    remaining: float


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(work: float) -> AbstractContextManager[None]:
    """Use one thread meanwhile if a step has little work: threads would mostly wait for each other.

    `work` is the number of multiplications a forward pass takes.
    """
    return one_thread() if work < 2e8 else nullcontext()


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat subnormal numbers as zero meanwhile, as processors are slow at them; then as the process did before."""
    before = sys.float_info.min / 2 == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _remaining(step: Step, mass: float) -> float:
    """Half the Newton decrement, in nats: what a free move of the handles would still gain."""
    gain = 0.0
    for handle, curvature in zip(step.handles, step.curvatures, strict=True):
        if handle.grad is not None:
            # A handle that no row supports has no curvature; one nat spread over a unit keeps it from
            # dividing by zero.
            gradient = handle.grad.double() / SCALE
            gain += float((gradient**2 / (curvature.double() + 1.0 / mass)).sum())
    return 0.5 * mass * gain


def _cycle_rate(schedule: Schedule, cycle: int, fraction: float) -> float:
    peak = schedule.peak * 0.5**cycle
    if fraction < schedule.rise:
        return peak * (0.1 + 0.9 * fraction / schedule.rise)
    fall = (fraction - schedule.rise) / (1.0 - schedule.rise)
    return peak * 0.5 * (1.0 + math.cos(math.pi * fall))


class FlatAdam:
    """Adam over all parameters as one long vector, by torch's fused loop.

    On 358,000 numbers a step takes 0.2 ms, written in tensor operations 0.7 ms. The function behind `torch.optim.Adam`
    is called, not the class: making its first object imports a compiler, which takes 2 to 6 seconds.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        betas: tuple[float, float] = (0.9, 0.98),
        epsilon: float = 1e-12,
        decay: float = 0.0,
    ) -> None:
        self.parameters, self.betas = list(parameters), betas
        self.epsilon, self.decay = epsilon, decay
        first = self.parameters[0]
        size = sum(p.numel() for p in self.parameters)
        self.values = torch.empty(size, dtype=first.dtype, device=first.device)
        self.gradient, self.mean, self.square = (torch.zeros_like(self.values) for _ in range(3))
        self.count = torch.zeros((), dtype=torch.float32, device=first.device)
        at = 0
        for p in self.parameters:
            part = slice(at, at + p.numel())
            self.values[part] = p.detach().reshape(-1)
            p.data = self.values[part].view_as(p)
            p.grad = self.gradient[part].view_as(p)
            at += p.numel()

    def zero(self) -> None:
        """Forget the gradients."""
        self.gradient.zero_()

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every parameter once."""
        first, second = self.betas
        adam(
            [self.values],
            [self.gradient],
            [self.mean],
            [self.square],
            [],
            [self.count],
            fused=True,
            amsgrad=False,
            beta1=first,
            beta2=second,
            lr=rate,
            weight_decay=self.decay,
            eps=self.epsilon,
            maximize=False,
        )

    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for p in self.parameters:
            p.data, p.grad = p.data.clone(), None


def descend(
    objective: Objective,
    parameters: Iterable[nn.Parameter],
    schedule: Schedule,
    progress: Progress | None = None,
) -> Descent:
    """Minimise the objective over the parameters, in place."""
    adam = FlatAdam(parameters)
    first = schedule.first_steps(objective.mass)
    lengths = ([first] + [-(-first // 2)] * (schedule.cycles - 1))[: schedule.cycles]
    enough = max(1.0, schedule.tolerance * objective.mass)
    done, loss, remaining = 0, float("inf"), float("inf")
    with flush_denormals(), threads_for(objective.work):
        objective.solve(schedule.solved)
        for cycle, length in enumerate(lengths):
            for i in range(length):
                step = _backward(objective, adam)
                adam.step(_cycle_rate(schedule, cycle, (i + 1) / length))
                done += 1
                if progress is not None and (done % 10 == 0 or i + 1 == length):
                    progress(done, sum(lengths), float(step.loss.detach()))
            objective.solve(schedule.solved)
            step = _backward(objective, adam)
            before, loss = loss, float(step.loss.detach())
            remaining = abs(before - loss) * objective.mass
            if step.handles:
                # The curvatures know nothing of a prior that ties the handles to each other, so this may be too much.
                remaining = min(remaining, _remaining(step, objective.mass))
            if remaining <= enough:
                break
    adam.release()
    return Descent(loss, done, remaining <= enough, remaining)


def _backward(objective: Objective, adam: FlatAdam) -> Step:
    adam.zero()
    step = objective.evaluate()
    for handle in step.handles:
        if handle.requires_grad:
            handle.retain_grad()
    (step.loss * SCALE).backward()  # type: ignore[no-untyped-call]
    return step


# Newton's method for chains: tables `[K, rows, 2]` in which a bin interacts with its neighbours only.
#
# The second derivatives inside a row are block-tridiagonal along the bins. Six products with the Hessian are
# enough to read them all off, a batched Cholesky factor inverts them, and conjugate gradients take care of what
# couples the rows.

Loss = Callable[[list[Tensor]], Tensor]

# Conjugate gradients stop at this share of the squared residual: the next Newton step corrects the rest.
_RESIDUAL = 1e-3
_MOST_NEWTON_STEPS = 20
_MOST_PRODUCTS = 30
"""Products with the Hessian in one step."""


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


def _product(gradient: list[Tensor], parameters: list[Tensor], vector: list[Tensor]) -> list[Tensor]:
    """Return the Hessian times a vector."""
    # The derivative of a number, not of tensors with given outer gradients: that would import a compiler.
    along = sum(((g * v).sum() for g, v in zip(gradient, vector, strict=True)), gradient[0].new_zeros(()))
    result = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
    return list(result)


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


def _direction(gradient: list[Tensor], parameters: list[Tensor], factors: list[Tensor]) -> list[Tensor]:
    """Solve H d = −g by preconditioned conjugate gradients."""
    residual = [-g.detach() for g in gradient]
    conditioned = _conditioned(factors, residual)
    move, search = [torch.zeros_like(r) for r in residual], conditioned
    size = first = _dot(residual, conditioned)
    for i in range(_MOST_PRODUCTS):
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
    enough: float = 1e-2,
) -> list[Tensor]:
    """Minimise `loss` from `start` until a step would gain less than `enough` nats over all `mass` rows.

    `model_at(point)` may return a cheaper function that has the value, gradient and Hessian of `loss` at the point.
    """
    current = [s.clone() for s in start]
    for _ in range(_MOST_NEWTON_STEPS):
        parameters = [c.detach().requires_grad_() for c in current]
        value = (loss if model_at is None else model_at(current))(parameters)
        gradient = list(torch.autograd.grad(value, parameters, create_graph=True))
        # One row's worth of curvature keeps directions finite that no row and no prior speaks for.
        factors = [_chains(gradient, parameters, i, 1.0 / mass) for i in range(len(parameters))]
        move = _direction(gradient, parameters, factors)
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
