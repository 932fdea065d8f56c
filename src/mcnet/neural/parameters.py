"""Checks of the parameters that the networks share: regularisers, shape, training."""

import math
from numbers import Integral, Real
from typing import Any

from mcnet.errors import InputError

__all__ = ["NETWORK_SETTINGS", "check_level", "check_network", "check_penalties"]


def check_penalties(beta_order: Any, alpha_balance: Any, balance: Any) -> None:
    """Raise unless the coefficients are numbers ≥ 0 and the kind of balance is known."""
    if beta_order is not None and not (isinstance(beta_order, Real) and 0.0 <= float(beta_order) < math.inf):
        raise InputError(f"beta_order is {beta_order!r}; it is None or a number ≥ 0")
    if not (isinstance(alpha_balance, Real) and 0.0 <= float(alpha_balance) < math.inf):
        raise InputError(f"alpha_balance is {alpha_balance!r}; it is a number ≥ 0")
    if balance not in ("global", "field"):
        raise InputError(f"balance is {balance!r}; it is 'global' or 'field'")


_CHOICES = {
    "derivative": ("sigmoid", "softplus", "elu"),
    "space": ("logit", "probability"),
    "lower": ("zero", "edge", "centre"),
    "training": ("sketch", "rows"),
}
_COUNTS = ("embedding", "epochs", "batch", "steps")

NETWORK_SETTINGS = (
    "beta_order",
    "guarantee",
    "hidden",
    "share_embedding",
    "scale",
    "learning_rate",
    "weight_decay",
    "device",
    *_CHOICES,
    *_COUNTS,
)
"""What only MCNet's networks per bin can honour."""


def check_level(level: Any) -> None:
    """Raise unless the level of an interval is a number between 0 and 1."""
    if not (isinstance(level, Real) and 0.0 < float(level) < 1.0):
        raise InputError(f"level is {level!r}; it is a probability, such as 0.9")


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
