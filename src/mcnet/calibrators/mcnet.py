"""MCNet: monotone calibration with context (WWW 2025)."""

from os import PathLike
from typing import Any, Literal, Self

import numpy as np

from mcnet.calibrators.base import Calibrator, Fitted, warn
from mcnet.calibrators.factorised.family import family_of, fit_sketch_factorised
from mcnet.calibrators.factorised.model import FactorisedModel
from mcnet.calibrators.training_state import load_state, save_state
from mcnet.curves.compiling import family_curves
from mcnet.curves.store import load
from mcnet.errors import InputError, NotSupportedError
from mcnet.rows.columns import FloatArray, ScoreType, clip_scores, logit, scores_column, sums_by
from mcnet.rows.fields import field_columns
from mcnet.sketch.sketch import Sketch

__all__ = ["MCNet"]

_EVERY_COMBINATION = 20_000
_FEW_VALUES = 100


class MCNet(Calibrator):
    """Monotone calibration with context: logit p = a_c + ∫ f₁(t, c) dt with a strictly positive derivative f₁.

    The derivative of the curve is log-linear in the context: f₁(t, c) = exp(φ₀(t) + b_c + u_c·φ(t)), and several fields
    add up. How much field values may differ, and how rough the curves may be, is learnt from the data by empirical
    Bayes, so small field values sit on the common curve and large ones are free. The order of scores is kept by
    construction.

    Parameters
    ----------
    bins : how many pieces the curve has; "auto" takes as many as are affordable, since smoothness is learnt.
    interactions : give pairs of fields deviations of their own, which the data must earn.
    alpha_balance : the weight of the field-balance regulariser, which narrows the spread of the fields' biases.
    balance : "global" measures a field value's bias per row of all rows (the paper), "field" per row of its own.
    warm_start : go on from the previous fit of this object (new field values are welcome).

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.01, 0.2, 50_000)
    >>> country = rng.choice(["NL", "FR"], 50_000)
    >>> scores = truth * np.where(country == "NL", 0.8, 1.3)
    >>> fitted = MCNet().fit(scores, rng.random(50_000) < truth, field=country)
    >>> fitted.predict([0.08, 0.13], field=["NL", "FR"]).round(2)
    array([0.1, 0.1])
    """

    method = "mcnet"
    field_use = "optional"

    order_violations_: float

    def __init__(
        self,
        *,
        bins: int | Literal["auto"] = "auto",
        interactions: bool = True,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        warm_start: bool = False,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.interactions = interactions
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.warm_start = warm_start

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows."""
        self._previous = (self.model_, self.factorised_) if self.warm_start and hasattr(self, "factorised_") else None
        return super().fit_sketch(sketch)

    def predict(
        self,
        scores: Any,
        field: Any = None,
        *,
        codes: Any = None,
        score_type: ScoreType = "probability",
        exact: bool = False,
    ) -> FloatArray:
        """Return the calibrated probability of each score; `exact` asks the fitted function itself, not its curve."""
        if not exact:
            return super().predict(scores, field, codes=codes, score_type=score_type)
        score = scores_column(scores, score_type=score_type)
        return self._function().curve(self._field_codes(field, len(score)), logit(score))

    def interval(
        self, scores: Any, field: Any = None, *, level: float = 0.9, score_type: ScoreType = "probability"
    ) -> tuple[FloatArray, FloatArray]:
        """Return a credible interval of the true probability at each score: (low, high).

        It is the uncertainty of the curve, not of a single click. An unseen field value adds the spread that the values
        of its field have.
        """
        if not 0.0 < level < 1.0:
            raise InputError(f"level is {level!r}; it is a probability, such as 0.9")
        score = scores_column(scores, score_type=score_type)
        codes = self._field_codes(field, len(score))
        return self._function().band(codes, logit(clip_scores(score)), level)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the model as JSON and, beside it, the training state, from which `resume` goes on."""
        super().save(path)
        if hasattr(self, "factorised_"):
            save_state(path, self.factorised_.arrays(), {"method": self.method, "parameters": self._plain_parameters()})

    @classmethod
    def resume(cls, path: str | PathLike[str]) -> Self:
        """Return the fitted calibrator that `save` wrote; with warm_start it goes on from there."""
        model = load(path)
        arrays, description = load_state(path)
        if description.get("method") != cls.method or model.method != cls.method:
            raise InputError(f"{path} is a model of {model.method}, not of {cls.method}; resume it with its own class")
        restored = cls(**description["parameters"])
        restored.model_ = model
        restored.factorised_ = FactorisedModel.from_arrays(arrays)
        restored.order_violations_ = 0.0
        return restored

    def _check_parameters(self) -> None:
        if self.bins != "auto" and (isinstance(self.bins, bool) or not isinstance(self.bins, int) or self.bins < 2):
            raise InputError(f"bins is {self.bins!r}; it is 'auto' or a whole number above 1")
        if not 0.0 <= self.alpha_balance < np.inf:
            raise InputError(f"alpha_balance is {self.alpha_balance!r}; it is a number ≥ 0")
        if self.balance not in ("global", "field"):
            raise InputError(f"balance is {self.balance!r}; it is 'global' or 'field'")

    def _learns_from_one_score(self) -> bool:
        return True

    def _fit(self, sketch: Sketch) -> Fitted:
        sketch = sketch.unfolded()
        self._warn_of_one_sided(sketch)
        model = fit_sketch_factorised(
            sketch,
            panels=None if self.bins == "auto" else self.bins,
            interactions=self.interactions,
            alpha_balance=self.alpha_balance,
            balance=self.balance,
        )
        self.factorised_ = model
        self.order_violations_ = 0.0
        family = family_of(model).rounded()
        contexts = sketch.contexts.completed(_EVERY_COMBINATION)
        curves, self.compiled_error_ = family_curves(family, contexts.table)
        return Fitted(curves, contexts, family)

    def _warn_of_one_sided(self, sketch: Sketch) -> None:
        """Name field values that have only one class: their curve is mostly the common one."""
        number = len(sketch.contexts)
        if not sketch.contexts.names or number > _FEW_VALUES:
            return  # a long tail has such values by nature
        positives = sums_by(sketch.context, sketch.positives, number)
        weight = sums_by(sketch.context, sketch.weight, number)
        one_sided = np.flatnonzero((positives <= 0.0) | (positives >= weight))
        if len(one_sided):
            kind = "positives" if positives[one_sided[0]] <= 0.0 else "negatives"
            name = sketch.contexts.labels()[one_sided[0]]
            more = f" (and {len(one_sided) - 1} more of one class only)" if len(one_sided) > 1 else ""
            warn(f"{self.method}: {name} has no {kind}{more}; its curve leans on the common one")

    def _function(self) -> FactorisedModel:
        self._fitted()
        if not hasattr(self, "factorised_"):
            raise NotSupportedError("this fit is a constant (one class only): it has no function behind its curve")
        return self.factorised_

    def _field_codes(self, field: Any, rows: int) -> Any:
        contexts = self._fitted().contexts
        if field is None and contexts.names:
            raise InputError(f"this {self.method} model needs the field {', '.join(contexts.names)}; pass field=")
        if field is None:
            return np.zeros((rows, 0), dtype=np.int64)
        return contexts.field_codes(field_columns(field))
