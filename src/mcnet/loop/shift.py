"""How far mean probabilities move from the current model to a new one."""

import math
from dataclasses import dataclass

import polars as pl

from mcnet.model.model import CalibrationModel
from mcnet.sketch.sketch import Sketch
from mcnet.versions.difference import diff

__all__ = ["Shift", "shift_between"]

LEAST_POSITIVES = 100.0
"""A field value counts for the largest shift from so many expected positives on."""


@dataclass(frozen=True)
class Shift:
    """How far mean probabilities move from the current model to the candidate: 0.02 is 2 % more."""

    overall: float
    largest: float
    """Of all rows and of every context with enough positives, the one that moves farthest, up or down."""
    where: str

    @property
    def size(self) -> float:
        """The largest move as a factor above 1, less 1: half is as far as double."""
        return math.expm1(abs(math.log1p(self.largest)))


def shift_between(current: CalibrationModel, candidate: CalibrationModel, rows: Sketch) -> Shift:
    """Return how far mean probabilities move, weighed by rows."""
    found = diff(current, candidate, rows)
    table = found.table
    moved = [("all rows", found.shift)]
    # By either model: a context that rises from few positives to many moves, too.
    expected = table["weight"] * table.select(pl.max_horizontal("old_rate", "new_rate")).to_series()
    for line in table.filter(expected >= LEAST_POSITIVES).iter_rows(named=True):
        moved.append((line["context"], line["shift"]))
    where, largest = max(moved, key=lambda one: abs(math.log1p(one[1])))
    return Shift(found.shift, largest, where)
