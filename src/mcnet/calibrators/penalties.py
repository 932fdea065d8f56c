"""Checks of the two regularisers' coefficients, shared by the methods that have them."""

import math

from mcnet.errors import InputError

__all__ = ["check_penalties"]


def check_penalties(beta_order: float | None, alpha_balance: float, balance: str) -> None:
    """Raise unless the coefficients are numbers ≥ 0 and the kind of balance is known."""
    if beta_order is not None and not 0.0 <= beta_order < math.inf:
        raise InputError(f"beta_order is {beta_order!r}; it is None or a number ≥ 0")
    if not 0.0 <= alpha_balance < math.inf:
        raise InputError(f"alpha_balance is {alpha_balance!r}; it is a number ≥ 0")
    if balance not in ("global", "field"):
        raise InputError(f"balance is {balance!r}; it is 'global' or 'field'")
