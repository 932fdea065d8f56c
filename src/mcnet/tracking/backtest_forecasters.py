"""Forecasters of a backtest: whatever predicts a period from the periods before it."""

import warnings
from typing import Any, Protocol

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.registry import calibrator, calibrator_class
from mcnet.errors import InputError, McnetError
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.backtest_memories import MemorySpec, RunningMemory

__all__ = ["BASE", "TRACKER", "Follower", "MethodForecaster", "TrackerForecaster", "default_methods"]

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
            raise InputError(f"{method} needs a field, and there is none; pass field= or leave the method out")
        self.method, self.memory = method, memory
        self.failures = 0
        """How many fits have failed; the fit before, or the base scores, stood in."""
        self._pools = found.field_use == "none"
        self._fitted: Calibrator | None = None
        self._version = 0

    @property
    def spec(self) -> MemorySpec:
        """The memory that the method is fitted to."""
        return self.memory.spec

    @property
    def name(self) -> str:
        """The method and the memory."""
        return f"{self.method}, {self.spec}"

    def probabilities(self, sketch: Sketch) -> FloatArray:
        """Return the probability of each cell of the coming period."""
        if self._version != self.memory.version:
            self._version = self.memory.version
            self._fit()
        if self._fitted is None:
            return np.asarray(sketch.score)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return predict_cells(self._fitted, sketch)

    def _fit(self) -> None:
        rows = self.memory.pooled if self._pools else self.memory.rows
        assert rows is not None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._fitted = calibrator(self.method).fit_sketch(rows)
        except McnetError:
            self.failures += 1


class TrackerForecaster:
    """The tracker, or what stands in its place."""

    name = TRACKER

    def __init__(self, follower: Follower) -> None:
        """Take a tracker that has learnt nothing yet."""
        self.follower = follower
        self.learnt = 0

    def learn(self, sketch: Sketch, period: str) -> None:
        """Reveal the labels of a period."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.follower.update_sketch(sketch, period)
        self.learnt += 1

    def probabilities(self, sketch: Sketch) -> FloatArray:
        """Return the probability of each cell of the coming period; the score itself before any label."""
        if not self.learnt:
            return np.asarray(sketch.score)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
