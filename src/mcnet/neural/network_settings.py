"""Checks of the settings of MCNet's networks: their shape and their training."""

from numbers import Integral
from typing import Any

from mcnet.errors import InputError

__all__ = ["check_network"]

_CHOICES = {
    "derivative": ("sigmoid", "softplus", "elu"),
    "space": ("logit", "probability"),
    "lower": ("zero", "edge", "centre"),
    "training": ("sketch", "rows"),
}
_COUNTS = ("embedding", "epochs", "batch", "steps")


def check_network(calibrator: Any) -> None:
    """Raise InputError if a setting of the networks per bin cannot be used."""
    for name, allowed in _CHOICES.items():
        if getattr(calibrator, name) not in allowed:
            raise InputError(f"{name} is {getattr(calibrator, name)!r}; it is one of {', '.join(allowed)}")
    sizes = {name: getattr(calibrator, name) for name in _COUNTS}
    sizes |= {f"hidden[{place}]": size for place, size in enumerate(calibrator.hidden)}
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise InputError(f"{name} is {size!r}; it is a whole number above 0")
    if isinstance(calibrator.seed, bool) or not isinstance(calibrator.seed, Integral):
        raise InputError(f"seed is {calibrator.seed!r}; it is a whole number")
    if str(calibrator.device).startswith("cuda"):
        from mcnet.networks.devices import cuda_available

        if not cuda_available():
            raise InputError(f"device is {calibrator.device!r}, but there is none here that torch can use; take 'cpu'")
