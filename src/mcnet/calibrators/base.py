"""The base class of every calibrator: fit on a sketch, predict through curves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from math import inf
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray, ScoreType
from mcnet._shared.messages import counted, warn
from mcnet.calibrators.parameters import Estimator, warn_of_timestamps
from mcnet.calibrators.period_effects import (
    PeriodBlocks,
    PeriodEffects,
    PeriodSource,
    period_blocks,
    period_effects,
)
from mcnet.curves.curves import Curves
from mcnet.curves.family import CurveFamily
from mcnet.errors import Advice, InputError, NotFittedError, NotSupportedError
from mcnet.model.bands import Uncertainty
from mcnet.model.model import CalibrationModel, Evaluation
from mcnet.rows.columns import check_lengths, labels_column, weights_column
from mcnet.rows.contexts import Contexts
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.sketch import Sketch
from mcnet.version import __version__

# What a fit gives, and its parts that every method shares: a constant rate, parameters as plain values.


@dataclass(frozen=True)
class Fitted:
    """What a fit gives: the parts of the model that only the method knows."""

    curves: Curves
    contexts: Contexts | None = None
    """The contexts of the curves; None for those of the sketch."""
    family: CurveFamily | None = None
    uncertainty: Uncertainty | None = None
    isotonic_share: float = 0.0
    balanced_by: tuple[str, ...] = ()
    """Fields that only weighed in the balance term."""
    history: dict[str, Any] = field(default_factory=dict)
    """What the method adds to the history of the model."""
    evaluation: Evaluation = "curves"


def constant_rate(sketch: Sketch) -> float:
    """Return the rate of all rows; (positives + ½) / (weight + 1) when only one class is there."""
    weight, positives = sketch.total_weight, sketch.total_positives
    if 0.0 < positives < weight:
        return positives / weight
    return (positives + 0.5) / (weight + 1.0)


def plain_value(value: Any) -> Any:
    """Return a constructor argument as a JSON-able value."""
    if isinstance(value, np.generic):
        return plain_value(value.item())
    if hasattr(value, "_plain_parameters"):  # a calibrator inside another
        return {"method": value.method, **value._plain_parameters()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    if isinstance(value, dict):
        return {str(name): plain_value(entry) for name, entry in value.items()}
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no infinity
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


# Scale weights so that sums of products neither overflow nor vanish.

MOST_WEIGHT = 1e12
"""Sketches of a larger total weight are scaled down to it for the fit."""
LEAST_WEIGHT = 1e-6
"""Sketches of a smaller total weight are scaled up to it for the fit."""
LARGEST_FACTOR = 1e300
"""The most that weights are multiplied by: the factor itself must be a finite number."""


def in_weight_range(sketch: Sketch) -> Sketch:
    """Return the sketch with a total weight that sums of products can be computed with.

    A weight counts as that many rows. More rows than MOST_WEIGHT make no fit more certain, fewer than LEAST_WEIGHT none
    less so.
    """
    with np.errstate(over="ignore"):
        total = sketch.total_weight
    if not np.isfinite(sketch.cells.sums).all() or not np.isfinite(total):
        raise InputError("the weights add up to more than a float can represent; divide them all by one number")
    if LEAST_WEIGHT <= total <= MOST_WEIGHT:
        return sketch
    return sketch * min(float(np.clip(total, LEAST_WEIGHT, MOST_WEIGHT)) / total, LARGEST_FACTOR)


# The history of a fit: facts about the rows that a model was fitted on, for people and plots.

MOST_LARGEST_CONTEXTS = 12
"""How many of the largest contexts a model's history names, so that plots can show those."""


def fit_history(sketch: Sketch) -> dict[str, Any]:
    """Return what a model keeps of the rows of its fit, for people and plots; nothing that is served depends on it."""
    positives = sketch.total_positives
    return {
        "rows": sketch.rows,
        "weight": sketch.total_weight,
        "positives": positives,
        "lowest_score": float(sketch.score.min()),
        "highest_score": float(sketch.score.max()),
        "resolution": sketch.resolution,
        "base_pcoc": float(sketch.weight @ sketch.score) / positives if positives > 0.0 else None,
        "columns": {**sketch.columns, **sketch.reading},
        "largest_contexts": largest_contexts(sketch),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "library": f"mcnet {__version__}",
    }


def largest_contexts(sketch: Sketch) -> list[list[str | None]]:
    """Return the field values of the contexts with the most weight, the largest first.

    >>> largest_contexts(Sketch.from_rows([0.1] * 3, [0, 1, 0], field={"country": ["NL", "US", "US"]}))
    [['US'], ['NL']]
    """
    contexts = sketch.contexts
    if not contexts.names:
        return []
    largest = np.argsort(-sketch.context_sums[:, 0], kind="stable")[:MOST_LARGEST_CONTEXTS]
    return [
        [values[code] for values, code in zip(contexts.values, contexts.table[index], strict=True)] for index in largest
    ]


FieldUse = Literal["none", "optional", "required"]


class Calibrator(Estimator):
    """Turns scores into probabilities; subclasses say how a sketch becomes curves.

    Follows scikit-learn: constructor arguments are stored untouched and checked in `fit`, fitted state ends in an
    underscore, `fit` returns self, refitting forgets the past. What a method cannot honour it refuses.
    """

    method: ClassVar[str]
    """The name in the registry."""
    complexity: ClassVar[float] = inf
    """The place in the order of methods: of those that are equally good `select` takes the one with the lowest.
    A class that states a `method` and a `complexity` in its own body is found by the registry."""
    field_use: ClassVar[FieldUse] = "none"
    """Whether the method has no use for a field, may use one, or needs one."""
    monotone: ClassVar[bool] = True
    """Whether the curves never fall; only methods that are step functions by nature say False."""

    extra: ClassVar[str | None] = None
    """The extra of mcnet that installs what the method needs, if it needs more than the core."""
    needs_features: ClassVar[bool] = False
    """Whether a probability depends on features of the row, so that no curve of the score gives it."""

    _field_advice: ClassVar[str] = "use mcnet-bayes or per-field, or leave the field out"
    """What to do about a field that is of no use."""

    model_: CalibrationModel
    periods_: PeriodEffects
    """What `fit_journal` learnt from how periods differ."""
    constant_because_: str
    """Why there was nothing to learn from, where the calibrated probability is a constant."""

    def fit(
        self,
        scores: Any,
        labels: Any,
        *misplaced: Any,
        field: Any = None,
        weight: Any = None,
        resolution: Resolution = DEFAULT_RESOLUTION,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
    ) -> Self:
        """Fit on rows held in memory.

        A method without use for a field pools its values, with a warning; `predict` then takes no field.

        Parameters
        ----------
        scores, labels : columns (NumPy, pandas, Polars, Arrow, lists) of scores in [0, 1] and of labels in [0, 1].
        field : a column, a mapping of names to columns, or a table; None for no field.
        weight : a column of weights ≥ 0.
        resolution : cells of the sketch per unit of logit, or "exact" to keep every distinct score.
        score_type : "probability", or "logit" for scores that are logits.
        negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.

        Returns
        -------
        self : the fitted calibrator.
        """
        if misplaced:
            raise InputError("fit takes scores and labels by position; name the rest: field=…, weight=…")
        self._check_field_use(field is not None)
        sketch = Sketch.from_rows(
            scores,
            labels,
            field=field,
            weight=weight,
            resolution=resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
        )
        return self.fit_sketch(sketch)

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows; a method without use for its fields pools them, with a warning.

        Parameters
        ----------
        sketch : the rows, from `mcnet.scan` or `Sketch.from_rows`.

        Returns
        -------
        self : the fitted calibrator.
        """
        return self._fit_by(sketch, self._fitting())

    def fit_journal(
        self, journal: PeriodSource | Mapping[str, Sketch], *, since: Any = None, until: Any = None
    ) -> Self:
        """Fit on periods, of which each may have an effect of its own: a day of bad weather, a campaign.

        Rows of one period are not independent. `BayesMCNet` learns from how periods differ how much its rows are worth:
        it believes differences of field values less, and its intervals are wider. Other methods fit the sum of the
        periods. What was learnt is in `periods_` and in the history of the model.

        Parameters
        ----------
        journal : a `Journal`, or a mapping of periods, in their order, to sketches.
        since, until : the first and the last period of a journal to fit on, both included.

        Returns
        -------
        self : the fitted calibrator.
        """
        rows = period_blocks(journal, since, until)
        learnt = self._fit_periods(rows)
        self.periods_ = period_effects(self.model_, rows, **learnt)
        history = {**self.model_.provenance, "periods": self.periods_.to_dict()}
        self.model_ = replace(self.model_, provenance=history)
        return self

    def _fit_periods(self, rows: PeriodBlocks) -> dict[str, float]:
        """Fit on blocks of periods; return what was learnt from how they differ."""
        self.fit_sketch(rows.total)
        return {}

    def _fit_by(self, sketch: Sketch, fit: Callable[[Sketch], Fitted]) -> Self:
        """Check the sketch and the parameters, forget the past, fit, and make the model."""
        if not isinstance(sketch, Sketch):
            raise InputError(f"fit_sketch was given {type(sketch).__name__}; make a Sketch with mcnet.scan first")
        if sketch.cells.key.size == 0:
            raise InputError("the sketch has no rows; at least one row is needed")
        if sketch.contexts.names and self.field_use == "none":
            names = " × ".join(sketch.contexts.names)
            warn(f"{self.method} does not use the field {names}: its values are pooled; {self._field_advice}")
            sketch = sketch.pooled()
        self._check_field_use(bool(sketch.contexts.names))
        self._check_parameters()
        warn_of_timestamps(sketch)
        self._forget()
        fitted_on = in_weight_range(sketch)
        reason = self._nothing_to_learn(fitted_on)
        if reason is None:
            fitted = fit(fitted_on)
        else:
            self.constant_because_ = reason
            warn(f"{self.method}: {reason}; the calibrated probability is a constant")
            fitted = self._constant(fitted_on)
        self.model_ = CalibrationModel(
            method=self.method,
            parameters=self._plain_parameters(),
            contexts=sketch.contexts if fitted.contexts is None else fitted.contexts,
            curves=fitted.curves.bounded(),
            monotone=self.monotone,
            family=fitted.family,
            score_type=sketch.score_type,
            total_weight=sketch.total_weight,
            balanced_by=fitted.balanced_by,
            isotonic_share=fitted.isotonic_share,
            uncertainty=fitted.uncertainty,
            provenance=fit_history(sketch) | fitted.history,
            evaluation=fitted.evaluation,
        )
        return self

    def predict(self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None) -> FloatArray:
        """Return the calibrated probability of each score, float64 inside (0, 1).

        Parameters
        ----------
        scores : a column of scores, of the type that the calibrator was fitted on.
        field : the field column(s), as in `fit`; unseen values get the pooled curve.
        score_type : "probability" or "logit"; by default what the calibrator was fitted on.

        Returns
        -------
        array : one probability per score.
        """
        return self._fitted().predict(scores, field, score_type=score_type)

    def predict_one(self, score: float, field: Any = None, *, score_type: ScoreType | None = None) -> float:
        """Return the calibrated probability of one score as a plain float: what `predict` gives, sooner.

        Parameters
        ----------
        score : a number, of the type that the calibrator was fitted on.
        field : the value of the only field; for several fields a mapping of names to values, or a tuple of values in
            the order of the fit. A missing value is written `(None,)`, since None means no field at all.
        score_type : "probability" or "logit"; by default what the calibrator was fitted on.

        Returns
        -------
        float : the probability.

        >>> from mcnet.calibrators.parametric import Platt
        >>> round(Platt().fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1]).predict_one(0.25), 3)
        0.537
        """
        return self._fitted().predict_one(score, field, score_type=score_type)

    def interval(
        self, scores: Any, field: Any = None, *, level: float = 0.9, score_type: ScoreType | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return a credible interval of the true probability at each score: (low, high).

        It is the uncertainty of the curve, not of a single click. An unseen field value adds the spread that the values
        of its field have. A loaded model has the same intervals. The methods mcnet-bayes, offset and offset-field have
        intervals.

        Parameters
        ----------
        scores, field, score_type : as in `predict`.
        level : the probability that the interval includes the truth.

        Returns
        -------
        tuple[array, array] : the lower and the upper end at each score.
        """
        if hasattr(self, "constant_because_"):
            self.predict(scores, field, score_type=score_type)  # what is wrong with the rows comes first
            raise NotSupportedError(f"this fit is a constant ({self.constant_because_}): its uncertainty is not known")
        return self._fitted().interval(scores, field, level, score_type=score_type)

    def score(self, scores: Any, labels: Any, *, field: Any = None, weight: Any = None) -> float:
        """Return the negative log-loss on these rows: what scikit-learn's searches maximise.

        Parameters
        ----------
        scores, labels, field, weight : the rows, as in `fit`.

        Returns
        -------
        float : the higher, the better.
        """
        p = self.predict(scores, field)
        y = labels_column(labels)
        w = None if weight is None else weights_column(weight)
        check_lengths(score=p, label=y, weight=w)
        return float(np.average(scipy.special.xlogy(y, p) + scipy.special.xlog1py(1.0 - y, -p), weights=w))

    def save(self, path: str | PathLike[str]) -> None:
        """Save the fitted model as JSON; `mcnet.load` brings it back for serving.

        Parameters
        ----------
        path : the file to write, completely or not at all.
        """
        self._fitted().save(path)

    def plot(self, field: Any = None) -> Any:
        """Show the curves as a Plotly figure: the pooled one and those of the largest contexts, or of a field value.

        `mcnet.plot_curves(calibrator, sketch)` shows a curve over the rows it was fitted on.

        Parameters
        ----------
        field : a field value, or a mapping of names to values; None for the pooled curve and the largest contexts.

        Returns
        -------
        figure : of Plotly.
        """
        from mcnet.model.drawing import plot_lines

        self._fitted()
        return plot_lines(self, field)

    def __repr__(self) -> str:
        """Return the constructor call and, after a fit, what it was fitted on."""
        call = super().__repr__()
        if not hasattr(self, "model_"):
            return call
        model = self.model_
        return f"{call}  # fitted on {counted(model.provenance['rows'], 'row')}, {model.contexts.described()}"

    def _repr_html_(self) -> str:
        """Return the fitted model and its curves for a notebook; the constructor call while there is no fit."""
        if not hasattr(self, "model_"):
            return f"<code>{escape(repr(self))}</code>"
        return self.model_._repr_html_()

    @property
    def curves_(self) -> Curves:
        """Return the fitted curves: the pooled one first, then one per context."""
        return self._fitted().curves

    def prepare(self) -> Self:
        """Load the libraries that fitting needs, so that a first fit is not timed with them.

        Returns
        -------
        self : unchanged.
        """
        return self

    # -- what a method fills in ---------------------------------------------------------------------------------

    def _fitting(self) -> Callable[[Sketch], "Fitted"]:
        """Return the function that fits; one with a warm start keeps the earlier fit, which is forgotten before it."""
        return self._fit

    def _fit(self, sketch: Sketch) -> "Fitted":
        """Return what the fit gives; a method either fills in this or, if curves are all there is, _fit_curves."""
        return Fitted(self._fit_curves(sketch))

    def _fit_curves(self, sketch: Sketch) -> Curves:
        """Return the pooled curve and one curve per context (if the sketch has fields)."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """Raise InputError if a constructor argument cannot be used."""

    # -- shared steps -------------------------------------------------------------------------------------------

    def _fitted(self) -> CalibrationModel:
        try:
            return self.model_
        except AttributeError:
            problem = f"this {type(self).__name__} is not fitted yet; call fit or fit_sketch first"
            raise NotFittedError(problem) from None

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _check_field_use(self, given: bool) -> None:
        if not given and self.field_use == "required":
            advice = Advice("pass {field}, or use a method without one", field=None)
            if getattr(self, "alpha_balance", 0.0):
                why = "alpha_balance > 0 compares field values"
                advice = Advice(
                    f"{why}. Pass field=, or set alpha_balance=0",
                    shell=f"{why}. Pass --field, or --set alpha_balance=0",
                )
            raise NotSupportedError(f"{self.method} needs a field", advice=advice)

    def _nothing_to_learn(self, sketch: Sketch) -> str | None:
        """Return why there is nothing to learn from (one class, or one distinct score); None if there is something."""
        if not 0.0 < sketch.total_positives < sketch.total_weight:
            return f"every row is {'positive' if sketch.total_positives > 0.0 else 'negative'}"
        one_score = sketch.cells.key.min() == sketch.cells.key.max()
        if one_score and not self._learns_from_one_score(bool(sketch.contexts.names)):
            return "all rows have one score"
        return None

    def _constant(self, sketch: Sketch) -> Fitted:
        """Return curves that give all rows their common rate."""
        number = 1 + (len(sketch.contexts) if sketch.contexts.names else 0)
        return Fitted(Curves.constant(constant_rate(sketch), number), sketch.contexts)

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        """Tell whether rows of a single score still say something: through their fields or features."""
        return False

    def _plain_parameters(self) -> dict[str, Any]:
        """Return the constructor arguments as JSON-able values."""
        return {name: plain_value(value) for name, value in self.get_params(deep=False).items()}

    @classmethod
    def _from_plain(cls, parameters: Mapping[str, Any]) -> Self:
        """Return an unfitted calibrator with the parameters of a model file, where tuples have become lists."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()})
