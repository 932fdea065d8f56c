"""Continue from an earlier fit: training state beside a model, warm starts, the exact fitted function."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType
from mcnet._shared.files import whole_file
from mcnet._shared.messages import need_extra
from mcnet.calibrators.base import Calibrator
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
    text = json.dumps(state.about, sort_keys=True)
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


# Continuing from an earlier fit: what a warm start keeps, and what it needs of the next sketch.


@dataclass(frozen=True)
class EarlierFit:
    """The fit that a warm start continues from."""

    contexts: Contexts
    fit: Any
    """What the calibrator kept of it: a network, or a posterior."""

    @staticmethod
    def of(calibrator: Calibrator, attribute: str) -> "EarlierFit | None":
        """Return the earlier fit of a calibrator, kept in one of its attributes; None where there is none."""
        fit = vars(calibrator).get(attribute)
        return None if fit is None else EarlierFit(calibrator.model_.contexts, fit)

    def aligned(self, sketch: Sketch) -> Sketch:
        """Return the sketch with its fields and their values in the order of the earlier fit, new values last."""
        sketch = in_field_order(sketch, self.contexts.names)
        if self.contexts.names != sketch.contexts.names:
            known, given = ", ".join(self.contexts.names) or "none", ", ".join(sketch.contexts.names) or "none"
            raise InputError(f"a warm start needs the fields of the earlier fit ({known}); this sketch has {given}")
        return value_order_of(self.contexts, sketch)


# Probabilities of the fitted function itself, not of its compiled curve.


def predict_exactly(
    model: CalibrationModel,
    function: Callable[[FloatArray, IntArray], FloatArray],
    scores: Any,
    field: Any,
    codes: Any,
    score_type: ScoreType | None,
) -> FloatArray:
    """Return `function(scores, field codes)` of the rows; the codes are -1 where a value is unseen."""
    if codes is not None:
        raise InputError("codes name curves; with exact=True give the field itself")
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
