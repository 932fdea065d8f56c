"""The posterior variance of calibrated logits at a few scores, for every field value.

Given the strengths of the priors, the Laplace approximation makes the posterior normal with covariance Σ. The strengths
are estimates themselves. Integrated over the normal approximation of their logarithms (variance τ² = (kurtosis − 1) /
number of coefficients that determine a strength), the variance of a coefficient rises from V to

    V · (1 + ½ τ² s),

where s = V / λ is the share of its precision that comes from the prior: half of the sum of what the mean moves and of
what the variance changes with the strength. For a linear combination gᵀθ that is gᵀ(Σ + ½ Σ_k τ_k² Σ P_k Σ)g with the
prior precision P_k of the coefficients that share the k-th strength.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.bayes.posterior_model import BayesFit
from mcnet.bayes.prior import PSEUDO_COUNT_SHARED, PSEUDO_COUNTS
from mcnet.curves.family import CurveFamily
from mcnet.curves.uncertainty import CurveUncertainty, kept_places

__all__ = ["FitUncertainty", "uncertainty_of"]

# Places inside the range of the scores, and how far beyond it (in logits) others lie.
INNER_PLACES = 33
BEYOND = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
# Fields with more values than this give their variances at every fourth place, with more than that at three places.
VALUES_AT_EVERY_PLACE = 1_000
VALUES_AT_FOURTH_PLACES = 20_000
# The variance of the logarithm of a variance estimated from one coefficient, which is the kurtosis less 1: 2 for normal
# ones. Bends of real curves have heavier tails (a kink is a few large ones among many small); with a kurtosis of 5
# intervals cover kinks and sines.
VARIANCE_OF_ONE = np.array([2.0, 2.0, 4.0])
# Numbers in the largest temporary array of a block of values.
BLOCK_NUMBERS = 2_000_000


def uncertainty_of(fit: BayesFit, family: CurveFamily) -> CurveUncertainty:
    """Return the variances of the curves of a family that a fit gave.

    With one field they are those of each value. With several, the variance of the mean curve is common, and a value
    adds what its own curve, the other fields at their average, is less certain than the mean.
    """
    return _Variances(fit).compute(family)


@dataclass(frozen=True, eq=False)
class FitUncertainty:
    """The uncertainty of a fit, computed when first asked for: it takes a third of the time of the fit itself."""

    fit: BayesFit
    family: CurveFamily
    level_variance: float = 0.0
    """What the common level is less certain than the rows alone say, since periods differ."""

    @cached_property
    def computed(self) -> CurveUncertainty:
        """The variances."""
        found = uncertainty_of(self.fit, self.family)
        if self.level_variance == 0.0:
            return found
        return replace(found, common=found.common + self.level_variance).rounded()

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the credible interval of each row's calibrated logit, as CurveUncertainty does."""
        return self.computed.band(logits, codes, level)

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers."""
        return self.computed.to_dict()


class _Moments(NamedTuple):
    """Covariances: of the shared coefficients, of values' own numbers, of the sum of other fields' mean numbers."""

    shared: FloatArray
    own_shared: FloatArray
    own: FloatArray
    mean_shared: FloatArray
    own_mean: FloatArray
    mean: FloatArray


class _Variances:
    """Variances at the places; other fields than the one looked at are at their average over the rows."""

    def __init__(self, fit: BayesFit) -> None:
        covariance = fit.required_covariance()
        self.fit, self.shared = fit, covariance.shared
        self.blocks, self.coupling = covariance.blocks, covariance.coupling
        edges = fit.panels.centre + fit.panels.scale * fit.panels.edges
        chosen = np.interp(np.linspace(0.0, len(edges) - 1.0, INNER_PLACES), np.arange(len(edges)), edges)
        self.places = np.unique(np.concatenate([edges[0] - BEYOND, chosen, edges[-1] + BEYOND]))
        panel, place = fit.panels.locate(self.places)
        # The calibrated logit at the places by the slope of each panel.
        self.by_slope = fit.panels.crossed[panel].copy()
        self.by_slope[np.arange(len(panel)), panel] += place
        fields = range(len(fit.state.values))
        self.shares = [_normalised(share) for share in fit.rows_of_values]
        self.mean = [self.shares[f] @ fit.state.values[f] for f in fields]
        self.precision = [fit.strengths.value_precision(f, fit.shapes) for f in fields]
        self.of_strengths = [self._variance_of_strengths(f) for f in fields]
        self.of_shared_strength = 2.0 / (self._determined_shared() + PSEUDO_COUNT_SHARED)

    def compute(self, family: CurveFamily) -> CurveUncertainty:
        fields = range(len(self.fit.state.values))
        several = len(self.fit.state.values) > 1
        common = self._variance(None, None, np.arange(len(self.places)))[0]
        if len(self.fit.state.values) == 1:
            common = np.zeros(len(self.places))
        known, unseen, steps = [], [], []
        for field in fields:
            step = _step(len(self.fit.state.values[field]), len(self.places))
            at = kept_places(step, len(self.places))
            added = np.concatenate([self._of_values(field, at), self._variance(field, None, at)])
            if several and field < self.fit.fields:
                added = np.maximum(added - common[at], 0.0)
            known.append(added[:-1])
            unseen.append(added[-1])
            steps.append(step)
        return CurveUncertainty(family, self.places, common, tuple(known), tuple(unseen), tuple(steps)).rounded()

    def _of_values(self, field: int, at: IntArray) -> FloatArray:
        number = len(self.fit.state.values[field])
        size = max(1, BLOCK_NUMBERS // (len(at) * (len(self.shared) + self.by_slope.shape[1])))
        parts = [self._variance(field, slice(start, min(start + size, number)), at) for start in range(0, number, size)]
        return np.concatenate(parts) if parts else np.zeros((0, len(at)))

    def _variance(self, field: int | None, values: slice | None, at: IntArray) -> FloatArray:
        """Return variances `[values, places]` of some values of a field, of an unseen one, and of the mean curve."""
        fit, shapes = self.fit, self.fit.shapes
        deviation = shapes.deviation
        others = [f for f in range(fit.fields) if f != field]
        moved = sum((self.mean[f] for f in others), np.zeros(deviation.shape[1]))
        numbers = (
            np.zeros((1, deviation.shape[1])) if field is None or values is None else fit.state.values[field][values]
        )
        coefficients = fit.state.shared + (numbers + moved) @ deviation.T
        slopes = np.exp(np.log(fit.panels.scale) + coefficients[:, 1:] @ shapes.basis.T)
        by_coefficient = np.empty((len(numbers), len(at), len(self.shared)))
        by_coefficient[:, :, 0] = 1.0
        by_coefficient[:, :, 1:] = (self.by_slope[at] * slopes[:, None, :]) @ shapes.basis
        by_number = by_coefficient @ deviation
        if field is not None and field >= fit.fields:
            return self._of_combination(field, values, by_number)
        of = self._moments(field, others, values)
        spread = by_coefficient @ of.shared + by_number @ (of.own_shared + of.mean_shared)
        with_own = by_coefficient @ np.swapaxes(of.own_shared, 1, 2)
        with_own += by_number @ (of.own + np.swapaxes(of.own_mean, 1, 2))
        with_mean = by_coefficient @ of.mean_shared.T + by_number @ (of.own_mean + of.mean)
        variance = np.einsum("vxs,vxs->vx", spread, by_coefficient)
        variance += np.einsum("vxp,vxp->vx", with_own + with_mean, by_number)
        bends = spread[:, :, 1:]
        held = np.einsum("vxs,vxs->vx", bends @ shapes.penalty, bends) / fit.strengths.shared
        variance += 0.5 * self.of_shared_strength * held
        if field is not None:
            variance += 0.5 * (with_own**2 @ (self.precision[field] * self.of_strengths[field]))
        return np.asarray(np.maximum(variance, 0.0))

    def _of_combination(self, field: int, values: slice | None, by_number: FloatArray) -> FloatArray:
        """Return what a combination of two fields adds: the variance of its own deviations."""
        own = np.diag(1.0 / self.precision[field]) if values is None else self.blocks[field][values]
        with_own = by_number @ own
        variance = np.einsum("vxp,vxp->vx", with_own, by_number)
        variance += 0.5 * (with_own**2 @ (self.precision[field] * self.of_strengths[field]))
        return np.asarray(variance)

    def _moments(self, field: int | None, others: list[int], values: slice | None) -> _Moments:
        """Return covariances of shared coefficients, of values' numbers, of the sum of other fields' mean numbers."""
        width, size = self.fit.shapes.deviation.shape[1], len(self.shared)
        joint = self.fit.required_covariance().fields
        if joint is None:
            mean_coupling = sum(
                (np.tensordot(self.shares[f], self.coupling[f], 1) for f in others), np.zeros((width, size))
            )
            mean = sum((np.tensordot(self.shares[f] ** 2, self.blocks[f], 1) for f in others), np.zeros((width, width)))
            mean_shared = -mean_coupling @ self.shared
            mean = mean - mean_shared @ mean_coupling.T
            if field is not None and values is not None:
                coupling = self.coupling[field][values]
                own_shared = -coupling @ self.shared
                own = self.blocks[field][values] - own_shared @ np.swapaxes(coupling, 1, 2)
                return _Moments(self.shared, own_shared, own, mean_shared, -(own_shared @ mean_coupling.T), mean)
            shared = self.shared
        else:
            weights = joint.mean_of([self.shares[f] if f != field else None for f in range(len(joint.start))], width)
            with_mean = joint.matrix @ weights
            shared, mean_shared, mean = joint.matrix[:size, :size], with_mean[:size].T, weights.T @ with_mean
            if field is not None and values is not None:
                rows = joint.rows(field, values, width)
                own_shared = joint.matrix[rows][:, :, :size]
                own = np.stack([joint.matrix[np.ix_(place, place)] for place in rows])
                return _Moments(shared, own_shared, own, mean_shared, with_mean[rows], mean)
        own = np.zeros((1, width, width))
        if field is not None:
            own[0] = np.diag(1.0 / self.precision[field])
        nothing = np.zeros((1, width, width))
        return _Moments(shared, np.zeros((1, width, size)), own, mean_shared, nothing, mean)

    def _variance_of_strengths(self, field: int) -> FloatArray:
        """Return the variance of the logarithm of the strength behind each number of a field's values."""
        numbers = self.coupling[field].reshape(-1, len(self.shared))
        through = np.einsum("is,is->i", numbers @ self.shared, numbers).reshape(self.coupling[field].shape[:2])
        variances = np.einsum("vpp->vp", self.blocks[field]) + through
        determined = np.square(np.clip(1.0 - variances * self.precision[field], 0.0, 1.0)).sum(axis=0)
        groups = np.array([determined[0], determined[1], determined[2:].sum()])
        each = VARIANCE_OF_ONE / (groups + PSEUDO_COUNTS)
        return np.concatenate([each[:2], np.full(len(determined) - 2, each[2])])

    def _determined_shared(self) -> float:
        shapes, strengths = self.fit.shapes, self.fit.strengths
        held = float(np.sum(self.shared[1:, 1:] * shapes.penalty)) / strengths.shared
        return float(np.clip(len(self.shared) - 2 - held, 0.0, None))


def _normalised(rows: FloatArray) -> FloatArray:
    return rows / max(float(rows.sum()), np.finfo(np.float64).tiny)


def _step(values: int, places: int) -> int:
    """At every how many places a field with this many values gives its variances."""
    if values <= VALUES_AT_EVERY_PLACE:
        return 1
    return 4 if values <= VALUES_AT_FOURTH_PLACES else places // 2
