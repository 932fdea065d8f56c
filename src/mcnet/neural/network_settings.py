"""Checks of the settings of networks: their shape, their training, where they are trained."""

import math
from numbers import Integral, Real
from typing import Any

from mcnet.errors import InputError

__all__ = ["check_count", "check_device", "check_network", "check_rate", "check_seed"]

_CHOICES = {
    "derivative": ("sigmoid", "softplus", "elu"),
    "space": ("logit", "probability"),
    "lower": ("zero", "edge", "centre"),
    "training": ("sketch", "rows"),
}
_COUNTS = ("embedding", "epochs", "batch", "steps")
_SWITCHES = ("field_aware", "guarantee", "warm_start", "share_embedding", "scale")


def check_network(calibrator: Any) -> None:
    """Raise InputError if a setting of MCNet's networks cannot be used."""
    for name, allowed in _CHOICES.items():
        if getattr(calibrator, name) not in allowed:
            raise InputError(f"{name} is {getattr(calibrator, name)!r}; it is one of {', '.join(allowed)}")
    for name in _SWITCHES:
        if not isinstance(getattr(calibrator, name), bool):
            raise InputError(f"{name} is {getattr(calibrator, name)!r}; it is True or False")
    for name in _COUNTS:
        check_count(name, getattr(calibrator, name))
    hidden = calibrator.hidden
    if not isinstance(hidden, list | tuple) or not hidden:
        raise InputError(f"hidden is {hidden!r}; it has the width of each hidden layer, such as (128, 128)")
    for place, size in enumerate(hidden):
        check_count(f"hidden[{place}]", size)
    if calibrator.learning_rate is not None:
        check_rate("learning_rate", calibrator.learning_rate, above_zero=True)
    check_rate("weight_decay", calibrator.weight_decay)
    check_seed(calibrator.seed)
    check_device(calibrator.device)
    if not calibrator.scale and calibrator.training == "sketch":
        raise InputError(
            "scale=False leaves out the scale of each bin, which training on a sketch solves for; "
            "use training='rows', or leave scale=True"
        )


def check_count(name: str, value: Any) -> None:
    """Raise unless a setting is a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} is {value!r}; it is a whole number above 0")


def check_rate(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise unless a setting is a finite number ≥ 0, or > 0."""
    number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not number or float(value) < 0.0 or (above_zero and float(value) == 0.0):
        raise InputError(f"{name} is {value!r}; it is a number {'> 0' if above_zero else '≥ 0'}")


def check_seed(seed: Any) -> None:
    """Raise unless the seed is a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise InputError(f"seed is {seed!r}; it is a whole number")


def check_device(device: Any) -> None:
    """Raise unless torch can use the device."""
    if device == "cpu":
        return
    if not str(device).startswith("cuda"):
        raise InputError(f"device is {device!r}; it is 'cpu' or 'cuda'")
    from mcnet.networks.devices import cuda_available

    if not cuda_available():
        raise InputError(f"device is {device!r}, but there is none here that torch can use; take 'cpu'")
