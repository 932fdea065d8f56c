"""Hot loops: compiled with numba where it is installed, and buckets of scores computed from their bits."""

import importlib.util
import os
import warnings
from collections.abc import Callable
from functools import cache
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray

# Compile a hot loop with numba, where it is installed.


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


NUMBA_FROM = 50_000
"""Fewer rows than this are not worth loading the compiler for."""

LOADED_FROM = 1_000
"""The same where a loop is compiled already: for other types of arguments it would be compiled anew, and fewer rows are
not worth that wait."""

_ROWS_PER_THREAD = 500_000


def worth_compiling(rows: int, *loops: Any) -> bool:
    """Tell whether there is a compiler, and enough rows for it: fewer where one of these cached loops is compiled."""
    loaded = any(loop.cache_info().currsize for loop in loops)
    return rows >= (LOADED_FROM if loaded else NUMBA_FROM) and numba_installed()


def threads_for(rows: int) -> int:
    """Return on how many threads a compiled loop over so many rows is quickest."""
    return min(os.cpu_count() or 1, 8, -(-rows // _ROWS_PER_THREAD))


@cache
def _callable_when_compiled(function: Callable[..., Any]) -> None:
    from numba.extending import register_jitable

    register_jitable(function)


# Buckets of scores, computed from their bits: the first step of finding a score in an ordered list.

BLOCK = 1024
"""Scores put into buckets at a time, before each is looked up: what is kept of them stays in the fastest cache."""

_LOWEST, _HIGHEST = SCORE_FLOOR, 1.0 - SCORE_FLOOR


@cache
def bucket_starts(shift: int) -> FloatArray:
    """Return the lowest score of each bucket, or a hair below it.

    The bucket of a score is what remains of the bits of min(s, 1 − s) after a shift: the exponent and the first bits of
    the mantissa. Buckets are fine where the scores of rare events crowd, and need no logarithm. Those of the upper half
    run backwards, so that all are in the order of scores.
    """
    first = int(np.float64(SCORE_FLOOR).view(np.int64)) >> shift
    numbers = np.arange(first, (int(np.float64(0.5).view(np.int64)) >> shift) + 1, dtype=np.int64)
    low = (numbers << shift).view(np.float64)
    following = ((numbers + 1) << shift).view(np.float64)
    starts = np.concatenate([low, np.nextafter(1.0 - following[::-1], 0.0)])
    starts.flags.writeable = False  # it is kept
    return starts


def clip_into_buckets(
    scores: FloatArray, clipped: FloatArray, buckets: NDArray[np.uint64], last_bucket: np.uint64, shift: np.uint64
) -> Any:
    """Clip scores and number their buckets; return how many are inside [0, 1]. Compiled as a part of hot loops.

    Free of branches and of look-ups, the loop runs on several scores at once. NaN ends as the lowest score, so that
    nothing is read out of bounds.
    """
    first = np.float64(_LOWEST).view(np.uint64) >> shift
    inside: Any = 0
    for i in range(len(scores)):
        score = scores[i]
        inside += (score >= 0.0) & (score <= 1.0)
        score = score if score > _LOWEST else _LOWEST
        score = score if score < _HIGHEST else _HIGHEST
        clipped[i] = score
        rest = 1.0 - score
        bucket = (np.float64(score if score < rest else rest).view(np.uint64) >> shift) - first
        buckets[i] = bucket if score < 0.5 else last_bucket - bucket
    return inside


def clipped_and_buckets(
    scores: FloatArray, last_bucket: np.uint64, shift: np.uint64
) -> tuple[FloatArray, NDArray[np.uint64]]:
    """Return what `clip_into_buckets` computes: scores moved into the allowed range, and their buckets."""
    clipped = np.clip(scores, _LOWEST, _HIGHEST)
    buckets = np.minimum(clipped, 1.0 - clipped).view(np.uint64)
    buckets >>= shift
    buckets -= np.float64(_LOWEST).view(np.uint64) >> shift
    return clipped, np.subtract(last_bucket, buckets, out=buckets, where=clipped >= 0.5)
