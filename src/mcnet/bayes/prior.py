"""Gaussian priors and how their strengths are learnt from the data (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.structure import Shapes, State

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
# The shared curve: offset within some 3 logits and slope within a factor of some 1.6 of the base predictor's.
OFFSET_VARIANCE = 9.0
LEVEL_VARIANCE = 0.5**2
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

    def value_precision(self, field: int, shapes: Shapes) -> FloatArray:
        """Return the prior precision of (a, b, u₁…u_J) of one field's values."""
        a, b, u = self.values[field]
        precision: FloatArray = np.concatenate([np.array([1.0 / a, 1.0 / b]), shapes.roughness / u])
        return precision

    def shared_precision(self, shapes: Shapes) -> FloatArray:
        """Return the prior precision matrix of the shared vector."""
        size = 1 + len(shapes.level)
        precision: FloatArray = np.zeros((size, size))
        precision[0, 0] = 1.0 / OFFSET_VARIANCE
        precision[1:, 1:] = shapes.penalty / self.shared + np.outer(shapes.level, shapes.level) / LEVEL_VARIANCE
        return precision

    def logarithms(self) -> FloatArray:
        """Return all variances as one vector of logarithms."""
        variances: FloatArray = np.concatenate([*self.values, np.array([self.shared])])
        return np.log(variances)

    def scaled(self, factors: FloatArray) -> Strengths:
        """Return every variance times its factor, in the order of `logarithms`."""
        values = tuple(three * factors[3 * field : 3 * field + 3] for field, three in enumerate(self.values))
        return replace(self, values=values, shared=self.shared * float(factors[-1]))

    def bounded(self) -> Strengths:
        """Every variance within what may be learnt."""
        values = tuple(np.clip(three, SMALLEST, LARGEST) for three in self.values)
        return replace(self, values=values, shared=float(np.clip(self.shared, SMALLEST, LARGEST_SHARED)))


def default_strengths(fields: int, combinations: int) -> Strengths:
    """Return what is expected before any data; the last `combinations` fields are combinations of others."""
    expected = tuple(
        EXPECTED * (COMBINATION_SHARE if field >= fields - combinations else 1.0) for field in range(fields)
    )
    return Strengths(values=expected, shared=EXPECTED_SHARED, expected=expected)


# How much longer the next step of a strength is that goes on in the same direction, at most how long, and how long
# after a turn.
BOLDER, BOLDEST, LESS_BOLD = 1.5, 8.0, 0.7


class StrengthIteration:
    """Watches the fixed-point iteration of the strengths: has it settled, and where is it heading?"""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._last: FloatArray | None = None

    def step(self, before: Strengths, learnt: Strengths) -> tuple[Strengths, bool]:
        """Return the strengths to go on with, and whether no logarithm of a variance changes by the tolerance.

        Every other step, each logarithm that moves on in ever smaller steps is extrapolated (Aitken).
        """
        change = learnt.logarithms() - before.logarithms()
        settled = bool(np.max(np.abs(change)) < self._tolerance)
        if self._last is None:
            self._last = change
            return learnt, settled
        ratio = np.divide(change, self._last, out=np.zeros_like(change), where=np.abs(self._last) > 1e-12)
        self._last = None
        ratio = np.where((ratio > 0) & (ratio < 1), np.minimum(ratio, 0.8), 0.0)
        return learnt.scaled(np.exp(np.clip(change * ratio / (1.0 - ratio), -2.0, 2.0))).bounded(), settled


class BolderIteration(StrengthIteration):
    """The same for the strengths of several fields, where one that fades may take very many small steps.

    Every logarithm takes longer steps while its changes have the same sign, and shorter ones once that turns.
    """

    def __init__(self, tolerance: float) -> None:
        super().__init__(tolerance)
        self._boldness = np.ones(1)

    def step(self, before: Strengths, learnt: Strengths) -> tuple[Strengths, bool]:
        """Return the strengths to go on with, and whether no logarithm would take a step as long as the tolerance."""
        change = learnt.logarithms() - before.logarithms()
        if self._last is not None:
            onwards = change * self._last > 0.0
            self._boldness = np.where(onwards, np.minimum(BOLDER * self._boldness, BOLDEST), LESS_BOLD)
        self._last = change
        moved = self._boldness * change
        settled = bool(np.max(np.abs(moved)) < self._tolerance)
        return before.scaled(np.exp(np.clip(moved, -2.0, 2.0))).bounded(), settled


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
        """Take one fixed-point step towards the variances that maximise the Laplace evidence.

        With posterior mean m, posterior variance V and prior variance λ of a group of coefficients (in units where
        they have equal variance), `γ = Σ(1 − V/λ)` is the number of coefficients the data determine, and

            λ ← (Σ m² + ν λ₀) / (γ + ν),

        with ν pseudo-coefficients of the expected size λ₀.
        """
        learnt = []
        for field, numbers in enumerate(state.values):
            precision = strengths.value_precision(field, shapes)
            free = np.clip(1.0 - variances[field] * precision, 0.0, 1.0)
            squares = numbers**2 * precision
            updated = np.empty(3)
            for group, members in enumerate((slice(0, 1), slice(1, 2), slice(2, None))):
                before = strengths.values[field][group]
                believed = PSEUDO_COUNTS[group]
                size = before * squares[:, members].sum() + believed * strengths.expected[field][group]
                updated[group] = np.clip(size / (free[:, members].sum() + believed), SMALLEST, LARGEST[group])
            learnt.append(updated)
        bends = state.shared[1:]
        roughness = float(bends @ shapes.penalty @ bends)
        held = float(np.sum(shared_covariance[1:, 1:] * shapes.penalty)) / strengths.shared
        free_shared = np.clip(len(bends) - 1 - held, 0.0, None)
        shared = (roughness + PSEUDO_COUNT_SHARED * EXPECTED_SHARED) / (free_shared + PSEUDO_COUNT_SHARED)
        return replace(strengths, values=tuple(learnt), shared=float(np.clip(shared, SMALLEST, LARGEST_SHARED)))
