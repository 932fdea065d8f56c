"""MCNet's field-balance regulariser on top of BayesMCNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mcnet.bayes.likelihood import Table
from mcnet.bayes.newton import Posterior
from mcnet.bayes.solver import Arrow
from mcnet.bayes.structure import State


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


def refine_balance(
    posterior: Posterior, state: State, arrow: Arrow, balance: Balance, iterations: int = 200, memory: int = 20
) -> State:
    """Limited-memory BFGS from the unbalanced maximum, preconditioned by its curvature.

    SciPy's L-BFGS-B takes no preconditioner: it needs 8 to 37 times as many evaluations for the same value.
    """
    value, gradient = balance.value_and_gradient(posterior, state)
    history: list[tuple[State, State, float]] = []
    for _ in range(iterations):
        direction = _two_loops(gradient, history[-memory:], arrow)
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
