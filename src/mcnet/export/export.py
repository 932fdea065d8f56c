"""One function for all exports: name the target, or let the ending of the file name it."""

from os import PathLike
from pathlib import Path
from typing import Any

from mcnet.errors import InputError
from mcnet.export.options import check_options
from mcnet.export.targets import targets
from mcnet.model.as_model import as_model

__all__ = ["default_path", "export_model", "export_options", "target_of"]


def export_model(model: Any, path: str | PathLike[str], to: str | None = None, **options: Any) -> None:
    """Write a model for use outside Python, whole or not at all.

    Parameters
    ----------
    model : a model (from mcnet.load) or a fitted calibrator.
    path : the file to write.
    to : "onnx", "c", "sql" or "table"; by default what the ending of `path` says (.onnx, .h, .sql, .parquet, .csv).
    options : those of export_onnx, export_c, export_sql or export_table. What is exported takes the scores that the
        model was fitted on, probabilities or logits, unless the option score_type says otherwise.
    """
    target = targets()[target_of(path, to)]
    unknown = sorted(set(options) - set(target.options))
    if unknown:
        known = ", ".join(target.options)
        raise InputError(f"the export to {target.name} has no option {', '.join(unknown)}; it has {known}")
    check_options(options)
    target.write(as_model(model, "exported"), path, **options)


def target_of(path: str | PathLike[str], to: str | None = None) -> str:
    """Return what a file is exported to: as named, or as its ending says.

    >>> target_of("ctr.h"), target_of("ctr.inc", "c")
    ('c', 'c')
    """
    known = targets()
    if to is None:
        suffix = Path(path).suffix.lower()
        to = next((name for name, target in known.items() if suffix in target.suffixes), None)
        if to is None:
            raise InputError(f"the ending of {str(path)!r} does not name an export target; pass to=: {_listed()}")
    if to not in known:
        raise InputError(f"to is {to!r}; it must be {_listed()}")
    return to


def default_path(model: str | PathLike[str], to: str, **options: Any) -> Path:
    """Return where a model's export goes if nobody says: beside the model, with the ending of the target.

    >>> default_path("model.json", "c").name, default_path("model.json", "table", format="csv").name
    ('model.h', 'model.csv')
    """
    path = Path(model)
    suffixes = targets()[target_of(path, to)].suffixes
    format = f".{options.get('format')}"
    return path.with_suffix(format if format in suffixes else suffixes[0])


def export_options(to: str) -> dict[str, Any]:
    """Return the options of a target and their defaults.

    >>> export_options("table")
    {'format': None}
    """
    return targets()[target_of("", to)].options


def _listed() -> str:
    return " or ".join(repr(target) for target in sorted(targets()))
