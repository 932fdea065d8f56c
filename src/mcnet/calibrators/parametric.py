"""Parametric methods: identity, offset, Platt and temperature scaling, beta, Gaussian and gamma scaling."""

from collections.abc import Callable

import numpy as np
import scipy

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, MaskArray, log_loss_sum, sigmoid
from mcnet.calibrators.base import Calibrator, Fitted
from mcnet.curves.compile import compile_functions
from mcnet.curves.curves import Curves
from mcnet.errors import InputError
from mcnet.model.bands import CurveDeviations
from mcnet.rows.contexts import Contexts
from mcnet.sketch.sketch import Sketch

# Identity: the base predictor's own score, for comparison.


class Identity(Calibrator):
    """Leaves every score as it is: p = s.

    >>> Identity().fit([0.2, 0.7], [0, 1]).predict([0.3])
    array([0.3])
    """

    method = "base"
    complexity = 0

    def _nothing_to_learn(self, sketch: Sketch) -> str | None:
        return None

    def _fit_curves(self, sketch: Sketch) -> Curves:
        ends = np.array([SCORE_FLOOR, 1.0 - SCORE_FLOOR])
        return Curves.of([(ends, ends)])


# Weighted logistic regression with lower bounds: the convex optimum, by projected Newton steps.

_RIDGE = 1e-12
"""The ridge penalty per unit of weight: separable data get a finite optimum, and others are not changed visibly."""
_MOST_LOGIT_CHANGE = 8.0
"""The most by which one step may move a logit: beyond it the second derivative says nothing."""
_MOST_HALVINGS = 40
"""How often a step is halved before the search ends."""
_NEAR_BOUND = 1e-6
"""A coefficient this close to its lower bound counts as at the bound."""


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
        probability = scipy.special.expit(design @ theta + offset)
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


# Smooth one-curve calibrators p = σ(θ·h(l)): the shared way from coefficients to a curve.


_Solution = tuple[dict[str, float], Callable[[FloatArray], FloatArray], FloatArray | None]
"""The coefficients by name, the function of the logit, and where it has kinks (as scores)."""


class SmoothCalibrator(Calibrator):
    """A calibrator with a few coefficients, the convex optimum of a (bounded) logistic regression."""

    coefficients_: dict[str, float]

    def _fit(self, sketch: Sketch) -> Fitted:
        sketch = sketch.unfolded()
        coefficients, function, breaks = self._solve(sketch.logit, sketch.weight, sketch.positives)
        self.coefficients_ = {name: float(value) for name, value in coefficients.items()}
        curves = compile_functions(lambda which, logits: function(logits)[None, :], 1, breaks=breaks)
        return Fitted(curves, history={"coefficients": self.coefficients_})

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        """Return the function that suits the rows best."""
        raise NotImplementedError


def _fit_rising(design: FloatArray, weight: FloatArray, positives: FloatArray) -> FloatArray:
    """Return coefficients that are held at 0 or above and start at 1, and a last one that is free: the constant."""
    constant = np.arange(design.shape[1]) == design.shape[1] - 1
    lower, start = np.where(constant, -np.inf, 0.0), np.where(constant, 0.0, 1.0)
    return fit_logistic(design, weight, positives, lower=lower, start=start)


# Offset: one number added to every logit.


def fit_offset(logits: FloatArray, weight: FloatArray, positives: FloatArray) -> tuple[float, float]:
    """Return the b that minimises the log-loss of σ(l + b), so that Σσ(l + b) = Σy, and the variance of b."""
    start = fit_logistic(np.ones((len(logits), 1)), weight, positives, offset=logits)
    p = scipy.special.expit(logits + start[0])
    return float(start[0]), 1.0 / max(float(weight @ (p * (1.0 - p))), np.finfo(np.float64).tiny)


class Offset(Calibrator):
    """One number added to the logit: p = σ(l + b), with as many positives expected as there are.

    It corrects a wrong level and nothing else. With fewer than some 250 positives there is little else to learn.

    >>> fitted = Offset().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> round(float(fitted.predict([0.1, 0.2, 0.3, 0.4]).sum()), 3)
    2.0
    """

    method = "offset"
    complexity = 8

    coefficients_: dict[str, float]

    def _fit(self, sketch: Sketch) -> Fitted:
        sketch = sketch.unfolded()
        offset, variance = fit_offset(sketch.logit, sketch.weight, sketch.positives)
        self.coefficients_ = {"offset": offset}
        curves = compile_functions(lambda which, logits: (logits + offset)[None, :], 1)
        return Fitted(
            curves,
            uncertainty=level_uncertainty(curves, Contexts.none(), np.array([variance])),
            history={"coefficients": self.coefficients_},
        )


def level_uncertainty(curves: Curves, contexts: Contexts, variance: FloatArray) -> CurveDeviations:
    """Return the uncertainty of curves whose level alone is uncertain: the variance of the logit of every curve."""
    ends = np.array([-1.0, 1.0])  # constant between them and beyond
    return CurveDeviations(curves.bounded(), contexts, ends, np.sqrt(np.column_stack([variance, variance]))).rounded()


# Platt scaling and temperature scaling: a straight line in logit space.


class Platt(SmoothCalibrator):
    """A line in logit space: p = σ(a·l + b) with a ≥ 0, the optimum of the log-loss.

    Parameters
    ----------
    smooth_targets : use Platt's targets (N⁺ + 1)/(N⁺ + 2) and 1/(N⁻ + 2) instead of 1 and 0.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.1, 0.9, 100_000)
    >>> labels = rng.random(100_000) < truth
    >>> inflated = 1 / (1 + (1 - truth) / truth / 2)  # odds twice too high
    >>> {name: round(value, 1) for name, value in Platt().fit(inflated, labels).coefficients_.items()}
    {'slope': 1.0, 'intercept': -0.7}
    """

    method = "platt"
    complexity = 30

    def __init__(self, *, smooth_targets: bool = False) -> None:
        """Store the parameters; they are checked in fit."""
        self.smooth_targets = smooth_targets

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        if self.smooth_targets:
            total = positives.sum()
            high = (total + 1.0) / (total + 2.0)
            low = 1.0 / (weight.sum() - total + 2.0)
            positives = positives * high + (weight - positives) * low
        slope, intercept = _fit_rising(np.column_stack([logits, np.ones_like(logits)]), weight, positives)
        return {"slope": slope, "intercept": intercept}, lambda l: slope * l + intercept, None


class Temperature(SmoothCalibrator):
    """One number: p = σ(l / T), T > 0. It sharpens or flattens, and cannot correct a wrong base rate.

    >>> round(Temperature().fit([0.2, 0.2, 0.8, 0.8], [0, 1, 0, 1]).coefficients_["inverse_temperature"], 3)
    0.0
    """

    method = "temperature"
    complexity = 40

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        (inverse,) = fit_logistic(logits[:, None], weight, positives, lower=np.zeros(1), start=np.ones(1))
        return {"inverse_temperature": inverse}, lambda l: inverse * l, None


# Beta calibration (Kull et al. 2017).


def _features(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ln s and −ln(1 − s) of scores given as logits."""
    return -np.logaddexp(0.0, -logits), np.logaddexp(0.0, logits)


class Beta(SmoothCalibrator):
    """Three numbers from the ratio of two beta densities: p = σ(a·ln s − b·ln(1 − s) + c), a, b ≥ 0.

    Contains the identity (1, 1, 0), and bends the two ends separately.

    >>> fitted = Beta().fit([0.2, 0.2, 0.8, 0.8], [0, 1, 1, 1])
    >>> bool(fitted.predict([0.1])[0] <= fitted.predict([0.9])[0])
    True
    """

    method = "beta"
    complexity = 50

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        low, high = _features(logits)
        a, b, c = _fit_rising(np.column_stack([low, high, np.ones_like(low)]), weight, positives)

        def function(l: FloatArray) -> FloatArray:
            low, high = _features(l)
            bent: FloatArray = a * low + b * high + c
            return bent

        return {"a": a, "b": b, "c": c}, function, None


# Gaussian and gamma scaling (Kweon et al., AAAI 2022): curves from two class-conditional densities.


class GaussianScaling(SmoothCalibrator):
    """A parabola in logit space: p = σ(a·l² + b·l + c), rising over the fitted range, clipped beyond it.

    The slope at the two ends of the range, u and v, are the coefficients bounded by 0: between them the slope is
    linear, so u, v ≥ 0 is exactly what monotone means.

    >>> fitted = GaussianScaling().fit([0.1, 0.4, 0.6, 0.9], [0, 0, 1, 0], resolution="exact")
    >>> bool(fitted.predict([0.05])[0] == fitted.predict([0.1])[0] < fitted.predict([0.9])[0])
    True
    """

    method = "gaussian"
    complexity = 60

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        lowest, highest = float(logits.min()), float(logits.max())
        width = highest - lowest

        def basis(l: FloatArray) -> FloatArray:
            x = np.clip(l, lowest, highest)
            # l² and l written through the end slopes: a = (v − u)/2Δ, b = (u·l_max − v·l_min)/Δ.
            rising = (0.5 * x * x - lowest * x) / width
            falling = (highest * x - 0.5 * x * x) / width
            return np.column_stack([falling, rising, np.ones_like(x)])

        theta = u, v, c = _fit_rising(basis(logits), weight, positives)
        named = {"a": (v - u) / (2.0 * width), "b": (u * highest - v * lowest) / width, "c": c}
        return named, lambda l: basis(l) @ theta, sigmoid(np.array([lowest, highest]))


class GammaScaling(SmoothCalibrator):
    """A logarithm plus a line: p = σ(a·log t + b·t + c), t = l − l_min + δ, rising over the fitted range.

    Parameters
    ----------
    shift : δ > 0, which keeps t above 0.

    >>> fitted = GammaScaling().fit([0.1, 0.4, 0.6, 0.9], [0, 1, 0, 1])
    >>> bool(fitted.predict([0.1])[0] < fitted.predict([0.9])[0])
    True
    """

    method = "gamma"
    complexity = 70

    def __init__(self, *, shift: float = 1.0) -> None:
        """Store the parameters; they are checked in fit."""
        self.shift = shift

    def _check_parameters(self) -> None:
        if not 0.0 < self.shift < np.inf:
            raise InputError(f"shift is {self.shift!r}; it must be a number above 0")

    def _solve(self, logits: FloatArray, weight: FloatArray, positives: FloatArray) -> _Solution:
        lowest = float(logits.min())
        first, last = self.shift, float(logits.max()) - lowest + self.shift
        spread = 1.0 / first - 1.0 / last

        def basis(l: FloatArray) -> FloatArray:
            t = np.clip(l - lowest + self.shift, first, last)
            # a·log t + b·t with a = (u − v)/D, b = (v/t₁ − u/t₂)/D: u and v are the slopes at the two ends.
            by_u = (np.log(t) - t / last) / spread
            by_v = (t / first - np.log(t)) / spread
            return np.column_stack([by_u, by_v, np.ones_like(t)])

        theta = u, v, c = _fit_rising(basis(logits), weight, positives)
        named = {"a": (u - v) / spread, "b": (v / first - u / last) / spread, "c": c}
        ends = sigmoid(np.array([lowest, last - first + lowest]))
        return named, lambda l: basis(l) @ theta, ends
