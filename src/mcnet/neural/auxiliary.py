"""The base class of calibrators that may add an auxiliary network on the features of a row."""

from dataclasses import asdict, replace
from os import PathLike
from typing import Any, Self

from mcnet._shared.math import logit
from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.calibrators.base import warn
from mcnet.calibrators.training_state import TrainingState
from mcnet.curves.curves import Curves
from mcnet.data.columns import as_array, check_lengths, scores_column
from mcnet.data.row_overlap import refuse_overlap
from mcnet.errors import InputError, NotFittedError, NotSupportedError
from mcnet.neural.auxiliary_gain import AuxiliaryGain
from mcnet.neural.auxiliary_model import AuxiliaryModel, auxiliary_schedule, enough_to_judge
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.network import NetworkCalibrator, network_curves
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.sketch import Sketch

__all__ = ["AuxiliaryCalibrator"]

_PREFIX = "auxiliary."


class AuxiliaryCalibrator(NetworkCalibrator):
    """A network calibrator that, with auxiliary=True, learns from features too: p = σ(F(l, c) + aux(x)).

    First the calibrator is fitted without features; it stays as `model_`, monotone and calibrated, for rows whose
    features are not known. Then F starts from it and is trained on the rows together with a small network on the
    features that starts at zero, until rows held back get no better. `auxiliary_gain_` tells what this gained on them.

    The order of scores no longer holds between rows of different features; that is what the network is for. Among rows
    alike in features and field it holds as ever. There is no curve of score alone for this, so none is exported.
    """

    auxiliary: bool
    auxiliary_: AuxiliaryModel
    auxiliary_gain_: AuxiliaryGain

    beta_order: float | None
    alpha_balance: float
    balance: Any
    seed: int

    def fit(
        self,
        scores: Any,
        labels: Any,
        *,
        field: Any = None,
        weight: Any = None,
        features: Any = None,
        row_ids: Any = None,
        base_row_ids: Any = None,
        resolution: Resolution = DEFAULT_RESOLUTION,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
    ) -> Self:
        """Fit on rows held in memory; see Sketch.from_rows for the parameters that are not listed here.

        Parameters
        ----------
        features : with auxiliary=True, a 2-D array of numbers, or a table with named columns (pandas, Polars, Arrow):
            numbers (missing ones get an indicator), and text, categories or booleans as categories.
        row_ids, base_row_ids : with auxiliary=True, the ids of these rows and of the rows that the base predictor was
            trained on. Its scores are too good on the latter, and a network on features would learn from that: rows
            that are in both are refused. Without ids there is a warning.
        """
        self._check_field_use(field is not None)
        self._check_features_given(features)
        self._check_row_ids(scores, row_ids, base_row_ids)
        kept: dict[str, Any] = {"score_type": score_type, "negatives_kept": negatives_kept}
        sketch = Sketch.from_rows(scores, labels, field=field, weight=weight, resolution=resolution, **kept)
        if self.auxiliary or self._trains_on_rows():
            self._rows = FitRows.of(scores, labels, field, weight, features, **kept)
        try:
            return self.fit_sketch(sketch)
        finally:
            self.__dict__.pop("_rows", None)

    def fit_sketch(self, sketch: Sketch) -> Self:
        """Fit on a sketch of any number of rows; not with auxiliary=True, since a sketch keeps no features."""
        rows: FitRows | None = getattr(self, "_rows", None)
        if self.auxiliary and rows is None:
            raise NotSupportedError(
                "auxiliary=True learns from the features of single rows, which a sketch does not keep; "
                "call fit(scores, labels, features=…)"
            )
        super().fit_sketch(sketch)
        if self.auxiliary and rows is not None and hasattr(self, "network_"):
            self._add_auxiliary(sketch, rows)
        return self

    def predict(
        self,
        scores: Any,
        field: Any = None,
        *,
        features: Any = None,
        codes: Any = None,
        score_type: ScoreType | None = None,
        exact: bool = False,
    ) -> FloatArray:
        """Return the calibrated probability of each score; with auxiliary=True, of each score and its features.

        `exact` asks the network behind the curve of F, not the curve; the auxiliary network is always asked itself.
        """
        if features is None and self.auxiliary is False and not exact:
            return self._fitted().predict(scores, field, codes=codes, score_type=score_type)
        self._fitted()
        self._check_features_given(features)
        asked: dict[str, Any] = {"codes": codes, "score_type": score_type, "exact": exact}
        if not self.auxiliary or not hasattr(self, "network_"):
            return super().predict(scores, field, **asked)
        both = self._both_parts()
        encoded = both.encoding.encode(features)
        check_lengths(score=as_array(scores, "score"), features=encoded.numbers)
        if both.function is None:
            curve = super().predict(scores, field, **asked)
        elif exact:
            score = scores_column(scores, score_type=score_type or self._fitted().score_type)
            curve = both.function.predict(logit(score), self._field_codes(field, len(score)))
        else:
            curve = both.model.predict(scores, field, codes=codes, score_type=score_type)
        return both.add(curve, encoded)

    def predict_one(self, score: float, field: Any = None, *, score_type: ScoreType | None = None) -> float:
        """Return the calibrated probability of one score as a plain float; not with auxiliary=True."""
        model = self._fitted()
        self._check_features_given(None)
        return model.predict_one(score, field, score_type=score_type)

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether the order of scores is guaranteed: within a context, and not if features have a say."""
        return self._monotone_curves() and not self.auxiliary

    def _monotone_curves(self) -> bool:
        return self.guarantee

    @property
    def curves_(self) -> Curves:
        """Return the fitted curves: the pooled one first, then one a context."""
        if self.auxiliary:
            self._fitted()
            raise NotSupportedError(
                "with auxiliary=True a probability depends on the features, so no curve of the score gives it; "
                "model_.curves are those of the calibrator without the auxiliary network"
            )
        return super().curves_

    def save(self, path: str | PathLike[str]) -> None:
        """Save the model as JSON and, beside it, the networks' weights, from which `resume` goes on.

        With auxiliary=True the JSON is the calibrator without features; `resume` brings back both parts.
        """
        super().save(path)

    # -- what a method fills in ---------------------------------------------------------------------------------

    def _trains_on_rows(self) -> bool:
        """Tell whether the method itself is trained on rows."""
        return False

    def _trains_jointly(self) -> bool:
        """Tell whether F goes on training beside the auxiliary network, or is at its optimum and stays."""
        return True

    def _integral_steps(self) -> int:
        """Return the steps of a row's integral in a bank of networks: over part of a bin, which is short and smooth."""
        return 16

    # -- shared steps -------------------------------------------------------------------------------------------

    def _check_features_given(self, features: Any) -> None:
        if not isinstance(self.auxiliary, bool):
            raise InputError(f"auxiliary is {self.auxiliary!r}; it is True or False")
        if features is not None and not self.auxiliary:
            raise NotSupportedError(f"{self.method} has a use for features only with auxiliary=True; leave them out")
        if features is None and self.auxiliary:
            raise NotSupportedError(f"{self.method} with auxiliary=True needs the features of the rows; pass features=")

    def _check_row_ids(self, scores: Any, row_ids: Any, base_row_ids: Any) -> None:
        """Refuse rows that the base predictor was trained on, where that can be known."""
        if row_ids is None and base_row_ids is None:
            if self.auxiliary:
                warn(
                    f"{self.method}: it is not known whether the base predictor was trained on these rows; if it was, "
                    "its scores are too good on them, and the auxiliary network learns features for a gap that new "
                    "rows do not have. Pass row_ids= and base_row_ids= to make sure"
                )
            return
        if not self.auxiliary:
            raise NotSupportedError("row_ids and base_row_ids are for auxiliary=True; leave them out")
        if row_ids is None or base_row_ids is None:
            raise InputError("row_ids and base_row_ids only tell something together; give both or none")
        check_lengths(score=as_array(scores, "score"), row_ids=as_array(row_ids, "row_ids"))
        refuse_overlap(row_ids, base_row_ids)

    def _both_parts(self) -> AuxiliaryModel:
        if not hasattr(self, "auxiliary_"):
            raise NotFittedError("the auxiliary network is not fitted; call fit(scores, labels, features=…) first")
        return self.auxiliary_

    def _add_auxiliary(self, sketch: Sketch, rows: FitRows) -> None:
        """Train the auxiliary network, and F beside it, and compile F again if it has moved."""
        from mcnet.networks.auxiliary import fit_with_auxiliary
        from mcnet.networks.joint import FixedFunction, row_function, with_function
        from mcnet.networks.objective import Penalties
        from mcnet.networks.training_points import as_codes

        assert rows.encoding is not None
        assert rows.features is not None
        model, joint = self.model_, self._trains_jointly()
        codes, sizes = rows.codes(model.contexts if model.fields else sketch.contexts)
        codes = as_codes(codes, len(rows), sizes)
        schedule = auxiliary_schedule(len(rows), self.seed)
        if not enough_to_judge(rows):
            warn(f"{self.method}: too few rows of one class to train an auxiliary network; it adds nothing")
            schedule = replace(schedule, epochs=0)
        plain = model.predict(rows.score, rows.fields if model.fields else None, score_type="probability")
        function = row_function(self.network_, codes, self._integral_steps()) if joint else FixedFunction()
        fitted = fit_with_auxiliary(
            function,
            logit(rows.score) if joint else logit(plain),
            rows.label,
            codes,
            sizes,
            rows.features.numbers,
            rows.features.categories,
            rows.encoding.sizes,
            rows.weight,
            penalties=Penalties(self.beta_order, self.alpha_balance, self.balance),
            schedule=schedule,
            progress=getattr(self, "progress", None),
            device=getattr(self, "device", "cpu"),
        )
        trained = with_function(self.network_, function) if joint else None
        if trained is not None:
            breaks, jumps = self._breaks(trained)
            curves, projection = network_curves(
                trained.predict, model.contexts, sketch, breaks=breaks, jumps=jumps, guarantee=self.guarantee
            )
            self.order_violations_ = max(self.order_violations_, projection.largest)
            model = replace(model, curves=curves.bounded())
        both = AuxiliaryModel(rows.encoding, fitted.auxiliary, model, trained)
        curve = (
            model.predict(rows.score, rows.fields if model.fields else None, score_type="probability")
            if joint
            else plain
        )
        self.auxiliary_ = both.settled(curve, rows)
        held = rows.taken(fitted.held)
        assert held.features is not None
        after = self.auxiliary_.add(curve[fitted.held], held.features)
        self.auxiliary_gain_ = AuxiliaryGain.of(held.label, held.weight, plain[fitted.held], after)

    def _provenance(self, sketch: Sketch) -> dict[str, Any]:
        without = {"auxiliary": "left out: these curves are the calibrator without features"} if self.auxiliary else {}
        return super()._provenance(sketch) | without

    def _further_state(self) -> TrainingState:
        if not self.auxiliary:
            return {}, {}
        arrays, description = self._both_parts().state()
        description["gain"] = asdict(self.auxiliary_gain_)
        return {_PREFIX + name: array for name, array in arrays.items()}, {"auxiliary": description}

    def _restore_further(self, arrays: dict[str, Any], about: dict[str, Any]) -> None:
        own = {name[len(_PREFIX) :]: arrays.pop(name) for name in list(arrays) if name.startswith(_PREFIX)}
        if "auxiliary" in about:
            description = about["auxiliary"]
            self.auxiliary_gain_ = AuxiliaryGain(**description["gain"])
            self.auxiliary_ = AuxiliaryModel.restore(
                own, description, self.model_, self._restored, getattr(self, "device", "cpu")
            )
