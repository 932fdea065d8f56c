"""What the calibrators with networks share: fitting on rows or cells, and models with features."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import PROBABILITY_FLOOR, FloatArray, IntArray, ScoreType, logit, sigmoid
from mcnet._shared.messages import need_extra
from mcnet.calibrators.base import Fitted
from mcnet.calibrators.parameters import warn_of_gaps
from mcnet.calibrators.parametric import fit_logistic
from mcnet.calibrators.training_state import EarlierFit, TrainedCalibrator, TrainingState
from mcnet.curves.curves import Curves
from mcnet.model.model import CalibrationModel
from mcnet.networks.training_points import (
    EncodedFeatures,
    FeatureEncoding,
    TrainedFunction,
    TrainingCells,
    compiled_curves,
)
from mcnet.rows.columns import check_lengths, labels_column, restore_negatives, scores_column, weights_column
from mcnet.rows.contexts import MOST_COMPILED_COMBINATIONS, Contexts
from mcnet.rows.fields import FieldColumn, field_columns
from mcnet.sketch.sketch import Sketch

# The cells of a sketch as the networks take them.


def training_cells(sketch: Sketch, *, field_aware: bool = True) -> TrainingCells:
    """Return the cells of a sketch; with field_aware=False, its contexts are groups of rows that share one function."""
    contexts, cells = sketch.contexts, (sketch.logit, sketch.weight, sketch.positives)
    if not contexts.names:
        return TrainingCells.of(*cells)
    context = sketch.context.astype(np.int64)
    if not field_aware:
        return TrainingCells.of(*cells, context, np.empty((len(contexts), 0), dtype=np.int64), ())
    sizes = tuple(len(known) for known in contexts.values)
    return TrainingCells.of(*cells, context, contexts.table.astype(np.int64), sizes)


# The rows of a fit, validated, for training that needs them one by one.


@dataclass(frozen=True)
class FitRows:
    """Scores, labels, weights, fields and features of rows; rows of weight 0 are left out."""

    score: FloatArray
    label: FloatArray
    weight: FloatArray | None
    fields: tuple[FieldColumn, ...]
    encoding: FeatureEncoding | None
    features: EncodedFeatures | None

    @staticmethod
    def of(
        scores: Any,
        labels: Any,
        field: Any,
        weight: Any,
        features: Any,
        *,
        score_type: ScoreType,
        negatives_kept: float,
    ) -> "FitRows":
        """Return the rows from columns of any kind."""
        encoding = None if features is None else FeatureEncoding.learn(features)
        encoded = None if encoding is None else encoding.encode(features)
        score, counts = scores_column(scores, score_type=score_type), None if weight is None else weights_column(weight)
        check_lengths(score=score, features=None if encoded is None else encoded.numbers)
        label, counts = restore_negatives(labels_column(labels), counts, negatives_kept)
        rows = FitRows(score, label, counts, tuple(field_columns(field)), encoding, encoded)
        return rows if counts is None or counts.all() else rows.taken(np.flatnonzero(counts))

    def __len__(self) -> int:
        return len(self.score)

    def taken(self, which: NDArray[Any]) -> "FitRows":
        """Return some of the rows."""
        return FitRows(
            self.score[which],
            self.label[which],
            None if self.weight is None else self.weight[which],
            tuple(column[which] for column in self.fields),
            self.encoding,
            None if self.features is None else self.features.rows(which),
        )

    def codes(self, contexts: Contexts) -> tuple[IntArray, tuple[int, ...]]:
        """Return the field codes `[rows, fields]` as contexts number them, and each field's number of values."""
        if not contexts.names:
            return np.zeros((len(self), 0), dtype=np.int64), ()
        sizes = tuple(len(known) for known in contexts.values)
        return contexts.field_codes(self.fields).astype(np.int64), sizes


# The base class of calibrators whose function is trained: compiling, exact prediction, training state.


class NetworkCalibrator(TrainedCalibrator):
    """A calibrator whose function is trained; it serves the compiled curves and keeps the function as `network_`.

    `order_violations_` tells by how much, at most, the order guarantee had to move a probability (with
    guarantee=False: how far a curve falls).
    """

    field_use = "optional"
    function_attribute = "network_"
    network_: Any
    order_violations_: float

    guarantee: bool

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether the curves are guaranteed not to fall."""
        return self.guarantee

    def prepare(self) -> Self:
        """Load torch where the method needs it, so that a first fit is not timed with it.

        Returns
        -------
        self : unchanged.
        """
        if self.extra is not None:
            need_extra(self.extra, self.method)
            import torch  # noqa: F401
        return self

    # -- what a method fills in ---------------------------------------------------------------------------------

    def _train(self, sketch: Sketch, earlier: Any) -> TrainedFunction:
        """Return the function trained on a sketch, from the function of an earlier fit if there is one."""
        raise NotImplementedError

    def _restored_function(self, state: TrainingState) -> TrainedFunction:
        """Return the trained function of this method that its `state` described."""
        raise NotImplementedError

    # -- shared steps -------------------------------------------------------------------------------------------

    def _fitting(self, train: Callable[[Sketch, Any], TrainedFunction] | None = None) -> Callable[[Sketch], Fitted]:
        """Fit by training: `train(sketch, earlier network or None)` returns the trained function; by default _train."""
        network = getattr(self, "network_", None) if self.warm_start else None
        earlier = None if network is None else EarlierFit(self.model_.contexts, network)
        return lambda sketch: self._trained(sketch, train or self._train, earlier)

    def _trained(
        self, sketch: Sketch, train: Callable[[Sketch, Any], TrainedFunction], earlier: EarlierFit | None
    ) -> Fitted:
        sketch = sketch.unfolded()
        if earlier is not None and not self._one_curve:
            sketch = earlier.aligned(sketch)
        warn_of_gaps(self.method, sketch)
        self.network_ = train(sketch, None if earlier is None else earlier.fit)
        contexts = Contexts.none() if self._one_curve else sketch.contexts.completed(MOST_COMPILED_COMBINATIONS)
        curves, projection = compiled_curves(self.network_, contexts, sketch, guarantee=self.guarantee)
        self.order_violations_ = projection.largest
        return Fitted(curves, contexts, balanced_by=sketch.contexts.names if self._one_curve else ())

    def _constant(self, sketch: Sketch) -> Fitted:
        self.order_violations_ = 0.0
        return super()._constant(sketch)

    def _exact(self, scores: FloatArray, codes: IntArray) -> FloatArray:
        result: FloatArray = self.network_.predict(logit(scores), codes)
        return result

    def _training_state(self) -> TrainingState:
        about: dict[str, Any] = {"order_violations": self.order_violations_}
        if not hasattr(self, "network_"):
            return TrainingState({}, about | {"constant_because": self.constant_because_})
        arrays, description = self.network_.state()
        return TrainingState(arrays, about | {"network": description})

    def _restore_training(self, state: TrainingState) -> None:
        self.order_violations_ = state.about["order_violations"]
        if "constant_because" in state.about:
            self.constant_because_ = state.about["constant_because"]
        else:
            self.network_ = self._restored_function(TrainingState(state.arrays, state.about["network"]))


# A calibration function and a network on features that adds to it: p = σ(level + slope·F(l, c) + aux(x)).


@dataclass(frozen=True)
class FeatureModel:
    """Both parts of a fit with features: p = σ(level + slope·F(l, c) + aux(x)).

    Given the features, a score means something else than on its own; `level` and `slope` adjust F to that, and keep
    its order. `model` has the curves of F. `function` is the function behind them where F was trained together with the
    auxiliary network; None where F is the calibrator as it was fitted without features.
    """

    encoding: FeatureEncoding
    network: Any
    model: CalibrationModel
    function: TrainedFunction | None
    level: float = 0.0
    slope: float = 1.0

    def add(self, probabilities: FloatArray, features: EncodedFeatures) -> FloatArray:
        """Return the probabilities of rows with these features, where σ(F) is given."""
        moved = self.level + self.slope * _inside_logit(probabilities) + self._added(features)
        return np.clip(sigmoid(moved), PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)

    def _added(self, features: EncodedFeatures) -> FloatArray:
        added: FloatArray = self.network.logits(features.numbers, features.categories)
        return added

    def settled(self, probabilities: FloatArray, rows: FitRows) -> "FeatureModel":
        """Return the model with the level and the slope that suit the rows best, where σ(F) of each is given.

        Training in batches stops near the optimum; after this the probabilities of the rows add up to their positives.
        A network that adds nothing leaves F as it is.
        """
        assert rows.features is not None
        added = self._added(rows.features)
        if not added.any():
            return self
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        level, slope = fit_logistic(
            np.column_stack([np.ones(len(rows)), _inside_logit(probabilities)]),
            weight,
            weight * rows.label,
            lower=np.array([-np.inf, 0.0]),
            start=np.array([0.0, 1.0]),
            offset=added,
        )
        return replace(self, level=float(level), slope=float(slope))

    def state(self) -> TrainingState:
        """Return everything but the curves without features."""
        from mcnet.networks.training import arrays_of

        arrays = TrainingState(arrays_of(self.network), {}).prefixed("network")
        about: dict[str, Any] = {
            "encoding": asdict(self.encoding),
            "shape": self.network.shape,
            "level": self.level,
            "slope": self.slope,
            "function": None,
        }
        if self.function is not None:
            part = self.function.state()
            curves = {part.name: getattr(self.model.curves, part.name) for part in fields(Curves)}
            arrays |= part.prefixed("function") | TrainingState(curves, {}).prefixed("curves")
            about["function"] = part.about
        return TrainingState(arrays, about)

    @staticmethod
    def restore(state: TrainingState, plain: CalibrationModel, calibrator: Any, device: str) -> "FeatureModel":
        """Return the model that `state` described; `plain` is the model without features."""
        from mcnet.networks.training import restore_auxiliary

        about, model, function = state.about, plain, None
        if about["function"] is not None:
            assert isinstance(calibrator, NetworkCalibrator)
            function = calibrator._restored_function(TrainingState(state.part("function"), about["function"]))
            model = replace(plain, curves=Curves(**state.part("curves")))
        return FeatureModel(
            msgspec.convert(about["encoding"], FeatureEncoding),
            restore_auxiliary(state.part("network"), about["shape"], device),
            model,
            function,
            about["level"],
            about["slope"],
        )


def _inside_logit(probabilities: FloatArray) -> FloatArray:
    return logit(np.clip(probabilities, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR))
