"""Predictions for rows that a fit has not seen: rows held back in turn, fold by fold, or a test sketch."""

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.base import clone

from mcnet._shared.typing import FloatArray
from mcnet.calibrators.base import Calibrator
from mcnet.errors import CalibrationWarning
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.split import held_back_parts

__all__ = ["FittingSketches", "Folds"]


@dataclass(frozen=True)
class FittingSketches:
    """Rows to fit on, with their fields and pooled, so that each method takes what it has a use for."""

    sketch: Sketch

    @cached_property
    def pooled(self) -> Sketch:
        """The rows without their fields, pooled once for all methods."""
        return self.sketch.pooled()

    def fit(self, candidate: Calibrator, *, pooled: bool) -> Calibrator:
        """Fit a copy of a calibrator."""
        fitted: Calibrator = clone(candidate)
        return fitted.fit_sketch(self.pooled if pooled else self.sketch)


class Folds:
    """The folds of a sketch, split once for all methods."""

    def __init__(self, sketch: Sketch) -> None:
        """Split the sketch into what each fit sees and what is held back from it."""
        self.sketch = sketch
        self._parts = [(FittingSketches(train), held, cells) for train, held, cells in held_back_parts(sketch)]

    def predict(self, candidate: Calibrator, *, pooled: bool) -> FloatArray:
        """Return a prediction for every cell by a fit that did not see its fold."""
        result = np.empty(len(self.sketch.fold))
        with warnings.catch_warnings():
            # What one fold lacks (a value without positives) is not news; the fit on all rows may still warn.
            warnings.simplefilter("ignore", CalibrationWarning)
            for rows, held, cells in self._parts:
                result[cells] = rows.fit(candidate, pooled=pooled).model_.predict_cells(held)
        return result
