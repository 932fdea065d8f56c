"""Memories of a backtest: the part of the past that a method is fitted to, kept as one running sketch."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.memories import SMALLEST_FADING

__all__ = ["DEFAULT_MEMORIES", "MemoryKind", "MemorySpec", "RunningMemory", "parse_memories"]

MemoryKind = Literal["half-life", "window", "everything", "once"]

DEFAULT_MEMORIES = (1, 2, 4, 8, 16, "window:7", "window:28", "everything", "once")

_NUMBER = re.compile(r"(?:(half-life|window):)?(\d+(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class MemorySpec:
    """A kind of memory and its length in periods."""

    kind: MemoryKind
    length: float = np.inf

    def __str__(self) -> str:
        return f"{self.kind} {self.length:g}" if np.isfinite(self.length) else self.kind


def parse_memories(memories: Sequence[Any]) -> list[MemorySpec]:
    """Return memories as they are given: a half-life in periods, "window:7", "everything" or "once".

    >>> [str(memory) for memory in parse_memories([4, "0.5", "window:7", "everything", "once"])]
    ['half-life 4', 'half-life 0.5', 'window 7', 'everything', 'once']
    """
    return list(dict.fromkeys(_parsed(memory) for memory in memories))


def _parsed(given: Any) -> MemorySpec:
    if given in ("everything", "once"):
        return MemorySpec(given)
    if isinstance(given, int | float | np.number) and not isinstance(given, bool):
        if given == np.inf:
            return MemorySpec("everything")
        given = f"{float(given)!r}" if given > 0 else "?"
    match = _NUMBER.fullmatch(given) if isinstance(given, str) else None
    if match is None or not float(match[2]) > 0.0:
        raise InputError(
            f"{given!r} is not a memory; write a half-life in periods (4), window:7 for the last 7 periods, "
            "everything, or once for a fit on the first periods alone"
        )
    return MemorySpec("window" if match[1] == "window" else "half-life", float(match[2]))


@dataclass
class RunningMemory:
    """The rows that a memory has, after each period; `version` changes when they do.

    Parameters
    ----------
    spec : which memory.
    once_periods : how many periods a memory of the kind "once" takes in before it stays as it is.
    """

    spec: MemorySpec
    once_periods: int = 1
    version: int = 0
    _total: Sketch | None = None
    _position: float = 0.0
    _recent: deque[tuple[float, Sketch]] = field(default_factory=deque)

    def learn(self, sketch: Sketch, position: float) -> None:
        """Take in a period; `position` is its place in time, in periods."""
        if self.spec.kind == "once" and self.version >= self.once_periods:
            return
        # A list of the sources of every period would grow for ever.
        sketch = replace(sketch, known_sources=(), columns={})
        self.version += 1
        self.__dict__.pop("pooled", None)
        if self.spec.kind == "window":
            self._recent.append((position, sketch))
            while self._recent[0][0] <= position - self.spec.length:
                self._recent.popleft()
            self._total = Sketch.merged([part for _, part in self._recent])
            return
        old = self._total
        if old is not None and self.spec.kind == "half-life":
            faded = 2.0 ** (-(position - self._position) / self.spec.length)
            old = faded * old if faded > SMALLEST_FADING else None
        self._total = sketch if old is None else old + sketch
        self._position = position

    @property
    def rows(self) -> Sketch | None:
        """The rows remembered; None before the first period."""
        return self._total

    @cached_property
    def pooled(self) -> Sketch | None:
        """The same rows without fields."""
        return None if self._total is None else self._total.pooled()
