"""Weighted logistic regression with lower bounds: the convex optimum, by projected Newton steps."""

import numpy as np

from mcnet.rows.columns import FloatArray, sigmoid

__all__ = ["fit_logistic", "log_loss_sum"]

_RIDGE = 1e-6
"""A whisper of precision on every coefficient: separable data have a finite optimum, and others do not notice."""


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
    theta = np.maximum(np.zeros(size) if start is None else start * scale, floor)

    def objective(at: FloatArray) -> float:
        return log_loss_sum(design @ at + offset, weight, positives) + 0.5 * _RIDGE * float(at @ at)

    value = objective(theta)
    for _ in range(steps):
        probability = sigmoid(design @ theta + offset)
        gradient = design.T @ (weight * probability - positives) + _RIDGE * theta
        free = (theta > floor) | (gradient < 0.0)
        if not free.any() or np.abs(gradient[free]).max() <= 1e-10 * weight.sum():
            break
        curvature = weight * probability * (1.0 - probability)
        part = design[:, free]
        hessian = (part * curvature[:, None]).T @ part + _RIDGE * np.eye(part.shape[1])
        step = np.zeros(size)
        step[free] = -np.linalg.solve(hessian, gradient[free])
        length, better = 1.0, False
        while length > 1e-10:
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
