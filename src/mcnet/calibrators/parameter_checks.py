"""Checks of parameters that several methods share: bins and regularisers."""

import math
from numbers import Integral, Real
from typing import Any, Literal

from mcnet.errors import InputError

__all__ = ["balanced_field_use", "check_beta_order", "check_bins", "check_penalties", "is_positive"]


def check_bins(bins: Any, *, auto: bool = False) -> None:
    """Raise unless `bins` is a whole number above 0, or "auto" where the method can choose."""
    if auto and isinstance(bins, str) and bins == "auto":
        return
    if isinstance(bins, bool) or not isinstance(bins, Integral) or bins < 1:
        known = "'auto' or a whole number above 0" if auto else "a whole number above 0"
        raise InputError(f"bins is {bins!r}; it must be {known}")


def check_penalties(alpha_balance: Any, balance: Any) -> None:
    """Raise unless the weight of the balance term is a number ≥ 0 and its kind is known."""
    if not (isinstance(alpha_balance, Real) and 0.0 <= float(alpha_balance) < math.inf):
        raise InputError(f"alpha_balance is {alpha_balance!r}; it must be a number ≥ 0")
    if balance not in ("global", "field"):
        raise InputError(f"balance is {balance!r}; it must be 'global' or 'field'")


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
        raise InputError(f"beta_order is {beta_order!r}; it must be None or a number ≥ 0")
