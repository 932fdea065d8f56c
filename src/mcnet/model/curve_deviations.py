"""Uncertainty of curves that are not a family: a standard deviation at a few scores of every curve."""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import clip_scores, logit, sigmoid
from mcnet._shared.typing import FloatArray, IntArray
from mcnet.curves.curves import Curves
from mcnet.curves.evaluate import Evaluator
from mcnet.curves.family import round_to_digits
from mcnet.data.contexts import Contexts

__all__ = ["CurveDeviations"]


@dataclass(frozen=True, eq=False)
class CurveDeviations:
    """Normal distributions of calibrated logits, around the curves of a model.

    `deviations` `[curves, places]` are the standard deviations at `places` (raw logits, in order), straight between
    them and constant beyond. The first row is that of the pooled curve: of values that were not seen.
    """

    curves: Curves
    contexts: Contexts
    places: FloatArray
    deviations: FloatArray

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the interval, in logits, of rows given by their logits and field codes `[rows, fields]`."""
        context = self._contexts_of(codes)
        served = self._evaluator(sigmoid(logits), context if self.contexts.names else None, 1)
        middle = logit(clip_scores(served))
        left = np.clip(np.searchsorted(self.places, logits, side="right") - 1, 0, len(self.places) - 2)
        share = np.clip((logits - self.places[left]) / (self.places[left + 1] - self.places[left]), 0.0, 1.0)
        curve = context + 1
        spread = self.deviations[curve, left] * (1.0 - share) + self.deviations[curve, left + 1] * share
        reach = NormalDist().inv_cdf(0.5 + 0.5 * level) * spread
        return middle - reach, middle + reach

    def _contexts_of(self, codes: NDArray[Any]) -> IntArray:
        """Return the context of each row, -1 where the pooled curve serves it."""
        if not self.contexts.names:
            return np.full(len(codes), -1, dtype=np.int64)
        distinct, which = np.unique(codes, axis=0, return_inverse=True)
        place = {tuple(row): context for context, row in enumerate(self.contexts.table.tolist())}
        found = np.array([place.get(tuple(row), -1) for row in distinct.tolist()], dtype=np.int64)
        return np.asarray(found[which.reshape(-1)])

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.curves)

    def rounded(self) -> "CurveDeviations":
        """Return the same with deviations of three digits: what is served is what is written."""
        return CurveDeviations(
            self.curves, self.contexts, round_to_digits(self.places, 9), round_to_digits(self.deviations, 3)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers; curves and contexts are parts of the model."""
        return {"places": self.places.tolist(), "deviations": self.deviations.tolist()}

    @staticmethod
    def from_dict(document: dict[str, Any], curves: Curves, contexts: Contexts) -> "CurveDeviations":
        """Return what `to_dict` described, for the curves of the same model.

        Raises
        ------
        ValueError
            If there is not one row of deviations for every curve, or if they are not deviations at rising places.
        """
        places = np.array(document["places"], dtype=np.float64)
        deviations = np.array(document["deviations"], dtype=np.float64)
        if places.ndim != 1 or len(places) < 2 or not np.all(np.isfinite(places)) or np.any(np.diff(places) <= 0.0):
            raise ValueError("the places of the uncertainty are not in order")
        if deviations.shape != (len(curves), len(places)):
            raise ValueError("the uncertainty has other curves than the model")
        if not np.all(np.isfinite(deviations) & (deviations >= 0.0)):
            raise ValueError("a deviation of the uncertainty is not a finite number from 0 on")
        return CurveDeviations(curves, contexts, places, deviations)
