"""Intervals of a model: bands around its curves, and the deviations of a tracker's curves."""

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, clip_scores, logit, sigmoid
from mcnet.curves.curves import Curves, interpolated, piece_and_share
from mcnet.curves.evaluate import Evaluator
from mcnet.curves.family import blocks_of_contexts, round_to_digits
from mcnet.errors import InputError
from mcnet.rows.contexts import Contexts, distinct_contexts

# Credible intervals of a model's probabilities: the band of its uncertainty, made to rise with the score.

_POINTS_PER_LOGIT = 16
_CONTEXTS_PER_BLOCK = 256
_REMEMBERED_CONTEXTS = 1_024
"""Contexts whose band is kept, about 8 kB each."""
_LARGEST_LOGIT = 36.0
_ROUNDING = 2.0**26
"""Logits are rounded to multiples of 1 / this, whose sigmoids are in order on every processor."""


class Uncertainty(Protocol):
    """How sure a fit is of its curves."""

    def band(self, logits: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the credible intervals, in logits, of contexts given by their field codes `[contexts, fields]`.

        Both ends have one row per context and one column per logit.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers."""


def check_level(level: float) -> None:
    """Raise unless the level is a probability strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0.0 < level < 1.0:
        raise InputError(f"level is {level!r}; it must be a number between 0 and 1, such as 0.9")


class Bands:
    """Evaluates the band of an uncertainty on a fixed grid of logits, context by context.

    A band may fall where data end. It is widened on the grid until both ends rise with the score: the lower end to the
    lowest value right of it, the upper end to the highest value left of it. A row is interpolated on the grid of its
    own context, so that its interval does not depend on the other rows.
    """

    def __init__(self, uncertainty: Uncertainty) -> None:
        """Start without bands; a context's is made when it is first asked for."""
        self.uncertainty = uncertainty
        edge = float(logit(np.array([1.0 - SCORE_FLOOR]))[0])
        self._grid = np.linspace(-edge, edge, int(2 * edge * _POINTS_PER_LOGIT) + 1)
        self._remembered: dict[tuple[float, bytes], FloatArray] = {}

    def __call__(self, scores: FloatArray, codes: NDArray[Any], level: float) -> tuple[FloatArray, FloatArray]:
        """Return the lower and the upper probability of each row."""
        logits = logit(clip_scores(scores))
        contexts, which = distinct_contexts(codes)
        result = np.empty((2, len(scores)))
        for block, rows in blocks_of_contexts(which, len(contexts), _CONTEXTS_PER_BLOCK):
            bands = self._bands(contexts[block], level)
            result[:, rows] = self._interpolated(bands, which[rows] - block.start, logits[rows])
        # Beyond this logit the sigmoid would round to exactly 1, which no rows can show.
        result = np.minimum(result, _LARGEST_LOGIT)
        low, high = sigmoid(np.rint(result * _ROUNDING) / _ROUNDING)
        return low, high

    def _bands(self, contexts: NDArray[Any], level: float) -> FloatArray:
        """Return the rising band of each context on the grid: `[contexts, 2, points]`."""
        keys = [(level, context.tobytes()) for context in contexts]
        remembered = [self._remembered.get(key) for key in keys]
        missing = [index for index, band in enumerate(remembered) if band is None]
        if missing:
            # Contiguous, so that a row of the band of a context lies in one place.
            low, high = map(np.ascontiguousarray, self.uncertainty.band(self._grid, contexts[missing], level))
            rising = np.stack(
                [np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1], np.maximum.accumulate(high, axis=1)], axis=1
            )
            if len(self._remembered) + len(missing) > _REMEMBERED_CONTEXTS:
                self._remembered.clear()
            for index, band in zip(missing, rising, strict=True):
                remembered[index] = self._remembered[keys[index]] = band
        return np.stack([band for band in remembered if band is not None])

    def _interpolated(self, bands: FloatArray, which: NDArray[Any], logits: FloatArray) -> FloatArray:
        left, share = piece_and_share(self._grid, logits)
        start, end = bands[which, :, left].T, bands[which, :, left + 1].T
        result: FloatArray = np.minimum(start + share * (end - start), end)
        return result


# Uncertainty of curves that are not a family: a standard deviation at a few scores of every curve.


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
        """Return the intervals, in logits, of contexts given by their field codes: `[contexts, logits]`."""
        if self.contexts.names:
            context = self.contexts.find_codes(codes)
        else:
            context = np.full(len(codes), -1, dtype=np.int32)
        served = self._evaluator(np.tile(sigmoid(logits), len(codes)), np.repeat(context, len(logits)), 1)
        middle = logit(clip_scores(served)).reshape(len(codes), -1)
        spread = interpolated(self.places, self.deviations[context + 1], logits)
        reach = NormalDist().inv_cdf(0.5 + 0.5 * level) * spread
        return middle - reach, middle + reach

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.curves)

    def rounded(self) -> "CurveDeviations":
        """Return the same with deviations of three digits: what is served is what is written."""
        return replace(self, places=round_to_digits(self.places, 9), deviations=round_to_digits(self.deviations, 3))

    def to_dict(self) -> dict[str, Any]:
        """Return the uncertainty as plain lists and numbers; curves and contexts are parts of the model."""
        return {"places": self.places.tolist(), "deviations": self.deviations.tolist()}

    @staticmethod
    def from_dict(document: dict[str, Any], curves: Curves, contexts: Contexts) -> "CurveDeviations":
        """Return what `to_dict` described, for the curves of the same model."""
        places = np.array(document["places"], dtype=np.float64)
        deviations = np.array(document["deviations"], dtype=np.float64)
        if places.ndim != 1 or len(places) < 2 or not np.all(np.isfinite(places)) or np.any(np.diff(places) <= 0.0):
            raise ValueError("the places of the uncertainty are not in order")
        if deviations.shape != (len(curves), len(places)):
            raise ValueError("the uncertainty has other curves than the model")
        if not np.all(np.isfinite(deviations) & (deviations >= 0.0)):
            raise ValueError("a deviation of the uncertainty is not a finite number from 0 on")
        return CurveDeviations(curves, contexts, places, deviations)
