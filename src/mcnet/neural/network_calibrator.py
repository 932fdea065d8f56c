"""The base class of calibrators whose function is trained: compiling, exact prediction, training state."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any, Self

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.exact_prediction import predict_exactly
from mcnet.calibrators.fitted import Fitted
from mcnet.calibrators.one_class_warnings import warn_of_gaps
from mcnet.calibrators.training_state import TrainingState, load_with_state, save_state
from mcnet.calibrators.warm_start import EarlierFit
from mcnet.data.contexts import MOST_COMPILED_COMBINATIONS, Contexts
from mcnet.errors import NotSupportedError
from mcnet.networks.compiled_curves import TrainedFunction, compiled_curves
from mcnet.sketch.sketch import Sketch

__all__ = ["NetworkCalibrator"]


class NetworkCalibrator(Calibrator):
    """A calibrator whose function is trained; it serves the compiled curves and keeps the function as `network_`.

    `order_violations_` tells by how much, at most, the order guarantee had to move a probability (with
    guarantee=False: how far a curve falls).
    """

    field_use = "optional"
    network_: Any
    order_violations_: float

    guarantee: bool
    warm_start: bool

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether the curves are guaranteed not to fall."""
        return self.guarantee

    def predict(
        self,
        scores: Any,
        field: Any = None,
        *,
        codes: Any = None,
        score_type: ScoreType | None = None,
        exact: bool = False,
    ) -> FloatArray:
        """Return the calibrated probability of each score, float64 inside (0, 1).

        Parameters
        ----------
        scores, field, codes, score_type : as in `Calibrator.predict`.
        exact : ask the trained function itself, not its compiled curve.

        Returns
        -------
        array : one probability per score.
        """
        if not exact:
            return super().predict(scores, field, codes=codes, score_type=score_type)
        model = self._fitted()
        if not hasattr(self, "network_"):
            raise NotSupportedError(
                f"this fit is a constant ({self.constant_because_}): there is no function behind its curve"
            )
        return predict_exactly(model, self.network_.predict, scores, field, codes, score_type)

    def save(self, path: str | PathLike[str], *, training_state: bool = False) -> None:
        """Save the fitted model as JSON; `mcnet.load` restores it for serving.

        Parameters
        ----------
        path : the model file.
        training_state : also write the trained function, beside the model, from which `resume` continues (needs the
            extra `networks`).
        """
        super().save(path)
        if training_state:
            save_state(path, self._training_state())

    @classmethod
    def resume(cls, path: str | PathLike[str]) -> Self:
        """Restore the fitted calibrator that `save(path, training_state=True)` wrote.

        Parameters
        ----------
        path : the model file; its training state lies beside it.

        Returns
        -------
        calibrator : of this class, fitted; with `warm_start` its next fit continues from it.
        """
        model, state = load_with_state(path, cls.method)
        restored = cls(**cls._parameters_from_plain(model.parameters))
        restored.model_ = model
        restored._restore_training(state)
        return restored

    # -- what a method fills in ---------------------------------------------------------------------------------

    @property
    def _one_curve(self) -> bool:
        """Whether one curve serves all rows, and a field matters to the balance term alone."""
        return False

    def _function_state(self, function: Any) -> TrainingState:
        """Return a trained function of this method as arrays and a description."""
        raise NotImplementedError

    def _restored_function(self, state: TrainingState) -> TrainedFunction:
        """Return the trained function that `_function_state` described."""
        raise NotImplementedError

    # -- shared steps -------------------------------------------------------------------------------------------

    def _fit_network(self, sketch: Sketch, train: Callable[[Sketch, Any], TrainedFunction]) -> Self:
        """Fit by training: `train(sketch, earlier network or None)` returns the trained function."""
        earlier = EarlierFit.of(self, "network_") if self.warm_start else None
        return self._fit_by(sketch, lambda given: self._trained(given, train, earlier))

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
        return Fitted(curves, contexts, balanced_by=self._balanced_by(sketch))

    def _balanced_by(self, sketch: Sketch) -> tuple[str, ...]:
        return sketch.contexts.names if self._one_curve else ()

    def _constant(self, sketch: Sketch) -> Fitted:
        self.order_violations_ = 0.0
        constant = super()._constant(sketch.pooled() if self._one_curve else sketch)
        return replace(constant, balanced_by=self._balanced_by(sketch))

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return has_fields and not self._one_curve

    def _training_state(self) -> TrainingState:
        """Return what the fit left behind besides the model."""
        about: dict[str, Any] = {"order_violations": self.order_violations_}
        if not hasattr(self, "network_"):
            return TrainingState({}, about | {"constant_because": self.constant_because_})
        arrays, description = self._function_state(self.network_)
        return TrainingState(arrays, about | {"network": description})

    def _restore_training(self, state: TrainingState) -> None:
        """Take over what `_training_state` returned."""
        self.order_violations_ = state.about["order_violations"]
        if "constant_because" in state.about:
            self.constant_because_ = state.about["constant_because"]
        else:
            self.network_ = self._restored_function(TrainingState(state.arrays, state.about["network"]))

    @classmethod
    def _parameters_from_plain(cls, plain: dict[str, Any]) -> dict[str, Any]:
        """Return constructor arguments from those of a model file, where tuples have become lists."""
        return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
