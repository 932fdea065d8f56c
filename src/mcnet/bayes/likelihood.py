"""The log-likelihood of weighted cells under one log-slope per panel and context, with exact derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray, IntArray, sigmoid, softplus, sums_by
from mcnet.bayes.structure import Panels

STEEPEST_LOG_SLOPE = 8.0
"""Log-slopes (of raw logits) beyond ± this are penalised as strongly as all rows of the context weigh: a curve is a
step or flat by then, and farther out exponentials lose their digits. Only very large weights reach it."""
CHUNK = 2_000_000
"""Numbers in the largest temporary array of one chunk of contexts."""


@dataclass(frozen=True)
class Table:
    """Cells merged to one per context and panel: `[contexts, panels]` arrays.

    `place` is the mean signed distance of the merged rows from the panel's edge towards the origin, so that

        F[c, g] = offset[c] + Σ_{h before g} length[h] · exp(ψ[c, h]) + place[c, g] · exp(ψ[c, g])

    is the calibrated logit of the cell, ψ being the log-slope.
    """

    panels: Panels
    weight: FloatArray
    positives: FloatArray
    place: FloatArray

    @cached_property
    def rows(self) -> FloatArray:
        """The weight of each context."""
        return np.asarray(self.weight.sum(axis=1))

    def panel_sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the weight, the positives and the summed places of each panel's rows."""
        return self.weight.sum(axis=0), self.positives.sum(axis=0), (self.weight * self.place).sum(axis=0)

    def calibrated(self, offset: FloatArray, log_slopes: FloatArray) -> FloatArray:
        """Return F, the calibrated logit, of every cell."""
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = np.exp(log_slopes)
            return np.asarray(offset[:, None] + slopes @ self.panels.crossed.T + self.place * slopes)

    def loss(self, offset: FloatArray, log_slopes: FloatArray) -> float:
        """Return minus the log-likelihood (a sum over rows, not a mean)."""
        logits = self.calibrated(offset, log_slopes)
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(np.vdot(self.weight, softplus(logits)) - np.vdot(self.positives, logits))
        value += 0.5 * float((1.0 + self.rows) @ np.square(self._beyond(log_slopes)).sum(axis=1))
        return value if np.isfinite(value) else np.inf

    def expected(self, offset: FloatArray, log_slopes: FloatArray) -> float:
        """Return the positives that all cells together are expected to have."""
        return float(np.sum(self.weight * sigmoid(self.calibrated(offset, log_slopes))))

    def reach(self, rows: FloatArray, slopes: FloatArray) -> FloatArray:
        """Σ_g rows[c, g] · ∂F[c, g] / ∂ψ[c, h]: what lies beyond a panel crosses it whole."""
        return np.asarray(slopes * (rows @ self.panels.crossed + self.place * rows))

    def gradient(self, offset: FloatArray, log_slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return derivatives of the loss: `[contexts]` by the offset and `[contexts, panels]` by the log-slopes."""
        residual = self.weight * sigmoid(self.calibrated(offset, log_slopes)) - self.positives
        by_slope = self.reach(residual, np.exp(log_slopes))
        return residual.sum(axis=1), by_slope + (1.0 + self.rows)[:, None] * self._beyond(log_slopes)

    def information(
        self, offset: FloatArray, log_slopes: FloatArray, lift: FloatArray, along: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Fisher information of the coefficients of contexts: its sum `[S, S]`, its products with `along` `[c, P, S]`.

        `lift` `[1 + panels, S]` takes coefficients to (offset, log-slope of every panel); `along` `[S, P]` are
        directions. A cell counts `p(1−p)` of its weight.
        """
        contexts, panels = log_slopes.shape
        total, cross = np.zeros((lift.shape[1],) * 2), np.empty((contexts, along.shape[1], lift.shape[1]))
        index, stiff = np.arange(panels), self._beyond(log_slopes)
        size = max(1, CHUNK // (panels * max(panels, lift.shape[1])))
        for start in range(0, contexts, size):
            some = slice(start, start + size)
            slopes = np.exp(log_slopes[some])
            chance = sigmoid(self._part(some).calibrated(offset[some], log_slopes[some]))
            rows = self.weight[some] * chance * (1.0 - chance)
            by_slope = slopes[:, None, :] * self.panels.crossed
            by_slope[:, index, index] += self.place[some] * slopes
            moves = by_slope @ lift[1:]
            moves += lift[0]
            total += moves.reshape(-1, lift.shape[1]).T @ (moves * rows[:, :, None]).reshape(-1, lift.shape[1])
            cross[some] = np.swapaxes(moves @ along * rows[:, :, None], 1, 2) @ moves
        if stiff.any():
            held = (1.0 + self.rows)[:, None] * (stiff != 0.0)
            total += (lift[1:].T * held.sum(axis=0)) @ lift[1:]
            cross += np.swapaxes(held[:, :, None] * (lift[1:] @ along), 1, 2) @ lift[1:]
        return total, cross

    def _part(self, contexts: slice) -> Table:
        return Table(self.panels, self.weight[contexts], self.positives[contexts], self.place[contexts])

    def _beyond(self, log_slopes: FloatArray) -> FloatArray:
        """Return how far log-slopes are beyond what is allowed, with their sign."""
        away = log_slopes - np.log(self.panels.scale)
        return np.asarray(away - np.clip(away, -STEEPEST_LOG_SLOPE, STEEPEST_LOG_SLOPE))


def make_table(
    panels: Panels, logits: FloatArray, contexts: IntArray, weight: FloatArray, positives: FloatArray, count: int
) -> Table:
    """Merge cells of the same context and panel; `count` is the number of contexts.

    Cells are read in pieces, so that millions of them take no memory worth naming.
    """
    sums = np.zeros((3, count * panels.count))
    # A piece at least as long as the sums, or adding these up would take longer than the piece itself.
    size = max(ROWS_AT_A_TIME, sums.shape[1])
    for start in range(0, len(logits), size):
        piece = slice(start, start + size)
        panel, place = panels.locate(logits[piece])
        key = contexts[piece].astype(np.int64) * panels.count + panel
        for column, part in zip(sums, (weight[piece], positives[piece], weight[piece] * place), strict=True):
            column += sums_by(key, part, sums.shape[1])
    rows, clicks, places = sums.reshape(3, count, panels.count)
    return Table(panels, rows, clicks, np.divide(places, rows, out=np.zeros_like(rows), where=rows > 0.0))
