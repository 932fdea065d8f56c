"""Gaussian priors and how their strengths are learnt from the data (empirical Bayes)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.model import Shapes, State

# Expectations before any data, as variances: how much values of a field differ in offset (0.2 logits), in log-slope
# (0.12), and how far their log-slopes, and the shared one, wander from one standard deviation of the scores to the
# next (0.25).
EXPECTED = np.array([0.2**2, 0.12**2, 0.25**2])
EXPECTED_SHARED = 0.25**2
# How many well-measured coefficients each expectation counts for. Sparse data misjudge how much offsets and slopes of
# values differ, hence two; bends are so rarely measured that more than one would keep data from ever overruling it.
PSEUDO_COUNTS = np.array([2.0, 2.0, 1.0])
PSEUDO_COUNT_SHARED = 3.0
# A combination of fields is expected to add half as much (in standard deviations) as a field does.
COMBINATION_SHARE = 0.25
# The common curve leaves the scores as they are, up to a level (0.17 logits) and a log-slope (0.12) that count for two
# coefficients each: few positives do no harm to scores that are right, and many overrule it.
EXPECTED_LEVEL = np.array([0.03, 0.015])
PSEUDO_COUNT_LEVEL = 2.0
# The same where the scores are not to be believed: one score for all rows, or rows that count for less than one.
WIDE_LEVEL = np.array([9.0, 0.5**2])
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
    level: FloatArray = dataclasses.field(default_factory=EXPECTED_LEVEL.copy)
    """Of the level and the log-slope of the common curve."""
    expected_level: FloatArray = dataclasses.field(default_factory=EXPECTED_LEVEL.copy)

    def value_precision(self, field: int, shapes: Shapes) -> FloatArray:
        """Return the prior precision of (a, b, u₁…u_J) of one field's values."""
        a, b, u = self.values[field]
        precision: FloatArray = np.concatenate([np.array([1.0 / a, 1.0 / b]), shapes.roughness / u])
        return precision

    def shared_precision(self, shapes: Shapes) -> FloatArray:
        """Return the prior precision matrix of the shared vector."""
        size = 1 + len(shapes.level)
        precision: FloatArray = np.zeros((size, size))
        precision[0, 0] = 1.0 / self.level[0]
        precision[1:, 1:] = shapes.penalty / self.shared + np.outer(shapes.level, shapes.level) / self.level[1]
        return precision

    def logarithms(self) -> FloatArray:
        """Return all variances as one vector of logarithms."""
        variances: FloatArray = np.concatenate([*self.values, np.array([self.shared]), self.level])
        return np.log(variances)

    def scaled(self, factors: FloatArray) -> Strengths:
        """Return every variance times its factor, in the order of `logarithms`."""
        values = tuple(three * factors[3 * field : 3 * field + 3] for field, three in enumerate(self.values))
        return replace(self, values=values, shared=self.shared * float(factors[-3]), level=self.level * factors[-2:])

    def bounded(self) -> Strengths:
        """Every variance within what may be learnt."""
        values = tuple(np.clip(three, SMALLEST, LARGEST) for three in self.values)
        shared, level = np.clip(self.shared, SMALLEST, LARGEST_SHARED), np.clip(self.level, SMALLEST, LARGEST[0])
        return replace(self, values=values, shared=float(shared), level=level)


def default_strengths(fields: int, combinations: int) -> Strengths:
    """Return what is expected before any data; the last `combinations` fields are combinations of others."""
    expected = tuple(
        EXPECTED * (COMBINATION_SHARE if field >= fields - combinations else 1.0) for field in range(fields)
    )
    return Strengths(values=expected, shared=EXPECTED_SHARED, expected=expected)


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
        """Return better strengths, given the posterior mode (from the identity) under the present ones, and variances.

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
        known = np.array([shared_covariance[0, 0], shapes.level @ shared_covariance[1:, 1:] @ shapes.level])
        squares = np.array([state.shared[0], shapes.level @ bends]) ** 2 + PSEUDO_COUNT_LEVEL * strengths.expected_level
        level = squares / (np.clip(1.0 - known / strengths.level, 0.0, 1.0) + PSEUDO_COUNT_LEVEL)
        return replace(strengths, values=tuple(learnt), shared=float(shared), level=level).bounded()
