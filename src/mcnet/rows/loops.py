"""Compile a hot loop with numba, where it is installed."""

import importlib.util
from collections.abc import Callable
from typing import Any

__all__ = ["compiled", "numba_installed"]


def numba_installed() -> bool:
    """Tell whether numba can be imported."""
    return importlib.util.find_spec("numba") is not None


def compiled(function: Callable[..., Any]) -> Any:
    """Return the function compiled; the machine code is kept on disk where there is a place for it."""
    from numba import njit

    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written (a locked-down container): compile anew.
        return njit(nogil=True)(function)
