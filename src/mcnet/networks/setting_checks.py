"""Checks of the settings of networks, in words: choices, counts, rates, widths, where they are trained."""

import math
from numbers import Integral, Real
from typing import Any

from mcnet.errors import InputError

__all__ = ["check_choices", "check_count", "check_device", "check_rate", "check_seed", "check_switch", "check_widths"]


_CHOICES = {
    "activation": ("silu", "tanh", "relu"),
    "balance": ("global", "field"),
    "derivative": ("sigmoid", "softplus", "elu"),
    "lower": ("zero", "edge", "centre"),
    "quadrature": ("plain", "lean"),
    "space": ("logit", "probability"),
    "start": ("identity", "random"),
    "training": ("sketch", "rows"),
}


def check_choices(**settings: Any) -> None:
    """Raise unless each setting, given by its name, is one of the words it can be."""
    for name, value in settings.items():
        if value not in _CHOICES[name]:
            raise InputError(f"{name} is {value!r}; it must be one of {', '.join(_CHOICES[name])}")


def check_switch(name: str, value: Any) -> None:
    """Raise unless a setting is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {value!r}; it must be True or False")


def check_count(name: str, value: Any) -> None:
    """Raise unless a setting is a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} is {value!r}; it must be a whole number above 0")


def check_widths(name: str, widths: Any) -> None:
    """Raise unless a setting has the width of each hidden layer, at least one."""
    if not isinstance(widths, list | tuple) or not widths:
        raise InputError(f"{name} is {widths!r}; it has the width of each hidden layer, such as (128, 128)")
    for place, size in enumerate(widths):
        check_count(f"{name}[{place}]", size)


def check_rate(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise unless a setting is a finite number ≥ 0, or > 0."""
    number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not number or float(value) < 0.0 or (above_zero and float(value) == 0.0):
        raise InputError(f"{name} is {value!r}; it must be a number {'> 0' if above_zero else '≥ 0'}")


def check_seed(seed: Any) -> None:
    """Raise unless the seed is a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise InputError(f"seed is {seed!r}; it must be a whole number")


def check_device(device: Any) -> None:
    """Raise unless torch can use the device."""
    if device == "cpu":
        return
    if not str(device).startswith("cuda"):
        raise InputError(f"device is {device!r}; it must be 'cpu' or 'cuda'")
    from mcnet.networks.devices import cuda_available

    if not cuda_available():
        raise InputError(f"device is {device!r}, but there is none here that torch can use; take 'cpu'")
