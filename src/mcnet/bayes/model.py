"""The structure of the model: functions of the score, parameters, and which contexts have which field values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray, IntArray, sums_by

# Panels: the fixed partition of standardised logits on which every log-slope is a step function.

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

    @cached_property
    def crossed(self) -> FloatArray:
        """`[panels, panels]`: the signed length of panel (column) that lies between the origin and panel (row).

        The two endless panels count 0, as nothing lies beyond. `slopes @ crossed.T` is the curve at each panel's edge
        towards the origin, for slopes `[..., panels]` and offset 0.
        """
        lengths, index = np.concatenate([[0.0], np.diff(self.edges), [0.0]]), np.arange(len(self.mass))
        right = (index > self.origin) & (index < index[:, None])
        left = (index <= self.origin) & (index > index[:, None])
        return np.where(right, lengths, np.where(left, -lengths, 0.0))

    def locate(self, logits: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the panel of each logit, and its signed distance from that panel's edge towards the origin."""
        t = (logits - self.centre) / self.scale
        panel = np.searchsorted(self.edges, t, side="right")
        right = panel > self.origin
        near = panel - right
        return panel, t - self.edges[near]

    def by_slope(self, logits: FloatArray) -> FloatArray:
        """Return the derivative of a curve at raw logits by the slope of each panel: `[logits, panels]`."""
        panel, place = self.locate(logits)
        result = self.crossed[panel]
        result[np.arange(len(panel)), panel] += place
        return result


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


def step_basis(panels: Panels) -> FloatArray:
    """Return the basis that gives every panel its own log-slope: `[panels, functions]`."""
    return continued(panels, np.eye(len(panels.mass) - 2))


def continued(panels: Panels, basis: FloatArray) -> FloatArray:
    """Return functions of the panels that have an end `[panels − 2, functions]`, continued beyond the scores ever seen.

    There the log-slope is the average one: the last panel's own may be a chance result, and far out nothing holds it
    in check.
    """
    average = panels.mass[1:-1] @ basis
    return np.vstack([average, basis, average])


# The functions of the score that curves are made of, and the state of all parameters.

# Correlation length of log-slopes along the scores (Ornstein–Uhlenbeck), in standard deviations of the scores.
CORRELATION_LENGTH = 0.5


@dataclass(frozen=True)
class Shapes:
    """The functions of the score that curves are made of.

    A context has one coefficient vector `η = (offset, β)`; its log-slope in panel g is
    `log(scale) + (basis · β)[g]`, so that η = 0 is a curve of slope 1 in raw logits. A field value moves η by
    `deviation · (a, b, u₁…u_J)`: a lifts the curve, b stretches it, and u bends it along smooth functions φ₁…φ_J, in
    order of rising roughness. `penalty` is the roughness of φ: its squared slope integrated over t, and its squared
    distance from its mean in units of CORRELATION_LENGTH; `roughness` is that of φ₁…φ_J.
    """

    basis: FloatArray
    deviation: FloatArray
    penalty: FloatArray
    level: FloatArray
    roughness: FloatArray

    @cached_property
    def bends(self) -> FloatArray:
        """The log-slope in each panel by the numbers of a field value."""
        return np.asarray(self.basis @ self.deviation[1:])


def make_shapes(panels: Panels, basis: FloatArray, deviations: int) -> Shapes:
    """Return shapes for a basis; φ₀ and every deviation are Ornstein–Uhlenbeck processes in t around their means.

    Without the memory it would be a Wiener process, the log-slope of a cubic smoothing spline, which
    expects the largest deviations to be the slow ones. φ₁…φ_J are the smoothest directions: the generalised
    eigenvectors of the roughness against the mass of the panels (for even panels, cosines).
    """
    functions = basis.shape[1]
    inner = basis[1:-1]
    middles = 0.5 * (panels.edges[1:] + panels.edges[:-1])
    steps = np.diff(inner, axis=0) / np.sqrt(np.diff(middles))[:, None]
    slowness = steps.T @ steps
    # A little even mass keeps the eigenproblem well posed where panels are empty.
    mass = 0.99 * panels.mass[1:-1] + 0.01 / len(inner)
    gram = inner.T @ (mass[:, None] * inner)
    rough, vectors = scipy.linalg.eigh(slowness, gram)
    bends = min(deviations, functions - 1)
    constant = np.linalg.lstsq(inner, np.ones(len(inner)))[0]
    level = gram @ constant
    around_mean = gram - np.outer(level, level) / (constant @ level)
    deviation = np.zeros((functions + 1, bends + 2))
    deviation[0, 0] = 1.0
    deviation[1:, 1] = constant
    deviation[1:, 2:] = vectors[:, 1 : bends + 1]
    return Shapes(
        basis=basis,
        deviation=deviation,
        penalty=slowness + around_mean / CORRELATION_LENGTH**2,
        level=level,
        roughness=np.maximum(rough[1 : bends + 1], 1e-6) + 1.0 / CORRELATION_LENGTH**2,
    )


@dataclass
class State:
    """All parameters: the shared vector `[1 + functions]` and, for each field, `[values, 2 + bends]`."""

    shared: FloatArray
    values: list[FloatArray]

    def dot(self, other: State) -> float:
        """Return the inner product of two states."""
        pairs = zip(self.values, other.values, strict=True)
        return float(self.shared @ other.shared + sum(np.vdot(one, two) for one, two in pairs))

    def plus(self, factor: float, other: State) -> State:
        """Return `self + factor · other`."""
        pairs = zip(self.values, other.values, strict=True)
        return State(self.shared + factor * other.shared, [one + factor * two for one, two in pairs])


# Which contexts have which field values: sums over the contexts of a value, and over the values of a context.


class Incidence:
    """Which contexts have which value of each field: `codes[context, field]`, negative for no known value."""

    def __init__(self, codes: IntArray, sizes: list[int]) -> None:
        self.codes = codes
        self.sizes = sizes
        self.fields = len(sizes)
        self.several = sum(size > 0 for size in sizes) > 1  # fields that have known values
        start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        context, field = np.nonzero(codes >= 0)
        entries = (np.ones(len(context)), (context, start[field] + codes[context, field]))
        self._member = scipy.sparse.csr_array(entries, shape=(len(codes), sum(sizes)))
        """1 where a context has a value: `[contexts, values of all fields]`."""

    def totals(self, numbers: FloatArray) -> list[FloatArray]:
        """Sum `numbers[context, ...]` over the contexts of every value of every field."""
        summed = np.asarray(self._member.T @ numbers.reshape(len(numbers), -1))
        return self.split(summed.reshape(-1, *numbers.shape[1:]))

    def add(self, summed: FloatArray, contexts: IntArray, numbers: FloatArray) -> None:
        """Add `numbers` `[contexts, columns]` of some contexts to the sums of their values, all fields' in one list."""
        part = self._member[contexts]
        present = np.bincount(part.indices, minlength=len(summed)) > 0
        place, number = np.cumsum(present) - 1, int(present.sum())
        member = scipy.sparse.csr_array((part.data, place[part.indices], part.indptr), shape=(len(numbers), number))
        summed[present] += member.T @ numbers

    def gather(self, values: list[FloatArray], width: int) -> FloatArray:
        """Sum over fields of what each context's value has: `[contexts, width]`."""
        every = np.concatenate(values) if values else np.zeros((0, width))
        return np.asarray(self._member @ every)

    def split(self, numbers: FloatArray) -> list[FloatArray]:
        """Split what all values of all fields have, in one list, by field."""
        return np.split(numbers, np.cumsum(self.sizes)[:-1]) if self.sizes else []
