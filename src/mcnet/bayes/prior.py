"""Gaussian priors and how their strengths are learnt from the data (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.model import Shapes, State

# Expectations before any data, as variances: how much values of a field differ in offset (0.2 logits), in log-slope
# (0.12), and how far their log-slopes wander from one standard deviation of the scores to the next (0.25).
EXPECTED = np.array([0.2**2, 0.12**2, 0.25**2])
# How many well-measured coefficients each expectation counts for. Sparse data misjudge how much offsets and slopes of
# values differ, hence two; bends are so rarely measured that more than one would keep data from ever overruling it.
PSEUDO_COUNTS = np.array([2.0, 2.0, 1.0])
# A combination of fields is expected to add half as much (in standard deviations) as a field does.
COMBINATION_SHARE = 0.25
# The same of the common curve: how far its log-slopes wander, and how far it is off in level (0.17 logits) and in
# log-slope (0.12): few positives do no harm to scores that are right, and many overrule it.
EXPECTED_COMMON = np.array([0.25**2, 0.03, 0.015])
PSEUDO_COUNTS_COMMON = np.array([3.0, 2.0, 2.0])
# And where the scores are not to be believed: one score for all rows, or rows that count for less than one.
WIDE_COMMON = np.array([0.25**2, 9.0, 0.5**2])
SMALLEST = 1e-6
# A slope that wants to be 0 has a log-slope of minus infinity: what is learnt from it must stop somewhere.
LARGEST = np.array([25.0, 4.0, 4.0])
LARGEST_COMMON = np.array([4.0, 25.0, 25.0])


@dataclass(frozen=True)
class Strengths:
    """Prior variances, and what they were expected to be.

    `values` `[fields, 3]` are those of the deviations (a, b, u) of each field's values, `common` those of φ₀ for one
    unit of t, of the common level, and of the common log-slope.
    """

    values: FloatArray
    expected: FloatArray
    common: FloatArray = field(default_factory=EXPECTED_COMMON.copy)
    expected_common: FloatArray = field(default_factory=EXPECTED_COMMON.copy)

    def value_precision(self, of_field: int, shapes: Shapes) -> FloatArray:
        """Return the prior precision of (a, b, u₁…u_J) of one field's values."""
        a, b, u = self.values[of_field]
        return np.concatenate([[1.0 / a, 1.0 / b], shapes.roughness / u])

    def shared_precision(self, shapes: Shapes) -> FloatArray:
        """Return the prior precision matrix of the shared vector."""
        bends, level, slope = self.common
        precision = np.zeros((1 + len(shapes.level),) * 2)
        precision[0, 0] = 1.0 / level
        precision[1:, 1:] = shapes.penalty / bends + np.outer(shapes.level, shapes.level) / slope
        return precision

    def logarithms(self) -> FloatArray:
        """Return the logarithms of all variances, those of the common curve last: `[fields + 1, 3]`."""
        return np.log(np.vstack([self.values, self.common]))

    def moved(self, logarithms: FloatArray) -> Strengths:
        """Return all variances with their logarithms moved, within what may be learnt."""
        largest = np.vstack([np.tile(LARGEST, (len(self.values), 1)), LARGEST_COMMON])
        moved = np.clip(np.exp(self.logarithms() + logarithms), SMALLEST, largest)
        return replace(self, values=moved[:-1], common=moved[-1])


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
        share = np.where(np.arange(fields) < fields - combinations, 1.0, COMBINATION_SHARE)
        return Strengths(share[:, None] * EXPECTED, share[:, None] * EXPECTED)

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
        values = np.empty_like(strengths.values)
        for part, numbers in enumerate(state.values):
            precision, expected = strengths.value_precision(part, shapes), strengths.expected[part]
            free = _by_group(np.clip(1.0 - variances[part] * precision, 0.0, 1.0))
            squares = strengths.values[part] * _by_group(numbers**2 * precision)
            values[part] = (squares + PSEUDO_COUNTS * expected) / (free + PSEUDO_COUNTS)
        level, bends, covariance = shapes.level, state.shared[1:], shared_covariance[1:, 1:]
        squares = np.array([bends @ shapes.penalty @ bends, state.shared[0] ** 2, (level @ bends) ** 2])
        known = np.array([np.sum(covariance * shapes.penalty), shared_covariance[0, 0], level @ covariance @ level])
        number = np.array([len(bends) - 1, 1.0, 1.0])
        free = np.clip(number - known / strengths.common, 0.0, number)
        common = squares + PSEUDO_COUNTS_COMMON * strengths.expected_common
        learnt = replace(strengths, values=values, common=common / (free + PSEUDO_COUNTS_COMMON))
        return learnt.moved(np.zeros(1))


def _by_group(numbers: FloatArray) -> FloatArray:
    """Sum over the values of a field, and over their bends."""
    sums = numbers.sum(axis=0)
    return np.array([sums[0], sums[1], sums[2:].sum()])
