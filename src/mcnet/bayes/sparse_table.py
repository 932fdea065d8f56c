"""The log-likelihood of the same cells as in `likelihood`, kept as a list: for very many contexts with few rows each.

A table of contexts and panels is mostly empty then. These loops visit the cells that have rows, and the panels between
the origin and the outermost of them: for 90,000 contexts with 11 rows each they take a sixth of the time of the matrix
products in `likelihood`. They are compiled with numba, and used only where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray, sums_by
from mcnet._shared.loops import compiled
from mcnet.bayes.likelihood import log_slopes_beyond, merged_cells
from mcnet.bayes.structure import Panels

CONTEXTS_AT_A_TIME = 2_048
"""Contexts whose products are made before they are summed: what is kept of them stays in the cache."""


@dataclass(frozen=True)
class SparseTable:
    """The cells with rows, in order of context and panel; those of context c are `start[c]` to `start[c + 1]`.

    `place` is the mean signed distance of a cell's rows from the panel's edge towards the origin, as in `Table`.
    """

    panels: Panels
    start: IntArray
    panel: IntArray
    weight: FloatArray
    positives: FloatArray
    place: FloatArray

    @cached_property
    def rows(self) -> FloatArray:
        """The weight of each context."""
        return np.add.reduceat(np.append(self.weight, 0.0), self.start[:-1]) * (np.diff(self.start) > 0)

    def panel_sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the weight, the positives and the summed places of each panel's rows."""
        columns = self.weight, self.positives, self.weight * self.place
        weight, positives, place = (sums_by(self.panel, column, self.panels.count) for column in columns)
        return weight, positives, place

    def loss(self, offset: FloatArray, log_slopes: FloatArray) -> float:
        """Return minus the log-likelihood (a sum over rows, not a mean)."""
        value = float(_kernels()["loss"](*self._given, offset, log_slopes))
        beyond = log_slopes_beyond(self.panels, log_slopes)
        if beyond is not None:
            value += 0.5 * float(self._stiffness @ np.square(beyond).sum(axis=1))
        return value if np.isfinite(value) else np.inf

    def expected(self, offset: FloatArray, log_slopes: FloatArray) -> float:
        """Return the positives that all cells together are expected to have."""
        by_offset, _ = self.gradient(offset, log_slopes)
        return float(by_offset.sum() + self.positives.sum())

    def gradient(self, offset: FloatArray, log_slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return derivatives of the loss: `[contexts]` by the offset and `[contexts, panels]` by the log-slopes."""
        by_offset, by_slope = np.zeros(len(offset)), np.zeros(log_slopes.shape)
        _kernels()["gradient"](*self._given, offset, log_slopes, by_offset, by_slope)
        beyond = log_slopes_beyond(self.panels, log_slopes)
        if beyond is not None:
            by_slope += self._stiffness[:, None] * beyond
        return by_offset, by_slope

    def information(
        self,
        offset: FloatArray,
        log_slopes: FloatArray,
        lift: FloatArray,
        along: FloatArray,
        *,
        observed: bool = False,
        take: Callable[[slice, FloatArray], None] | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Fisher (or observed) information: its sum, and its products with `along`, as `Table.information` gives it.

        Products of very many contexts would be a lot of memory: `take` is given those of a few contexts at a time,
        in place of the result.
        """
        contexts, panels = log_slopes.shape
        moves = lift @ along
        total = np.zeros((panels + 1, panels + 1))
        # With its own level for every panel, the lift only shares out the two endless panels.
        steps = np.array_equal(lift[2:-1, 1:], np.eye(panels - 2))
        average = lift[1, 1:].copy() if steps else np.zeros(0)
        size = contexts if take is None else CONTEXTS_AT_A_TIME
        products = np.empty((min(size, contexts), along.shape[1], panels - 1 if steps else panels + 1))
        beyond = log_slopes_beyond(self.panels, log_slopes)
        bends = np.ascontiguousarray(moves[1:])
        for first in range(0, contexts, max(size, 1)):
            some = slice(first, min(first + size, contexts))
            stiff = np.zeros((0, 0)) if beyond is None else self._stiffness[some, None] * (beyond[some] != 0.0)
            given = self.start[first : some.stop + 1], *self._given[1:], offset[some], log_slopes[some]
            made = products[: some.stop - first]
            _kernels()["information"](*given, moves[0].copy(), bends, stiff, observed, average, total, made)
            if take is not None:
                lifted = made if steps else (made.reshape(-1, panels + 1) @ lift).reshape(*made.shape[:2], -1)
                take(some, lifted)
        total += np.triu(total, 1).T
        if not steps and take is None:
            products = (products.reshape(-1, panels + 1) @ lift).reshape(contexts, along.shape[1], lift.shape[1])
        return lift.T @ total @ lift, products

    @cached_property
    def _stiffness(self) -> FloatArray:
        return np.asarray(1.0 + self.rows)

    @property
    def _given(self) -> tuple[Any, ...]:
        cells = self.start, self.panel, self.weight, self.positives, self.place
        return *cells, self.panels.lengths, self.panels.origin


def make_sparse_table(
    panels: Panels, logits: FloatArray, contexts: IntArray, weight: FloatArray, positives: FloatArray, count: int
) -> SparseTable:
    """Merge cells of the same context and panel; `count` is the number of contexts."""
    key, rows, clicks, place = merged_cells(panels, logits, contexts, weight, positives, count)
    context, panel = np.divmod(key, panels.count)
    return SparseTable(panels, np.searchsorted(context, np.arange(count + 1)), panel, rows, clicks, place)


@cache
def _kernels() -> dict[str, Any]:
    """Return the compiled loops; each walks from the origin to the outermost cells of a context, right and left."""

    def curve(cells, panels, lengths, origin, offset, log_slopes, slopes, values):  # type: ignore[no-untyped-def]
        # Slopes, and the curve at each panel's edge towards the origin, as far out as there are cells.
        low, high = origin + 1, origin
        for cell in cells:
            low, high = min(low, panels[cell]), max(high, panels[cell])
        value = offset
        for panel in range(origin + 1, high + 1):
            values[panel] = value
            slopes[panel] = np.exp(log_slopes[panel])
            value += lengths[panel] * slopes[panel]
        value = offset
        for panel in range(origin, low - 1, -1):
            values[panel] = value
            slopes[panel] = np.exp(log_slopes[panel])
            value += lengths[panel] * slopes[panel]
        return low, high

    walk: Any = curve

    def loss(  # type: ignore[no-untyped-def]
        start, panels, weight, positives, place, lengths, origin, offset, log_slopes
    ):
        slopes, values = np.empty(len(lengths)), np.empty(len(lengths))
        total = 0.0
        for context in range(len(start) - 1):
            cells = range(start[context], start[context + 1])
            walk(cells, panels, lengths, origin, offset[context], log_slopes[context], slopes, values)
            for cell in cells:
                logit = values[panels[cell]] + place[cell] * slopes[panels[cell]]
                total += weight[cell] * (max(logit, 0.0) + np.log1p(np.exp(-abs(logit)))) - positives[cell] * logit
        return total

    def gradient(  # type: ignore[no-untyped-def]
        start, panels, weight, positives, place, lengths, origin, offset, log_slopes, by_offset, by_slope
    ):
        slopes, values = np.empty(len(lengths)), np.empty(len(lengths))
        for context in range(len(start) - 1):
            cells = range(start[context], start[context + 1])
            low, high = walk(cells, panels, lengths, origin, offset[context], log_slopes[context], slopes, values)
            beyond = by_slope[context]
            for cell in cells:
                panel = panels[cell]
                logit = values[panel] + place[cell] * slopes[panel]
                residual = weight[cell] / (1.0 + np.exp(-logit)) - positives[cell]
                by_offset[context] += residual
                values[panel] = residual
            summed = 0.0
            last = start[context + 1] - 1
            for panel in range(high, origin, -1):
                beyond[panel] = lengths[panel] * summed
                if last >= start[context] and panels[last] == panel:
                    beyond[panel] += place[last] * values[panel]
                    summed += values[panel]
                    last -= 1
                beyond[panel] *= slopes[panel]
            summed = 0.0
            first = start[context]
            for panel in range(low, origin + 1):
                beyond[panel] = lengths[panel] * summed
                if first < start[context + 1] and panels[first] == panel:
                    beyond[panel] += place[first] * values[panel]
                    summed += values[panel]
                    first += 1
                beyond[panel] *= slopes[panel]

    def information(  # type: ignore[no-untyped-def]
        start, panels, weight, positives, place, lengths, origin, offset, log_slopes,
        lifted, bends, stiff, observed, average, total, products,
    ):  # fmt: skip
        count, width = bends.shape
        slopes, values = np.empty(count), np.empty(count)
        rows, residuals, places = np.zeros(count), np.zeros(count), np.zeros(count)
        changes, reach, pull = np.zeros((count, width)), np.empty(count), np.empty(count)
        walked, summed = np.empty(width), np.empty(width)
        product = np.empty((1 + count, width))
        for context in range(len(start) - 1):
            cells = range(start[context], start[context + 1])
            low, high = walk(cells, panels, lengths, origin, offset[context], log_slopes[context], slopes, values)
            product[:] = 0.0
            for cell in cells:
                panel = panels[cell]
                chance = 1.0 / (1.0 + np.exp(-(values[panel] + place[cell] * slopes[panel])))
                rows[panel] = weight[cell] * chance * (1.0 - chance)
                residuals[panel] = weight[cell] * chance - positives[cell]
                places[panel] = place[cell]
            for side in range(2):
                step = 1 if side == 0 else -1
                near, far = (origin + 1, high) if side == 0 else (origin, low)
                if (far - near) * step < 0:
                    continue
                # Outwards: how the calibrated logit of each cell moves with the numbers of a value.
                for number in range(width):
                    walked[number] = lifted[number]
                for panel in range(near, far + step, step):
                    own, whole = places[panel] * slopes[panel], lengths[panel] * slopes[panel]
                    for number in range(width):
                        changes[panel, number] = rows[panel] * (walked[number] + own * bends[panel, number])
                        walked[number] += whole * bends[panel, number]
                # Inwards: what lies beyond a panel crosses it whole.
                for number in range(width):
                    summed[number] = 0.0
                beyond, pulled = 0.0, 0.0
                for panel in range(far, near - step, -step):
                    length, own = lengths[panel], places[panel]
                    reach[panel] = slopes[panel] * (length * beyond + own * rows[panel])
                    pull[panel] = slopes[panel] * (length * pulled + own * residuals[panel])
                    total[0, 0] += rows[panel]
                    total[0, 1 + panel] += reach[panel]
                    total[1 + panel, 1 + panel] += slopes[panel] ** 2 * (
                        length * length * beyond + own * own * rows[panel]
                    )
                    for number in range(width):
                        change = changes[panel, number]
                        product[0, number] += change
                        product[1 + panel, number] = slopes[panel] * (length * summed[number] + own * change)
                        summed[number] += change
                    if observed:
                        total[1 + panel, 1 + panel] += pull[panel]
                        for number in range(width):
                            product[1 + panel, number] += pull[panel] * bends[panel, number]
                    beyond += rows[panel]
                    pulled += residuals[panel]
                for inner in range(near, far, step):
                    moved = lengths[inner] * slopes[inner]
                    for outer in range(inner + step, far + step, step):
                        total[1 + min(inner, outer), 1 + max(inner, outer)] += moved * reach[outer]
            if len(stiff):
                for panel in range(count):
                    total[1 + panel, 1 + panel] += stiff[context, panel]
                    for number in range(width):
                        product[1 + panel, number] += stiff[context, panel] * bends[panel, number]
            for number in range(width):
                if len(average):
                    products[context, number, 0] = product[0, number]
                    ends = product[1, number] + product[count, number]
                    for panel in range(1, count - 1):
                        products[context, number, panel] = product[1 + panel, number] + ends * average[panel - 1]
                else:
                    for column in range(1 + count):
                        products[context, number, column] = product[column, number]
            for cell in cells:
                rows[panels[cell]] = 0.0
                residuals[panels[cell]] = 0.0
                places[panels[cell]] = 0.0

    return {
        "loss": compiled(loss, curve),
        "gradient": compiled(gradient, curve),
        "information": compiled(information, curve),
    }
