"""Platt scaling with shrunken offsets and slopes per context."""

from dataclasses import dataclass

import numpy as np

from mcnet._shared.math import sigmoid, sums_by
from mcnet._shared.typing import CodeArray, FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.logistic import fit_logistic, log_loss_sum
from mcnet.curves.compile import compile_functions
from mcnet.curves.curves import Curves
from mcnet.sketch.sketch import Sketch

__all__ = ["PlattField", "ShrunkenLines", "fit_shrunken_lines", "flat_where_falling"]


@dataclass(frozen=True)
class ShrunkenLines:
    """Fitted lines: slope and intercept shared by all contexts, each context's deviation, and their variances."""

    shared: FloatArray
    deviation: FloatArray
    variance: FloatArray


def _blocks(values: FloatArray, x: FloatArray, context: CodeArray, number: int) -> list[FloatArray]:
    return [sums_by(context, values * x**power, number) for power in range(3)]


def fit_shrunken_lines(
    x: FloatArray,
    context: CodeArray,
    number: int,
    weight: FloatArray,
    positives: FloatArray,
    *,
    rounds: int = 60,
) -> ShrunkenLines:
    """Fit logit p = (a + α_c)·x + (b + β_c) with α_c ~ N(0, τ_a²), β_c ~ N(0, τ_b²) and τ learnt from the data.

    Newton steps on the posterior mode (the contexts are eliminated first, so a step costs no more than a pass over the
    cells) alternate with the EM update of the variances: τ² ← mean of deviation² + its posterior variance.
    """
    shared = fit_logistic(np.column_stack([x, np.ones_like(x)]), weight, positives, start=np.array([1.0, 0.0]))
    deviation = np.zeros((number, 2))
    variance = np.array([0.05, 0.1])

    def value(common: FloatArray, own: FloatArray, precision: FloatArray) -> float:
        lines = common + own
        fitted = lines[context, 0] * x + lines[context, 1]
        return log_loss_sum(fitted, weight, positives) + 0.5 * float((own**2 @ precision).sum())

    for _ in range(rounds):
        precision = 1.0 / variance
        for _ in range(2):
            lines = shared + deviation
            probability = sigmoid(lines[context, 0] * x + lines[context, 1])
            slope_sums = _blocks(weight * probability - positives, x, context, number)
            gradient = np.column_stack([slope_sums[1], slope_sums[0]])
            h0, h1, h2 = _blocks(weight * probability * (1.0 - probability), x, context, number)
            hessian = np.stack([np.stack([h2, h1], axis=-1), np.stack([h1, h0], axis=-1)], axis=-2)
            inverse = np.linalg.inv(hessian + np.diag(precision))
            own_gradient = gradient + precision * deviation
            through = hessian @ inverse
            reduced = (hessian - through @ hessian).sum(axis=0) + 1e-9 * np.eye(2)
            right = -gradient.sum(axis=0) + (through @ own_gradient[:, :, None]).sum(axis=0)[:, 0]
            common_step = np.linalg.solve(reduced, right)
            own_step = -(inverse @ (own_gradient + hessian @ common_step)[:, :, None])[:, :, 0]
            length, before = 1.0, value(shared, deviation, precision)
            while (
                length > 1e-6
                and value(shared + length * common_step, deviation + length * own_step, precision) > before
            ):
                length *= 0.5
            shared, deviation = shared + length * common_step, deviation + length * own_step
        updated = (deviation**2 + np.diagonal(inverse, axis1=1, axis2=2)).mean(axis=0)
        moved = np.abs(np.log(updated / variance)).max()
        variance = np.maximum(updated, 1e-8)
        if moved < 1e-3:
            break
    return ShrunkenLines(shared, deviation, variance)


def flat_where_falling(
    lines: ShrunkenLines, context: CodeArray, weight: FloatArray, positives: FloatArray
) -> FloatArray:
    """Return each context's slope and intercept; a falling line would break the order, and becomes a flat one.

    The flat line's level is the context's own rate, as shrunken as its intercept was: it balances Σ(w·p − positives)
    against the prior's pull to the common intercept.
    """
    own = lines.shared + lines.deviation
    falling = own[:, 0] < 0.0
    total, events = (sums_by(context, values, len(own))[falling] for values in (weight, positives))
    common, precision = lines.shared[1], 1.0 / lines.variance[1]
    level = np.full(int(falling.sum()), common)
    for _ in range(50):
        p = sigmoid(level)
        pull = total * p - events + precision * (level - common)
        level -= np.clip(pull / (total * p * (1.0 - p) + precision), -1.0, 1.0)
    own[falling] = np.column_stack([np.zeros_like(level), level])
    return own


class PlattField(Calibrator):
    """A line in logit space per context, shrunk towards the common one: p = σ((a + α_c)·l + b + β_c).

    How much a context may deviate is learnt from the data (empirical Bayes): with few rows it sits on the common line,
    with many it is free. A context whose line would fall gets a flat one. With several fields, each combination of
    values is a context. Unseen contexts get the line fitted to all rows together.

    >>> fitted = PlattField().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], field=["a", "a", "b", "b"])
    >>> fitted.predict([0.2, 0.2], field=["a", "never seen"]).shape
    (2,)
    """

    method = "platt-field"
    complexity = 90
    field_use = "required"

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return True

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        number = len(sketch.contexts)
        center = float(np.average(sketch.logit, weights=sketch.weight))
        x = sketch.logit - center
        lines = fit_shrunken_lines(x, sketch.context, number, sketch.weight, sketch.positives)
        bounds = np.array([0.0, -np.inf])
        pooled = fit_logistic(np.column_stack([x, np.ones_like(x)]), sketch.weight, sketch.positives, lower=bounds)
        own = flat_where_falling(lines, sketch.context, sketch.weight, sketch.positives)
        fitted = np.vstack([pooled, own])
        self.variance_ = {"slope": float(lines.variance[0]), "intercept": float(lines.variance[1])}
        return compile_functions(lambda which, l: fitted[which, 0] * (l - center) + fitted[which, 1], number + 1)
