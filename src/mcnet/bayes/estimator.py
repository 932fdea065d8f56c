"""BayesMCNet: one monotone curve per context, fitted by empirical Bayes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from mcnet._shared.arrays import FloatArray, IntArray, logit, sigmoid
from mcnet._shared.messages import warn
from mcnet.bayes.fields import (
    common_first,
    field_contributions,
    served_contexts,
    telling,
    without_fields,
    without_values,
)
from mcnet.bayes.fit import belief_limit, family_of, fit_bayes, fit_bayes_sketch, fit_one_curve
from mcnet.bayes.isotonic import FEWEST_OF_RARER_CLASS, MOST_MIXED_CONTEXTS, earned_share, mixed_with_isotonic
from mcnet.bayes.misfit import Misfit
from mcnet.bayes.posterior import BayesFit, FitUncertainty
from mcnet.bayes.prior import EmpiricalBayes, Prior
from mcnet.bayes.tempering import PeriodEvidence, cells_of
from mcnet.calibrators.base import MOST_WEIGHT, FieldUse, Fitted
from mcnet.calibrators.parameters import balanced_field_use, check_count, check_penalties, warn_of_gaps
from mcnet.calibrators.period_effects import PeriodBlocks
from mcnet.calibrators.training_state import EarlierFit, TrainedCalibrator, TrainingState
from mcnet.curves.compile import MOST_CURVES_WITH_OWN_KNOTS, family_curves
from mcnet.curves.curves import Curves
from mcnet.curves.family import CurveFamily, believable
from mcnet.errors import InputError
from mcnet.rows.contexts import Contexts
from mcnet.sketch.sketch import Sketch

LARGE_MEAN_WEIGHT = 10.0
"""From this mean weight on, weights are hardly numbers of rows."""


class BayesMCNet(TrainedCalibrator):
    """Monotone calibration with context by empirical Bayes: logit p = a_c + ∫ exp(φ₀(t) + b_c + u_c·φ(t)) dt.

    The derivative of every curve is positive and log-linear in the context, so the order of scores is kept by
    construction, and several fields add up. How much field values may differ and how rough the curves may be is learnt
    from the data: small field values stay on the common curve, large ones are free. In a field with thousands of values
    those with next to no rows are pooled (`pooled_values_` counts them). Of several fields, those that add nothing are
    left out (`left_out_fields_`), and so are pairs of fields. It shares the form
    `logit p = bias + ∫ positive derivative` with the published `MCNet`, but has a few numbers per field value instead
    of networks, and fits in milliseconds to seconds.

    Parameters
    ----------
    bins : the number of pieces of a curve; "auto" lets the data decide.
    field_aware : False gives one curve for all rows; a field then matters to the balance term alone.
    interactions : give pairs of fields their own deviations, as far as the data support them.
    isotonic_share : how much of each context's own isotonic fit is mixed into its curve, from 0 to 1; "auto" takes
        what clearly lowers the log-loss of rows held back, most often nothing.
    alpha_balance : the weight of the field-balance regulariser, which narrows the spread of the field values' biases.
    balance : "global" measures a field value's bias per row of all rows (the paper), "field" per row of its own.
    warm_start : continue from the previous fit of this object; new field values are allowed.
    prior : how much field values may differ before any data, and how that is learnt (`mcnet.bayes.prior.Prior`); None
        is empirical Bayes. With `field_aware=False` it does not apply.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(0.01, 0.2, 50_000)
    >>> country = rng.choice(["NL", "FR"], 50_000)
    >>> scores = truth * np.where(country == "NL", 0.8, 1.3)
    >>> fitted = BayesMCNet().fit(scores, rng.random(50_000) < truth, field=country)
    >>> fitted.predict([0.08, 0.13], field=["NL", "FR"]).round(2)
    array([0.1, 0.1])
    """

    method = "mcnet-bayes"
    function_attribute = "posterior_"
    complexity = 130
    _field_advice = "leave field_aware=True, set alpha_balance > 0 to have it balanced, or leave the field out"

    posterior_: BayesFit
    compiled_error_: float
    isotonic_share_: float
    pooled_values_: dict[str, int]
    """How many values of each field share the common curve, because their rows cannot tell them from it."""
    left_out_fields_: tuple[str, ...] = ()
    """Fields that add nothing to the others: rows are served as though they were not given."""

    def __init__(
        self,
        *,
        bins: int | Literal["auto"] = "auto",
        field_aware: bool = True,
        interactions: bool = True,
        isotonic_share: float | Literal["auto"] = "auto",
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        warm_start: bool = False,
        prior: Prior | None = None,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.bins = bins
        self.field_aware = field_aware
        self.interactions = interactions
        self.isotonic_share = isotonic_share
        self.alpha_balance = alpha_balance
        self.balance = balance
        self.warm_start = warm_start
        self.prior = prior

    @property
    def field_use(self) -> FieldUse:  # type: ignore[override]
        """Whether a field is of use to the curves, needed by the balance term, or of no use."""
        return balanced_field_use(self.alpha_balance, self.field_aware)

    @property
    def bins_(self) -> int:
        """How many pieces a curve has: what bins="auto" came to. A constant has one."""
        self._fitted()
        return len(self.posterior_.panels.edges) - 1 if hasattr(self, "posterior_") else 1

    def _fitting(self, rows: PeriodBlocks | None = None) -> Callable[[Sketch], Fitted]:
        known = getattr(self, "posterior_", None) if self.warm_start else None
        earlier = None if known is None else EarlierFit(self.model_.contexts, known)
        return lambda sketch: self._solve(sketch, earlier, rows)

    def _fit_periods(self, rows: PeriodBlocks) -> dict[str, float]:
        self._fit_by(rows.total, self._fitting(rows))
        learnt: dict[str, float] = self.__dict__.pop("_learnt", {})
        return learnt

    def _training_state(self) -> TrainingState:
        self._fitted()
        if not hasattr(self, "posterior_"):
            return TrainingState({}, {"constant_because": self.constant_because_})
        about = {"compiled_error": self.compiled_error_, "isotonic_share": self.isotonic_share_}
        return TrainingState(self.posterior_.arrays(), about)

    def _restore_training(self, state: TrainingState) -> None:
        self.pooled_values_ = self.model_.provenance.get("pooled_values", {})
        self.left_out_fields_ = tuple(self.model_.provenance.get("left_out_fields", ()))
        if "constant_because" in state.about:
            self.constant_because_ = state.about["constant_because"]
            return
        self.posterior_ = BayesFit.from_arrays(state.arrays)
        self.compiled_error_ = state.about["compiled_error"]
        self.isotonic_share_ = state.about["isotonic_share"]

    @classmethod
    def _from_plain(cls, parameters: Mapping[str, Any]) -> Self:
        # A prior of one's own is code, which a file does not have.
        return super()._from_plain({**parameters, "prior": None})

    # -- shared steps -------------------------------------------------------------------------------------------

    @property
    def _one_curve(self) -> bool:
        return not self.field_aware

    def _exact(self, scores: FloatArray, codes: IntArray) -> FloatArray:
        # A model that serves every context by its own curve is saved without its family.
        limit, logits = belief_limit(self._fitted().total_weight), logit(scores)
        return sigmoid(believable(self.posterior_.calibrate(codes, logits), logits, limit))

    def _check_parameters(self) -> None:
        check_count("bins", self.bins, "auto")
        check_penalties(self.alpha_balance, self.balance)
        if self.prior is not None and not isinstance(self.prior, Prior):
            raise InputError(
                f"prior is {self.prior!r}; it needs the methods first and learn of mcnet.bayes.prior.Prior"
            )
        share = self.isotonic_share
        if share != "auto" and not (isinstance(share, int | float) and 0.0 <= share <= 1.0):
            raise InputError(f"isotonic_share is {share!r}; it must be 'auto' or a number from 0 to 1")

    def _solve(self, sketch: Sketch, earlier: EarlierFit | None, rows: PeriodBlocks | None = None) -> Fitted:
        """Find the maximum of the posterior and compile its curves."""
        warn_of_gaps(self.method, sketch)
        sketch, pairs, rows = self._with_telling_fields(sketch, rows, earlier)
        served = sketch if self.field_aware else sketch.pooled()  # as its rows are served
        sketch, kept = self._with_common_first(sketch.unfolded(), earlier)
        evidence = None if rows is None else self._evidence(rows, sketch, pairs)
        tempered = sketch if evidence is None else (1.0 / evidence.tempering) * sketch
        # Weights that were divided say how much rows of a period are worth, and not how well the scores are known.
        believed = evidence is None or evidence.tempering == 1.0
        self.posterior_ = self._maximum(tempered, pairs, kept, earlier, believed)
        if not self.posterior_.finished:
            _warn_of_unfinished(self.posterior_, sketch)
        coming = 0.0 if evidence is None else self._level_of_periods(evidence)
        family = family_of(self.posterior_, belief_limit(sketch.total_weight)).rounded()
        contexts, summed = Contexts.none(), False
        if self.field_aware:
            known, left_out = sketch.contexts, self.left_out_fields_
            contexts = served_contexts(without_values(known, left_out) if left_out else known, kept)
            # Of very many contexts none is listed: the sum over a row's values serves it.
            summed = len(kept) - len(self.left_out_fields_) > 1 or len(contexts) > MOST_CURVES_WITH_OWN_KNOTS
        mixes = self.isotonic_share != 0.0
        if self.isotonic_share == "auto":
            rarer = min(served.total_positives, served.total_weight - served.total_positives)
            enough = rarer >= FEWEST_OF_RARER_CLASS and len(served.contexts) <= MOST_MIXED_CONTEXTS
            # Rows held back at random prove nothing where the rows of a period go together.
            mixes = enough and rows is None
        curves, contexts = self._compiled(served, family, contexts, summed=summed, mixes=mixes)
        misfit = Misfit.of(self.posterior_, tempered if self.field_aware else tempered.pooled())
        return Fitted(
            curves,
            contexts,
            family,
            isotonic_share=self.isotonic_share_,
            balanced_by=() if self.field_aware else sketch.contexts.names,
            # The level of the time to come differs from the fitted one by the same variance again.
            uncertainty=FitUncertainty(self.posterior_, family, coming, misfit.variance),
            history=self._history(tempered, kept),
            evaluation="sum" if summed else "curves",
        )

    def _maximum(
        self,
        sketch: Sketch,
        pairs: list[tuple[int, int]],
        kept: tuple[int, ...],
        earlier: EarlierFit | None,
        believed: bool,
    ) -> BayesFit:
        """Return the fit, whose left-out fields have values that do not differ."""
        given: dict[str, Any] = {
            "panels": self._panels,
            "alpha_balance": self.alpha_balance,
            "balance": self.balance,
            "start": None if earlier is None else earlier.fit,
            "believed": believed,
        }
        if not self.field_aware:
            return fit_one_curve(sketch, **given)
        fit = fit_bayes_sketch(sketch, pairs=pairs, kept=kept, prior=self.prior, **given)
        left_out = [sketch.contexts.names.index(name) for name in self.left_out_fields_]
        return fit.without_spread(left_out) if left_out else fit

    def _level_of_periods(self, evidence: PeriodEvidence) -> float:
        """Move the level to what the periods say; return the variance of that of the time to come."""
        variance = evidence.level_variance(self.posterior_)
        shift = evidence.level_shift(self.posterior_, variance.lasting)
        self.posterior_ = self.posterior_.shifted(shift)
        level_error = float(np.sqrt(variance.total))
        self._learnt = {"tempering": evidence.tempering, "level_error": level_error, "level_shift": shift}
        return variance.coming

    def _compiled(
        self, served: Sketch, family: CurveFamily, contexts: Contexts, *, summed: bool, mixes: bool
    ) -> tuple[Curves, Contexts]:
        """Return the curves of the contexts that are listed, with isotonic steps mixed in, and these contexts.

        Where sums over a row's values are served, contexts are listed for isotonic steps alone.
        """
        none = contexts.subset(np.arange(0, dtype=np.int32))
        listed = none if summed and not mixes else contexts
        curves, self.compiled_error_ = family_curves(family, listed.table)
        self.isotonic_share_ = 0.0 if self.isotonic_share == "auto" else float(self.isotonic_share)
        if mixes and self.isotonic_share == "auto":
            self.isotonic_share_ = earned_share(served, curves, listed)
        if self.isotonic_share_ > 0.0:
            return mixed_with_isotonic(served, curves, listed, self.isotonic_share_), listed
        return (Curves.of(curves.pairs()[:1]), none) if summed else (curves, listed)

    def _history(self, sketch: Sketch, kept: tuple[int, ...]) -> dict[str, Any]:
        """Return what the fields contribute, and which of them or of their values have no curves of their own."""
        if not self.field_aware or not sketch.contexts.names:
            return {}
        left_out = {"pooled_values": self.pooled_values_, "left_out_fields": list(self.left_out_fields_)}
        contributions = field_contributions(self.posterior_, sketch, kept)
        return {"contributions": contributions} | {name: what for name, what in left_out.items() if what}

    @property
    def _panels(self) -> int | None:
        return None if self.bins == "auto" else max(self.bins, 2)

    def _evidence(self, rows: PeriodBlocks, sketch: Sketch, pairs: list[tuple[int, int]]) -> PeriodEvidence:
        """Return what the periods say, with the contexts that the curves will have."""
        contexts = (sketch if self.field_aware else sketch.pooled()).contexts
        table, sizes = contexts.table.astype(np.int64), [len(known) for known in contexts.values]
        options: dict[str, Any] = {"pairs": pairs, "panels": self._panels, "covariance": False, "lift": False}
        blocks = [cells_of(block if self.field_aware else block.pooled(), contexts) for block in rows.blocks]
        return PeriodEvidence(blocks, table, lambda cells: fit_bayes(*cells, table, sizes, **options))

    def _with_telling_fields(
        self, sketch: Sketch, rows: PeriodBlocks | None, earlier: EarlierFit | None
    ) -> tuple[Sketch, list[tuple[int, int]], PeriodBlocks | None]:
        """Return the rows without the fields that add nothing, and the pairs of fields that add something.

        A warm start leaves out what the earlier fit left out, and keeps its pairs.
        """
        if not self.field_aware:
            return sketch, [], rows
        names = sketch.contexts.names
        # A balance term needs every field, and a prior of one's own may say more of it than its rows.
        judged = self.alpha_balance == 0.0 and type(self.prior) in (type(None), EmpiricalBayes)
        if earlier is not None:
            known = dict(zip(earlier.contexts.names, earlier.contexts.values, strict=True))
            self.left_out_fields_ = tuple(name for name in names if known.get(name) == ()) if judged else ()
            pairs = [(pair.first, pair.second) for pair in earlier.fit.combinations]
        else:
            fields, pairs = telling(sketch, judged=judged, interactions=self.interactions)
            self.left_out_fields_ = tuple(name for field, name in enumerate(names) if field not in fields)
        if self.left_out_fields_:
            sketch = without_fields(sketch, self.left_out_fields_)
            if rows is not None:
                blocks = tuple(without_fields(block, self.left_out_fields_) for block in rows.blocks)
                rows = replace(rows, blocks=blocks)
        return sketch, pairs, rows

    def _with_common_first(self, sketch: Sketch, earlier: EarlierFit | None) -> tuple[Sketch, tuple[int, ...]]:
        """Return the sketch with rare values last, and how many values of each field have their own curves."""
        if not self.field_aware:
            return sketch, ()
        fitted: tuple[int, ...] = ()
        if earlier is not None:
            sketch = earlier.aligned(sketch)
            fitted = tuple(len(numbers) for numbers in earlier.fit.state.values[: earlier.fit.fields])
        sketch, kept = common_first(sketch, fitted)
        names, values = sketch.contexts.names, sketch.contexts.values
        kept = tuple(0 if name in self.left_out_fields_ else size for name, size in zip(names, kept, strict=True))
        pooled = {name: len(known) - size for name, known, size in zip(names, values, kept, strict=True)}
        self.pooled_values_ = {
            name: number for name, number in pooled.items() if number and name not in self.left_out_fields_
        }
        return sketch, kept


def _warn_of_unfinished(fit: BayesFit, sketch: Sketch) -> None:
    """Warn of a fit that has not reached its maximum, which weights far above 1 may cause."""
    mean = sketch.total_weight / max(sketch.rows, 1)
    why = ""
    if mean >= LARGE_MEAN_WEIGHT:
        # Larger totals were scaled down before the fit.
        size = f"{mean:,.6g}" if sketch.total_weight < 0.99 * MOST_WEIGHT else "far above 1"
        why = (
            f": the mean weight is {size}, and a weight counts as that many rows; if weights are amounts, divide "
            "them by their mean"
        )
    warn(f"mcnet-bayes: the fit ended after {fit.iterations} iterations, before its maximum{why}")
