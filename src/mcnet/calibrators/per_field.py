"""Any context-free method fitted per context and shrunk to the pooled curve."""

import warnings

import numpy as np
from sklearn.base import clone

from mcnet._shared.math import logit
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.logistic import log_loss_sum
from mcnet.calibrators.registry import calibrator
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator
from mcnet.errors import CalibrationWarning, InputError, NotSupportedError
from mcnet.sketch.sketch import Sketch

__all__ = ["PerField", "mixed_curve"]

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
            for place, k in enumerate(_SHRINKAGES):
                share = np.array([_share(count, k) for count in events])[held.context]
                mixed = share * special + (1.0 - share) * general
                losses[place] += log_loss_sum(logit(mixed), held.weight, held.positives)
        return _SHRINKAGES[int(np.argmin(losses))]


def _share(events: float, shrinkage: float) -> float:
    if events <= 0.0 or shrinkage == np.inf:
        return 0.0
    return events / (events + shrinkage)
