"""A calibration function with an auxiliary network beside it: p = σ(F(l, c) + aux(x)), ready to predict and to save."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import PROBABILITY_FLOOR, logit, sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.logistic import fit_logistic
from mcnet.calibrators.training_state import TrainingState
from mcnet.curves.curves import Curves
from mcnet.data.feature_encoding import EncodedFeatures, FeatureEncoding
from mcnet.model.model import CalibrationModel
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.network import NetworkFit

__all__ = ["AuxiliaryModel", "auxiliary_schedule", "enough_to_judge"]

_HELD_OUT = 0.1
_STEPS_AN_EPOCH = 50


def auxiliary_schedule(rows: int, seed: int) -> Any:
    """Return how an auxiliary network is trained: batches of 2048, or fewer where an epoch would have few steps."""
    from mcnet.networks.training import RowSchedule

    batch = min(2048, max(64, rows // _STEPS_AN_EPOCH))
    return RowSchedule(
        epochs=30, batch=batch, rate=1e-3, decay=1e-4, held_out=_HELD_OUT, patience=3, unseen=0.02, seed=seed
    )


def enough_to_judge(rows: FitRows) -> bool:
    """Tell whether the rows held back may be expected to hold some of each class."""
    positives = rows.label if rows.weight is None else rows.label[rows.weight > 0.0]
    rarer = min(float((positives > 0.0).sum()), float((positives < 1.0).sum()))
    return rarer * _HELD_OUT >= 3.0


@dataclass(frozen=True)
class AuxiliaryModel:
    """Both parts of a fit with features: p = σ(level + slope·F(l, c) + aux(x)).

    Given the features, a score says something else than on its own; `level` and `slope` adjust F to that, and leave its
    order as it is. `model` holds the curves of F. `function` is the network behind them where F was trained together
    with the auxiliary network; None where F is the calibrator as it was fitted without features.
    """

    encoding: FeatureEncoding
    network: Any
    model: CalibrationModel
    function: NetworkFit | None
    level: float = 0.0
    slope: float = 1.0

    def add(self, probabilities: FloatArray, features: EncodedFeatures) -> FloatArray:
        """Return the probabilities of rows with these features, where σ(F) is given."""
        moved = self.level + self.slope * _inside_logit(probabilities) + self._added(features)
        return np.clip(sigmoid(moved), PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)

    def _added(self, features: EncodedFeatures) -> FloatArray:
        added: FloatArray = self.network.logits(features.numbers, features.categories)
        return added

    def settled(self, probabilities: FloatArray, rows: FitRows) -> "AuxiliaryModel":
        """Return the model with the level and the slope that suit the rows best, where σ(F) of each is given.

        Training in batches stops anywhere near the optimum; after this the probabilities of the rows add up to their
        positives. A network that adds nothing leaves F as it is.
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
        """Return everything but the curves of the calibrator without features, as arrays and a description."""
        parts: dict[str, dict[str, Any]] = {
            "network": {name: tensor.numpy() for name, tensor in self.network.state().items()}
        }
        if self.function is not None:
            parts["function"] = {name: tensor.numpy() for name, tensor in self.function.state().items()}
            parts["curves"] = {part.name: getattr(self.model.curves, part.name) for part in fields(Curves)}
        arrays = {f"{part}.{name}": array for part, named in parts.items() for name, array in named.items()}
        description = {
            "encoding": self.encoding.to_dict(),
            "shape": self.network.shape,
            "function": None if self.function is None else self.function.description(),
            "level": self.level,
            "slope": self.slope,
        }
        return arrays, description

    @staticmethod
    def restore(
        arrays: dict[str, NDArray[Any]],
        description: dict[str, Any],
        plain: CalibrationModel,
        restore_function: Any,
        device: str,
    ) -> "AuxiliaryModel":
        """Return what `state` wrote down; `plain` is the model without features."""
        from mcnet.networks.auxiliary import restore_auxiliary

        parts: dict[str, dict[str, Any]] = {"network": {}, "function": {}, "curves": {}}
        for name, array in arrays.items():
            part, _, own = name.partition(".")
            parts[part][own] = array
        joint = description["function"] is not None
        return AuxiliaryModel(
            FeatureEncoding.from_dict(description["encoding"]),
            restore_auxiliary(parts["network"], description["shape"], device),
            replace(plain, curves=Curves(**parts["curves"])) if joint else plain,
            restore_function(parts["function"], description["function"]) if joint else None,
            description["level"],
            description["slope"],
        )


def _inside_logit(probabilities: FloatArray) -> FloatArray:
    return logit(np.clip(probabilities, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR))
