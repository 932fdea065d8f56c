"""Predictions for rows that a fit has not seen: rows held back in turn, fold by fold, or a test sketch."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from mcnet._shared.typing import FloatArray, IntArray
from mcnet.calibrators.base import Calibrator
from mcnet.errors import CalibrationWarning
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.sketch.sketch import Sketch

__all__ = ["FitRows", "Folds"]


@dataclass(frozen=True)
class FitRows:
    """Rows to fit on, with their fields and pooled, so that each method takes what it has a use for."""

    sketch: Sketch
    pooled: Sketch

    @classmethod
    def of(cls, sketch: Sketch) -> "FitRows":
        """Pool a sketch once for all methods."""
        return cls(sketch, sketch.pooled() if sketch.contexts.names else sketch)

    def fit(self, candidate: Calibrator) -> Calibrator:
        """Fit a copy of a calibrator."""
        fitted: Calibrator = clone(candidate)
        return fitted.fit_sketch(self.pooled if candidate.field_use == "none" else self.sketch)


class Folds:
    """The folds of a sketch, split once for all methods."""

    def __init__(self, sketch: Sketch) -> None:
        """Split the sketch into what each fit sees and what is held back from it."""
        self.sketch = sketch
        self._parts: list[tuple[FitRows, Sketch, IntArray]] = []
        for fold in range(sketch.folds):
            train, held = sketch.fold_parts(fold)
            if len(held):
                self._parts.append((FitRows.of(train.unfolded()), held, np.flatnonzero(sketch.fold == fold)))

    def predict(self, candidate: Calibrator) -> FloatArray:
        """Return a prediction for every cell by a fit that did not see its fold."""
        result = np.empty(len(self.sketch))
        with warnings.catch_warnings():
            # What one fold lacks (a value without positives) is not news; the fit on all rows may still warn.
            warnings.simplefilter("ignore", CalibrationWarning)
            for rows, held, cells in self._parts:
                result[cells] = predict_cells(rows.fit(candidate), held)
        return result
