"""The registry: every method by its name, simplest first.

The table names the class of a method and does not import it: the list of methods needs neither torch nor SciPy, and a
method whose library is not installed is known all the same.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

from mcnet._shared.messages import install_hint
from mcnet.calibrators.base import Calibrator
from mcnet.errors import InputError, NotSupportedError


@dataclass(frozen=True)
class _Entry:
    complexity: float
    """As the class states it: among equally good methods `select` takes the lowest."""
    module: str
    class_name: str


_METHODS = {
    "base": _Entry(0, "mcnet.calibrators.parametric", "Identity"),
    "offset": _Entry(8, "mcnet.calibrators.parametric", "Offset"),
    "histogram": _Entry(10, "mcnet.calibrators.binning", "Histogram"),
    "isotonic": _Entry(20, "mcnet.calibrators.binning", "Isotonic"),
    "platt": _Entry(30, "mcnet.calibrators.parametric", "Platt"),
    "temperature": _Entry(40, "mcnet.calibrators.parametric", "Temperature"),
    "beta": _Entry(50, "mcnet.calibrators.parametric", "Beta"),
    "gaussian": _Entry(60, "mcnet.calibrators.parametric", "GaussianScaling"),
    "gamma": _Entry(70, "mcnet.calibrators.parametric", "GammaScaling"),
    "sir": _Entry(80, "mcnet.calibrators.binning", "SIR"),
    "offset-field": _Entry(85, "mcnet.calibrators.per_field", "OffsetField"),
    "platt-field": _Entry(90, "mcnet.calibrators.per_field", "PlattField"),
    "per-field": _Entry(100, "mcnet.calibrators.per_field", "PerField"),
    "neucalib": _Entry(110, "mcnet.networks.baselines", "NeuCalib"),
    "adacalib": _Entry(120, "mcnet.networks.baselines", "AdaCalib"),
    "mcnet-bayes": _Entry(130, "mcnet.bayes.estimator", "BayesMCNet"),
    "mcnet": _Entry(140, "mcnet.networks.mcnet", "MCNet"),
}
_ADDED: dict[str, type[Calibrator]] = {}
"""Methods that were added by `add_method`."""

_EXTRAS = {"torch": "networks", "safetensors": "networks"}
"""The extra of mcnet that installs a library which some methods need."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"mcnet-none": ("mcnet", {"field_aware": False})}
"""Names for a method with certain parameters, which a comparison shows: MCNet-None of the paper."""

_Class = TypeVar("_Class", bound=type[Calibrator])


def methods() -> list[str]:
    """Return the names of all methods, simplest first.

    >>> "isotonic" in methods()
    True
    """
    complexity = {name: entry.complexity for name, entry in _METHODS.items()}
    complexity |= {name: added.complexity for name, added in _ADDED.items()}
    return sorted(complexity, key=lambda name: (complexity[name], name))


def add_method(added: _Class) -> _Class:
    """Add a calibrator of your own to the methods, so that its name can be used wherever a method is named.

    Parameters
    ----------
    added : a class derived from `mcnet.Calibrator` that states its `method` (a name) and its `complexity`.

    Returns
    -------
    The class, so that the function can decorate it.
    """
    if not (isinstance(added, type) and issubclass(added, Calibrator)):
        raise InputError(f"add_method was given {added!r}; give a class derived from mcnet.Calibrator")
    stated = vars(added)
    name, complexity = stated.get("method"), stated.get("complexity")
    if not isinstance(name, str) or not isinstance(complexity, int | float):
        raise InputError(f"{added.__name__} must state its method (a name) and its complexity (a number)")
    known = _ADDED.get(name)
    if name in _METHODS or name in VARIANTS or (known is not None and known.__qualname__ != added.__qualname__):
        raise InputError(f"there is a method {name!r} already; give {added.__name__} another name")
    _ADDED[name] = added
    return added


def calibrator_class(name: str) -> type[Calibrator]:
    """Return the class of a method."""
    if not isinstance(name, str):
        raise InputError(f"a method is named by a text, not by {name!r}; the methods are {', '.join(methods())}")
    if name in VARIANTS:
        method, parameters = VARIANTS[name]
        settings = ", ".join(f"{key}={value}" for key, value in parameters.items())
        raise InputError(f"{name} is the method {method} with {settings}; a method without parameters is needed here")
    if name in _ADDED:
        return _ADDED[name]
    entry = _METHODS.get(name)
    if entry is None:
        known = methods()
        close = get_close_matches(name, [*known, *VARIANTS], n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"there is no method {name!r}{hint}; the methods are {', '.join(known)}")
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise NotSupportedError(f"{name} needs {error.name}, which is not installed; {install_hint(extra)}") from None
    result: type[Calibrator] = getattr(module, entry.class_name)
    return result


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
    result = calibrator_class(name)
    known = sorted(inspect.signature(result).parameters)
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise InputError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return result(**parameters)


def restored_calibrator(plain: Mapping[str, Any]) -> Calibrator:
    """Return the unfitted calibrator inside another, whose method and parameters a model file has."""
    parameters = dict(plain)
    return calibrator_class(parameters.pop("method"))._from_plain(parameters)


def default_parameters(method: str) -> dict[str, Any]:
    """Return the parameters of a method as a model file has them, at their defaults; none for an unknown method.

    >>> default_parameters("gamma")
    {'shift': 1.0}
    """
    return calibrator(method)._plain_parameters() if method in methods() else {}
