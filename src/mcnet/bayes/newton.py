"""The log-posterior of BayesMCNet, damped Newton steps towards its maximum, and the field-balance regulariser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from mcnet._shared.arrays import FloatArray, sigmoid
from mcnet.bayes.likelihood import Table
from mcnet.bayes.prior import Prior, Strengths
from mcnet.bayes.solver import Arrow, Information, NewtonSystem
from mcnet.bayes.structure import Incidence, Shapes, State

LONGEST = 2.0
"""No log-slope may move by more than this in one step: an exponential leads far astray."""
NEAR = 1.0
"""Strengths are learnt once a step is expected to gain no more than half of this."""
SETTLED = 0.05
"""Variances of the priors to five per cent: the evidence is flat around its maximum."""
DECREMENT, RELATIVE_DECREMENT = 1e-5, 1e-9
"""The maximum counts as reached when twice what is still to be gained is below this, or this share of the loss."""
MOST_LEARNT = 15
"""The strengths are learnt so many times at most: those that fade would take very many small steps."""
BOLDER = 1.5
"""Variances approach their fixed point from one side, most of them slowly: longer steps get there sooner."""
ROUGHLY = 1e-4
"""How closely directions are computed with several fields, as a squared error."""


@dataclass(frozen=True)
class Posterior:
    """Minus the log-posterior of a `State`: the loss of the table plus quadratic priors."""

    table: Table
    shapes: Shapes
    incidence: Incidence
    strengths: Strengths

    @cached_property
    def centre(self) -> FloatArray:
        """The prior mean of the shared vector: the curve that leaves the score as it is."""
        panels, mean = self.table.panels, np.zeros(1 + self.shapes.basis.shape[1])
        mean[0] = panels.centre + panels.scale * float(panels.edges[panels.origin])
        return mean

    def contexts(self, state: State) -> tuple[FloatArray, FloatArray]:
        """Return offset `[contexts]` and log-slopes `[contexts, panels]`."""
        shapes = self.shapes
        moved = self.incidence.gather(state.values, shapes.deviation.shape[1])
        log_slopes = moved @ shapes.bends.T + (shapes.basis @ state.shared[1:] + np.log(self.table.panels.scale))
        return state.shared[0] + moved @ shapes.deviation[0], log_slopes

    def value(self, state: State) -> float:
        """Return minus the log-posterior, up to a constant."""
        away = state.shared - self.centre
        penalty = away @ self.shared_precision @ away
        for precision, numbers in zip(self.precisions, state.values, strict=True):
            penalty += np.sum(numbers**2 @ precision)
        return self.table.loss(*self.contexts(state)) + 0.5 * float(penalty)

    def gradient(self, state: State) -> State:
        """Return the derivative of `value` by every parameter."""
        by_offset, by_slope = self.table.gradient(*self.contexts(state))
        return self.pull_back(state, np.column_stack([by_offset, by_slope @ self.shapes.basis]))

    def pull_back(self, state: State, by_context: FloatArray) -> State:
        """From the loss's derivative by each context's coefficients to that of `value` by the parameters."""
        prior = self.shared_precision @ (state.shared - self.centre)
        along = by_context @ self.shapes.deviation
        totals = zip(self.incidence.totals(along), state.values, self.precisions, strict=True)
        values = [total + numbers * precision for total, numbers, precision in totals]
        return State(by_context.sum(axis=0) + prior, values)

    def information(self, state: State) -> Information:
        """Return the Fisher information of the likelihood, plus the prior precision."""
        shared, cross = self.table.information(*self.contexts(state), self.shapes.lift, self.shapes.deviation)
        return Information(
            incidence=self.incidence,
            shared=shared,
            own=cross @ self.shapes.deviation,
            couplings=self.incidence.totals(cross),
            prior=self.shared_precision,
            precision=self.precisions,
        )

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
    information: Information
    decrement: float = 0.0
    """Twice what the last step was expected to gain."""
    steps: int = 0


def maximise(
    posterior: Posterior, state: State, prior: Prior | None, *, steps: int = 100, gain: float = 0.0
) -> Maximum:
    """Take Newton steps by the Fisher information, and near the maximum a step of the strengths after each.

    It ends where neither moves. Without a prior the strengths stay as they are.
    """
    value, settled, taken, times, length = posterior.value(state), prior is None, 0, 0, 1.0
    while True:
        taken += 1
        information = posterior.information(state)
        arrow = Arrow(information)
        gradient = posterior.gradient(state)
        direction = NewtonSystem(information, arrow).solve(gradient, ROUGHLY)
        decrement = gradient.dot(direction)
        moved, gained, length = _search(posterior, state, direction, value, decrement, min(1.0, 2.0 * length))
        enough = decrement < max(DECREMENT + RELATIVE_DECREMENT * abs(value), gain)
        if gained is None or (settled and enough) or taken >= steps:
            return Maximum(moved, posterior, arrow, information, decrement, taken)
        state, value = moved, value - gained
        if prior is not None and not settled and decrement < NEAR * max(1, sum(posterior.incidence.sizes) // 50):
            shared = arrow.shared_covariance()
            variances = arrow.value_variances(shared)
            away = State(state.shared - posterior.centre, state.values)
            learnt = prior.learn(posterior.strengths, posterior.shapes, away, variances, shared)
            change = learnt.logarithms() - posterior.strengths.logarithms()
            times += 1
            settled = bool(np.max(np.abs(change)) < SETTLED) or times == MOST_LEARNT
            bolder = posterior.strengths.scaled(np.exp(np.clip(BOLDER * change, -2.0, 2.0))).bounded()
            posterior = replace(posterior, strengths=bolder)
            value = posterior.value(state)


def _search(
    posterior: Posterior, state: State, direction: State, value: float, decrement: float, length: float
) -> tuple[State, float | None, float]:
    """Go along a direction as far as it gains; return the state, the gain and the length, None if nothing gains."""
    moved = posterior.incidence.gather(direction.values, posterior.shapes.deviation.shape[1])
    bent = moved @ posterior.shapes.bends.T + posterior.shapes.basis @ direction.shared[1:]
    length = min(length, LONGEST / max(float(np.abs(bent).max(initial=0.0)), 1e-300))
    while length > 1e-6:
        there = state.plus(-length, direction)
        gained = value - posterior.value(there)
        if gained >= 1e-4 * length * decrement - 1e-12 * abs(value):
            return there, gained, length
        length *= 0.5
    return state, None, length


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
        table, incidence = posterior.table, posterior.incidence
        offset, log_slopes = posterior.contexts(state)
        chance = sigmoid(table.calibrated(offset, log_slopes))
        bias = np.sum(table.weight * chance - table.positives, axis=1)
        rows = table.weight.sum(axis=1)
        total, clicks = float(rows.sum()), float(table.positives.sum())
        rounding = (1e-3 * max(clicks, 1.0) / total) ** 2
        pull = np.zeros(len(bias))
        value = posterior.value(state)
        for field in range(self.fields):
            counts = incidence.total(field, rows[:, None])[:, 0]
            seen = counts > 0
            if seen.sum() < 2:
                continue
            unit = np.where(seen, total if self.normalize == "global" else np.maximum(counts, 1e-300), 1.0)
            difference = np.where(seen, incidence.total(field, bias[:, None])[:, 0] / unit, 0.0)
            away = np.where(seen, difference - difference[seen].mean(), 0.0)
            spread = float(np.sqrt(np.mean(away[seen] ** 2) + rounding))
            factor = total * self.alpha / self.fields
            value += factor * spread
            by_value = factor * away / (seen.sum() * spread * unit)
            codes = incidence.codes[:, field]
            pull += np.where(codes >= 0, by_value[np.maximum(codes, 0)], 0.0)
        residual = pull[:, None] * table.weight * chance * (1.0 - chance)
        by_context = np.column_stack(
            [residual.sum(axis=1), table.reach(residual, np.exp(log_slopes)) @ posterior.shapes.basis]
        )
        gradient = posterior.gradient(state)
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
