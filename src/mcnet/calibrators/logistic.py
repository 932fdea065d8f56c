"""Weighted logistic regression with lower bounds: the convex optimum, by projected Newton steps."""

import numpy as np
from scipy.special import expit

from mcnet._shared.typing import FloatArray, MaskArray

__all__ = ["fit_logistic", "log_loss_sum"]

_RIDGE = 1e-12
"""The ridge penalty per unit of weight: separable data get a finite optimum, and others are not changed visibly."""
_MOST_LOGIT_CHANGE = 8.0
"""The most by which one step may move a logit: beyond it the second derivative says nothing."""
_MOST_HALVINGS = 40
"""How often a step is halved before the search ends."""
_NEAR_BOUND = 1e-6
"""A coefficient this close to its lower bound counts as at the bound."""


def log_loss_sum(logits: FloatArray, weight: FloatArray, positives: FloatArray) -> float:
    """Return Σ w·log(1 + e^f) − Σ positives·f, the log-loss of all rows together."""
    return float(weight @ np.logaddexp(0.0, logits) - positives @ logits)


def fit_logistic(
    design: FloatArray,
    weight: FloatArray,
    positives: FloatArray,
    *,
    lower: FloatArray | None = None,
    start: FloatArray | None = None,
    offset: FloatArray | float = 0.0,
    steps: int = 100,
) -> FloatArray:
    """Return the coefficients θ that minimise the log-loss of σ(design·θ + offset) subject to θ ≥ lower.

    Newton's method on the coefficients that are free; one at its bound whose gradient points outwards stays there.
    Every step is shortened until the loss falls.
    """
    size = design.shape[1]
    floor = np.full(size, -np.inf) if lower is None else lower
    scale = np.maximum(np.sqrt(weight @ design**2 / weight.sum()), 1e-12)
    design, floor = design / scale, floor * scale
    ridge = _RIDGE * float(weight.sum())
    theta = np.maximum(np.zeros(size), floor)

    def objective(at: FloatArray) -> float:
        return log_loss_sum(design @ at + offset, weight, positives) + 0.5 * ridge * float(at @ at)

    value = objective(theta)
    if start is not None:
        proposed = np.maximum(start * scale, floor)
        # A start so far off that the loss is flat there would lead nowhere.
        if objective(proposed) < value:
            theta, value = proposed, objective(proposed)
    for _ in range(steps):
        probability = expit(design @ theta + offset)
        gradient = design.T @ (weight * probability - positives) + ridge * theta
        # Steps that end ever closer to a bound without reaching it would go on for ever: close by counts as there.
        near = theta - floor < _NEAR_BOUND
        theta = np.where(near & (gradient >= 0.0), floor, theta)
        free = ~near | (gradient < 0.0)
        if not free.any() or np.abs(gradient[free]).max() <= 1e-10 * weight.sum():
            break
        curvature = weight * probability * (1.0 - probability)
        hessian = (design * curvature[:, None]).T @ design + ridge * np.eye(size)
        step = _newton_step(hessian, gradient, free, near)
        reach = float(np.abs(design @ step).max())
        length, better = min(1.0, _MOST_LOGIT_CHANGE / reach) if reach > 0.0 else 1.0, False
        for _ in range(_MOST_HALVINGS):
            trial = np.maximum(theta + length * step, floor)
            trial_value = objective(trial)
            if trial_value < value:
                better = True
                break
            length *= 0.5
        if not better:
            break
        theta, value = trial, trial_value
    result: FloatArray = theta / scale
    return result


def _newton_step(hessian: FloatArray, gradient: FloatArray, free: MaskArray, bound: MaskArray) -> FloatArray:
    """Return a Newton step of the free coefficients that leads none of those at their bound across it.

    A coefficient at its bound that the step would push outwards is held there, and the others are solved for again;
    otherwise cutting the step off at the bound could leave a direction in which the loss rises.
    """
    held = ~free
    while not held.all():
        step = np.zeros(len(gradient))
        rest = ~held
        step[rest] = -np.linalg.solve(hessian[np.ix_(rest, rest)], gradient[rest])
        outwards = rest & bound & (step < 0.0)
        if not outwards.any():
            return step
        held |= outwards
    # All were pushed outwards by their neighbours: one alone, the steepest, goes inwards.
    step = np.zeros(len(gradient))
    first = int(np.argmin(np.where(free, gradient, np.inf)))
    step[first] = -gradient[first] / hessian[first, first]
    return step
