"""The log-likelihood of weighted cells under one log-slope per panel and context, with exact derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mcnet.calibrators.factorised.panels import Panels

__all__ = ["Table", "make_table"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Numbers in the largest temporary array of one chunk of contexts.
CHUNK = 4_000_000


@dataclass(frozen=True)
class Table:
    """Cells merged to one a context and panel: `[contexts, panels]` arrays.

    `place` is the mean signed distance of the merged rows from the panel's edge towards the origin, so that

        F[c, g] = offset[c] + Σ_{h before g} length[h] · exp(ψ[c, h]) + place[c, g] · exp(ψ[c, g])

    is the calibrated logit of the cell, ψ being the log-slope.
    """

    panels: Panels
    weight: Floats
    positives: Floats
    place: Floats

    def calibrated(self, offset: Floats, slopes: Floats) -> Floats:
        """F, the calibrated logit of every cell."""
        return offset[:, None] + self.panels.cumulate(slopes) + self.place * slopes

    def loss(self, offset: Floats, log_slopes: Floats) -> float:
        """Minus the log-likelihood (a sum over rows, not a mean)."""
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self.calibrated(offset, np.exp(log_slopes))
            value = float(np.sum(self.weight * np.logaddexp(0.0, logits) - self.positives * logits))
        return value if np.isfinite(value) else np.inf

    def reach(self, rows: Floats, contexts: slice | None = None) -> Floats:
        """Σ_g rows[c, g] · ∂F[c, g] / ∂slope[c, h]: what lies beyond a panel crosses it whole."""
        origin = self.panels.origin
        beyond = np.zeros_like(rows)
        beyond[:, origin + 1 : -1] = np.cumsum(rows[:, :origin:-1], axis=1)[:, -2::-1]
        beyond[:, 1 : origin + 1] = np.cumsum(rows[:, : origin + 1], axis=1)[:, :-1]
        return self.panels.lengths * beyond + (self.place if contexts is None else self.place[contexts]) * rows

    def gradient(self, offset: Floats, log_slopes: Floats) -> tuple[Floats, Floats]:
        """Derivatives of the loss: `[contexts]` by the offset and `[contexts, panels]` by the log-slopes."""
        slopes = np.exp(log_slopes)
        residual = self.weight * expit(self.calibrated(offset, slopes)) - self.positives
        return residual.sum(axis=1), slopes * self.reach(residual)

    def curvature(self, offset: Floats, log_slopes: Floats) -> Iterator[tuple[slice, Floats]]:
        """Fisher information `[contexts, 1 + panels, 1 + panels]` of offset and log-slopes, in chunks of contexts.

        A cell counts `p(1−p)` of its weight, and its F depends on panel h by `length[h]·slope[h]` for all panels
        it lies beyond. So the information of two panels on one side of the origin is
        `length[near] · reach[far] · slope[near] · slope[far]`: an outer product on each side of the diagonal.
        """
        panels = self.panels.count
        lengths, origin = self.panels.lengths, self.panels.origin
        index = np.arange(panels)
        right = index > origin
        near_first = (index[:, None] < index[None, :]) == right[:, None]
        same_side = right[:, None] == right[None, :]
        upper = same_side & near_first & (index[:, None] != index[None, :])
        size = max(1, CHUNK // (panels + 1) ** 2)
        for start in range(0, len(self.weight), size):
            chunk = slice(start, start + size)
            slopes = np.exp(log_slopes[chunk])
            logits = offset[chunk, None] + self.panels.cumulate(slopes) + self.place[chunk] * slopes
            chance = expit(logits)
            rows = self.weight[chunk] * chance * (1.0 - chance)
            reach = self.reach(rows, chunk)
            far = slopes * reach
            information = np.empty((len(rows), panels + 1, panels + 1))
            information[:, 0, 0] = rows.sum(axis=1)
            information[:, 0, 1:] = information[:, 1:, 0] = far
            block = information[:, 1:, 1:]
            product = (slopes * lengths)[:, :, None] * far[:, None, :] * upper
            np.add(product, product.transpose(0, 2, 1), out=block)
            whole = lengths * (reach - self.place[chunk] * rows)
            block[:, index, index] = slopes**2 * (whole + self.place[chunk] ** 2 * rows)
            yield chunk, information


def make_table(
    panels: Panels, logits: Floats, contexts: Integers, weight: Floats, positives: Floats, count: int
) -> Table:
    """Merge cells of the same context and panel; `count` is the number of contexts."""
    panel, place = panels.locate(logits)
    key = contexts * panels.count + panel
    shape = (count, panels.count)

    def total(values: Floats) -> Floats:
        return np.bincount(key, weights=values, minlength=count * panels.count).reshape(shape).astype(np.float64)

    rows = total(weight)
    mean = np.divide(total(weight * place), rows, out=np.zeros(shape), where=rows > 0)
    return Table(panels=panels, weight=rows, positives=total(positives), place=mean)
