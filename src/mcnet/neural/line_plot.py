"""NeuCalib's isotonic line plot: one piecewise linear function of the logit, free at knots of equal mass.

η(l) = b_k + (l − a_k)(b_{k+1} − b_k)/(a_{k+1} − a_k) between the knots a, continued with its end slopes, and a penalty
on every fall b_k > b_{k+1}. The problem has K + 1 unknowns and a known Hessian, so SciPy's trust-region Newton method
solves it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize

from mcnet._shared.math import sigmoid, sums_by
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.networks.training_points import midpoint_edges

__all__ = ["LinePlot", "LinePlotProblem", "fit_line_plot", "line_knots"]

# A fall smaller than this, in logits, is not penalised in full, so that the loss has a second derivative.
ROUNDED_FALL = 1e-2
# The standard deviation, in logits, of the prior on each knot's distance from the identity; it matters only where
# there are no positives or no negatives at all.
PRIOR_DEVIATION = 5.0
# The gradient of the mean log-loss at which the search stops.
GRADIENT_TOLERANCE = 1e-9
# Keeps the slope of the standard deviation finite where all field values are in balance.
LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class LinePlot:
    """A fitted line plot: its knots and its values there, both in logits."""

    knots: FloatArray
    values: FloatArray

    def logits(self, points: FloatArray) -> FloatArray:
        """Return the function at these logits of scores."""
        piece, share = _place(self.knots, np.asarray(points, dtype=np.float64))
        low, high = self.values[piece], self.values[piece + 1]
        calibrated: FloatArray = low + share * (high - low)
        return calibrated

    def predict(self, logit: FloatArray, codes: IntArray | None = None) -> FloatArray:
        """Return the probability of rows with these logits; field codes make no difference."""
        return sigmoid(self.logits(logit))

    def kinks(self) -> FloatArray:
        """Return the scores at which the function has a kink."""
        return sigmoid(self.knots)

    def jumps(self) -> None:
        """Return the scores at which the function jumps: none."""
        return

    def falls(self) -> float:
        """Return how far the values fall from knot to knot, in total."""
        return float(np.maximum(-np.diff(self.values), 0.0).sum())


def line_knots(points: FloatArray, weight: FloatArray, pieces: int) -> FloatArray:
    """Return knots at the ends of the points and at equal-mass edges between; one point gets a unit interval."""
    low, high = float(points.min()), float(points.max())
    if low == high:
        return np.array([low - 0.5, low + 0.5])
    return np.concatenate([[low], midpoint_edges(points, weight, pieces), [high]])


@dataclass(frozen=True)
class LinePlotProblem:
    """Weighted cells with their field values, and the weights of the penalties."""

    points: FloatArray
    weight: FloatArray
    positives: FloatArray
    group: IntArray
    groups: int
    order: float = 0.01
    balance: float = 0.0
    normalise: Literal["global", "field"] = "global"


def fit_line_plot(problem: LinePlotProblem, pieces: int, earlier: LinePlot | None = None) -> LinePlot:
    """Return the best line plot; with an earlier one, its knots are kept and its values are the start."""
    knots = line_knots(problem.points, problem.weight, pieces) if earlier is None else earlier.knots
    objective = _Objective(problem, knots)
    start = np.zeros(len(knots)) if earlier is None else earlier.values - knots
    found = minimize(
        objective.value,
        start,
        method="trust-exact",
        jac=objective.gradient,
        hess=objective.hessian,
        options={"gtol": GRADIENT_TOLERANCE, "maxiter": 200},
    )
    return LinePlot(knots, knots + found.x)


def _place(knots: FloatArray, points: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the piece of each point, and how far into the piece it lies (outside [0, 1] beyond the end knots)."""
    piece = np.searchsorted(knots[1:-1], points, side="right")
    return piece, (points - knots[piece]) / (knots[piece + 1] - knots[piece])


class _Objective:
    """The mean log-loss with penalties and prior, as a function of the moves of the knots from the identity."""

    def __init__(self, problem: LinePlotProblem, knots: FloatArray) -> None:
        self.problem, self.knots = problem, knots
        self.piece, self.share = _place(knots, problem.points)
        self.mass = float(problem.weight.sum())
        self._moves = np.full(len(knots), np.nan)

    def value(self, moves: FloatArray) -> float:
        """Return the loss."""
        self._look(moves)
        problem = self.problem
        loss = float(problem.weight @ np.logaddexp(0.0, self.line) - problem.positives @ self.line) / self.mass
        loss += float(moves @ moves) / (2.0 * PRIOR_DEVIATION**2 * self.mass)
        small = np.minimum(self.fall, ROUNDED_FALL)
        loss += problem.order * float((small * (self.fall - small / 2.0)).sum()) / ROUNDED_FALL
        return loss + problem.balance * self.deviation if self.balanced else loss

    def gradient(self, moves: FloatArray) -> FloatArray:
        """Return the gradient of the loss."""
        self._look(moves)
        problem = self.problem
        residual = problem.weight * self.chance - problem.positives
        slope = np.minimum(self.fall, ROUNDED_FALL) / ROUNDED_FALL
        found = self._total(residual / self.mass) + moves / (PRIOR_DEVIATION**2 * self.mass)
        found[:-1] += problem.order * slope
        found[1:] -= problem.order * slope
        return found + problem.balance * self._deviation_gradient() if self.balanced else found

    def hessian(self, moves: FloatArray) -> FloatArray:
        """Return the second derivatives of the loss."""
        self._look(moves)
        problem, count = self.problem, len(moves)
        information = problem.weight * self.chance * (1.0 - self.chance)
        found = self._squares(information / self.mass) + np.eye(count) / (PRIOR_DEVIATION**2 * self.mass)
        bend = problem.order * ((self.fall > 0.0) & (self.fall < ROUNDED_FALL)) / ROUNDED_FALL
        first, second = np.arange(count - 1), np.arange(1, count)
        found[first, first] += bend
        found[second, second] += bend
        found[first, second] -= bend
        found[second, first] -= bend
        return found + problem.balance * self._deviation_hessian() if self.balanced else found

    def _look(self, moves: FloatArray) -> None:
        """Evaluate the line at these moves, unless that was the last thing done."""
        if np.array_equal(moves, self._moves):
            return
        self._moves = moves.copy()
        values = self.knots + moves
        low, high = values[self.piece], values[self.piece + 1]
        self.line = low + self.share * (high - low)
        self.chance = sigmoid(self.line)
        self.fall = np.maximum(-np.diff(values), 0.0)
        self.balanced = False
        if self.problem.balance > 0.0:
            self._look_at_balance()

    def _look_at_balance(self) -> None:
        """Evaluate the bias of every field value, DIFF, and the spread of these."""
        problem = self.problem
        rows = sums_by(problem.group, problem.weight, problem.groups)
        if problem.normalise == "global":
            unit = np.full(problem.groups, self.mass)
            seen = np.ones(problem.groups, dtype=bool)
        else:
            unit, seen = np.where(rows > 0.0, rows, 1.0), rows > 0.0
        self.counted = float(seen.sum())
        self.balanced = self.counted >= 2.0
        excess = sums_by(problem.group, problem.weight * self.chance - problem.positives, problem.groups)
        difference = np.where(seen, excess / unit, 0.0)
        self.away = np.where(seen, difference - difference.sum() / self.counted, 0.0)
        self.unit, self.seen = unit, seen
        self.deviation = float(np.sqrt((self.away**2).sum() / self.counted + LEAST_VARIANCE))

    def _pull(self) -> FloatArray:
        """Return the derivative of the variance by each cell's bias."""
        pull: FloatArray = (2.0 * self.away / (self.counted * self.unit))[self.problem.group]
        return pull

    def _variance_gradient(self) -> FloatArray:
        slope = self.problem.weight * self.chance * (1.0 - self.chance)
        return self._total(self._pull() * slope)

    def _deviation_gradient(self) -> FloatArray:
        return self._variance_gradient() / (2.0 * self.deviation)

    def _deviation_hessian(self) -> FloatArray:
        problem, count = self.problem, len(self.knots)
        slope = problem.weight * self.chance * (1.0 - self.chance)
        bend = self._squares(self._pull() * slope * (1.0 - 2.0 * self.chance))
        by_value = np.zeros((problem.groups, count))
        for knot, part in ((self.piece, 1.0 - self.share), (self.piece + 1, self.share)):
            by_value += sums_by(problem.group * count + knot, slope * part, problem.groups * count).reshape(-1, count)
        by_value = by_value[self.seen] / self.unit[self.seen, None]
        by_value -= by_value.mean(axis=0)
        of_variance = bend + 2.0 / self.counted * by_value.T @ by_value
        gradient = self._variance_gradient()
        spread = self.deviation
        found: FloatArray = of_variance / (2.0 * spread) - np.outer(gradient, gradient) / (4.0 * spread**3)
        return found

    def _total(self, by_cell: FloatArray) -> FloatArray:
        """Sum over cells what each adds to its two knots."""
        count = len(self.knots)
        low = sums_by(self.piece, by_cell * (1.0 - self.share), count)
        return low + sums_by(self.piece + 1, by_cell * self.share, count)

    def _squares(self, by_cell: FloatArray) -> FloatArray:
        """Sum over cells the products of what each adds to its two knots: a tridiagonal matrix."""
        count = len(self.knots)
        near, far = 1.0 - self.share, self.share
        diagonal = sums_by(self.piece, by_cell * near**2, count) + sums_by(self.piece + 1, by_cell * far**2, count)
        beside = sums_by(self.piece, by_cell * near * far, count)[:-1]
        return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
