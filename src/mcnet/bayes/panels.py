"""Panels: the fixed partition of standardised logits on which every log-slope is a step function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.interpolate import BSpline

from mcnet._shared.math import ROWS_AT_A_TIME, sums_by
from mcnet._shared.typing import FloatArray, IntArray

__all__ = ["Panels", "Shape", "make_panels", "shape_basis"]

Shape = Literal["step", "linear", "cubic", "network"]

# A panel narrower than this many standard deviations has no say of its own about the slope.
NARROWEST = 1e-3
# More cells than ROWS_AT_A_TIME are not sorted by their score to be cut into panels, but counted in steps of so many
# logits.
POINT_WIDTH = 1e-3


@dataclass(frozen=True)
class Panels:
    """Adjoining intervals of `t = (logit − centre) / scale`.

    `edges` run from the lowest score to the highest; the first and the last panel lie beyond them, endless and empty.
    The curve is integrated from `edges[origin]`, where its value is the offset of the context. `mass` is the
    share of the evidence in each panel.
    """

    centre: float
    scale: float
    edges: FloatArray
    origin: int
    mass: FloatArray

    @property
    def count(self) -> int:
        """The number of panels, one more than edges."""
        return len(self.edges) + 1

    @property
    def origin_logit(self) -> float:
        """The raw logit at which the integral starts."""
        return self.centre + self.scale * float(self.edges[self.origin])

    @cached_property
    def lengths(self) -> FloatArray:
        """Signed lengths: negative left of the origin; the two endless panels count 0, as nothing lies beyond."""
        inner = np.concatenate([[0.0], np.diff(self.edges), [0.0]])
        return np.where(np.arange(self.count) > self.origin, inner, -inner)

    @cached_property
    def crossed(self) -> FloatArray:
        """`[panels, panels]`: the length of panel (column) that lies between the origin and panel (row).

        A product with it does what `cumulate` does, for many curves faster than running sums over short rows.
        """
        return np.ascontiguousarray(self.cumulate(np.eye(self.count)).T)

    def locate(self, logits: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the panel of each logit, and its signed distance from that panel's edge towards the origin."""
        t = (logits - self.centre) / self.scale
        panel = np.searchsorted(self.edges, t, side="right")
        right = panel > self.origin
        near = panel - right
        return panel, t - self.edges[near]

    def cumulate(self, slopes: FloatArray) -> FloatArray:
        """Return the curve at each panel's edge towards the origin, for slopes `[..., panels]` and offset 0."""
        steps = slopes * self.lengths
        split = self.origin + 1
        value = np.zeros_like(steps)
        # Away from the origin, a panel starts where the panels before it have brought the curve.
        value[..., split + 1 :] = np.cumsum(steps[..., split:-1], axis=-1)
        value[..., : split - 1] = np.cumsum(steps[..., split - 1 : 0 : -1], axis=-1)[..., ::-1]
        return value


def make_panels(logits: FloatArray, weight: FloatArray, positives: FloatArray, count: int) -> Panels:
    """Return panels that resolve the bulk of the rows, the bulk of the rarer class, and the range of scores alike.

    Edges are quantiles of the mean of three measures: rows, rows of the rarer class (which carry most of the
    information), and a uniform one over the central 99.8 % of the rows.
    """
    logits, weight, positives = _points(logits, weight, positives)
    total = weight.sum()
    centre = float(logits @ weight / total)
    scale = float(np.sqrt((logits - centre) ** 2 @ weight / total))
    if not scale > 1e-9:
        return Panels(centre, scale=1.0, edges=np.array([-0.5, 0.5]), origin=0, mass=np.array([0.0, 1.0, 0.0]))
    t = (logits - centre) / scale
    negatives = weight - positives
    rare = positives if positives.sum() <= negatives.sum() else negatives
    # With one class only there is no rarer one; the rows stand in for it.
    evidence = weight / total + (rare / rare.sum() if rare.sum() > 0 else weight / total)
    reached = np.cumsum(weight) / total
    low, high = t[np.searchsorted(reached, [0.001, 0.999]).clip(max=len(t) - 1)]
    spread = np.clip((t - low) / max(high - low, NARROWEST), 0.0, 1.0)
    measure = (np.cumsum(evidence) + spread) / 3.0
    cuts = np.interp(np.arange(1, count) / count, measure, t)
    cuts = cuts[(cuts > t[0] + NARROWEST) & (cuts < t[-1] - NARROWEST)]
    cuts = cuts[np.diff(cuts, prepend=-np.inf) > NARROWEST]
    edges = np.concatenate([t[:1], cuts, t[-1:]])
    origin = int(np.argmin(np.abs(edges - t @ evidence / evidence.sum())))
    panel = np.clip(np.searchsorted(edges, t, side="right"), 1, len(edges) - 1)
    mass = np.bincount(panel, weights=evidence, minlength=len(edges) + 1)
    return Panels(centre=centre, scale=scale, edges=edges, origin=origin, mass=mass / mass.sum())


def _points(logits: FloatArray, weight: FloatArray, positives: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return cells of equal scores as one point, in order, so that weights and repetitions give the same panels.

    Of very many cells, those within a thousandth of a logit are one point: sorting them would take longer than a fit.
    """
    if len(logits) <= ROWS_AT_A_TIME:
        points, point = np.unique(logits, return_inverse=True)
        return points, sums_by(point, weight, len(points)), sums_by(point, positives, len(points))
    lowest = float(logits.min())
    number = int((float(logits.max()) - lowest) / POINT_WIDTH) + 1
    total, clicks, summed = (np.zeros(number) for _ in range(3))
    for start in range(0, len(logits), ROWS_AT_A_TIME):
        piece = slice(start, start + ROWS_AT_A_TIME)
        point = ((logits[piece] - lowest) / POINT_WIDTH).astype(np.int64)
        total += sums_by(point, weight[piece], number)
        clicks += sums_by(point, positives[piece], number)
        summed += sums_by(point, weight[piece] * logits[piece], number)
    used = total > 0.0
    return summed[used] / total[used], total[used], clicks[used]


def shape_basis(panels: Panels, shape: Shape, functions: int | None = None) -> FloatArray:
    """Return the log-slope in each panel as a combination of functions: `[panels, functions]`.

    "step" gives every panel its own level; "linear" and "cubic" are B-splines of that degree, sampled at the middles of
    the panels, with knots at every (panels / functions)-th of them; "network" is a layer of tanh units that turn at
    such knots. Beyond the scores ever seen the log-slope is
    the average one: the last panel's own may be a chance result, and far out nothing holds it in check.
    """
    inner = panels.count - 2
    functions = min(functions or inner // 2, inner)
    degree = {"step": 0, "linear": 1, "cubic": 3, "network": 1}[shape]
    if shape == "step" or functions <= degree:
        basis = np.eye(inner)
    else:
        middles = 0.5 * (panels.edges[1:] + panels.edges[:-1])
        places = np.linspace(0.0, inner - 1.0, functions - degree + 1)
        knots = np.interp(places, np.arange(inner), middles)
        if shape == "network":
            widths = np.gradient(knots)[1:]
            units = np.tanh((middles[:, None] - knots[1:]) / widths)
            basis = np.column_stack([np.ones(inner), units])
        else:
            padded = np.concatenate([np.repeat(knots[0], degree), knots, np.repeat(knots[-1], degree)])
            basis = BSpline.design_matrix(middles, padded, degree).toarray()
    average = panels.mass[1:-1] @ basis
    return np.vstack([average, basis, average])
