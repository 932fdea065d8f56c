"""Methods with a curve per context: shrunken offsets, Platt scaling with shrunken lines, and any method per context."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mcnet._shared.arrays import CodeArray, FloatArray, log_loss_sum, logit, sigmoid, sums_by
from mcnet.calibrators.base import Calibrator, Fitted
from mcnet.calibrators.methods import calibrator, restored_calibrator
from mcnet.calibrators.parameters import clone
from mcnet.calibrators.parametric import fit_logistic, fit_offset, level_uncertainty
from mcnet.curves.compile import compile_functions
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator
from mcnet.errors import CalibrationWarning, InputError, NotSupportedError
from mcnet.sketch.sketch import Sketch

# Any context-free method fitted per context and shrunk to the pooled curve.

_SHRINKAGES = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, np.inf)
_FOLDS = 5
_MOST_CONTEXTS_FOR_ALL_FOLDS = 500


def mixed_curve(
    one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray], share: float
) -> tuple[FloatArray, FloatArray]:
    """Return the curve share·one + (1 − share)·other, exactly, jumps included."""
    knots = np.union1d(one[0], other[0])
    jumps = np.union1d(_jumps(one[0]), _jumps(other[0]))
    knots = np.sort(np.concatenate([knots, jumps]))
    left = np.concatenate([knots[:-1] == knots[1:], [False]])
    return knots, share * _values(one, knots, left) + (1.0 - share) * _values(other, knots, left)


def _jumps(knots: FloatArray) -> FloatArray:
    return np.unique(knots[1:][knots[1:] == knots[:-1]])


def _values(curve: tuple[FloatArray, FloatArray], at: FloatArray, left: np.ndarray) -> FloatArray:
    """Return the curve's values, from the left where `left` says so."""
    knots, values = curve
    right_value = np.interp(at, knots, values)
    mirrored = np.interp(-at, -knots[::-1], values[::-1])  # seen from the other side, a jump shows its left value
    return np.where(left, mirrored, right_value)


class PerField(Calibrator):
    """A method without fields, fitted to each context alone and mixed with the pooled fit: p = λ·p_c + (1 − λ)·p.

    λ = m / (m + k), where m is the smaller of the context's positives and negatives: contexts with few events sit on
    the pooled curve. Both curves are monotone, so their mixture is.

    Parameters
    ----------
    inner : the name of the method, or a calibrator.
    shrinkage : k, or "auto" to choose it by cross-validated log-loss over the folds of the sketch.

    >>> fitted = PerField("platt", shrinkage=10).fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], field=["a", "a", "b", "b"])
    >>> fitted.shrinkage_
    10.0
    """

    method = "per-field"
    complexity = 100
    field_use = "required"

    def __init__(self, inner: str | Calibrator = "isotonic", *, shrinkage: float | str = "auto") -> None:
        """Store the parameters; they are checked in fit."""
        self.inner = inner
        self.shrinkage = shrinkage

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether the inner method is monotone."""
        return self._inner().monotone

    @classmethod
    def _from_plain(cls, parameters: Mapping[str, Any]) -> Self:
        inner = parameters["inner"]
        return super()._from_plain(
            {**parameters, "inner": restored_calibrator(inner) if isinstance(inner, Mapping) else inner}
        )

    def _inner(self) -> Calibrator:
        return clone(self.inner) if isinstance(self.inner, Calibrator) else calibrator(self.inner)

    def _check_parameters(self) -> None:
        if self._inner().field_use != "none":
            raise NotSupportedError(
                f"{self._inner().method} uses fields itself; per-field takes a method without fields"
            )
        if isinstance(self.shrinkage, str):
            if self.shrinkage != "auto":
                raise InputError(f"shrinkage is {self.shrinkage!r}; it must be 'auto' or a number ≥ 0")
        elif not self.shrinkage >= 0.0:
            raise InputError(f"shrinkage is {self.shrinkage!r}; it must be 'auto' or a number ≥ 0")

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return True

    def _fit_curves(self, sketch: Sketch) -> Curves:
        self.shrinkage_ = self._choose(sketch) if self.shrinkage == "auto" else float(self.shrinkage)
        sketch = sketch.unfolded()
        pooled, own, events = self._fits(sketch)
        pairs = [pooled]
        for curve, count in zip(own, events, strict=True):
            pairs.append(mixed_curve(curve, pooled, _share(count, self.shrinkage_)))
        return Curves.of(pairs)

    def _fits(
        self, sketch: Sketch
    ) -> tuple[tuple[FloatArray, FloatArray], list[tuple[FloatArray, FloatArray]], FloatArray]:
        """Return the pooled curve, each context's own, and each context's number of events."""
        weight, positives = sketch.context_sums.T
        events = np.minimum(positives, weight - positives)
        pooled = self._inner().fit_sketch(sketch.pooled()).curves_.pairs()[0]
        own = []
        with warnings.catch_warnings():
            # One-class contexts are expected here, and the shrinkage takes care of them.
            warnings.simplefilter("ignore", CalibrationWarning)
            for context in range(len(events)):
                if events[context] > 0.0:
                    own.append(self._inner().fit_sketch(sketch.of_context(context)).curves_.pairs()[0])
                else:
                    own.append(pooled)
        return pooled, own, events

    def _choose(self, sketch: Sketch) -> float:
        """Return the k of the lowest cross-validated log-loss."""
        split = sketch if sketch.folds > 1 else sketch.with_folds(_FOLDS)
        losses = np.zeros(len(_SHRINKAGES))
        folds = range(split.folds) if len(sketch.contexts) <= _MOST_CONTEXTS_FOR_ALL_FOLDS else range(1)
        for fold in folds:
            train, held = split.fold_parts(fold)
            if len(held) == 0 or not 0.0 < train.total_positives < train.total_weight:
                continue
            pooled, own, events = self._fits(train)
            general = Evaluator(Curves.of([pooled]))(held.score)
            special = Evaluator(Curves.of(own))(held.score, held.context)
            for index, k in enumerate(_SHRINKAGES):
                share = np.array([_share(count, k) for count in events])[held.context]
                mixed = share * special + (1.0 - share) * general
                losses[index] += log_loss_sum(logit(mixed), held.weight, held.positives)
        return _SHRINKAGES[int(np.argmin(losses))]


def _share(events: float, shrinkage: float) -> float:
    if events <= 0.0 or shrinkage == np.inf:
        return 0.0
    return events / (events + shrinkage)


# An offset per context, shrunk to the common one.

_LEAST_VARIANCE = 1e-8
"""Offsets that vary less than this are one offset."""


@dataclass(frozen=True)
class ShrunkenOffsets:
    """The common offset, each context's deviation, the variance of deviations, and how uncertain the sums are."""

    shared: float
    deviation: FloatArray
    variance: float
    shared_error: float
    """The posterior variance of the common offset."""
    errors: FloatArray
    """The posterior variance of each context's offset."""


def fit_shrunken_offsets(
    x: FloatArray, context: CodeArray, number: int, weight: FloatArray, positives: FloatArray, *, rounds: int = 200
) -> ShrunkenOffsets:
    """Fit logit p = x + b + β_c with β_c ~ N(0, τ²) and the τ that maximises the Laplace evidence.

    Newton steps on the posterior mode (the contexts are eliminated first) alternate with the fixed-point step
    τ² ← Σβ² / γ, where γ = Σ(1 − V_c / τ²) counts the contexts whose deviations the data determine.
    """
    shared, _ = fit_offset(x, weight, positives)
    deviation, variance = np.zeros(number), 0.1

    def value(common: float, own: FloatArray) -> float:
        return log_loss_sum(x + common + own[context], weight, positives) + 0.5 * float(own @ own) / variance

    for _ in range(rounds):
        p = sigmoid(x + shared + deviation[context])
        gradient = sums_by(context, weight * p - positives, number)
        information = sums_by(context, weight * p * (1.0 - p), number)
        inverse = 1.0 / (information + 1.0 / variance)
        pulled = information * inverse
        left = max(float(pulled.sum()) / variance, np.finfo(np.float64).tiny)  # what is known of b
        own_gradient = gradient + deviation / variance
        common_step = (float(pulled @ own_gradient) - float(gradient.sum())) / left
        own_step = -inverse * (own_gradient + information * common_step)
        length, before = 1.0, value(shared, deviation)
        while length > 1e-6 and value(shared + length * common_step, deviation + length * own_step) > before:
            length *= 0.5
        shared, deviation = shared + length * common_step, deviation + length * own_step
        determined = number - float(np.sum(inverse + pulled**2 / left)) / variance
        updated = max(float(deviation @ deviation) / max(determined, 1e-3), _LEAST_VARIANCE)
        settled = abs(np.log(updated / variance)) < 1e-4 and length * abs(common_step) < 1e-6
        variance = updated
        if settled:
            break
    errors = inverse + (1.0 - pulled) ** 2 / left
    return ShrunkenOffsets(shared, deviation, variance, 1.0 / left, errors)


class OffsetField(Calibrator):
    """An offset per context, shrunk towards the common one: p = σ(l + b + β_c).

    How much contexts may differ is learnt from the data (empirical Bayes): with few rows a context has the common
    offset, with many its own. With several fields, each combination of values is a context. Unseen contexts get the
    offset fitted to all rows together.

    >>> fitted = OffsetField().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], field=["a", "a", "b", "b"])
    >>> fitted.predict([0.2, 0.2], field=["a", "never seen"]).shape
    (2,)
    """

    method = "offset-field"
    complexity = 85
    field_use = "required"

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return True

    def _fit(self, sketch: Sketch) -> Fitted:
        sketch = sketch.unfolded()
        number = len(sketch.contexts)
        fit = fit_shrunken_offsets(sketch.logit, sketch.context, number, sketch.weight, sketch.positives)
        pooled, error = fit_offset(sketch.logit, sketch.weight, sketch.positives)
        offsets = np.concatenate([[pooled], fit.shared + fit.deviation])
        self.variance_ = {"offset": fit.variance}
        curves = compile_functions(lambda which, l: l + offsets[which], number + 1)
        # An unseen context may be as far from the common offset as those that were seen.
        variances = np.concatenate([[max(error, fit.shared_error) + fit.variance], fit.errors])
        return Fitted(curves, uncertainty=level_uncertainty(curves, sketch.contexts, variances))


# Platt scaling with shrunken offsets and slopes per context.


@dataclass(frozen=True)
class ShrunkenLines:
    """Fitted lines: slope and intercept shared by all contexts, each context's deviation, and their variances."""

    shared: FloatArray
    deviation: FloatArray
    variance: FloatArray


def _blocks(values: FloatArray, x: FloatArray, context: CodeArray, number: int) -> list[FloatArray]:
    return [sums_by(context, values * x**power, number) for power in range(3)]


def fit_shrunken_lines(
    x: FloatArray,
    context: CodeArray,
    number: int,
    weight: FloatArray,
    positives: FloatArray,
    *,
    rounds: int = 60,
) -> ShrunkenLines:
    """Fit logit p = (a + α_c)·x + (b + β_c) with α_c ~ N(0, τ_a²), β_c ~ N(0, τ_b²) and τ learnt from the data.

    Newton steps on the posterior mode (the contexts are eliminated first, so a step costs no more than a pass over the
    cells) alternate with the EM update of the variances: τ² ← mean of deviation² + its posterior variance.
    """
    shared = fit_logistic(np.column_stack([x, np.ones_like(x)]), weight, positives, start=np.array([1.0, 0.0]))
    deviation = np.zeros((number, 2))
    variance = np.array([0.05, 0.1])

    def value(common: FloatArray, own: FloatArray, precision: FloatArray) -> float:
        lines = common + own
        fitted = lines[context, 0] * x + lines[context, 1]
        return log_loss_sum(fitted, weight, positives) + 0.5 * float((own**2 @ precision).sum())

    for _ in range(rounds):
        precision = 1.0 / variance
        for _ in range(2):
            lines = shared + deviation
            probability = sigmoid(lines[context, 0] * x + lines[context, 1])
            slope_sums = _blocks(weight * probability - positives, x, context, number)
            gradient = np.column_stack([slope_sums[1], slope_sums[0]])
            h0, h1, h2 = _blocks(weight * probability * (1.0 - probability), x, context, number)
            hessian = np.stack([np.stack([h2, h1], axis=-1), np.stack([h1, h0], axis=-1)], axis=-2)
            inverse = np.linalg.inv(hessian + np.diag(precision))
            own_gradient = gradient + precision * deviation
            through = hessian @ inverse
            reduced = (hessian - through @ hessian).sum(axis=0) + 1e-9 * np.eye(2)
            right = -gradient.sum(axis=0) + (through @ own_gradient[:, :, None]).sum(axis=0)[:, 0]
            common_step = np.linalg.solve(reduced, right)
            own_step = -(inverse @ (own_gradient + hessian @ common_step)[:, :, None])[:, :, 0]
            length, before = 1.0, value(shared, deviation, precision)
            while (
                length > 1e-6
                and value(shared + length * common_step, deviation + length * own_step, precision) > before
            ):
                length *= 0.5
            shared, deviation = shared + length * common_step, deviation + length * own_step
        updated = (deviation**2 + np.diagonal(inverse, axis1=1, axis2=2)).mean(axis=0)
        moved = np.abs(np.log(updated / variance)).max()
        variance = np.maximum(updated, 1e-8)
        if moved < 1e-3:
            break
    return ShrunkenLines(shared, deviation, variance)


def flat_where_falling(
    lines: ShrunkenLines, context: CodeArray, weight: FloatArray, positives: FloatArray
) -> FloatArray:
    """Return each context's slope and intercept; a falling line would break the order, and becomes a flat one.

    The flat line's level is the context's own rate, as shrunken as its intercept was: it balances Σ(w·p − positives)
    against the prior's pull to the common intercept.
    """
    own = lines.shared + lines.deviation
    falling = own[:, 0] < 0.0
    total, events = (sums_by(context, values, len(own))[falling] for values in (weight, positives))
    common, precision = lines.shared[1], 1.0 / lines.variance[1]
    level = np.full(int(falling.sum()), common)
    for _ in range(50):
        p = sigmoid(level)
        pull = total * p - events + precision * (level - common)
        level -= np.clip(pull / (total * p * (1.0 - p) + precision), -1.0, 1.0)
    own[falling] = np.column_stack([np.zeros_like(level), level])
    return own


class PlattField(Calibrator):
    """A line in logit space per context, shrunk towards the common one: p = σ((a + α_c)·l + b + β_c).

    How much a context may deviate is learnt from the data (empirical Bayes): with few rows it sits on the common line,
    with many it is free. A context whose line would fall gets a flat one. With several fields, each combination of
    values is a context. Unseen contexts get the line fitted to all rows together.

    >>> fitted = PlattField().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], field=["a", "a", "b", "b"])
    >>> fitted.predict([0.2, 0.2], field=["a", "never seen"]).shape
    (2,)
    """

    method = "platt-field"
    complexity = 90
    field_use = "required"

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return True

    def _fit_curves(self, sketch: Sketch) -> Curves:
        sketch = sketch.unfolded()
        number = len(sketch.contexts)
        center = float(np.average(sketch.logit, weights=sketch.weight))
        x = sketch.logit - center
        lines = fit_shrunken_lines(x, sketch.context, number, sketch.weight, sketch.positives)
        bounds = np.array([0.0, -np.inf])
        pooled = fit_logistic(np.column_stack([x, np.ones_like(x)]), sketch.weight, sketch.positives, lower=bounds)
        own = flat_where_falling(lines, sketch.context, sketch.weight, sketch.positives)
        fitted = np.vstack([pooled, own])
        self.variance_ = {"slope": float(lines.variance[0]), "intercept": float(lines.variance[1])}
        return compile_functions(lambda which, l: fitted[which, 0] * (l - center) + fitted[which, 1], number + 1)
