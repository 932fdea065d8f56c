"""The log-likelihood of weighted cells under one log-slope per panel and context, with exact derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray, IntArray, MaskArray, sigmoid, softplus, sums_by
from mcnet.bayes.model import Incidence, Panels

STEEPEST_LOG_SLOPE = 8.0
"""Log-slopes (of raw logits) beyond ± this are penalised as strongly as all rows of the context weigh: a curve is a
step or flat by then, and farther out exponentials lose their digits. Only very large weights reach it."""
CHUNK = 1_000_000
"""Numbers in the largest temporary array."""
PADDED = np.unique(np.ceil(1.25 ** np.arange(60))).astype(np.int64)
"""Contexts with about as many cells are computed together, as though each had the next of these numbers."""


@dataclass(frozen=True)
class Evaluation:
    """What every context's curve is at some state: offsets `[contexts]`, log-slopes `[contexts, panels]`.

    `logits` are the calibrated logits of the cells.
    """

    offset: FloatArray
    log_slopes: FloatArray
    slopes: FloatArray
    logits: FloatArray


@dataclass(frozen=True)
class Cells:
    """Rows merged to one cell per context and panel that has any, in order of the contexts.

    `place` is the mean signed distance of the merged rows from the panel's edge towards the origin, so that

        F = offset[c] + Σ_{h before g} length[h] · exp(ψ[c, h]) + place · exp(ψ[c, g])

    is the calibrated logit of a cell of context c and panel g, ψ being the log-slope.
    """

    panels: Panels
    contexts: int
    context: IntArray
    panel: IntArray
    weight: FloatArray
    positives: FloatArray
    place: FloatArray

    @cached_property
    def rows(self) -> FloatArray:
        """The weight of each context."""
        return sums_by(self.context, self.weight, self.contexts)

    def loss(self, at: Evaluation) -> float:
        """Return minus the log-likelihood (a sum over rows, not a mean)."""
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(self.weight @ softplus(at.logits) - self.positives @ at.logits)
        beyond = self._beyond(at)
        if beyond is not None:
            value += 0.5 * float((1.0 + self.rows) @ np.square(beyond).sum(axis=1))
        return value if np.isfinite(value) else np.inf

    def reach(self, residual: FloatArray, slopes: FloatArray) -> FloatArray:
        """Sum residual · ∂F / ∂ψ over the cells of each context: `[contexts, panels]`."""
        table = np.zeros_like(slopes)
        table[self.context, self.panel] = residual
        crossing = table @ self.panels.crossed
        crossing[self.context, self.panel] += self.place * residual
        return np.asarray(slopes * crossing)

    def gradient(self, at: Evaluation) -> tuple[FloatArray, FloatArray]:
        """Return derivatives of the loss: `[contexts]` by the offset and `[contexts, panels]` by the log-slopes."""
        residual = self.weight * sigmoid(at.logits) - self.positives
        by_slope, beyond = self.reach(residual, at.slopes), self._beyond(at)
        if beyond is not None:
            by_slope += (1.0 + self.rows)[:, None] * beyond
        return sums_by(self.context, residual, self.contexts), by_slope

    def information(
        self, at: Evaluation, lift: FloatArray, along: FloatArray, incidence: Incidence
    ) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        """Fisher information of the coefficients of contexts: a cell counts `p(1−p)` of its weight.

        `lift` `[1 + panels, S]` takes coefficients to (offset, log-slope of every panel), `along` `[S, P]` takes the
        numbers of a value to coefficients. Returned are the sum over all cells `[S, S]`, the sum over each context
        along the numbers `[contexts, P, P]`, and between numbers and coefficients the sum over each value's contexts,
        `[values, P, S]` for every field.
        """
        size, width = along.shape
        total, own = np.zeros((size, size)), np.zeros((self.contexts, width, width))
        coupled = np.zeros((sum(incidence.sizes), width * size))
        for contexts, cells, filled in self._groups:
            # The derivatives of the calibrated logits by the coefficients of their contexts.
            panel = self.panel[cells].ravel()
            by_slope = self.panels.crossed[panel]
            by_slope[np.arange(len(panel)), panel] += self.place[cells].ravel()
            by_slope.reshape(*cells.shape, -1)[...] *= at.slopes[contexts][:, None, :]
            moves = np.asarray(by_slope @ lift[1:] + lift[0]).reshape(*cells.shape, -1)
            chance = sigmoid(at.logits[cells])
            moves *= np.sqrt(filled * self.weight[cells] * chance * (1.0 - chance))[:, :, None]
            numbers = moves @ along
            of_numbers = np.swapaxes(numbers, 1, 2)
            own[contexts] = of_numbers @ numbers
            if incidence.fields:
                incidence.add(coupled, contexts, (of_numbers @ moves).reshape(len(contexts), -1))
            flat = moves.reshape(-1, size)
            total += flat.T @ flat
        beyond = self._beyond(at)
        if beyond is not None:  # a spring on each such log-slope
            for context, panel in np.argwhere(beyond):
                move, number = lift[1 + panel], lift[1 + panel] @ along
                held = 1.0 + self.rows[context]
                total += held * np.outer(move, move)
                own[context] += held * np.outer(number, number)
                incidence.add(coupled, np.array([context]), held * np.outer(number, move).reshape(1, -1))
        return total, own, [part.reshape(len(part), width, size) for part in incidence.split(coupled)]

    @cached_property
    def _groups(self) -> list[tuple[IntArray, IntArray, MaskArray]]:
        """Contexts with about as many cells: their indices `[n]`, and those of their cells `[n, k]`.

        k is one of PADDED; a context with fewer cells repeats its last one, which is then not `filled`.
        """
        counts = np.bincount(self.context, minlength=self.contexts)
        first = np.cumsum(counts) - counts
        width = PADDED[np.searchsorted(PADDED, counts)] * (counts > 0)
        groups = []
        for most in np.unique(width[counts > 0]).tolist():
            members, at_once = np.flatnonzero(width == most), max(1, CHUNK // (most * len(self.panels.mass)))
            for start in range(0, len(members), at_once):
                contexts = members[start : start + at_once]
                places, last = np.arange(most), counts[contexts, None] - 1
                groups.append((contexts, first[contexts, None] + np.minimum(places, last), places <= last))
        return groups

    def _beyond(self, at: Evaluation) -> FloatArray | None:
        """Return how far log-slopes are beyond what is allowed, with their sign; None if none is."""
        low, high = np.log(self.panels.scale) + STEEPEST_LOG_SLOPE * np.array([-1.0, 1.0])
        if float(at.log_slopes.min(initial=0.0)) >= low and float(at.log_slopes.max(initial=0.0)) <= high:
            return None
        return np.asarray(at.log_slopes - np.clip(at.log_slopes, low, high))


def make_cells(
    panels: Panels, logits: FloatArray, contexts: IntArray, weight: FloatArray, positives: FloatArray, count: int
) -> Cells:
    """Merge cells of the same context and panel; `count` is the number of contexts.

    Cells are read in pieces, so that millions of them take no memory worth naming.
    """
    number = len(panels.mass)
    sums = np.zeros((3, count * number))
    # A piece at least as long as the sums, or adding these up would take longer than the piece itself.
    size = max(ROWS_AT_A_TIME, sums.shape[1])
    for start in range(0, len(logits), size):
        piece = slice(start, start + size)
        panel, place = panels.locate(logits[piece])
        key = contexts[piece].astype(np.int64) * number + panel
        for column, part in zip(sums, (weight[piece], positives[piece], weight[piece] * place), strict=True):
            column += sums_by(key, part, sums.shape[1])
    used = np.flatnonzero(sums[0] > 0.0)
    rows, clicks, places = sums[:, used]
    return Cells(panels, count, *np.divmod(used, number), rows, clicks, places / rows)
