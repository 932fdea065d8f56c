"""NeuCalib and AdaCalib, the networks that the paper compares with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.optimize import minimize

from mcnet._shared.arrays import FloatArray, IntArray, log_loss_sum, sigmoid, sums_by
from mcnet._shared.messages import need_extra
from mcnet.calibrators.base import FieldUse
from mcnet.calibrators.parameters import balanced_field_use, check_beta_order, check_count, check_penalties
from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError
from mcnet.networks.calibrator import NetworkCalibrator, training_cells
from mcnet.networks.training_points import TrainedFunction, check_device, check_seed, midpoint_edges
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.networks.bank import LineFunction

# NeuCalib's isotonic line plot: one piecewise linear function of the logit, free at knots of equal mass.
#
# η(l) = b_k + (l − a_k)(b_{k+1} − b_k)/(a_{k+1} − a_k) between the knots a, continued with its end slopes, and a
# penalty on every fall b_k > b_{k+1}. The problem has K + 1 unknowns and a known Hessian, so SciPy's trust-region
# Newton method solves it.

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

    def on_rows(self, codes: IntArray) -> "LineFunction":
        """Return the line as a function that can be trained on rows; field codes make no difference."""
        from mcnet.networks.bank import LineFunction

        return LineFunction(self.knots, self.values)

    def with_function(self, function: "LineFunction") -> "LinePlot":
        """Return the line plot that `on_rows` returned and that training has changed since."""
        values = function.knots + function.moves.detach().double()
        return LinePlot(self.knots, values.cpu().numpy())

    def state(self) -> TrainingState:
        """Return the knots and values as arrays."""
        return TrainingState({"knots": self.knots, "values": self.values}, {})

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
    result = minimize(
        objective.value,
        start,
        method="trust-exact",
        jac=objective.gradient,
        hess=objective.hessian,
        options={"gtol": GRADIENT_TOLERANCE, "maxiter": 200},
    )
    return LinePlot(knots, knots + result.x)


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
        loss = log_loss_sum(self.line, problem.weight, problem.positives) / self.mass
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
        result = self._total(residual / self.mass) + moves / (PRIOR_DEVIATION**2 * self.mass)
        result[:-1] += problem.order * slope
        result[1:] -= problem.order * slope
        return result + problem.balance * self._deviation_gradient() if self.balanced else result

    def hessian(self, moves: FloatArray) -> FloatArray:
        """Return the second derivatives of the loss."""
        self._look(moves)
        problem, count = self.problem, len(moves)
        information = problem.weight * self.chance * (1.0 - self.chance)
        result = self._squares(information / self.mass) + np.eye(count) / (PRIOR_DEVIATION**2 * self.mass)
        bend = problem.order * ((self.fall > 0.0) & (self.fall < ROUNDED_FALL)) / ROUNDED_FALL
        first, second = np.arange(count - 1), np.arange(1, count)
        result[first, first] += bend
        result[second, second] += bend
        result[first, second] -= bend
        result[second, first] -= bend
        return result + problem.balance * self._deviation_hessian() if self.balanced else result

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
        result: FloatArray = of_variance / (2.0 * spread) - np.outer(gradient, gradient) / (4.0 * spread**3)
        return result

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


# NeuCalib's isotonic line plot (Pan et al., WWW 2020).

_USUAL_BETA = 0.01
"""The weight of the order regulariser that suits logits."""


class NeuCalib(NetworkCalibrator):
    """A line through K + 1 knots in logit space with free values: p = σ(η(l)), fitted with a penalty on falls.

    η(l) = b_k + (l − a_k)(b_{k+1} − b_k)/(a_{k+1} − a_k) on [a_k, a_{k+1}); the knots a are at equal-mass edges, and
    the loss is log-loss + β·Σ(b_k − b_{k+1})₊. Fields do not change the line; they matter to the balance term alone.
    The optimum is found by Newton's method, without torch.

    Parameters
    ----------
    bins : the number of pieces K.
    beta_order : β; None takes 0.01, the right size in logit space.
    alpha_balance, balance : weight and kind of the field-balance regulariser, as in MCNet.
    guarantee : project what still falls, so that the order of scores holds for certain.
    warm_start : continue from the previous fit of this object.
    """

    method = "neucalib"
    complexity = 110
    _field_advice = "set alpha_balance > 0 to have it balanced, use mcnet-bayes or per-field, or leave the field out"

    def __init__(
        self,
        *,
        bins: int = 20,
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        guarantee: bool = True,
        warm_start: bool = False,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.beta_order = beta_order
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.guarantee = guarantee
        self.warm_start = warm_start

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is of use: to the balance term alone."""
        return balanced_field_use(self.alpha_balance, False)

    @property
    def _one_curve(self) -> bool:
        return True

    def _train(self, sketch: Sketch, earlier: Any) -> LinePlot:
        problem = LinePlotProblem(
            sketch.logit,
            sketch.weight,
            sketch.positives,
            sketch.context.astype(np.int64),
            len(sketch.contexts),
            order=_USUAL_BETA if self.beta_order is None else float(self.beta_order),
            balance=float(self.alpha_balance),
            normalise=self.balance,
        )
        return fit_line_plot(problem, self.bins, earlier)

    def _check_parameters(self) -> None:
        check_count("bins", self.bins)
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)

    def _restored_function(self, state: TrainingState) -> LinePlot:
        return LinePlot(**state.arrays)


# AdaCalib (Wei et al., SIGIR 2022), with its objective repaired.


class AdaCalib(NetworkCalibrator):
    """A line in logit space per context, given by a network of the context's own statistics, in adaptive bins.

    For each candidate number of bins a context has a line p^i through equal-mass knots; a second network chooses among
    them. The objective is Σ_i ℓ(p^i) + ℓ(Σ_i α_i p^i): the last term, absent in print, is what trains the choice.
    Needs torch (the extra `networks`).

    Parameters
    ----------
    candidates : the numbers of bins to choose from.
    beta_order : the weight of the penalty on falling lines; None takes 0.01, the right size in logit space.
    alpha_balance, balance : weight and kind of the field-balance regulariser, as in MCNet.
    guarantee : project what still falls, so that the order of scores holds for certain.
    warm_start : continue from the previous fit of this object.
    steps : training steps of the first cycle; cycles follow, of half the length each, until the loss has settled.
    seed, device : of the training; device is "cpu" or "cuda".
    """

    method = "adacalib"
    complexity = 120
    extra = "networks"

    def __init__(
        self,
        *,
        candidates: tuple[int, ...] = (5, 10, 20),
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        guarantee: bool = True,
        warm_start: bool = False,
        steps: int = 300,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.candidates = candidates
        self.beta_order = beta_order
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.guarantee = guarantee
        self.warm_start = warm_start
        self.steps = steps
        self.seed = seed
        self.device = device

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is needed: the balance term compares field values."""
        return balanced_field_use(self.alpha_balance, True)

    def _check_parameters(self) -> None:
        need_extra("networks", self.method)
        if not isinstance(self.candidates, list | tuple) or not self.candidates:
            raise InputError(
                f"candidates is {self.candidates!r}; it must be a tuple of numbers of bins, such as (5, 10, 20)"
            )
        for bins in self.candidates:
            check_count("bins", bins)
        check_count("steps", self.steps)
        check_beta_order(self.beta_order)
        check_penalties(self.alpha_balance, self.balance)
        check_seed(self.seed)
        check_device(self.device)

    def _train(self, sketch: Sketch, earlier: Any) -> TrainedFunction:
        from mcnet.networks.adaptive import AdaptiveConfig, fit_adaptive
        from mcnet.networks.objective import Penalties
        from mcnet.networks.optimise import Schedule

        config = AdaptiveConfig(
            candidates=tuple(self.candidates),
            penalties=Penalties(self.beta_order, self.alpha_balance, self.balance),
            schedule=Schedule(steps=self.steps, peak=1e-2, cycles=4),
            seed=self.seed,
            device=self.device,
        )
        return fit_adaptive(training_cells(sketch), config, earlier)

    def _restored_function(self, state: TrainingState) -> TrainedFunction:
        from mcnet.networks.adaptive import restore_adaptive

        return restore_adaptive(state)
