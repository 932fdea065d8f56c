"""Compile a hot loop with numba, where it is installed."""

import importlib.util
import warnings
from collections.abc import Callable
from functools import cache
from pickle import UnpicklingError
from typing import Any

__all__ = ["compiled", "numba_installed"]


@cache
def numba_installed() -> bool:
    """Tell whether numba can be imported, by importing it: ask only where there are rows enough to pay for that."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        import numba  # noqa: F401
    except Exception as error:
        # It refuses a NumPy newer than itself, for one: rows can be served without it all the same.
        problem = f"numba is installed but cannot be imported ({type(error).__name__}: {error})"
        warnings.warn(f"{problem}; mcnet continues with NumPy only, which is slower", RuntimeWarning, stacklevel=3)
        return False
    return True


class _Compiled:
    """A compiled function that does without its cache on disk when the cache fails."""

    def __init__(self, function: Callable[..., Any]) -> None:
        from numba import njit

        self._compile_anew: Callable[[], Any] = lambda: njit(nogil=True)(function)
        try:
            self._run: Any = njit(cache=True, nogil=True)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache can be written (a locked-down container).
            self._run = self._compile_anew()

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self._run(*arguments)
        except (OSError, EOFError, UnpicklingError):
            # The disk is full, or a file of the cache is damaged: machine code in memory is as good.
            self._run = self._compile_anew()
            return self._run(*arguments)


def compiled(function: Callable[..., Any], *called: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled, with those it calls; the machine code is kept on disk where there is a place."""
    for other in called:
        _callable_when_compiled(other)
    return _Compiled(function)


@cache
def _callable_when_compiled(function: Callable[..., Any]) -> None:
    from numba.extending import register_jitable

    register_jitable(function)
