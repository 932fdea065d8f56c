"""The log-posterior of BayesMCNet, damped Newton steps towards its maximum, and the field-balance regulariser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.likelihood import Table
from mcnet.bayes.prior import Strengths
from mcnet.bayes.solver import Arrow, FieldMatrix, Information, NewtonSystem
from mcnet.bayes.sparse_table import SparseTable
from mcnet.bayes.structure import Incidence, Shapes, State

# No log-slope may move by more than this in one step: an exponential leads far astray.
LONGEST = 2.0
# After a step that moved no offset and no log-slope by more than this, the maximum is near.
NEAR = 0.5
# A full step is one at least so long.
SHORTEST = 0.3
# So is it where no more than this could be gained.
FLAT = 0.1
# With several fields, strengths are learnt where no more than this could be gained per value of a field.
FLAT_PER_VALUE = 0.04
# Added to a curvature that rounding has made indefinite, as a share of its diagonal.
RIDGE = 1e-9
# The curvature is computed anew once an offset or a log-slope has moved by so much.
STALE = 0.05
STALE_OF_SEVERAL = 0.1
# How closely Newton's directions are computed, as squared errors: far from the maximum they are no more than a guess.
ROUGHLY = 1e-4
CLOSELY = 1e-6
# The matrix that helps to solve the Newton system is made anew once that takes more iterations than this.
MOST_ITERATIONS = 10


@dataclass(frozen=True)
class Posterior:
    """Minus the log-posterior of a `State`: the loss of the table plus quadratic priors."""

    table: Table | SparseTable
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
        offset, log_slopes = self.context_changes(state)
        log_slopes += np.log(self.table.panels.scale)
        return offset, log_slopes

    def context_changes(self, direction: State) -> tuple[FloatArray, FloatArray]:
        """Return how offset and log-slopes of the contexts change along a direction: they are linear in the state."""
        shapes = self.shapes
        moved = self.incidence.gather(direction.values, shapes.deviation.shape[1])
        log_slopes = moved @ shapes.bends.T
        log_slopes += shapes.basis @ direction.shared[1:]
        return direction.shared[0] + moved @ shapes.deviation[0], log_slopes

    def value(self, state: State) -> float:
        """Return minus the log-posterior, up to a constant."""
        return self.table.loss(*self.contexts(state)) + self.penalty(state)

    def penalty(self, state: State) -> float:
        """Return minus the logarithm of the prior, up to a constant."""
        away = state.shared - self.centre
        penalty = away @ self.shared_precision @ away
        for precision, numbers in zip(self.precisions, state.values, strict=True):
            penalty += np.sum(numbers**2 @ precision)
        return 0.5 * float(penalty)

    def gradient(self, state: State) -> State:
        """Return the derivative of `value` by every parameter."""
        return self.gradient_at(state, self.contexts(state))

    def gradient_at(self, state: State, contexts: tuple[FloatArray, FloatArray]) -> State:
        """Return the derivative of `value`, where the contexts of the state are known."""
        by_offset, by_slope = self.table.gradient(*contexts)
        return self.pull_back(state, np.column_stack([by_offset, by_slope @ self.shapes.basis]))

    def pull_back(self, state: State, by_context: FloatArray) -> State:
        """From the loss's derivative by each context's coefficients to that of `value` by the parameters."""
        prior = self.shared_precision @ (state.shared - self.centre)
        along = by_context @ self.shapes.deviation
        totals = zip(self.incidence.totals(along), state.values, self.precisions, strict=True)
        values = [total + numbers * precision for total, numbers, precision in totals]
        return State(by_context.sum(axis=0) + prior, values)

    def information(self, contexts: tuple[FloatArray, FloatArray], *, observed: bool = False) -> Information:
        """Return the Fisher (or the observed) information of the likelihood, at contexts, plus the prior precision."""
        shapes, incidence, width = self.shapes, self.incidence, self.shapes.deviation.shape[1]
        number, size = len(contexts[0]), shapes.lift.shape[1]
        own = np.empty((number, width, width))

        def take(some: slice, cross: FloatArray) -> None:
            own[some] = (cross.reshape(-1, size) @ shapes.deviation).reshape(-1, width, width)
            if couplings is not None:
                incidence.add_totals(some, cross, couplings)

        given = *contexts, shapes.lift, shapes.deviation
        if isinstance(self.table, SparseTable) and incidence.fields > 1:
            couplings: FloatArray | None = np.zeros((sum(incidence.sizes), width * size))
            shared, _ = self.table.information(*given, observed=observed, take=take)
            assert couplings is not None
            by_field = [part.reshape(len(part), width, size) for part in incidence.by_field(couplings)]
        else:
            couplings = None
            shared, cross = self.table.information(*given, observed=observed)
            take(slice(None), cross)
            by_field = incidence.totals(cross)
        return Information(
            incidence=incidence,
            shared=shared,
            own=own,
            couplings=by_field,
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


class Search:
    """Damped Newton steps towards the maximum, which compute the curvature anew only where it has changed."""

    def __init__(self, posterior: Posterior, state: State) -> None:
        self.posterior = posterior
        self.state = state
        self.decrement = np.inf
        self.near = False
        """Whether the maximum is near: the observed information is positive definite there."""
        self.learnable = False
        """Whether what is left to be gained is too little to keep the strengths from being learnt."""
        self.settled = False
        """Whether the strengths stay as they are from now on."""
        self.stuck = False
        self.closely = CLOSELY
        """The squared error of the last directions."""
        self.enough = 0.0
        """What a direction may leave to be gained, in units of the decrement."""
        self._several = posterior.incidence.several
        self.flat = max(FLAT, FLAT_PER_VALUE * sum(posterior.incidence.sizes)) if self._several else FLAT
        self._stale = STALE_OF_SEVERAL if self._several else STALE
        self._shortest = SHORTEST if self._several else 1.0
        self._length = 1.0
        self._indefinite = False
        self._contexts = posterior.contexts(state)
        self.loss = posterior.table.loss(*self._contexts)
        self._information: Information | None = None
        self._arrow: Arrow | None = None
        self._system: NewtonSystem | None = None
        self._matrix: FieldMatrix | None = None
        self._observed = False
        self._moved = np.inf

    @property
    def arrow(self) -> Arrow:
        """The Cholesky-factored curvature, under the priors believed in."""
        if self._arrow is None:
            assert self._information is not None, "a step comes first"
            try:
                self._arrow = Arrow(self._information)
            except np.linalg.LinAlgError:
                if self._observed:
                    self._indefinite = self._several
                    self._look(observed=False)
                # The Fisher information is positive definite but for rounding, which very large weights bring.
                self._arrow = Arrow(self._information, ridge=RIDGE)
        return self._arrow

    @property
    def information(self) -> Information:
        """The curvature last computed, under the priors believed in."""
        assert self._information is not None, "a step comes first"
        return self._information

    def believe(self, strengths: Strengths) -> None:
        """Go on under other priors: the likelihood's part of the curvature stays."""
        self.posterior = replace(self.posterior, strengths=strengths)
        self._arrow = self._system = None
        self._indefinite = False
        if self._information is not None:
            prior, precision = self.posterior.shared_precision, self.posterior.precisions
            self._information = self._information.under(prior, precision)

    def step(self) -> float:
        """Take a step; return the decrement (twice the gain that was expected of it)."""
        posterior, state = self.posterior, self.state
        gradient = posterior.gradient_at(state, self._contexts)
        direction = self._direction(gradient)
        self.decrement = gradient.dot(direction)
        changes = posterior.context_changes(direction)
        lifted, bent = (max(float(change.max()), -float(change.min())) for change in changes)
        length = min(self._length, LONGEST / max(bent, 1e-300))
        value = self.loss + posterior.penalty(state)
        while length > 1e-6:
            moved = state.plus(-length, direction)
            if self._several:  # with very many contexts faster than to gather the numbers of their values again
                contexts = self._contexts[0] - length * changes[0], self._contexts[1] - length * changes[1]
            else:
                contexts = posterior.contexts(moved)
            loss = posterior.table.loss(*contexts)
            least = 1e-4 * length * self.decrement - 1e-12 * abs(value)
            gained = value - loss - posterior.penalty(moved)
            if gained >= least:
                if self._several:
                    self._length = _better_length(length, gained, self.decrement)
                self.state, self.loss, self._contexts = moved, loss, contexts
                self._moved += length * max(lifted, bent)
                # Where a curve wants to be flat its log-slope falls for ever, and gains nothing worth speaking of.
                self.near = self.decrement < FLAT or (length >= self._shortest and max(lifted, bent) < NEAR)
                self.learnable = self.near or (length >= self._shortest and self.decrement < self.flat)
                return self.decrement
            length *= 0.5
        # No step along this direction gains anything. The Fisher information may know a better one; if not, what is
        # left to gain is below the rounding of the sum over all rows.
        self.stuck = not self._observed
        self.near = self.learnable = False
        self._moved = np.inf
        return self.decrement

    def _direction(self, gradient: State) -> State:
        """Return the Newton direction.

        Near the maximum the observed information makes convergence quadratic; elsewhere, and where it is not
        positive definite, the Fisher information is the safe choice.
        """
        try:
            observed = self.near and not self._indefinite
            if self._moved > self._stale or observed > self._observed:
                self._look(observed=observed)
            return self._solve(gradient)
        except np.linalg.LinAlgError:
            self._indefinite = self._several  # where a step takes long it is not tried again under the same priors
            self._look(observed=False)
            return self._solve(gradient)

    def _look(self, *, observed: bool) -> None:
        self._information = self._arrow = self._system = None  # with many contexts two of them would be a lot of memory
        self._information = self.posterior.information(self._contexts, observed=observed)
        self._observed, self._moved = observed, 0.0

    def _solve(self, gradient: State) -> State:
        if self._system is None:
            arrow = self.arrow  # which may change the curvature
            self._system = NewtonSystem(self.information, arrow, self._matrix)
        quadratic = self.near and self.settled and (self._observed or not self._several)
        solution = self._system.solve(gradient, self.closely if quadratic else ROUGHLY, self.enough)
        self._matrix = self._system.matrix if self._system.iterations <= MOST_ITERATIONS else None
        return solution


def _better_length(length: float, gained: float, decrement: float) -> float:
    """Return how long the next step should be, given what this one gained: along a parabola, 1 if it fits.

    The Fisher information may take a curve to be less bent than it is; then full steps jump over the maximum for ever.
    """
    if gained > 0.25 * length * decrement:
        return 1.0
    return float(np.clip(0.5 * length * length * decrement / (length * decrement - gained), SHORTEST, 1.0))


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
        assert isinstance(table, Table), "a fit with a balance term has a dense table"
        offset, log_slopes = posterior.contexts(state)
        cells = table.calibrated(offset, log_slopes)
        chance = cells.chance
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
            [residual.sum(axis=1), (cells.slopes * table.reach(residual, table.place)) @ posterior.shapes.basis]
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
