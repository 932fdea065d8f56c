"""Gaussian priors and how their strengths are learnt from the data (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.structure import Shapes, State

__all__ = ["EmpiricalBayes", "Prior", "StrengthIteration", "Strengths", "default_strengths", "relearn"]


# Expectations before any data, as variances: how much values of a field differ in offset (0.3 logits), in log-slope
# (0.15), and how far their log-slopes, and the shared one, wander from one standard deviation of the scores to the
# next (0.25).
EXPECTED = np.array([0.3**2, 0.15**2, 0.25**2])
EXPECTED_SHARED = 0.25**2
# How many well-measured coefficients each expectation counts for. Sparse data misjudge how much offsets and slopes of
# values differ, hence three; bends are so rarely measured that more than one would keep data from ever overruling it.
PSEUDO_COUNTS = np.array([3.0, 3.0, 1.0])
PSEUDO_COUNT_SHARED = 3.0
# A combination of fields is expected to add half as much (in standard deviations) as a field does.
COMBINATION_SHARE = 0.25
# The shared curve, where nothing is learnt: offset within some 3 logits and slope within a factor of some 1.6 of the
# base predictor's.
OFFSET_VARIANCE = 9.0
LEVEL_VARIANCE = 0.5**2
# Where it is learnt, offset and log-slope of the shared curve have mixtures of normal priors at the identity: standard
# deviations and their shares. Most of the mass is near the identity, and the tails are heavy: the base predictor is
# believed until the rows say how wrong it is.
OFFSET_WIDTHS = {0.03: 0.2, 0.1: 0.3, 0.3: 0.3, 1.0: 0.18, 5.0: 0.02}
LEVEL_WIDTHS = {0.003: 0.25, 0.03: 0.1, 0.1: 0.15, 0.3: 0.5}
# Likewise how much values of a field differ (offset, log-slope, bends) and how far the shared log-slope wanders, in
# units of what is expected. It holds where the data determine few coefficients, about FEW; with more, the expectations
# themselves are the better guess, and with more than MOST_AVERAGED the data alone say it.
FEW = np.array([2.0, 1.0, 1.0])
FEW_SHARED = 1.0
MOST_AVERAGED = 300.0
VALUE_WIDTHS = {0.05: 0.3, 0.2: 0.3, 0.6: 0.3, 1.5: 0.1}
SHARED_WIDTHS = {0.05: 0.35, 0.4: 0.2, 1.0: 0.3, 2.0: 0.15}
SMALLEST = 1e-6
# A slope that wants to be 0 has a log-slope of minus infinity: what is learnt from it must stop somewhere.
LARGEST = np.array([25.0, 4.0, 4.0])
LARGEST_SHARED = 4.0


@dataclass(frozen=True)
class Strengths:
    """Prior variances: `values[field] = (a, b, u)` of the deviations, `shared` of φ₀ for one unit of t."""

    values: tuple[FloatArray, ...]
    shared: float
    expected: tuple[FloatArray, ...]
    offset: float = OFFSET_VARIANCE
    """Of the offset of the shared curve around the identity's."""
    level: float = LEVEL_VARIANCE
    """Of the mean log-slope of the shared curve."""

    def value_precision(self, field: int, shapes: Shapes) -> FloatArray:
        """Return the prior precision of (a, b, u₁…u_J) of one field's values."""
        a, b, u = self.values[field]
        precision: FloatArray = np.concatenate([np.array([1.0 / a, 1.0 / b]), shapes.roughness / u])
        return precision

    def shared_precision(self, shapes: Shapes) -> FloatArray:
        """Return the prior precision matrix of the shared vector."""
        size = 1 + len(shapes.level)
        precision: FloatArray = np.zeros((size, size))
        precision[0, 0] = 1.0 / self.offset
        precision[1:, 1:] = shapes.penalty / self.shared + np.outer(shapes.level, shapes.level) / self.level
        return precision

    def logarithms(self) -> FloatArray:
        """Return all variances as one vector of logarithms."""
        variances: FloatArray = np.concatenate([*self.values, np.array([self.shared, self.offset, self.level])])
        return np.log(variances)

    def scaled(self, factors: FloatArray) -> Strengths:
        """Return every variance times its factor, in the order of `logarithms`."""
        values = tuple(three * factors[3 * field : 3 * field + 3] for field, three in enumerate(self.values))
        shared, offset, level = factors[-3:].tolist()
        return replace(
            self, values=values, shared=self.shared * shared, offset=self.offset * offset, level=self.level * level
        )

    def bounded(self) -> Strengths:
        """Every variance within what may be learnt."""
        values = tuple(np.clip(three, SMALLEST, LARGEST) for three in self.values)
        return replace(
            self,
            values=values,
            shared=float(np.clip(self.shared, SMALLEST, LARGEST_SHARED)),
            offset=float(np.clip(self.offset, min(OFFSET_WIDTHS) ** 2, max(OFFSET_WIDTHS) ** 2)),
            level=float(np.clip(self.level, min(LEVEL_WIDTHS) ** 2, max(LEVEL_WIDTHS) ** 2)),
        )


def default_strengths(fields: int, combinations: int) -> Strengths:
    """Return what is expected before any data; the last `combinations` fields are combinations of others."""
    expected = tuple(
        EXPECTED * (COMBINATION_SHARE if field >= fields - combinations else 1.0) for field in range(fields)
    )
    return Strengths(values=expected, shared=EXPECTED_SHARED, expected=expected)


def relearn(
    strengths: Strengths, shapes: Shapes, state: State, variances: list[FloatArray], shared_covariance: FloatArray
) -> Strengths:
    """Return the strengths under which the posterior mode is the mean over all prior widths, weighted by evidence.

    The likelihood is taken as normal around the mode: a coefficient with posterior mean m and variance V under the
    prior variance λ has the precision `ℓ = 1/V − 1/λ` and the slope `r = m/V`, whence mode and evidence under every
    other width. For a group of coefficients it is one step towards the maximum of the evidence,

        λ ← (Σ m² + ν λ₀) / (γ + ν),

    with the number of coefficients that the data determine, `γ = Σ(1 − V/λ)`, and ν pseudo-coefficients of the size λ₀
    that stands for all widths.
    """
    learnt = []
    for field, numbers in enumerate(state.values):
        precision = strengths.value_precision(field, shapes)
        free = 1.0 - variances[field] * precision
        squares = numbers**2 * precision
        unit = strengths.expected[field] / strengths.values[field]
        steps = [
            _step(
                squares[:, members].ravel(),
                free[:, members].ravel(),
                unit[group],
                PSEUDO_COUNTS[group],
                FEW[group],
                _value_widths(),
            )
            for group, members in enumerate((slice(0, 1), slice(1, 2), slice(2, None)))
        ]
        learnt.append(np.clip(strengths.values[field] * steps, SMALLEST, LARGEST))
    waves = shapes.waves
    squares = (waves @ state.shared[1:]) ** 2 / strengths.shared
    held = np.einsum("ws,ws->w", waves @ shared_covariance[1:, 1:], waves) / strengths.shared
    expected = EXPECTED_SHARED / strengths.shared
    shared = strengths.shared * _step(squares, 1.0 - held, expected, PSEUDO_COUNT_SHARED, FEW_SHARED, _shared_widths())
    offset, level = _averaged_line(strengths, shapes, state, shared_covariance)
    return replace(
        strengths,
        values=tuple(learnt),
        shared=float(np.clip(shared, SMALLEST, LARGEST_SHARED)),
        offset=offset,
        level=level,
    )


_Widths = tuple[FloatArray, FloatArray]
"""Variances, and the logarithms of their shares."""


def _step(
    squares: FloatArray, free: FloatArray, expected: float, believed: float, few: float, widths: _Widths
) -> float:
    """Return (Σ m² + ν λ₀) / (γ + ν), where λ₀ is what stands for all widths, unless the coefficients are very many.

    All in units of the present prior variance: `squares` are m², and `free` is 1 − V, so that ℓ = free / (1 − free).
    """
    free = np.clip(free, 0.0, 1.0)
    determined = float(free.sum())
    if determined < MOST_AVERAGED:
        left = np.maximum(1.0 - free, 1e-12)
        variances, log_shares = widths
        precision = 1.0 / (expected * variances)
        total = free / left + precision[:, None]
        moved = squares / (left**2 * total)
        evidence = log_shares + 0.5 * (np.log(precision[:, None] / total) + moved).sum(axis=1)
        averaged = 1.0 / _standing_for(evidence, precision, moved.sum(axis=1))
        expected += (averaged - expected) / (1.0 + (determined / few) ** 2)
    return (float(squares.sum()) + believed * expected) / (determined + believed)


@cache
def _value_widths() -> _Widths:
    return np.array(list(VALUE_WIDTHS)) ** 2, np.log(list(VALUE_WIDTHS.values()))


@cache
def _shared_widths() -> _Widths:
    return np.array(list(SHARED_WIDTHS)) ** 2, np.log(list(SHARED_WIDTHS.values()))


def _averaged_line(
    strengths: Strengths, shapes: Shapes, state: State, shared_covariance: FloatArray
) -> tuple[float, float]:
    """Return the prior variances of offset and log-slope of the shared curve that stand for all pairs of widths."""
    both = np.zeros((2, len(state.shared)))
    both[0, 0], both[1, 1:] = 1.0, shapes.level
    inverse = np.linalg.inv(both @ shared_covariance @ both.T)
    slope = inverse @ (both @ state.shared)
    known = inverse - np.diag([1.0 / strengths.offset, 1.0 / strengths.level])
    values, vectors = np.linalg.eigh(known)
    (one, cross), (_, two) = (vectors * np.maximum(values, 0.0)) @ vectors.T
    of_offset, of_level, log_shares = _pairs_of_widths()
    first, second = one + of_offset, two + of_level
    determinant = first * second - cross**2
    offset, level = (
        (second * slope[0] - cross * slope[1]) / determinant,
        (first * slope[1] - cross * slope[0]) / determinant,
    )
    evidence = log_shares + 0.5 * (np.log(of_offset * of_level / determinant) + slope[0] * offset + slope[1] * level)
    return (
        1.0 / _standing_for(evidence, of_offset, np.abs(offset)),
        1.0 / _standing_for(evidence, of_level, np.abs(level)),
    )


@cache
def _pairs_of_widths() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the precisions of offset and log-slope in every pair of widths, and the logarithm of the pair's share."""
    pairs = [(b**-2.0, a**-2.0, p * q) for b, p in OFFSET_WIDTHS.items() for a, q in LEVEL_WIDTHS.items()]
    of_offset, of_level, shares = np.array(pairs).T
    return of_offset, of_level, np.log(shares)


def _standing_for(evidence: FloatArray, precision: FloatArray, size: FloatArray) -> float:
    """Return the precision under which the mode is the mean of the modes, of the sizes given, under each precision."""
    weight = np.exp(evidence - evidence.max()) * (size + 1e-12)
    return float(weight @ precision / weight.sum())


class StrengthIteration:
    """Watches the fixed-point iteration of the strengths: has it settled, and where is it heading?"""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._last: FloatArray | None = None

    def settles(self, before: Strengths, after: Strengths) -> bool:
        """Tell whether no logarithm of a variance changes by more than the tolerance."""
        return bool(np.max(np.abs(after.logarithms() - before.logarithms())) < self._tolerance)

    def extrapolate(self, before: Strengths, after: Strengths) -> Strengths:
        """Extrapolate (Aitken), every other step, each logarithm that moves on in ever smaller steps."""
        change = after.logarithms() - before.logarithms()
        if self._last is None:
            self._last = change
            return after
        ratio = np.divide(change, self._last, out=np.zeros_like(change), where=np.abs(self._last) > 1e-12)
        self._last = None
        ratio = np.where((ratio > 0) & (ratio < 1), np.minimum(ratio, 0.8), 0.0)
        return after.scaled(np.exp(np.clip(change * ratio / (1.0 - ratio), -2.0, 2.0))).bounded()


@runtime_checkable
class Prior(Protocol):
    """What `BayesMCNet(prior=…)` takes: the strengths of the priors before any data, and how they are learnt."""

    def first(self, fields: int, combinations: int) -> Strengths:
        """Return the strengths before any data; the last `combinations` of the fields are combinations of others."""

    def learn(
        self,
        strengths: Strengths,
        shapes: Shapes,
        state: State,
        variances: list[FloatArray],
        shared_covariance: FloatArray,
    ) -> Strengths:
        """Return better strengths, given the posterior mode under the present ones and its variances.

        `state` is how far the mode is from the identity: the shared vector less its prior mean.

        It is called until no variance changes by more than five per cent. Returning `strengths` keeps them as they are.
        """


class EmpiricalBayes:
    """The prior that BayesMCNet has by default: variances that maximise the Laplace evidence."""

    def first(self, fields: int, combinations: int) -> Strengths:
        """Return what is expected before any data."""
        return default_strengths(fields, combinations)

    def learn(
        self,
        strengths: Strengths,
        shapes: Shapes,
        state: State,
        variances: list[FloatArray],
        shared_covariance: FloatArray,
    ) -> Strengths:
        """Return one fixed-point step towards the maximum of the evidence."""
        return relearn(strengths, shapes, state, variances, shared_covariance)
