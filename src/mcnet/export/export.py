"""One door to all exports: name the target, or let the file's name say it."""

import inspect
import warnings
from collections.abc import Callable
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from mcnet.errors import CalibrationWarning, InputError, NotFittedError, NotSupportedError
from mcnet.export.options import check_options
from mcnet.model.model import CalibrationModel

__all__ = ["TARGETS", "default_path", "export_model", "export_options", "target_of"]

TARGETS = ("onnx", "c", "sql", "table")
"""What a model can be exported to."""

_BY_SUFFIX = {".onnx": "onnx", ".h": "c", ".hpp": "c", ".sql": "sql", ".parquet": "table", ".csv": "table"}
_SUFFIX = {"onnx": ".onnx", "c": ".h", "sql": ".sql", "table": ".parquet"}


def export_model(model: Any, path: str | PathLike[str], to: str | None = None, **options: Any) -> None:
    """Write a model for use outside Python, whole or not at all.

    Parameters
    ----------
    model : a model (from mcnet.load) or a fitted calibrator.
    path : the file to write.
    to : "onnx", "c", "sql" or "table"; by default what the ending of `path` says (.onnx, .h, .sql, .parquet, .csv).
    options : those of export_onnx, export_c, export_sql or export_table.
    """
    to = target_of(path, to)
    writer = _writer(to)
    unknown = sorted(set(options) - set(export_options(to)))
    if unknown:
        known = ", ".join(export_options(to))
        raise InputError(f"the export to {to} has no option {', '.join(unknown)}; it has {known}")
    check_options(options)
    served = _served(model)
    if served.score_type == "logit":
        warnings.warn(
            "the model was fitted on logits z, and its export takes probabilities: give it 1 / (1 + exp(-z))",
            CalibrationWarning,
            stacklevel=2,
        )
    writer(served, path, **options)


def target_of(path: str | PathLike[str], to: str | None = None) -> str:
    """Return what a file is exported to: as named, or as its ending says.

    >>> target_of("ctr.h"), target_of("ctr.inc", "c")
    ('c', 'c')
    """
    if to is None:
        to = _BY_SUFFIX.get(Path(path).suffix.lower())
        if to is None:
            raise InputError(f"the ending of {str(path)!r} does not say what to export to; say so: {_listed()}")
    if to not in TARGETS:
        raise InputError(f"to is {to!r}; it is {_listed()}")
    return to


def default_path(model: str | PathLike[str], to: str, **options: Any) -> Path:
    """Return where a model's export goes if nobody says: beside the model, with the ending of the target.

    >>> default_path("model.json", "c").name, default_path("model.json", "table", format="csv").name
    ('model.h', 'model.csv')
    """
    path = Path(model)
    suffix = ".csv" if to == "table" and options.get("format") == "csv" else _SUFFIX[target_of(path, to)]
    return path.with_suffix(suffix)


def export_options(to: str) -> dict[str, Any]:
    """Return the options of a target and their defaults.

    >>> export_options("c")
    {'name': 'mcnet'}
    """
    parameters = inspect.signature(_writer(to)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _writer(to: str) -> Callable[..., None]:
    writer: Callable[..., None] = getattr(import_module(f"mcnet.export.{target_of('', to)}"), f"export_{to}")
    return writer


def _listed() -> str:
    return " or ".join(repr(target) for target in TARGETS)


def _served(model: Any) -> CalibrationModel:
    """Return the model of a fitted calibrator, or the model itself."""
    if getattr(model, "needs_features", False):
        raise NotSupportedError(
            "with features a probability depends on more than the score, so no curve of the score gives it; "
            "export calibrator.model_, the calibrator without features"
        )
    served = getattr(model, "model_", model)
    if isinstance(served, CalibrationModel):
        return served
    if hasattr(model, "fit_sketch"):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit or fit_sketch first")
    raise InputError(f"{type(model).__name__} cannot be exported; pass a fitted calibrator or mcnet.load(path)")
