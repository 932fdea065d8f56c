"""A calibrator with an auxiliary network on the features of rows."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from sklearn.metrics import roc_auc_score

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType, logit
from mcnet._shared.messages import need_extra, warn
from mcnet.bayes.estimator import BayesMCNet
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import calibrator as registered
from mcnet.calibrators.methods import restored_calibrator
from mcnet.calibrators.parameters import clone
from mcnet.calibrators.training_state import (
    TrainedCalibrator,
    TrainingState,
    load_with_state,
    predict_exactly,
    save_state,
)
from mcnet.errors import InputError, NotSupportedError
from mcnet.networks.calibrator import FeatureModel, FitRows, NetworkCalibrator
from mcnet.networks.training_points import TrainedFunction, as_codes, check_device, check_seed, compiled_curves
from mcnet.rows.columns import as_array, check_lengths, refuse_overlap
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.sketch import Sketch

if TYPE_CHECKING:
    from mcnet.networks.training import AuxiliaryNetwork, RowFunction, RowSchedule

# What an auxiliary network gained on rows that it was not trained on.


@dataclass(frozen=True)
class FeatureGain:
    """Log-loss and AUC on the rows held back, without the auxiliary network and with it.

    The calibrator without it has seen these rows, the one with it has not: the gain is rather under- than overstated.
    They also decided when to stop, so among noise the gain is a little above 0 by choice.
    """

    rows: int
    log_loss_before: float
    log_loss_after: float
    standard_error: float
    """Of the difference between the two losses."""
    auc_before: float
    auc_after: float
    """NaN where the rows held back are of one class."""

    @staticmethod
    def of(label: FloatArray, weight: FloatArray | None, before: FloatArray, after: FloatArray) -> "FeatureGain":
        """Compare two predictions of the same rows."""
        counts = np.ones_like(label) if weight is None else weight
        losses = [-(label * np.log(p) + (1.0 - label) * np.log1p(-p)) for p in (before, after)]
        mass = float(counts.sum())
        means = [float((counts * loss).sum()) / mass for loss in losses]
        differences = losses[1] - losses[0] - (means[1] - means[0])
        return FeatureGain(
            rows=len(label),
            log_loss_before=means[0],
            log_loss_after=means[1],
            standard_error=float(np.sqrt(((counts * differences) ** 2).sum())) / mass,
            auc_before=_auc(label, counts, before),
            auc_after=_auc(label, counts, after),
        )

    @property
    def log_loss(self) -> float:
        """Return how much the log-loss fell."""
        return self.log_loss_before - self.log_loss_after

    @property
    def auc(self) -> float:
        """Return how much the AUC rose."""
        return self.auc_after - self.auc_before


def _auc(label: FloatArray, weight: FloatArray, probability: FloatArray) -> float:
    """Return the AUC; a fractional label is a positive and a negative of that share."""
    positive, negative = weight * label, weight * (1.0 - label)
    if not positive.sum() > 0.0 or not negative.sum() > 0.0:
        return float("nan")
    sides = np.repeat([1, 0], len(label))
    return float(roc_auc_score(sides, np.tile(probability, 2), sample_weight=np.concatenate([positive, negative])))


# Training a network on features beside a fitted calibrator.

_HELD_OUT = 0.1
_STEPS_PER_EPOCH = 50


def feature_schedule(rows: int, seed: int) -> "RowSchedule":
    """Return how a network on features is trained: batches of 2048, or fewer where an epoch would have few steps."""
    from mcnet.networks.training import RowSchedule

    batch = min(2048, max(64, rows // _STEPS_PER_EPOCH))
    return RowSchedule(
        epochs=30, batch=batch, rate=1e-3, decay=1e-4, held_out=_HELD_OUT, patience=3, unseen=0.02, seed=seed
    )


@dataclass(frozen=True)
class FeatureTraining:
    """What a training gives: the network on features, F if it was trained too, the rows that judged, the schedule."""

    network: "AuxiliaryNetwork"
    function: TrainedFunction | None
    held: IntArray
    schedule: "RowSchedule"


def fit_features(
    calibrator: Calibrator, rows: FitRows, plain: FloatArray, *, seed: int, device: str, progress: Any
) -> FeatureTraining:
    """Train a network on features, and the calibrator's function beside it where it is a trained one."""
    from mcnet.networks.objective import Penalties
    from mcnet.networks.training import FixedFunction, fit_with_auxiliary

    assert rows.encoding is not None
    assert rows.features is not None
    # A constant has no function, and BayesMCNet and the classical methods are at their optimum: their F stays.
    joint = isinstance(calibrator, NetworkCalibrator) and hasattr(calibrator, "network_")
    codes, sizes = rows.codes(calibrator.model_.contexts)
    codes = as_codes(codes, len(rows), sizes)
    schedule = feature_schedule(len(rows), int(seed))
    if not _enough_to_judge(rows):
        warn(f"{calibrator.method}: too few rows of one class to train a network on features; it adds nothing")
        schedule = replace(schedule, epochs=0)
    network: Any = getattr(calibrator, "network_", None)
    function: RowFunction = network.on_rows(codes) if joint else FixedFunction()
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
        penalties=Penalties(
            getattr(calibrator, "beta_order", None),
            getattr(calibrator, "alpha_balance", 0.0),
            getattr(calibrator, "balance", "global"),
        ),
        schedule=schedule,
        progress=progress,
        device=device,
        groups=np.column_stack([column.codes for column in rows.fields]) if rows.fields else None,
    )
    trained = network.with_function(function) if joint else None
    return FeatureTraining(fitted.auxiliary, trained, fitted.held, schedule)


def _enough_to_judge(rows: FitRows) -> bool:
    """Tell whether the rows held back may be expected to include some of each class."""
    labels = rows.label if rows.weight is None else rows.label[rows.weight > 0.0]
    rarer = min(float((labels > 0.0).sum()), float((labels < 1.0).sum()))
    return rarer * _HELD_OUT >= 3.0


# WithFeatures: a calibrator with a network on the features of a row beside it.

_NO_CURVE = (
    "with features a probability depends on more than the score, so no curve of the score gives it; "
    "model_ is the calibrator without features"
)


class WithFeatures(Calibrator):
    """A calibrator that learns from the features of a row, too: p = σ(level + slope·F(l, c) + aux(x)).

    First the calibrator is fitted without features; it stays as `calibrator_`, and its curves as `model_`, monotone and
    calibrated, for rows whose features are not known. Then a small network on the features is trained on the rows,
    starting at zero, until rows held back get no better; the function F of MCNet, NeuCalib and AdaCalib is trained
    along, that of other methods stays. `feature_gain_` tells what this gained on the rows held back, `schedule_` how it
    was trained: always by this schedule, whatever that of the calibrator is. Needs torch (the extra `networks`).

    The order of scores no longer holds between rows of different features; that is what the network is for. Among rows
    alike in features and field it holds as before. There is no curve of the score alone, so none is exported.

    Parameters
    ----------
    calibrator : the name of a method, or a calibrator.
    seed, device : of the network's training; device is "cpu" or "cuda".
    progress : is called with (steps done, steps at most, loss).
    """

    method = "with-features"
    field_use = "optional"
    extra = "networks"
    needs_features = True

    calibrator_: Calibrator
    features_: FeatureModel
    feature_gain_: FeatureGain
    schedule_: dict[str, Any]

    def __init__(
        self,
        calibrator: str | Calibrator = "mcnet-bayes",
        *,
        seed: int = 0,
        device: str = "cpu",
        progress: Callable[[int, int, float], Any] | None = None,
    ) -> None:
        """Store the parameters; they are checked in fit."""
        self.calibrator = calibrator
        self.seed = seed
        self.device = device
        self.progress = progress

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """False: the order of scores holds among rows alike in features only."""
        return False

    def fit(
        self,
        scores: Any,
        labels: Any,
        *misplaced: Any,
        field: Any = None,
        weight: Any = None,
        features: Any = None,
        row_ids: Any = None,
        base_row_ids: Any = None,
        resolution: Resolution = DEFAULT_RESOLUTION,
        score_type: ScoreType = "probability",
        negatives_kept: float = 1.0,
    ) -> Self:
        """Fit on rows held in memory.

        Parameters
        ----------
        scores, labels, field, weight, resolution, score_type, negatives_kept : as in `Calibrator.fit`.
        features : a 2-D array of numbers, or a table with named columns (pandas, Polars, Arrow): numbers (missing ones
            get an indicator), and text, categories or booleans as categories.
        row_ids, base_row_ids : the ids of these rows and of the rows that the base predictor was trained on. Its scores
            are too good on the latter, and a network on features would learn from that: rows that are in both are
            refused. Without ids there is a warning.

        Returns
        -------
        self : the fitted calibrator.
        """
        if misplaced:
            raise InputError("fit takes scores and labels by position; name the rest: features=…, field=…, weight=…")
        need_extra("networks", "WithFeatures")
        if features is None:
            raise NotSupportedError("WithFeatures needs the features of the rows; pass features=")
        check_seed(self.seed)
        check_device(self.device)
        inner = self._calibrator()
        self._check_row_ids(scores, row_ids, base_row_ids)
        kept: dict[str, Any] = {"score_type": score_type, "negatives_kept": negatives_kept}
        rows = FitRows.of(scores, labels, field, weight, features, **kept)
        inner.fit(scores, labels, field=field, weight=weight, resolution=resolution, **kept)
        plain = inner.model_.predict(rows.score, _served_field(inner, rows), score_type="probability")
        given: dict[str, Any] = {"seed": self.seed, "device": self.device, "progress": self.progress}
        training = fit_features(inner, rows, plain, **given)
        sketch = Sketch.from_rows(scores, labels, field=field, weight=weight, resolution=resolution, **kept)
        self._forget()
        self.calibrator_ = inner
        self.schedule_ = asdict(training.schedule)
        self.model_ = replace(
            inner.model_,
            method=self.method,
            parameters=self._plain_parameters(),
            provenance=inner.model_.provenance | {"schedule": self.schedule_},
        )
        self._settle(training, rows, plain, sketch)
        return self

    def fit_sketch(self, sketch: Sketch) -> NoReturn:
        """Refuse: a sketch keeps no features."""
        raise NotSupportedError(
            "WithFeatures learns from the features of single rows, which a sketch does not keep; "
            "call fit(scores, labels, features=…)"
        )

    def predict(
        self,
        scores: Any,
        field: Any = None,
        *,
        features: Any = None,
        score_type: ScoreType | None = None,
        exact: bool = False,
    ) -> FloatArray:
        """Return the calibrated probability of each score with its features.

        Parameters
        ----------
        scores, field, score_type : as in `Calibrator.predict`.
        features : the features of the rows, as in `fit`.
        exact : ask the function behind the curves, not the curves; the network on features is always asked.

        Returns
        -------
        array : one probability per score.
        """
        model = self._fitted()
        if features is None:
            raise NotSupportedError("WithFeatures needs the features of the rows; pass features=")
        both = self.features_
        encoded = both.encoding.encode(features)
        check_lengths(score=as_array(scores, "score"), features=encoded.numbers)
        if not exact:
            return both.add(both.model.predict(scores, field, score_type=score_type), encoded)
        if both.function is None:
            asked: dict[str, Any] = {"exact": True} if isinstance(self.calibrator_, BayesMCNet) else {}
            return both.add(self.calibrator_.predict(scores, field, score_type=score_type, **asked), encoded)
        function = both.function

        def trained(given: FloatArray, known: IntArray) -> FloatArray:
            return function.predict(logit(given), known)

        return both.add(predict_exactly(model, trained, scores, field, score_type), encoded)

    def predict_one(self, score: float, field: Any = None, *, score_type: ScoreType | None = None) -> NoReturn:
        """Refuse: one score and its field say nothing of the features."""
        self._fitted()
        raise NotSupportedError("WithFeatures needs the features of the rows; call predict(…, features=…)")

    def interval(self, scores: Any, field: Any = None, **_: Any) -> NoReturn:
        """Refuse: the uncertainty of a network on features is not known."""
        self._fitted()
        raise NotSupportedError("with features the uncertainty is not known; calibrator_ is the fit without them")

    @property
    def curves_(self) -> NoReturn:
        """Refuse: no curve of the score gives a probability that depends on features."""
        self._fitted()
        raise NotSupportedError(_NO_CURVE)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the curves without features as JSON and, beside them, everything else, from which `resume` restores.

        Parameters
        ----------
        path : the model file; the training state is written beside it.
        """
        self._fitted().save(path)
        inner = TrainingState({}, {})
        if isinstance(self.calibrator_, TrainedCalibrator):
            inner = self.calibrator_._training_state()
        features = self.features_.state()
        about = {
            "calibrator": inner.about,
            "features": features.about,
            "gain": asdict(self.feature_gain_),
            "schedule": self.schedule_,
        }
        save_state(path, TrainingState(inner.prefixed("calibrator") | features.prefixed("features"), about))

    @classmethod
    def resume(cls, path: str | PathLike[str]) -> Self:
        """Restore the fitted calibrator that `save` wrote.

        Parameters
        ----------
        path : the model file; its training state lies beside it.

        Returns
        -------
        WithFeatures : the fitted calibrator.
        """
        model, state = load_with_state(path, cls.method)
        inner = restored_calibrator(model.parameters["calibrator"])
        inner.model_ = replace(model, method=inner.method, parameters=inner._plain_parameters())
        if isinstance(inner, TrainedCalibrator):
            inner._restore_training(TrainingState(state.part("calibrator"), state.about["calibrator"]))
        restored = cls(inner, seed=model.parameters["seed"], device=model.parameters["device"])
        restored.calibrator, restored.calibrator_, restored.model_ = clone(inner), inner, model
        restored.schedule_ = state.about["schedule"]
        restored.feature_gain_ = FeatureGain(**state.about["gain"])
        features = TrainingState(state.part("features"), state.about["features"])
        restored.features_ = FeatureModel.restore(features, model, inner, restored.device)
        return restored

    # -- shared steps -------------------------------------------------------------------------------------------

    def _calibrator(self) -> Calibrator:
        """Return the calibrator to fit: a copy, or the earlier fit where it is to be continued."""
        given = registered(self.calibrator) if isinstance(self.calibrator, str) else self.calibrator
        if not isinstance(given, Calibrator) or isinstance(given, WithFeatures):
            raise InputError(f"calibrator is {given!r}; it must be a method, or a calibrator without features")
        if getattr(given, "space", "logit") != "logit":
            raise InputError("WithFeatures adds to logits: the calibrator needs space='logit'")
        if getattr(given, "warm_start", False) and hasattr(self, "calibrator_"):
            return self.calibrator_
        copied: Calibrator = clone(given)
        return copied

    def _check_row_ids(self, scores: Any, row_ids: Any, base_row_ids: Any) -> None:
        """Refuse rows that the base predictor was trained on, where that can be known."""
        if row_ids is None and base_row_ids is None:
            warn(
                "with-features: it is not known whether the base predictor was trained on these rows; if it was, its "
                "scores are too good on them, and the network learns features for a gap that new rows do not have. "
                "Pass row_ids= and base_row_ids= to make sure"
            )
            return
        if row_ids is None or base_row_ids is None:
            raise InputError("row_ids and base_row_ids are used together; give both or none")
        check_lengths(score=as_array(scores, "score"), row_ids=as_array(row_ids, "row_ids"))
        refuse_overlap(row_ids, base_row_ids)

    def _settle(self, training: FeatureTraining, rows: FitRows, plain: FloatArray, sketch: Sketch) -> None:
        """Compile F again if it was trained, adjust it to the features, and measure the gain on the rows held back."""
        assert rows.encoding is not None
        model, curve = self.model_, plain
        if training.function is not None:
            guarantee = bool(getattr(self.calibrator_, "guarantee", True))
            curves, _ = compiled_curves(training.function, model.contexts, sketch.unfolded(), guarantee=guarantee)
            model = replace(model, curves=curves.bounded())
            curve = model.predict(rows.score, _served_field(self.calibrator_, rows), score_type="probability")
        both = FeatureModel(rows.encoding, training.network, model, training.function)
        self.features_ = both.settled(curve, rows)
        held = rows.taken(training.held)
        assert held.features is not None
        after = self.features_.add(curve[training.held], held.features)
        self.feature_gain_ = FeatureGain.of(held.label, held.weight, plain[training.held], after)

    def _plain_parameters(self) -> dict[str, Any]:
        inner = registered(self.calibrator) if isinstance(self.calibrator, str) else self.calibrator
        return {
            "calibrator": {"method": inner.method, **inner._plain_parameters()},
            "seed": int(self.seed),
            "device": self.device,
        }


def _served_field(calibrator: Calibrator, rows: FitRows) -> Any:
    return rows.fields if calibrator.model_.fields else None
