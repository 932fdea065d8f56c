"""Export a model: name the target, or let the suffix of the file name it."""

import inspect
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import mcnet.export
from mcnet.errors import Advice, InputError
from mcnet.model.model_file import as_model

# The targets of exports: each is one module of this package with a `TARGET`, found here.


@dataclass(frozen=True)
class Target:
    """What a model can be exported to."""

    name: str
    """What users call it: `to=` of export_model."""
    suffixes: tuple[str, ...]
    """The endings of file names that mean this target, the usual one first."""
    write: Callable[..., None]
    """Takes the model, the path, and the target's own options as keywords."""
    described_by: Callable[..., Any] | None = None
    """The function that `write` passes its options on to, if it does."""

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the target and their defaults."""
        parameters = inspect.signature(self.described_by or self.write).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def targets() -> dict[str, Target]:
    """Return the targets by name, as the modules of this package define them.

    >>> sorted(targets())
    ['c', 'onnx', 'sql', 'table']
    """
    names = [module.name for module in pkgutil.iter_modules(mcnet.export.__path__)]
    modules = [import_module(f"mcnet.export.{name}") for name in names]
    result = [module.TARGET for module in modules if isinstance(getattr(module, "TARGET", None), Target)]
    return {target.name: target for target in result}


# The options of the exports: what kind of value each takes, checked once for all of them.


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_name(value: Any) -> bool:
    parts = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    return len(parts) > 0 and all(map(_is_text, parts))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and _is_text(v) for k, v in value.items())


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


_TEXT = (_is_text, "a text that is not empty")
_NAME = (_is_name, 'a name, as in "table" or "schema.table"')
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("dialect", "form", "format", "name", "number_type", "output", "score", "score_type"), _TEXT),
    **dict.fromkeys(("source", "tables"), _NAME),
    "fields": (_is_mapping, 'a mapping of fields, as in {"country": "country_code"}'),
    "field_type": (
        lambda value: _is_text(value) or _is_mapping(value),
        'a text, or a mapping of fields, as in {"country": "int64"}',
    ),
    "missing": (lambda value: isinstance(value, str), "a text"),  # the empty one may stand for a missing value
    "missing_number": (_is_int64, "a whole number of 64 bits, such as -1"),
}
"""What each option has to be; an option that is not here belongs to one target, which checks it."""

_OPTIONAL = ("fields", "format", "score", "score_type")
_TYPED = {"missing_number": int, "source": list, "tables": list, "fields": dict, "field_type": dict}
"""The options that may be something else than a text, and what a typed one may be."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse values of the wrong kind; which texts an option knows is for its export to say.

    >>> check_options({"missing_number": "none"})
    Traceback (most recent call last):
    mcnet.errors.InputError: missing_number is 'none'; it must be a whole number of 64 bits, such as -1
    """
    for name, value in options.items():
        if name not in _KINDS or (value is None and name in _OPTIONAL):
            continue
        is_kind, wanted = _KINDS[name]
        if not is_kind(value):
            raise InputError(f"{name} is {value!r}; it must be {wanted}")


def option_from_text(name: str, text: str) -> Any:
    """Return an option that was typed: a number, a list or a mapping only where the option can be one.

    >>> option_from_text("missing", "7"), option_from_text("missing_number", "7")
    ('7', 7)
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if name in _TYPED and isinstance(value, _TYPED[name]) else text


# One function for all exports: name the target, or let the ending of the file name it.


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
            problem = f"the ending of {str(path)!r} does not name an export target"
            raise InputError(problem, advice=Advice(f"pass {{to}}: {_listed()}", to=None))
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
