"""Directions in which the coefficients of a context may move, and the products of its information with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.bayes.panels import Panels

__all__ = ["Directions"]


@dataclass(frozen=True)
class _Side:
    """The panels on one side of the origin, and what they add to each other along directions."""

    panels: slice
    inner: slice
    """Those of them that end somewhere."""
    from_near: FloatArray
    """Slopes times it: for each direction and panel, what the panels nearer to the origin add."""
    from_far: FloatArray
    """The same of those farther away."""

    @property
    def count(self) -> int:
        """The number of its panels."""
        return int(self.panels.stop - self.panels.start)


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
        farther = _farther(panels)
        first, last = panels.origin + 1, panels.count

        def side(part: slice, inner: slice) -> _Side:
            inside, bent = farther[part, part], bends[:, part].T
            near = (bent * panels.lengths[part, None])[:, :, None] * inside[:, None, :]
            far = bent[:, :, None] * inside.T[:, None, :]
            return _Side(part, inner, near.reshape(len(bent), -1), far.reshape(len(bent), -1))

        sides = side(slice(0, first), slice(1, first)), side(slice(first, last), slice(first, last - 1))
        is_levels = np.array_equal(lift[2:-1, 1:], np.eye(panels.count - 2))
        return cls(lift, along, moves, level, bends, raised, sides, farther, is_levels)

    @cached_property
    def largest(self) -> int:
        """The numbers of one context in the largest temporary array of `products`."""
        return len(self.bends) * max(side.count for side in self.sides)

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


def _farther(panels: Panels) -> FloatArray:
    index = np.arange(panels.count)
    right = index > panels.origin
    after = index[:, None] < index[None, :]
    before = index[:, None] > index[None, :]
    return np.where((right[:, None] & right[None, :] & after) | (~right[:, None] & ~right[None, :] & before), 1.0, 0.0)
