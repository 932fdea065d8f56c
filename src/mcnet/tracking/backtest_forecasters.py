"""Forecasters of a backtest: whatever predicts a period from the periods before it, and the memories they have."""

import re
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import calibrator, calibrator_class
from mcnet.errors import Advice, InputError, McnetError
from mcnet.metrics.evaluation import predict_cells
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.memories import SMALLEST_FADING

# Memories of a backtest: the part of the past that a method is fitted to, kept as one running sketch.

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
    rows: Sketch | None = None
    """The rows remembered; None before the first period."""
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
            self.rows = Sketch.merged([part for _, part in self._recent])
            return
        old = self.rows
        if old is not None and self.spec.kind == "half-life":
            faded = 2.0 ** (-(position - self._position) / self.spec.length)
            old = faded * old if faded > SMALLEST_FADING else None
        self.rows = sketch if old is None else old + sketch
        self._position = position

    @cached_property
    def pooled(self) -> Sketch | None:
        """The same rows without fields."""
        return None if self.rows is None else self.rows.pooled()


# Forecasters of a backtest: whatever predicts a period from the periods before it.

BASE, TRACKER = "base scores", "tracker"


class Follower(Protocol):
    """What can stand in the place of the tracker: it predicts a period, and learns from it afterwards."""

    def predict(self, scores: Any, field: Any = None) -> FloatArray:
        """Return the probability of each row of the coming period."""

    def update_sketch(self, sketch: Sketch, period: Any = None) -> Any:
        """Learn from the rows of a period."""


def default_methods(has_fields: bool) -> list[str]:
    """Return the methods that are compared unless others are named: our default and Platt scaling."""
    return ["mcnet-bayes", "platt-field" if has_fields else "platt"]


class MethodForecaster:
    """A method that is fitted again to a memory whenever that has changed."""

    def __init__(self, method: str, memory: RunningMemory, has_fields: bool) -> None:
        """Check that the method can be fitted to such rows."""
        found = calibrator_class(method)
        if found.needs_features:
            raise InputError(
                f"{method} needs features of each row, which sketches of periods do not have; leave it out"
            )
        if found.field_use == "required" and not has_fields:
            advice = Advice("pass {field} or leave the method out", field=None)
            raise InputError(f"{method} needs a field, and there is none", advice=advice)
        self.method, self.memory = method, memory
        self.failures = 0
        """How many fits have failed; the fit before, or the base scores, stood in."""
        self._pools = found.field_use == "none"
        self._fitted: Calibrator | None = None
        self._version = 0

    @property
    def name(self) -> str:
        """The method and the memory."""
        return f"{self.method}, {self.memory.spec}"

    def probabilities(self, sketch: Sketch) -> FloatArray:
        """Return the probability of each cell of the coming period."""
        if self._version != self.memory.version:
            self._version = self.memory.version
            self._fit()
        if self._fitted is None:
            return np.asarray(sketch.score)
        with warnings.catch_warnings(action="ignore"):
            return predict_cells(self._fitted, sketch)

    def _fit(self) -> None:
        rows = self.memory.pooled if self._pools else self.memory.rows
        assert rows is not None
        try:
            with warnings.catch_warnings(action="ignore"):
                self._fitted = calibrator(self.method).fit_sketch(rows)
        except McnetError:
            self.failures += 1


class TrackerForecaster:
    """The tracker, or what stands in its place."""

    def __init__(self, follower: Follower) -> None:
        """Take a tracker that has learnt nothing yet."""
        self.follower = follower
        self.learnt = 0

    def learn(self, sketch: Sketch, period: str, *, look: bool = True) -> None:
        """Reveal the labels of a period; without a look it is learnt even if it is suspect."""
        with warnings.catch_warnings(action="ignore"):
            self.follower.update_sketch(sketch, period, **({} if look else {"look": False}))
        self.learnt += 1

    def probabilities(self, sketch: Sketch) -> FloatArray:
        """Return the probability of each cell of the coming period; the score itself before any label."""
        if not self.learnt:
            return np.asarray(sketch.score)
        with warnings.catch_warnings(action="ignore"):
            if hasattr(self.follower, "model_"):
                return predict_cells(self.follower, sketch)  # type: ignore[arg-type]
            columns = {column.name: column for column in sketch.contexts.columns(sketch.context)}
            return np.asarray(self.follower.predict(sketch.score, list(columns.values()) or None))

    def belief(self) -> list[tuple[str, str, float]]:
        """Return what the tracker believes, as (part, name, value); nothing if it does not tell."""
        if not self.learnt or not hasattr(self.follower, "explain"):
            return []
        table = getattr(self.follower.explain(), "table", None)
        if table is None:
            return []
        kept = table.filter(table["part"].is_in(list(BELIEF_PARTS)))
        return [tuple(row) for row in kept.select("part", "name", "value").rows()]


BELIEF_PARTS = ("memory", "weight of curves", "weight of level", "belief", "period effects")
"""The parts of a tracker's explanation that a backtest keeps for each period."""
