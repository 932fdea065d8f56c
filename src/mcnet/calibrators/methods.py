"""The registry: every method by its name, found in the sources of the packages that have methods.

A method is a class with a `method` (its name) and a `complexity` (its place in the order) in its body. The sources are
searched, not imported: the list of methods needs neither torch nor SciPy, and a method whose library is not installed
is known all the same.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from mcnet._shared.messages import install_hint
from mcnet.calibrators.base import Calibrator
from mcnet.errors import InputError, NotSupportedError

__all__ = ["VARIANTS", "calibrator", "calibrator_class", "default_parameters", "methods"]

_PACKAGES = ("mcnet.calibrators", "mcnet.bayes", "mcnet.networks")
_EXTRAS = {"torch": "networks", "safetensors": "networks"}
"""The extra of mcnet that installs a library which some methods need."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"mcnet-none": ("mcnet", {"field_aware": False})}
"""Names for a method with certain parameters, which a comparison shows: MCNet-None of the paper."""


@dataclass(frozen=True)
class _Entry:
    method: str
    complexity: float
    module: str
    class_name: str


def methods() -> list[str]:
    """Return the names of all methods, simplest first.

    >>> "isotonic" in methods()
    True
    """
    return list(_entries())


def calibrator_class(name: str) -> type[Calibrator]:
    """Return the class of a method."""
    known = _entries()
    if not isinstance(name, str):
        raise InputError(f"a method is named by a text, not by {name!r}; the methods are {', '.join(known)}")
    if isinstance(name, str) and name in VARIANTS:
        method, parameters = VARIANTS[name]
        settings = ", ".join(f"{key}={value}" for key, value in parameters.items())
        raise InputError(f"{name} is the method {method} with {settings}; a method without parameters is needed here")
    if name not in known:
        close = get_close_matches(name, [*known, *VARIANTS], n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"there is no method {name!r}{hint}; the methods are {', '.join(known)}")
    entry = known[name]
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise NotSupportedError(f"{name} needs {error.name}, which is not installed; {install_hint(extra)}") from None
    found: type[Calibrator] = getattr(module, entry.class_name)
    return found


def calibrator(name: str, **parameters: Any) -> Calibrator:
    """Return an unfitted calibrator of a method, with the parameters given.

    Parameters
    ----------
    name : one of `mcnet.methods()`, or "mcnet-none", the published MCNet without the field.
    parameters : those of its class.

    >>> calibrator("histogram", bins=10)
    Histogram(bins=10)
    """
    if isinstance(name, str) and name in VARIANTS:
        name, given = VARIANTS[name]
        parameters = given | parameters
    found = calibrator_class(name)
    known = sorted(inspect.signature(found).parameters)
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise InputError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return found(**parameters)


def default_parameters(method: str) -> dict[str, Any]:
    """Return the parameters of a method as a model file has them, at their defaults; none for an unknown method.

    >>> default_parameters("gamma")
    {'shift': 1.0}
    """
    return calibrator(method)._plain_parameters() if method in _entries() else {}


def _entries() -> dict[str, _Entry]:
    """Return the entry of each method, simplest first."""
    return _search(tuple((package, tuple(import_module(package).__path__)) for package in _PACKAGES))


@cache
def _search(packages: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for package, folders in packages:
        for path in (path for folder in folders for path in sorted(Path(folder).glob("*.py"))):
            for entry in _methods_in(path, f"{package}.{path.stem}"):
                if entry.method in found:
                    first = found[entry.method].module
                    raise InputError(f"{entry.module} and {first} both have a method {entry.method!r}; rename one")
                found[entry.method] = entry
    return dict(sorted(found.items(), key=lambda item: (item[1].complexity, item[0])))


def _methods_in(path: Path, module: str) -> Iterator[_Entry]:
    """Yield the classes of a source file that state both a method and a complexity."""
    source = path.read_text(encoding="utf-8")
    if "complexity" not in source:
        return  # parsing is the slow part
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef):
            stated = dict(_constants(statement))
            if isinstance(stated.get("method"), str) and isinstance(stated.get("complexity"), int | float):
                yield _Entry(stated["method"], stated["complexity"], module, statement.name)


def _constants(definition: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yield the names that a class body sets to constants."""
    for statement in definition.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant):
            yield from ((target.id, value.value) for target in targets if isinstance(target, ast.Name))
