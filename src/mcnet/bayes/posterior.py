"""The posterior of a fit: one monotone curve per context, its covariance, and the variance of calibrated logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray, IndexArray, IntArray
from mcnet.bayes.model import Panels, Shapes, State
from mcnet.bayes.newton import own_variances
from mcnet.bayes.prior import PSEUDO_COUNTS, PSEUDO_COUNTS_COMMON, SMALLEST, Strengths
from mcnet.curves.curves import CurveUncertainty, kept_places
from mcnet.curves.family import Combination, CurveFamily
from mcnet.errors import NotFittedError
from mcnet.rows.contexts import distinct_contexts

# A fit of BayesMCNet: one monotone curve for every context, with its posterior covariance.

WORTH_ANOTHER_STEP = 1.0
"""A fit with a larger decrement is not at its maximum: it could gain half of it in log-posterior."""


@dataclass(frozen=True)
class Covariance:
    """The Laplace posterior covariance: the shared block, each value's block, and what couples them.

    With several fields these leave out what couples values of different fields.
    """

    shared: FloatArray
    blocks: tuple[FloatArray, ...]
    coupling: tuple[FloatArray, ...]


@dataclass(frozen=True)
class BayesFit:
    """`p = sigmoid(a_c + ∫ exp(φ₀(t) + b_c + u_c·φ(t)) dt)` with `a`, `b`, `u` summed over the fields of a context.

    `codes` is always `[rows, fields]`; a negative code or one beyond the fitted values is an unseen value, which leaves
    the curve of the remaining fields as it is.
    """

    panels: Panels
    shapes: Shapes
    state: State
    strengths: Strengths
    combinations: tuple[Combination, ...] = ()
    covariance: Covariance | None = None
    rows_of_values: tuple[FloatArray, ...] = ()
    decrement: float = 0.0
    iterations: int = 0

    @property
    def fields(self) -> int:
        """The number of fields a row of `codes` must have."""
        return len(self.state.values) - len(self.combinations)

    @property
    def finished(self) -> bool:
        """Whether what is left to be gained (half of the decrement) is less than data can tell."""
        return self.decrement < WORTH_ANOTHER_STEP

    def recentred(self, fields: Sequence[bool]) -> BayesFit:
        """Return the same curves, with what all values of the chosen fields have in common moved into the shared one.

        The shared curve, which unseen values get, has its own prior; where that holds it back (scores that say
        nothing, or the reverse), the values all deviate alike.
        """
        shared, values = self.state.shared.copy(), list(self.state.values)
        for field in np.flatnonzero(fields):
            common = values[field].mean(axis=0)
            shared += self.shapes.deviation @ common
            values[field] = values[field] - common
        return replace(self, state=State(shared, values))

    def without_spread(self, fields: Sequence[int]) -> BayesFit:
        """Return the same curves, with fields whose values, seen or not, do not differ."""
        values = self.strengths.values.copy()
        values[list(fields)] = SMALLEST
        return replace(self, strengths=replace(self.strengths, values=values))

    def shifted(self, offset: float) -> BayesFit:
        """Return the same curves, every one moved by an offset in logits."""
        shared = self.state.shared.copy()
        shared[0] += offset
        return replace(self, state=State(shared, self.state.values))

    def without_values(self) -> BayesFit:
        """Return the shared curve alone, as a model without fields."""
        return replace(
            self,
            state=State(self.state.shared, []),
            strengths=replace(self.strengths, values=np.zeros((0, 3)), expected=np.zeros((0, 3))),
            combinations=(),
            rows_of_values=(),
            covariance=self.covariance and Covariance(self.covariance.shared, (), ()),
        )

    def expand(self, codes: ArrayLike) -> IntArray:
        """Append the codes of combinations, and write every unseen value as −1."""
        given = np.atleast_2d(np.asarray(codes, dtype=np.int64))
        sizes = np.array([len(numbers) for numbers in self.state.values[: self.fields]], dtype=np.int64)
        given = np.where((given >= 0) & (given < sizes), given, -1)
        return np.column_stack([given, *(pair.codes(given) for pair in self.combinations)]).astype(np.int64)

    def coefficients(self, codes: ArrayLike) -> FloatArray:
        """Return offset and basis coefficients of each context: `[rows, 1 + functions]`."""
        expanded = self.expand(codes)
        moved = np.zeros((len(expanded), self.shapes.deviation.shape[1]))
        for field, numbers in enumerate(self.state.values):
            known = expanded[:, field] >= 0
            moved[known] += numbers[expanded[known, field]]
        return self.state.shared + moved @ self.shapes.deviation.T

    def _pieces(self, codes: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the calibrated logit at each panel's edge towards the origin, and the slope in each panel."""
        coefficients = self.coefficients(codes)
        slopes = np.exp(np.log(self.panels.scale) + coefficients[:, 1:] @ self.shapes.basis.T)
        return coefficients[:, :1] + slopes @ self.panels.crossed.T, slopes

    def calibrate(self, codes: ArrayLike, logits: ArrayLike) -> FloatArray:
        """Return calibrated logits of rows: `codes` `[rows, fields]`, raw `logits` `[rows]`."""
        raw = np.asarray(logits, dtype=np.float64)
        contexts, inverse = distinct_contexts(self.expand(codes))
        return self.calibrate_contexts(contexts[:, : self.fields], np.broadcast_to(inverse, raw.shape), raw)

    def calibrate_contexts(self, contexts: IntArray, which: IndexArray, logits: FloatArray) -> FloatArray:
        """Return calibrated logits of rows whose contexts are rows of a table."""
        values, slopes = self._pieces(contexts)
        calibrated = np.empty(len(logits))
        for start in range(0, len(logits), ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            panel, place = self.panels.locate(logits[rows])
            calibrated[rows] = values[which[rows], panel] + slopes[which[rows], panel] * place
        return calibrated

    def curve(self, codes: ArrayLike, logits: ArrayLike) -> FloatArray:
        """Return probabilities at the posterior mode: `codes` `[rows, fields]` (or one row for all), raw `logits`."""
        return np.asarray(scipy.special.expit(self.calibrate(codes, logits)))

    def required_covariance(self) -> Covariance:
        """Return the covariance, or an error that says how to get it."""
        if self.covariance is None:
            raise NotFittedError("the model was fitted without its covariance; fit with covariance=True")
        return self.covariance

    def directions(self, context: IntArray, logits: FloatArray) -> FloatArray:
        """Return the derivative of the calibrated logit by a context's coefficients: `[rows, 1 + functions]`."""
        _, slopes = self._pieces(context[None, : self.fields])
        by_slope = self.panels.by_slope(logits)
        return np.column_stack([np.ones(len(by_slope)), (by_slope * slopes[0]) @ self.shapes.basis])

    def context_covariance(self, context: IntArray) -> FloatArray:
        """Return the posterior covariance of a context's coefficients."""
        covariance = self.required_covariance()
        deviation = self.shapes.deviation
        link = np.eye(len(deviation))
        own = np.zeros((deviation.shape[1], deviation.shape[1]))
        for field, code in enumerate(context):
            if code >= 0:
                link -= deviation @ covariance.coupling[field][code]
                own += covariance.blocks[field][code]
            else:
                own += np.diag(1.0 / self.strengths.value_precision(field, self.shapes))
        return link @ covariance.shared @ link.T + deviation @ own @ deviation.T

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return what a warm start continues from, as plain arrays: all but the covariance."""
        panels, shapes = self.panels, self.shapes
        arrays: dict[str, NDArray[np.generic]] = {
            "panels": np.array([panels.centre, panels.scale, panels.origin]),
            "edges": panels.edges,
            "mass": panels.mass,
            "basis": shapes.basis,
            "deviation": shapes.deviation,
            "penalty": shapes.penalty,
            "level": shapes.level,
            "roughness": shapes.roughness,
            "shared": self.state.shared,
            "strengths": np.vstack([self.strengths.values, self.strengths.common]),
            "expected": np.vstack([self.strengths.expected, self.strengths.expected_common]),
        }
        for field, numbers in enumerate(self.state.values):
            arrays[f"values_{field}"] = numbers
        for index, pair in enumerate(self.combinations):
            arrays[f"combination_{index}"] = np.array([pair.first, pair.second, pair.size], dtype=np.int64)
            arrays[f"combination_keys_{index}"] = pair.keys
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> BayesFit:
        """Return the model that `arrays()` described."""
        get = {name: np.asarray(numbers) for name, numbers in arrays.items()}
        fields = sum(name.startswith("values_") for name in get)
        number = sum(name.startswith("combination_keys_") for name in get)
        pairs = [get[f"combination_{index}"].tolist() for index in range(number)]
        centre, scale, origin = get["panels"].tolist()
        strengths, expected = get["strengths"], get["expected"]
        return cls(
            panels=Panels(centre, scale, get["edges"], int(origin), get["mass"]),
            shapes=Shapes(*(get[name] for name in ("basis", "deviation", "penalty", "level", "roughness"))),
            state=State(get["shared"], [get[f"values_{field}"] for field in range(fields)]),
            strengths=Strengths(strengths[:-1], expected[:-1], strengths[-1], expected[-1]),
            combinations=tuple(
                Combination(first, second, size, get[f"combination_keys_{index}"])
                for index, (first, second, size) in enumerate(pairs)
            ),
        )


# The posterior variance of calibrated logits at a few scores, for every field value.
#
# Given the strengths of the priors, the Laplace approximation makes the posterior normal with covariance Σ. The
# strengths are estimates themselves. Integrated over the normal approximation of their logarithms (variance τ² =
# (kurtosis − 1) / number of coefficients that determine a strength), the variance of a coefficient rises from V to
#
#     V · (1 + ½ τ² s),
#
# where s = V / λ is the share of its precision that comes from the prior: half of the sum of what the mean moves and of
# what the variance changes with the strength. For a linear combination gᵀθ that is gᵀ(Σ + ½ Σ_k τ_k² Σ P_k Σ)g with the
# prior precision P_k of the coefficients that share the k-th strength.

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
    parts = _Variances(fit)
    fields = range(len(fit.state.values))
    several, common = len(fields) > 1, np.zeros(len(parts.places))
    if len(fields) != 1:
        common = parts.variance(None, None, np.arange(len(parts.places)))[0]
    known, unseen, steps = [], [], []
    for field in fields:
        # A field with very many values gives its variances at fewer places.
        values = len(fit.state.values[field])
        coarse = 4 if values <= VALUES_AT_FOURTH_PLACES else len(parts.places) // 2
        step = 1 if values <= VALUES_AT_EVERY_PLACE else coarse
        at = kept_places(step, len(parts.places))
        added = np.concatenate([parts.of_values(field, at), parts.variance(field, None, at)])
        if several and field < fit.fields:
            added = np.maximum(added - common[at], 0.0)
        known.append(added[:-1])
        unseen.append(added[-1])
        steps.append(step)
    return CurveUncertainty(family, parts.places, common, tuple(known), tuple(unseen), tuple(steps)).rounded()


@dataclass(frozen=True, eq=False)
class FitUncertainty:
    """The uncertainty of a fit, computed when first asked for: it takes a third of the time of the fit itself."""

    fit: BayesFit
    family: CurveFamily
    level_variance: float = 0.0
    """What the common level is less certain than the rows alone say, since periods differ."""
    misfit: Callable[[FloatArray], FloatArray] | None = None
    """What the curves are less certain at raw logits, since they may miss the truth there."""

    @cached_property
    def computed(self) -> CurveUncertainty:
        """The variances."""
        variances = uncertainty_of(self.fit, self.family)
        missed = 0.0 if self.misfit is None else self.misfit(variances.places)
        return replace(variances, common=variances.common + self.level_variance + missed).rounded()

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the credible intervals of contexts, as CurveUncertainty does."""
        return self.computed.band(logits, codes, level)

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers."""
        return self.computed.to_dict()


class _Variances:
    """Variances at the places; other fields than the one looked at are at their average over the rows."""

    def __init__(self, fit: BayesFit) -> None:
        covariance = fit.required_covariance()
        self.fit, self.shared = fit, covariance.shared
        self.blocks, self.coupling = covariance.blocks, covariance.coupling
        edges = fit.panels.centre + fit.panels.scale * fit.panels.edges
        chosen = np.interp(np.linspace(0.0, len(edges) - 1.0, INNER_PLACES), np.arange(len(edges)), edges)
        self.places = np.unique(np.concatenate([edges[0] - BEYOND, chosen, edges[-1] + BEYOND]))
        self.by_slope = fit.panels.by_slope(self.places)
        fields = range(len(fit.state.values))
        self.shares = [rows / max(float(rows.sum()), np.finfo(np.float64).tiny) for rows in fit.rows_of_values]
        self.mean = [self.shares[f] @ fit.state.values[f] for f in fields]
        self.precision = [fit.strengths.value_precision(f, fit.shapes) for f in fields]
        self.of_strengths = [self._variance_of_strengths(f) for f in fields]
        held = float(np.sum(self.shared[1:, 1:] * fit.shapes.penalty)) / fit.strengths.common[0]
        determined = max(len(self.shared) - 2 - held, 0.0)
        self.of_shared_strength = 2.0 / (determined + PSEUDO_COUNTS_COMMON[0])

    def of_values(self, field: int, at: IntArray) -> FloatArray:
        number = len(self.fit.state.values[field])
        size = max(1, BLOCK_NUMBERS // (len(at) * (len(self.shared) + self.by_slope.shape[1])))
        parts = [self.variance(field, slice(start, min(start + size, number)), at) for start in range(0, number, size)]
        return np.concatenate(parts) if parts else np.zeros((0, len(at)))

    def variance(self, field: int | None, values: slice | None, at: IntArray) -> FloatArray:
        """Return variances `[values, places]` of some values of a field, of an unseen one, and of the mean curve."""
        fit, shapes = self.fit, self.fit.shapes
        deviation = shapes.deviation
        others = [f for f in range(fit.fields) if f != field]
        moved = sum((self.mean[f] for f in others), np.zeros(deviation.shape[1]))
        numbers, own, coupling = self._of_field(field, values)
        coefficients = fit.state.shared + (numbers + moved) @ deviation.T
        slopes = np.exp(np.log(fit.panels.scale) + coefficients[:, 1:] @ shapes.basis.T)
        by_coefficient = np.empty((len(numbers), len(at), len(self.shared)))
        by_coefficient[:, :, 0] = 1.0
        by_coefficient[:, :, 1:] = (self.by_slope[at] * slopes[:, None, :]) @ shapes.basis
        by_number = by_coefficient @ deviation
        if field is not None and field >= fit.fields:  # a pair adds the error of its own deviations
            left, mean = np.zeros_like(by_coefficient), np.zeros(own.shape[1:])
        else:
            # What a value has given the shared vector moves against it: only the rest of the latter's error is left.
            pulled = coupling + sum(np.tensordot(self.shares[f], self.coupling[f], 1) for f in others)
            left = by_coefficient - by_number @ pulled
            mean = sum((np.tensordot(self.shares[f] ** 2, self.blocks[f], 1) for f in others), np.zeros(own.shape[1:]))
        spread = left @ self.shared
        with_own = by_number @ own - spread @ np.swapaxes(coupling, 1, 2)
        variance = np.einsum("vxs,vxs->vx", spread, left)
        variance += np.einsum("vxp,vxp->vx", by_number @ (own + mean), by_number)
        bends = spread[:, :, 1:]
        held = np.einsum("vxs,vxs->vx", bends @ shapes.penalty, bends) / fit.strengths.common[0]
        variance += 0.5 * self.of_shared_strength * held
        if field is not None:
            variance += 0.5 * (with_own**2 @ (self.precision[field] * self.of_strengths[field]))
        return np.asarray(np.maximum(variance, 0.0))

    def _of_field(self, field: int | None, values: slice | None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values' numbers, their covariance given the shared vector, and what couples them with it."""
        width, size = self.fit.shapes.deviation.shape[1], len(self.shared)
        if field is not None and values is not None:
            return self.fit.state.values[field][values], self.blocks[field][values], self.coupling[field][values]
        own = np.zeros((width, width)) if field is None else np.diag(1.0 / self.precision[field])
        return np.zeros((1, width)), own[None], np.zeros((1, width, size))

    def _variance_of_strengths(self, field: int) -> FloatArray:
        """Return the variance of the logarithm of the strength behind each number of a field's values."""
        variances = own_variances(self.blocks[field], self.coupling[field], self.shared)
        determined = np.square(np.clip(1.0 - variances * self.precision[field], 0.0, 1.0)).sum(axis=0)
        groups = np.array([determined[0], determined[1], determined[2:].sum()])
        each = VARIANCE_OF_ONE / (groups + PSEUDO_COUNTS)
        return np.concatenate([each[:2], np.full(len(determined) - 2, each[2])])
