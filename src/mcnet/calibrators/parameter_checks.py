"""Checks of parameters that several methods share: regularisers, and the level of an interval."""

import math
from numbers import Real
from typing import Any, Literal

from mcnet.errors import InputError

__all__ = ["balanced_field_use", "check_beta_order", "check_level", "check_penalties", "is_positive"]


def check_penalties(alpha_balance: Any, balance: Any) -> None:
    """Raise unless the weight of the balance term is a number ≥ 0 and its kind is known."""
    if not (isinstance(alpha_balance, Real) and 0.0 <= float(alpha_balance) < math.inf):
        raise InputError(f"alpha_balance is {alpha_balance!r}; it is a number ≥ 0")
    if balance not in ("global", "field"):
        raise InputError(f"balance is {balance!r}; it is 'global' or 'field'")


def is_positive(number: Any) -> bool:
    """Tell whether something is a number above 0, before it has been checked."""
    return isinstance(number, Real) and float(number) > 0.0


def balanced_field_use(alpha_balance: Any, field_aware: bool) -> Literal["none", "optional", "required"]:
    """Return whether a field is of use to the curves, needed by the balance term, or of no use."""
    if is_positive(alpha_balance):
        return "required"
    return "optional" if field_aware else "none"


def check_beta_order(beta_order: Any) -> None:
    """Raise unless the weight of the order regulariser is None or a number ≥ 0."""
    if beta_order is not None and not (isinstance(beta_order, Real) and 0.0 <= float(beta_order) < math.inf):
        raise InputError(f"beta_order is {beta_order!r}; it is None or a number ≥ 0")


def check_level(level: Any) -> None:
    """Raise unless the level of an interval is a number between 0 and 1."""
    if not (isinstance(level, Real) and 0.0 < float(level) < 1.0):
        raise InputError(f"level is {level!r}; it is a probability, such as 0.9")
