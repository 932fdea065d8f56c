"""The log-posterior of BayesMCNet, Newton steps towards its maximum and their system, and the field balance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray, sigmoid, sums_by
from mcnet.bayes.likelihood import Cells, Evaluation
from mcnet.bayes.model import Incidence, Shapes, State
from mcnet.bayes.prior import Prior, Strengths

# The Newton system: a shared block, small blocks of field values, conjugate gradients for several fields.

RIDGE = 1e-10
"""Rounding may eat what the data leave undetermined: so much of its diagonal is added to a matrix."""
TOLERANCE = 3e-2
"""Of what a step can gain, conjugate gradients may miss this share: the next step has it."""


@dataclass(frozen=True)
class Information:
    """The curvature of the log-posterior, kept as the sums that products with it need.

    `shared` `[S, S]` is that of the shared vector, its prior included. The likelihood's are `own[c]` `[P, P]` per
    context, and `couplings[field]` `[values, P, S]`: what couples the numbers of a value with the shared vector, summed
    over its contexts. `precision[field]` is the diagonal of each value's prior.
    """

    incidence: Incidence
    shared: FloatArray
    own: FloatArray
    couplings: list[FloatArray]
    precision: list[FloatArray]

    def times(self, state: State) -> State:
        """Return the product of the whole matrix with a vector."""
        shared, size = self.shared @ state.shared, len(state.shared)
        moved = self.incidence.gather(state.values, self.own.shape[1])
        totals, values = self.incidence.totals(np.einsum("cpq,cq->cp", self.own, moved)), []
        for total, coupling, numbers, precision in zip(
            totals, self.couplings, state.values, self.precision, strict=True
        ):
            by_shared = coupling.reshape(-1, size)
            shared += numbers.reshape(-1) @ by_shared
            values.append(total + (by_shared @ state.shared).reshape(numbers.shape) + numbers * precision)
        return State(shared, values)


class Arrow:
    """An arrow-shaped matrix, solved by eliminating every value's small block (a Schur complement).

    With one field it is the information matrix itself. With F fields it leaves out what couples values of different
    fields and takes 1/F of what couples them with the shared block, which keeps it positive definite; then its inverse
    approximates the posterior covariance, and it is the preconditioner of `conjugate_gradients`.
    """

    def __init__(self, information: Information) -> None:
        share = 1.0 / max(sum(size > 0 for size in information.incidence.sizes), 1)
        blocks = zip(information.incidence.totals(information.own), information.precision, strict=True)
        self.inverse = [np.asarray(np.linalg.inv(_raised(own + np.diag(precision)))) for own, precision in blocks]
        self.coupling = [
            share * (inverse @ cross) for inverse, cross in zip(self.inverse, information.couplings, strict=True)
        ]
        schur = information.shared
        for pulled, cross in zip(self.coupling, information.couplings, strict=True):
            schur = schur - pulled.reshape(-1, len(schur)).T @ cross.reshape(-1, len(schur))
        try:
            self._factor = scipy.linalg.cho_factor(_raised(schur))
        except np.linalg.LinAlgError:  # rounding has made it indefinite: the nearest one that is not
            values, vectors = np.linalg.eigh(0.5 * (schur + schur.T))
            values = np.maximum(values, 1e-8 * max(float(values[-1]), np.finfo(np.float64).tiny))
            self._factor = scipy.linalg.cho_factor((vectors * values) @ vectors.T)

    def solve(self, state: State) -> State:
        """Return the solution for one right-hand side."""
        residual = state.shared.copy()
        for coupling, numbers in zip(self.coupling, state.values, strict=True):
            residual -= numbers.reshape(-1) @ coupling.reshape(-1, len(residual))
        shared = scipy.linalg.cho_solve(self._factor, residual, check_finite=False)
        values = [
            np.einsum("vpq,vq->vp", inverse, numbers) - coupling @ shared
            for inverse, coupling, numbers in zip(self.inverse, self.coupling, state.values, strict=True)
        ]
        return State(shared, values)

    def shared_covariance(self) -> FloatArray:
        """Return the shared block of the inverse."""
        return np.asarray(scipy.linalg.cho_solve(self._factor, np.eye(len(self._factor[0]))))


def own_variances(blocks: FloatArray, coupling: FloatArray, shared_covariance: FloatArray) -> FloatArray:
    """Return the variances of values' numbers `[values, P]`: given the shared vector, and through it."""
    flat = coupling.reshape(-1, len(shared_covariance))
    through = np.einsum("is,is->i", flat @ shared_covariance, flat)
    return np.asarray(np.einsum("vpp->vp", blocks) + through.reshape(coupling.shape[:2]))


def _raised(matrices: FloatArray) -> FloatArray:
    """Return matrices with RIDGE of their diagonal added, the larger ones' share included."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    lift = RIDGE * np.maximum(diagonal, RIDGE * diagonal.max(axis=-1, keepdims=True, initial=1e-300))
    return np.asarray(matrices + lift[..., None] * np.eye(matrices.shape[-1]))


def conjugate_gradients(
    information: Information, arrow: Arrow, right: State, tolerance: float = TOLERANCE, iterations: int = 200
) -> tuple[State, int]:
    """Solve the system of several fields with the help of its arrow; return the solution and the iterations taken.

    It ends once about the share `tolerance` of the squared size of the solution, as the matrix measures it, is missing.
    """
    direction = arrow.solve(right)
    solution, residual, size = right.plus(-1.0, right), right, right.dot(direction)
    enough = tolerance * size
    for taken in range(1, iterations + 1):
        product = information.times(direction)
        step = size / direction.dot(product)
        solution, residual = solution.plus(step, direction), residual.plus(-step, product)
        conditioned = arrow.solve(residual)
        previous, size = size, residual.dot(conditioned)
        if size <= enough:
            return solution, taken
        direction = conditioned.plus(size / previous, direction)
    return solution, iterations


# The log-posterior, and steps towards its maximum.

LONGEST = 2.0
"""No log-slope may move by more than this in one step: an exponential leads far astray."""
NEAR, NEAR_PER_VALUE = 1.0, 0.3
"""Strengths are learnt once a step is expected to gain no more than half of this, for all or per value of a field."""
SETTLED = 0.05
"""Variances of the priors to five per cent: the evidence is flat around its maximum."""
DECREMENT, RELATIVE_DECREMENT, OF_SEVERAL = 1e-5, 1e-9, 1e-6
"""The maximum counts as reached when twice what is still to be gained is below this, or this share of the loss; with
several fields a step takes long, and the last share moves no log-loss that anyone looks at."""
SHORTEST = 0.3
"""A step after one that hardly gained anything is at least so long."""
MOST_LEARNT = 15
"""The strengths are learnt so many times at most: those that fade would take very many small steps."""
BOLDER, BOLDEST = 1.5, 6.0
"""Variances approach their fixed point from one side, some of them slowly: while one moves on in the same direction its
steps get longer by this factor, up to so many times."""


@dataclass(frozen=True)
class Posterior:
    """Minus the log-posterior of a `State`: the loss of the cells plus quadratic priors."""

    cells: Cells
    shapes: Shapes
    incidence: Incidence
    strengths: Strengths

    @cached_property
    def centre(self) -> FloatArray:
        """The prior mean of the shared vector: the curve that leaves the score as it is."""
        panels, mean = self.cells.panels, np.zeros(1 + self.shapes.basis.shape[1])
        mean[0] = panels.centre + panels.scale * float(panels.edges[panels.origin])
        return mean

    def evaluate(self, state: State) -> Evaluation:
        """Return the curves of all contexts at a state, and the cells on them."""
        shapes = self.shapes
        moved = self.incidence.gather(state.values, shapes.deviation.shape[1])
        log_slopes = moved @ shapes.bends.T + (shapes.basis @ state.shared[1:] + np.log(self.cells.panels.scale))
        offset, cells = state.shared[0] + moved @ shapes.deviation[0], self.cells
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = np.exp(log_slopes)
            edges = slopes @ cells.panels.crossed.T
            near = edges[cells.context, cells.panel] + cells.place * slopes[cells.context, cells.panel]
            return Evaluation(offset, log_slopes, slopes, offset[cells.context] + near)

    def value(self, state: State) -> float:
        """Return minus the log-posterior, up to a constant."""
        return self.cells.loss(self.evaluate(state)) + self.penalty(state)

    def penalty(self, state: State) -> float:
        """Return minus the logarithm of the prior, up to a constant."""
        away = state.shared - self.centre
        penalty = away @ self.shared_precision @ away
        for precision, numbers in zip(self.precisions, state.values, strict=True):
            penalty += np.sum(numbers**2 @ precision)
        return 0.5 * float(penalty)

    def gradient(self, state: State, at: Evaluation) -> State:
        """Return the derivative of `value` by every parameter, given the curves there."""
        by_offset, by_slope = self.cells.gradient(at)
        return self.pull_back(state, np.column_stack([by_offset, by_slope @ self.shapes.basis]))

    def pull_back(self, state: State, by_context: FloatArray) -> State:
        """From the loss's derivative by each context's coefficients to that of `value` by the parameters."""
        prior = self.shared_precision @ (state.shared - self.centre)
        along = by_context @ self.shapes.deviation
        totals = zip(self.incidence.totals(along), state.values, self.precisions, strict=True)
        values = [total + numbers * precision for total, numbers, precision in totals]
        return State(by_context.sum(axis=0) + prior, values)

    def information(self, at: Evaluation) -> Information:
        """Return the Fisher information of the likelihood, plus the prior precision."""
        shapes, lift = self.shapes, scipy.linalg.block_diag([1.0], self.shapes.basis)
        shared, own, couplings = self.cells.information(at, lift, shapes.deviation, self.incidence)
        return Information(self.incidence, shared + self.shared_precision, own, couplings, self.precisions)

    @cached_property
    def shared_precision(self) -> FloatArray:
        """The prior precision of the shared vector."""
        return self.strengths.shared_precision(self.shapes)

    @cached_property
    def precisions(self) -> list[FloatArray]:
        """The prior precision of the numbers of each field's values."""
        return [self.strengths.value_precision(field, self.shapes) for field in range(self.incidence.fields)]


class Maximum(NamedTuple):
    """The maximum of a posterior, and the curvature there."""

    state: State
    posterior: Posterior
    arrow: Arrow
    decrement: float
    """Twice what the last step was expected to gain."""
    steps: int


def maximise(
    posterior: Posterior, state: State, prior: Prior | None, *, steps: int = 100, gain: float = 0.0
) -> Maximum:
    """Take Newton steps by the Fisher information, and near the maximum a step of the strengths after each.

    It ends where neither moves. Without a prior the strengths stay as they are.
    """
    learning = _Learning(prior, settled=prior is None)
    taken, length = 0, 1.0
    near = max(NEAR, NEAR_PER_VALUE * sum(posterior.incidence.sizes))
    at = posterior.evaluate(state)
    loss = posterior.cells.loss(at)
    share = OF_SEVERAL if posterior.incidence.several else RELATIVE_DECREMENT
    gain = max(gain, DECREMENT, share * loss)
    while True:
        taken += 1
        information = posterior.information(at)
        arrow = Arrow(information)
        gradient = posterior.gradient(state, at)
        if posterior.incidence.several:
            direction = conjugate_gradients(information, arrow, gradient)[0]
        else:
            direction = arrow.solve(gradient)
        decrement = gradient.dot(direction)
        found = _search(posterior, state, loss, direction, decrement, length)
        if found is None:
            return Maximum(state, posterior, arrow, decrement, taken)
        state, at, loss, length = found
        if (learning.settled and decrement < gain) or taken >= steps:
            return Maximum(state, posterior, arrow, decrement, taken)
        if not learning.settled and decrement < near:
            posterior = learning.step(posterior, state, arrow)


@dataclass
class _Learning:
    """The fixed-point iteration of the strengths of the priors."""

    prior: Prior | None
    settled: bool
    steps: int = 0
    change: FloatArray | float = 0.0
    boldness: FloatArray | float = 0.0

    def step(self, posterior: Posterior, state: State, arrow: Arrow) -> Posterior:
        """Return the posterior under strengths that are better, given the last curvature."""
        assert self.prior is not None
        before, shared = posterior.strengths, arrow.shared_covariance()
        away = State(state.shared - posterior.centre, state.values)
        of_fields = zip(arrow.inverse, arrow.coupling, strict=True)
        variances = [own_variances(inverse, coupling, shared) for inverse, coupling in of_fields]
        learnt = self.prior.learn(before, posterior.shapes, away, variances, shared)
        change = learnt.logarithms() - before.logarithms()
        onwards = change * self.change > 0.0
        self.boldness = np.where(onwards, np.minimum(BOLDER * self.boldness, BOLDEST), 1.0)
        self.change = change
        self.steps += 1
        self.settled = float(np.max(np.abs(change))) < SETTLED or self.steps == MOST_LEARNT
        return replace(posterior, strengths=before.moved(np.clip(self.boldness * change, -2.0, 2.0)))


def _search(
    posterior: Posterior, state: State, loss: float, direction: State, decrement: float, length: float
) -> tuple[State, Evaluation, float, float] | None:
    """Go along a direction as far as it gains; return the state, its curves and loss and the next length, or None."""
    moved = posterior.incidence.gather(direction.values, posterior.shapes.deviation.shape[1])
    bent = moved @ posterior.shapes.bends.T + posterior.shapes.basis @ direction.shared[1:]
    length = min(length, LONGEST / max(float(np.abs(bent).max(initial=0.0)), 1e-300))
    value = loss + posterior.penalty(state)
    while length > 1e-6:
        there = state.plus(-length, direction)
        at = posterior.evaluate(there)
        lost = posterior.cells.loss(at)
        gained = value - lost - posterior.penalty(there)
        if gained >= 1e-4 * length * decrement - 1e-12 * abs(value):
            # The Fisher information may take a curve to be less bent than it is; then full steps jump over the maximum
            # for ever. After a step that gained too little, the next one goes to the top of a parabola.
            if gained > 0.25 * length * decrement:
                return there, at, lost, 1.0
            top = 0.5 * length * length * decrement / (length * decrement - gained)
            return there, at, lost, float(np.clip(top, SHORTEST, 1.0))
        length *= 0.5
    return None


# MCNet's field-balance regulariser on top of the posterior.

BALANCE_STEPS = 200
# Of the steps before, how many tell of the curvature.
PAIRS_REMEMBERED = 20


@dataclass(frozen=True)
class Balance:
    """`α · std_v(DIFF_v)` averaged over fields, DIFF_v the bias of the rows of value v.

    "global" divides a value's summed bias by all rows, as published; "field" by the value's own rows. The
    square root is rounded off within a thousandth of the mean rate, where it has no practical meaning.
    """

    alpha: float
    normalize: Literal["global", "field"]
    fields: int

    def value_and_gradient(self, posterior: Posterior, state: State) -> tuple[float, State]:
        """Return the balanced objective (a sum over rows) and its derivative."""
        cells, incidence = posterior.cells, posterior.incidence
        at = posterior.evaluate(state)
        chance = sigmoid(at.logits)
        bias = sums_by(cells.context, cells.weight * chance - cells.positives, cells.contexts)
        total, clicks = float(cells.weight.sum()), float(cells.positives.sum())
        rounding = (1e-3 * max(clicks, 1.0) / total) ** 2
        pull = np.zeros(len(bias))
        value = cells.loss(at) + posterior.penalty(state)
        rows_of_values, biases = incidence.totals(cells.rows), incidence.totals(bias)
        for field, counts in enumerate(rows_of_values[: self.fields]):
            seen = counts > 0
            if seen.sum() < 2:
                continue
            unit = np.where(seen, total if self.normalize == "global" else np.maximum(counts, 1e-300), 1.0)
            difference = np.where(seen, biases[field] / unit, 0.0)
            away = np.where(seen, difference - difference[seen].mean(), 0.0)
            spread = float(np.sqrt(np.mean(away[seen] ** 2) + rounding))
            factor = total * self.alpha / self.fields
            value += factor * spread
            by_value = factor * away / (seen.sum() * spread * unit)
            codes = incidence.codes[:, field]
            pull += np.where(codes >= 0, by_value[np.maximum(codes, 0)], 0.0)
        residual = pull[cells.context] * cells.weight * chance * (1.0 - chance)
        by_offset = sums_by(cells.context, residual, cells.contexts)
        by_context = np.column_stack([by_offset, cells.reach(residual, at.slopes) @ posterior.shapes.basis])
        gradient = posterior.gradient(state, at)
        extra = posterior.pull_back(State(posterior.centre, [0.0 * v for v in state.values]), by_context)
        return value, gradient.plus(1.0, extra)


def refine_balance(posterior: Posterior, state: State, arrow: Arrow, balance: Balance) -> State:
    """Limited-memory BFGS from the unbalanced maximum, preconditioned by its curvature.

    SciPy's L-BFGS-B takes no preconditioner: it needs 8 to 37 times as many evaluations for the same value.
    """
    value, gradient = balance.value_and_gradient(posterior, state)
    history: list[tuple[State, State, float]] = []
    for _ in range(BALANCE_STEPS):
        direction = _two_loops(gradient, history[-PAIRS_REMEMBERED:], arrow)
        slope = gradient.dot(direction)
        if slope < 1e-6:
            break
        length = 1.0
        while length > 1e-8:
            moved = state.plus(-length, direction)
            moved_value, moved_gradient = balance.value_and_gradient(posterior, moved)
            if moved_value <= value - 1e-4 * length * slope:
                break
            length *= 0.5
        else:
            break
        change, turn = moved.plus(-1.0, state), moved_gradient.plus(-1.0, gradient)
        if (curvature := change.dot(turn)) > 1e-12:
            history.append((change, turn, curvature))
        gained = value - moved_value
        state, value, gradient = moved, moved_value, moved_gradient
        if gained < 1e-7:
            break
    return state


def _two_loops(gradient: State, history: list[tuple[State, State, float]], arrow: Arrow) -> State:
    """Return the quasi-Newton direction: the stored curvature pairs around the arrow's own inverse."""
    direction = gradient
    factors = []
    for change, turn, curvature in reversed(history):
        factor = change.dot(direction) / curvature
        factors.append(factor)
        direction = direction.plus(-factor, turn)
    direction = arrow.solve(direction)
    for (change, turn, curvature), factor in zip(history, reversed(factors), strict=True):
        direction = direction.plus(factor - turn.dot(direction) / curvature, change)
    return direction
