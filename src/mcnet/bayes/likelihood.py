"""The log-likelihood of weighted cells under one log-slope per panel and context, with exact derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray, IntArray, sums_by
from mcnet.bayes.structure import Panels

# Directions in which the coefficients of a context may move, and the products of its information with them.


@dataclass(frozen=True)
class _Side:
    """The panels on one side of the origin, and what they add to each other along directions."""

    panels: slice
    count: int
    """The number of its panels."""
    inner: slice
    """Those of them that end somewhere."""
    from_near: FloatArray
    """Slopes times it: for each direction and panel, what the panels nearer to the origin add."""
    from_far: FloatArray
    """The same of those farther away."""


@dataclass(frozen=True)
class Directions:
    """Directions of coefficients: `lift` takes these to (offset, log-slope of every panel), `along` has one per column.

    The first `level` directions move the offset alone, which takes no products. `bends` are the log-slopes of the
    others, `raised` those among them that move the offset too. `is_levels` tells a `lift` of one level per panel.
    `farther` is 1 where panel (column) lies farther from the origin than panel (row), on the same side of it, else 0.
    """

    lift: FloatArray
    along: FloatArray
    moves: FloatArray
    level: int
    bends: FloatArray
    raised: IntArray
    sides: tuple[_Side, _Side]
    farther: FloatArray
    is_levels: bool

    @classmethod
    def of(cls, panels: Panels, lift: FloatArray, along: FloatArray) -> Directions:
        """Prepare directions."""
        moves = lift @ along
        level = int(np.argmax(np.append(moves[1:].any(axis=0), True)))
        bends = np.ascontiguousarray(moves[1:, level:].T)
        raised = np.flatnonzero(moves[0, level:])
        index = np.arange(panels.count)
        right = index > panels.origin
        beyond = np.where(right[:, None], index[:, None] < index, index[:, None] > index)
        farther = np.where((right[:, None] == right) & beyond, 1.0, 0.0)
        first, last = panels.origin + 1, panels.count

        def side(part: slice, inner: slice) -> _Side:
            inside, bent = farther[part, part], bends[:, part].T
            near = (bent * panels.lengths[part, None])[:, :, None] * inside[:, None, :]
            far = bent[:, :, None] * inside.T[:, None, :]
            return _Side(part, part.stop - part.start, inner, near.reshape(len(bent), -1), far.reshape(len(bent), -1))

        sides = side(slice(0, first), slice(1, first)), side(slice(first, last), slice(first, last - 1))
        is_levels = np.array_equal(lift[2:-1, 1:], np.eye(panels.count - 2))
        return cls(lift, along, moves, level, bends, raised, sides, farther, is_levels)

    def products(
        self,
        slopes: FloatArray,
        near: FloatArray,
        far: FloatArray,
        own: FloatArray,
        rows: FloatArray,
        memory: FloatArray,
        cross: FloatArray,
    ) -> None:
        """Fill `cross` `[contexts, P, S]` with the products of the contexts' information with the directions.

        Of two panels on one side of the origin, the information is `near` of the nearer times `far` of the farther one;
        `own` is the diagonal and `rows` the information on the offset. `memory` has place for two temporary arrays.
        """
        lifted, level, basis = self.moves[0], self.level, self.lift[1:, 1:]
        cross[:, :, 0] = far @ self.moves[1:] + rows[:, None] * lifted
        cross[:, :level, 1:] = (far @ basis)[:, None, :] * lifted[:level, None]
        bent = cross[:, level:]
        if not self.is_levels:
            bent[:, :, 1:] = 0.0
        ends = []
        for side in self.sides:
            shape = (len(slopes), len(self.bends), side.count)
            first, second = (part[: np.prod(shape)].reshape(len(slopes), -1) for part in memory)
            np.matmul(slopes[:, side.panels], side.from_near, out=first)
            np.matmul(far[:, side.panels], side.from_far, out=second)
            first, second = first.reshape(shape), second.reshape(shape)
            first[:, self.raised] += lifted[level:][self.raised, None]
            first *= far[:, None, side.panels]
            second *= near[:, None, side.panels]
            first += second
            np.multiply(own[:, None, side.panels], self.bends[:, side.panels], out=second)
            if not self.is_levels:
                bent[:, :, 1:] += (first + second) @ basis[side.panels]
                continue
            start, end = side.inner.start - side.panels.start, side.inner.stop - side.panels.start
            # The levels of inner panels are coefficients themselves.
            np.add(first[:, :, start:end], second[:, :, start:end], out=bent[:, :, side.inner])
            endless = 0 if start else -1
            ends.append(first[:, :, endless] + second[:, :, endless])
        for end, shares in zip(ends, (basis[0], basis[-1]), strict=False):
            if end.any():
                bent[:, :, 1:] += end[:, :, None] * shares


# The log-likelihood of weighted cells under one log-slope per panel and context, with exact derivatives.

# Log-slopes (of raw logits) beyond ± this are penalised as strongly as all rows of the context weigh: a curve is a step
# or flat by then, and farther out exponentials lose their digits. Only very large weights reach it.
STEEPEST_LOG_SLOPE = 8.0
# Numbers in the largest temporary array of one chunk of contexts: few enough to stay in the cache.
CHUNK = 96_000


@dataclass(frozen=True)
class CalibratedCells:
    """The slope and F, the calibrated logit, of every cell, at contexts with these offsets and log-slopes."""

    offset: FloatArray
    log_slopes: FloatArray
    slopes: FloatArray
    logits: FloatArray

    @cached_property
    def smaller_odds(self) -> FloatArray:
        """The odds of the less likely class: exp(−|F|)."""
        return np.exp(-np.abs(self.logits))

    @cached_property
    def chance(self) -> FloatArray:
        """The probability of a positive: sigmoid(F)."""
        return np.where(self.logits < 0.0, self.smaller_odds, 1.0) / (1.0 + self.smaller_odds)


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

    _asked: list[CalibratedCells] = field(default_factory=list, repr=False, compare=False)
    """What was asked for last."""
    _prepared: list[Directions] = field(default_factory=list, repr=False, compare=False)
    _memory: list[FloatArray] = field(default_factory=list, repr=False, compare=False)

    def calibrated(self, offset: FloatArray, log_slopes: FloatArray) -> CalibratedCells:
        """Return the slope and F, the calibrated logit, of every cell.

        A step of a search asks for loss, gradient and curvature at the same contexts, so the last answer is kept.
        """
        if not (self._asked and self._asked[0].offset is offset and self._asked[0].log_slopes is log_slopes):
            with np.errstate(over="ignore", invalid="ignore"):
                slopes = np.exp(log_slopes)
                logits = offset[:, None] + slopes @ self.panels.crossed.T + self.place * slopes
            self._asked[:] = [CalibratedCells(offset, log_slopes, slopes, logits)]
        return self._asked[0]

    def loss(self, offset: FloatArray, log_slopes: FloatArray) -> float:
        """Return minus the log-likelihood (a sum over rows, not a mean)."""
        cells = self.calibrated(offset, log_slopes)
        logits = cells.logits
        with np.errstate(over="ignore", invalid="ignore"):
            # log(1 + exp(logit)), which NumPy's own logaddexp takes thrice the time for
            one_more = np.maximum(logits, 0.0) + np.log1p(cells.smaller_odds)
            value = float(np.vdot(self.weight, one_more) - np.vdot(self.positives, logits))
        beyond = log_slopes_beyond(self.panels, log_slopes)
        if beyond is not None:
            value += 0.5 * float(self._stiffness @ np.square(beyond).sum(axis=1))
        return value if np.isfinite(value) else np.inf

    @cached_property
    def rows(self) -> FloatArray:
        """The weight of each context."""
        return np.asarray(self.weight.sum(axis=1))

    def panel_sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the weight, the positives and the summed places of each panel's rows."""
        return self.weight.sum(axis=0), self.positives.sum(axis=0), (self.weight * self.place).sum(axis=0)

    @cached_property
    def _stiffness(self) -> FloatArray:
        """The weight of the penalty on too large log-slopes, per context."""
        return np.asarray(1.0 + self.rows)

    def expected(self, offset: FloatArray, log_slopes: FloatArray) -> float:
        """Return the positives that all cells together are expected to have."""
        return float(np.sum(self.weight * self.calibrated(offset, log_slopes).chance))

    def reach(self, rows: FloatArray, place: FloatArray) -> FloatArray:
        """Σ_g rows[..., g] · ∂F[..., g] / ∂slope[..., h]: what lies beyond a panel crosses it whole."""
        crossed = self.panels.crossed
        beyond = (rows.reshape(-1, len(crossed)) @ crossed).reshape(rows.shape)
        beyond += place * rows
        return beyond

    def gradient(self, offset: FloatArray, log_slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return derivatives of the loss: `[contexts]` by the offset and `[contexts, panels]` by the log-slopes."""
        cells = self.calibrated(offset, log_slopes)
        residual = self.weight * cells.chance - self.positives
        by_slope = cells.slopes * self.reach(residual, self.place)
        beyond = log_slopes_beyond(self.panels, log_slopes)
        if beyond is not None:
            by_slope += self._stiffness[:, None] * beyond
        return residual.sum(axis=1), by_slope

    def _directions(self, lift: FloatArray, along: FloatArray) -> Directions:
        """Return directions prepared for products; a search asks for the same ones at every step."""
        if not (self._prepared and self._prepared[0].lift is lift and self._prepared[0].along is along):
            self._prepared[:] = [Directions.of(self.panels, lift, along)]
        return self._prepared[0]

    def _scratch(self, size: int) -> FloatArray:
        """Return memory for two arrays, the same at every call: new pages would cost as much as the products."""
        if not self._memory or self._memory[0].shape[1] < size:
            self._memory[:] = [np.empty((2, size))]
        return self._memory[0]

    def information(
        self, offset: FloatArray, log_slopes: FloatArray, lift: FloatArray, along: FloatArray, *, observed: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Fisher information of the coefficients of contexts: its sum, and its products with `along`.

        `lift` `[1 + panels, S]` takes coefficients to (offset, log-slope of every panel); `along` `[S, P]` are
        directions. Returns `[S, S]` and `[contexts, P, S]`. A cell counts `p(1−p)` of its weight, and its F
        depends on panel h by `length[h]·slope[h]` if it lies beyond h. Hence no context needs its own matrix:
        products are sums over the panels crossed, and for two panels on one side of the origin the information is
        `length[near]·slope[near] · slope[far]·reach[far]`, whose sum over contexts is one matrix product.

        `observed` gives the second derivative of the loss instead, which may be indefinite: as F is a sum of
        exponentials of the log-slopes, it only has the gradient more on the diagonal.
        """
        contexts, panels = log_slopes.shape
        total = np.zeros((panels + 1, panels + 1))
        cross = np.empty((contexts, along.shape[1], lift.shape[1]))
        index = np.arange(1, panels + 1)
        directions = self._directions(lift, along)
        lengths, farther = self.panels.lengths, directions.farther
        beyond = log_slopes_beyond(self.panels, log_slopes)
        cells = self.calibrated(offset, log_slopes)
        size = min(contexts, max(1, CHUNK // (panels * max(len(directions.bends), 1))))
        memory = self._scratch(size * len(directions.bends) * max(side.count for side in directions.sides))
        for start in range(0, contexts, size):
            chunk = slice(start, start + size)
            slopes, place, rows = cells.slopes[chunk], self.place[chunk], self.weight[chunk]
            chance = cells.chance[chunk]
            residual = rows * chance - self.positives[chunk]
            rows = rows * chance * (1.0 - chance)
            reach = self.reach(rows, place)
            near, far = slopes * lengths, slopes * reach
            own = slopes * (near * (reach - place * rows) + slopes * place**2 * rows)
            if observed:
                own += slopes * self.reach(residual, place)
            if beyond is not None:
                own += self._stiffness[chunk, None] * (beyond[chunk] != 0.0)
            total[0, 0] += rows.sum()
            total[0, 1:] += far.sum(axis=0)
            total[1:, 1:] += farther * (near.T @ far)
            total[index, index] += own.sum(axis=0)

            directions.products(slopes, near, far, own, rows.sum(axis=1), memory, cross[chunk])
        # Only panels farther out than their partner were summed.
        block = total[1:, 1:]
        block += (farther * block).T
        total[1:, 0] = total[0, 1:]
        return lift.T @ total @ lift, cross


def log_slopes_beyond(panels: Panels, log_slopes: FloatArray) -> FloatArray | None:
    """Return how far log-slopes are beyond what is allowed, with their sign; None if none is."""
    middle = float(np.log(panels.scale))
    highest, lowest = log_slopes.max(initial=middle) - middle, log_slopes.min(initial=middle) - middle
    if max(highest, -lowest) <= STEEPEST_LOG_SLOPE:
        return None
    away = log_slopes - middle
    return np.asarray(away - np.clip(away, -STEEPEST_LOG_SLOPE, STEEPEST_LOG_SLOPE))


def make_table(
    panels: Panels, logits: FloatArray, contexts: IntArray, weight: FloatArray, positives: FloatArray, count: int
) -> Table:
    """Merge cells of the same context and panel; `count` is the number of contexts."""
    key, *columns = merged_cells(panels, logits, contexts, weight, positives, count)
    table = np.zeros((3, count * panels.count))
    table[:, key] = columns
    rows, clicks, place = table.reshape(3, count, panels.count)
    return Table(panels=panels, weight=rows, positives=clicks, place=place)


def merged_cells(
    panels: Panels, logits: FloatArray, contexts: IntArray, weight: FloatArray, positives: FloatArray, count: int
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Merge cells of the same context and panel: the key context · panels + panel, weight, positives, mean place.

    `count` is the number of contexts. Cells are read in pieces, so that millions of them take no memory worth naming.
    """
    rows, clicks, places = (np.zeros(count * panels.count) for _ in range(3))
    # A piece at least as long as the sums, or adding these up would take longer than the piece itself.
    size = max(ROWS_AT_A_TIME, len(rows))
    for start in range(0, len(logits), size):
        piece = slice(start, start + size)
        panel, place = panels.locate(logits[piece])
        key = contexts[piece].astype(np.int64) * panels.count + panel
        rows += sums_by(key, weight[piece], len(rows))
        clicks += sums_by(key, positives[piece], len(rows))
        places += sums_by(key, weight[piece] * place, len(rows))
    used = np.flatnonzero(rows)
    return used, rows[used], clicks[used], places[used] / rows[used]
