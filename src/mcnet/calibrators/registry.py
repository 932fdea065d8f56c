"""The registry: every method by its name."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from mcnet.calibrators.base import Calibrator
from mcnet.errors import InputError

__all__ = ["calibrator", "calibrator_class", "default_parameters", "methods"]

_METHODS = {
    "base": ("calibrators.identity", "Identity"),
    "histogram": ("calibrators.histogram", "Histogram"),
    "isotonic": ("calibrators.isotonic", "Isotonic"),
    "platt": ("calibrators.platt", "Platt"),
    "temperature": ("calibrators.platt", "Temperature"),
    "beta": ("calibrators.beta", "Beta"),
    "gaussian": ("calibrators.density_scaling", "GaussianScaling"),
    "gamma": ("calibrators.density_scaling", "GammaScaling"),
    "sir": ("calibrators.sir", "SIR"),
    "platt-field": ("calibrators.platt_field", "PlattField"),
    "per-field": ("calibrators.per_field", "PerField"),
    "neucalib": ("neural.neucalib", "NeuCalib"),
    "adacalib": ("neural.adacalib", "AdaCalib"),
    "mcnet": ("neural.mcnet", "MCNet"),
}


def methods() -> list[str]:
    """Return the names of all methods, simplest first.

    >>> "isotonic" in methods()
    True
    """
    return list(_METHODS)


def calibrator_class(name: str) -> type[Calibrator]:
    """Return the class of a method."""
    if name not in _METHODS:
        close = get_close_matches(name, _METHODS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"there is no method {name!r}{hint}; the methods are {', '.join(_METHODS)}")
    module, attribute = _METHODS[name]
    found: type[Calibrator] = getattr(import_module(f"mcnet.{module}"), attribute)
    return found


def calibrator(name: str, **parameters: Any) -> Calibrator:
    """Return an unfitted calibrator of a method, with the parameters given.

    >>> calibrator("histogram", bins=10)
    Histogram(bins=10)
    """
    found = calibrator_class(name)
    known = found._get_param_names()
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise InputError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return found(**parameters)


def default_parameters(method: str) -> dict[str, Any]:
    """Return the parameters of a method as a model file has them, at their defaults; none for an unknown method.

    >>> default_parameters("gamma")
    {'shift': 1.0}
    """
    return calibrator(method)._plain_parameters() if method in _METHODS else {}
