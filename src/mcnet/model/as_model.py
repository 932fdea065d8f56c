"""Return the model of a calibrator, a model or a path."""

from os import PathLike
from typing import Any

from mcnet.errors import InputError, NotFittedError, NotSupportedError
from mcnet.model.file import load
from mcnet.model.model import CalibrationModel

__all__ = ["as_model"]


def as_model(model: Any, done: str) -> CalibrationModel:
    """Return the model of a fitted calibrator or of a model file, or the model itself.

    Parameters
    ----------
    model : a model, a fitted calibrator, or the path of a model file.
    done : what is to be done with it, for messages: "exported".
    """
    if isinstance(model, str | PathLike):
        return load(model)
    if getattr(model, "needs_features", False):
        raise NotSupportedError(
            "with features a probability depends on more than the score, so no curve of the score gives it; "
            "pass calibrator.model_, the calibrator without features"
        )
    found = getattr(model, "model_", model)
    if isinstance(found, CalibrationModel):
        return found
    if hasattr(model, "fit_sketch"):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit or fit_sketch first")
    raise InputError(
        f"{type(model).__name__} cannot be {done}; pass a model, a fitted calibrator or the path of a model file"
    )
