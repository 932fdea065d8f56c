"""The log-posterior of the factorised model and a damped Newton step towards its maximum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcnet.calibrators.factorised.arrow import Arrow, Information, conjugate_gradients
from mcnet.calibrators.factorised.likelihood import Table
from mcnet.calibrators.factorised.prior import Strengths
from mcnet.calibrators.factorised.structure import Incidence, Shapes, State

__all__ = ["Posterior", "newton_step"]

Floats = NDArray[np.float64]

# No log-slope may move by more than this in one step: an exponential leads far astray.
LONGEST = 2.0


@dataclass(frozen=True)
class Posterior:
    """Minus the log-posterior of a `State`: the loss of the table plus quadratic priors."""

    table: Table
    shapes: Shapes
    incidence: Incidence
    strengths: Strengths

    @property
    def centre(self) -> Floats:
        """The prior mean of the shared vector: the curve that leaves the score as it is."""
        mean = np.zeros(1 + self.shapes.basis.shape[1])
        mean[0] = self.table.panels.origin_logit
        return mean

    def contexts(self, state: State) -> tuple[Floats, Floats]:
        """Offset `[contexts]` and log-slopes `[contexts, panels]`."""
        shapes = self.shapes
        moved = self.incidence.gather(state.values, shapes.deviation.shape[1])
        log_slopes = moved @ (shapes.basis @ shapes.deviation[1:]).T
        log_slopes += np.log(self.table.panels.scale) + shapes.basis @ state.shared[1:]
        return state.shared[0] + moved @ shapes.deviation[0], log_slopes

    def value(self, state: State) -> float:
        """Minus the log-posterior, up to a constant."""
        away = state.shared - self.centre
        penalty = away @ self.strengths.shared_precision(self.shapes) @ away
        for field, numbers in enumerate(state.values):
            penalty += np.sum(numbers**2 @ self.strengths.value_precision(field, self.shapes))
        return self.table.loss(*self.contexts(state)) + 0.5 * float(penalty)

    def gradient(self, state: State) -> State:
        """The derivative of `value` by every parameter."""
        by_offset, by_slope = self.table.gradient(*self.contexts(state))
        return self.pull_back(state, np.column_stack([by_offset, by_slope @ self.shapes.basis]))

    def pull_back(self, state: State, by_context: Floats) -> State:
        """From the loss's derivative by each context's coefficients to that of `value` by the parameters."""
        prior = self.strengths.shared_precision(self.shapes) @ (state.shared - self.centre)
        along = by_context @ self.shapes.deviation
        values = [
            self.incidence.total(field, along) + numbers * self.strengths.value_precision(field, self.shapes)
            for field, numbers in enumerate(state.values)
        ]
        return State(by_context.sum(axis=0) + prior, values)

    def information(self, state: State, *, observed: bool = False) -> Information:
        """The Fisher (or the observed) information of the likelihood plus the prior precision."""
        shapes = self.shapes
        lift = np.zeros((1 + shapes.basis.shape[0], 1 + shapes.basis.shape[1]))
        lift[0, 0] = 1.0
        lift[1:, 1:] = shapes.basis
        total, cross = self.table.information(*self.contexts(state), lift @ shapes.deviation, observed=observed)
        cross = cross @ lift
        return Information(
            incidence=self.incidence,
            shared=lift.T @ total @ lift + self.strengths.shared_precision(shapes),
            cross=cross,
            own=cross @ shapes.deviation,
            precision=[self.strengths.value_precision(field, shapes) for field in range(self.incidence.fields)],
        )


def newton_step(posterior: Posterior, state: State, *, near: bool) -> tuple[State, float, Arrow]:
    """One damped Newton step; also the decrement (twice the expected gain) and the factorised curvature.

    `near` the maximum the observed information makes convergence quadratic; elsewhere, and where it is not
    positive definite, the Fisher information is the safe choice.
    """
    gradient = posterior.gradient(state)
    try:
        information = posterior.information(state, observed=near)
        arrow = Arrow(information)
        direction = conjugate_gradients(information, arrow, gradient)
    except np.linalg.LinAlgError:
        information = posterior.information(state)
        arrow = Arrow(information)
        direction = conjugate_gradients(information, arrow, gradient)
    decrement = gradient.dot(direction)
    _, now = posterior.contexts(state)
    _, then = posterior.contexts(state.plus(-1.0, direction))
    length = min(1.0, LONGEST / max(float(np.max(np.abs(then - now))), 1e-300))
    value = posterior.value(state)
    while length > 1e-6:
        moved = state.plus(-length, direction)
        if posterior.value(moved) <= value - 1e-4 * length * decrement + 1e-12 * abs(value):
            return moved, decrement, arrow
        length *= 0.5
    return state, decrement, arrow
