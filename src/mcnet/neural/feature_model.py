"""A calibration function and a network on features that adds to it: p = σ(level + slope·F(l, c) + aux(x))."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mcnet._shared.math import PROBABILITY_FLOOR, logit, sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.calibrators.logistic import fit_logistic
from mcnet.calibrators.training_state import TrainingState
from mcnet.curves.curves import Curves
from mcnet.data.feature_encoding import EncodedFeatures, FeatureEncoding
from mcnet.model.model import CalibrationModel
from mcnet.networks.compiled_curves import TrainedFunction
from mcnet.neural.fit_rows import FitRows
from mcnet.neural.network_calibrator import NetworkCalibrator

__all__ = ["FeatureModel"]


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

    def state(self, calibrator: Any) -> TrainingState:
        """Return everything but the curves without features; `calibrator` is the one that F comes from."""
        arrays = TrainingState(self.network.state(), {}).prefixed("network")
        about: dict[str, Any] = {
            "encoding": self.encoding.to_dict(),
            "shape": self.network.shape,
            "level": self.level,
            "slope": self.slope,
            "function": None,
        }
        if self.function is not None:
            part = calibrator._function_state(self.function)
            curves = {part.name: getattr(self.model.curves, part.name) for part in fields(Curves)}
            arrays |= part.prefixed("function") | TrainingState(curves, {}).prefixed("curves")
            about["function"] = part.about
        return TrainingState(arrays, about)

    @staticmethod
    def restore(state: TrainingState, plain: CalibrationModel, calibrator: Any, device: str) -> "FeatureModel":
        """Return the model that `state` described; `plain` is the model without features."""
        from mcnet.networks.auxiliary import restore_auxiliary

        about, model, function = state.about, plain, None
        if about["function"] is not None:
            assert isinstance(calibrator, NetworkCalibrator)
            function = calibrator._restored_function(TrainingState(state.part("function"), about["function"]))
            model = replace(plain, curves=Curves(**state.part("curves")))
        return FeatureModel(
            FeatureEncoding.from_dict(about["encoding"]),
            restore_auxiliary(state.part("network"), about["shape"], device),
            model,
            function,
            about["level"],
            about["slope"],
        )


def _inside_logit(probabilities: FloatArray) -> FloatArray:
    return logit(np.clip(probabilities, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR))
