"""Continue from an earlier fit: training state beside a model, warm starts, the exact fitted function."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType
from mcnet._shared.files import whole_file
from mcnet._shared.messages import need_extra
from mcnet.calibrators.base import Calibrator, Fitted, plain_value
from mcnet.errors import FileFormatError, InputError, NotSupportedError
from mcnet.model.model import FIELD_ADVICE, CalibrationModel
from mcnet.model.model_file import read_model
from mcnet.rows.columns import check_lengths, scores_column
from mcnet.rows.contexts import Contexts
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import in_field_order, value_order_of

# Training state: a second file beside a model, tied to it by checksum, from which training continues.
#
# The file is a safetensors file. Its metadata name the checksum of the model it belongs to and its own checksum
# contents, so that neither an altered file nor one of another model is taken for what it is not.


class TrainingState(NamedTuple):
    """What it takes to continue a training."""

    arrays: dict[str, NDArray[Any]]
    about: dict[str, Any]
    """A JSON-able description of the arrays."""

    def prefixed(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the arrays with a prefix before their names."""
        return {f"{prefix}.{name}": array for name, array in self.arrays.items()}

    def part(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a prefix, without it."""
        start = f"{prefix}."
        return {name.removeprefix(start): array for name, array in self.arrays.items() if name.startswith(start)}


def state_path(model_path: str | PathLike[str]) -> Path:
    """Return where the training state of a model file lies: beside it, with the ending .safetensors."""
    return Path(model_path).with_suffix(".safetensors")


def save_state(model_path: str | PathLike[str], state: TrainingState) -> None:
    """Write the training state beside the model file it belongs to, whole or not at all."""
    need_extra("networks", "saving the training state")
    from safetensors.numpy import save_file

    arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
    text = json.dumps(state.about, sort_keys=True, default=plain_value)  # settings may be numbers of NumPy
    model = _model_checksum(model_path)
    metadata = {"about": text, "model": model, "checksum": _checksum(arrays, text, model)}
    with whole_file(state_path(model_path)) as part:
        save_file(arrays, part, metadata=metadata)


def load_state(model_path: str | PathLike[str]) -> TrainingState:
    """Return the training state beside a model file; refuse one that was altered or belongs to another model."""
    need_extra("networks", "resuming a training")
    from safetensors import SafetensorError, safe_open

    path = state_path(model_path)
    if not path.is_file():
        raise InputError(f"there is no training state {path}; save(path) of a fitted calibrator writes it")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except (SafetensorError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); save the calibrator again") from None
    if not metadata.keys() >= {"about", "model", "checksum"}:
        raise FileFormatError(f"{path} is not a training state of mcnet; save the calibrator again")
    if metadata["checksum"] != _checksum(arrays, metadata["about"], metadata["model"]):
        raise FileFormatError(f"{path} does not match its checksum: it was altered or damaged; save it again")
    if metadata["model"] != _model_checksum(model_path):
        raise FileFormatError(
            f"{path} belongs to another model than {model_path}, which was saved without it; fit and save again"
        )
    return TrainingState(arrays, json.loads(metadata["about"]))


def load_with_state(path: str | PathLike[str], method: str) -> tuple[CalibrationModel, TrainingState]:
    """Return a model of a method and the training state beside it; refuse a model of another method."""
    model = read_model(path)
    if model.method != method:
        raise InputError(f"{path} is a model of {model.method}, not of {method}; resume it with its own class")
    return model, load_state(path)


def _checksum(arrays: dict[str, NDArray[Any]], about: str, model: str) -> str:
    """Return the SHA-256 of names, types, shapes and contents of the arrays, and of the texts."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        head = json.dumps([name, array.dtype.str, array.shape, array.nbytes])
        digest.update(head.encode() + b"\0" + array.tobytes())
    digest.update(json.dumps([about, model]).encode())
    return "sha256:" + digest.hexdigest()


def _model_checksum(path: str | PathLike[str]) -> str:
    """Return the checksum that a model file states of itself."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    return str(document["checksum"])


# Calibrators that keep the function they fitted: it is asked itself, saved beside the model, and continued from.


@dataclass(frozen=True)
class EarlierFit:
    """The fit that a warm start continues from."""

    contexts: Contexts
    fit: Any
    """What the calibrator kept of it: a network, or a posterior."""

    def aligned(self, sketch: Sketch) -> Sketch:
        """Return the sketch with its fields and their values in the order of the earlier fit, new values last."""
        sketch = in_field_order(sketch, self.contexts.names)
        if self.contexts.names != sketch.contexts.names:
            known, given = ", ".join(self.contexts.names) or "none", ", ".join(sketch.contexts.names) or "none"
            raise InputError(f"a warm start needs the fields of the earlier fit ({known}); this sketch has {given}")
        return value_order_of(self.contexts, sketch)


class TrainedCalibrator(Calibrator):
    """A calibrator that keeps the function behind its curves."""

    function_attribute: ClassVar[str]
    """The attribute that has the fitted function; there is none after a fit that is a constant."""

    warm_start: bool

    def predict(
        self, scores: Any, field: Any = None, *, score_type: ScoreType | None = None, exact: bool = False
    ) -> FloatArray:
        """Return the calibrated probability of each score, float64 inside (0, 1).

        Parameters
        ----------
        scores, field, score_type : as in `Calibrator.predict`.
        exact : ask the fitted function itself, not its compiled curve.

        Returns
        -------
        array : one probability per score.
        """
        if not exact:
            return super().predict(scores, field, score_type=score_type)
        model = self._fitted()
        if not hasattr(self, self.function_attribute):
            raise NotSupportedError(
                f"this fit is a constant ({self.constant_because_}): there is no function behind its curve"
            )
        return predict_exactly(model, self._exact, scores, field, score_type)

    def save(self, path: str | PathLike[str], *, training_state: bool = False) -> None:
        """Save the fitted model as JSON; `mcnet.load` restores it for serving.

        Parameters
        ----------
        path : the model file.
        training_state : also write the fitted function, beside the model, from which `resume` continues (needs the
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
        restored = cls._from_plain(model.parameters)
        restored.model_ = model
        restored._restore_training(state)
        return restored

    # -- what a method fills in ---------------------------------------------------------------------------------

    @property
    def _one_curve(self) -> bool:
        """Whether one curve serves all rows, and a field matters to the balance term alone."""
        return False

    def _exact(self, scores: FloatArray, codes: IntArray) -> FloatArray:
        """Return the fitted function at scores with these field codes."""
        raise NotImplementedError

    def _training_state(self) -> TrainingState:
        """Return what the fit left behind besides the model."""
        raise NotImplementedError

    def _restore_training(self, state: TrainingState) -> None:
        """Take over what `_training_state` returned, once the model is there."""
        raise NotImplementedError

    # -- shared steps -------------------------------------------------------------------------------------------

    def _constant(self, sketch: Sketch) -> Fitted:
        constant = super()._constant(sketch.pooled() if self._one_curve else sketch)
        return replace(constant, balanced_by=sketch.contexts.names if self._one_curve else ())

    def _learns_from_one_score(self, has_fields: bool) -> bool:
        return has_fields and not self._one_curve


def predict_exactly(
    model: CalibrationModel,
    function: Callable[[FloatArray, IntArray], FloatArray],
    scores: Any,
    field: Any,
    score_type: ScoreType | None,
) -> FloatArray:
    """Return `function(scores, field codes)` of the rows; the codes are -1 where a value is unseen."""
    given = scores_column(scores, score_type=score_type or model.score_type)
    return function(given, _field_codes(model, field, len(given)))


def _field_codes(model: CalibrationModel, field: Any, rows: int) -> IntArray:
    """Return the codes `[rows, fields]` of each row's field values, -1 where a value is unseen."""
    contexts = model.contexts
    if model.balanced_by:
        field = None  # it weighed in the balance term and changes no curve
    if field is None and contexts.names:
        raise InputError(f"this {model.method} model needs the field {', '.join(contexts.names)}", advice=FIELD_ADVICE)
    if field is None:
        return np.zeros((rows, 0), dtype=np.int64)
    if not contexts.names:
        raise NotSupportedError(f"this {model.method} model was fitted without a field; call it without field=")
    codes: IntArray = contexts.field_codes(contexts.given(field)).astype(np.int64)
    check_lengths(score=range(rows), field=codes)
    return codes
