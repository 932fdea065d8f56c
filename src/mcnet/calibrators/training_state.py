"""Training state beside a model: what it takes to go on training tomorrow from today's weights."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.atomic_files import whole_file
from mcnet.errors import FileFormatError, InputError

__all__ = ["TrainingState", "load_state", "save_state", "state_path"]

TrainingState = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""Arrays by name, and a JSON-able description of what they are."""


def state_path(model_path: str | PathLike[str]) -> Path:
    """Return where the training state of a model file lies: beside it, with the ending .safetensors."""
    return Path(model_path).with_suffix(".safetensors")


def save_state(
    model_path: str | PathLike[str], arrays: Mapping[str, NDArray[Any]], description: dict[str, Any]
) -> None:
    """Write the training state beside a model file, whole or not at all."""
    from safetensors.numpy import save_file

    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with whole_file(state_path(model_path)) as part:
        save_file(plain, part, metadata={"mcnet": json.dumps(description)})


def load_state(model_path: str | PathLike[str]) -> TrainingState:
    """Return the training state beside a model file."""
    from safetensors import SafetensorError, safe_open

    path = state_path(model_path)
    if not path.is_file():
        raise InputError(f"there is no training state {path}; save() writes it beside the model")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except SafetensorError as error:
        raise FileFormatError(f"{path} is damaged ({error}); save the calibrator again") from None
    if "mcnet" not in metadata:
        raise FileFormatError(f"{path} is not a training state of mcnet; save the calibrator again")
    return arrays, json.loads(metadata["mcnet"])
