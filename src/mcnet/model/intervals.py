"""Credible intervals of a model's probabilities: the band of its uncertainty, made to rise with the score."""

from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import SCORE_FLOOR, clip_scores, logit, sigmoid
from mcnet._shared.typing import FloatArray
from mcnet.errors import InputError

__all__ = ["Bands", "Uncertainty", "check_level"]

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
        """Return the credible interval, in logits, of rows given by their logits and field codes `[rows, fields]`."""

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
        """Return the lower and the upper probability of each row.

        Parameters
        ----------
        scores : probabilities in [0, 1].
        codes : the code of each row's value in every field `[rows, fields]`, -1 for an unseen value.
        level : the probability that the interval includes the truth.
        """
        logits = logit(clip_scores(scores))
        contexts, which = codes[:1], np.zeros(len(codes), dtype=np.int64)
        if codes.shape[1]:
            contexts, which = np.unique(codes, axis=0, return_inverse=True)
            which = which.reshape(-1)
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(0, len(contexts) + _CONTEXTS_PER_BLOCK, _CONTEXTS_PER_BLOCK))
        found = np.empty((2, len(scores)))
        for block, (begin, end) in enumerate(pairwise(ends)):
            first, rows = block * _CONTEXTS_PER_BLOCK, order[begin:end]
            bands = self._bands(contexts[first : first + _CONTEXTS_PER_BLOCK], level)
            found[:, rows] = self._interpolated(bands, which[rows] - first, logits[rows])
        # Beyond this logit the sigmoid would round to exactly 1, which no rows can show.
        found = np.minimum(found, _LARGEST_LOGIT)
        low, high = sigmoid(np.rint(found * _ROUNDING) / _ROUNDING)
        return low, high

    def _bands(self, contexts: NDArray[Any], level: float) -> FloatArray:
        """Return the rising band of each context on the grid: `[contexts, 2, points]`."""
        keys = [(level, context.tobytes()) for context in contexts]
        remembered = [self._remembered.get(key) for key in keys]
        missing = [place for place, band in enumerate(remembered) if band is None]
        if missing:
            codes = np.repeat(contexts[missing], len(self._grid), axis=0)
            low, high = self.uncertainty.band(np.tile(self._grid, len(missing)), codes, level)
            low, high = low.reshape(len(missing), -1), high.reshape(len(missing), -1)
            rising = np.stack(
                [np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1], np.maximum.accumulate(high, axis=1)], axis=1
            )
            if len(self._remembered) + len(missing) > _REMEMBERED_CONTEXTS:
                self._remembered.clear()
            for place, band in zip(missing, rising, strict=True):
                remembered[place] = self._remembered[keys[place]] = band
        return np.stack([band for band in remembered if band is not None])

    def _interpolated(self, bands: FloatArray, which: NDArray[Any], logits: FloatArray) -> FloatArray:
        left = np.clip(np.searchsorted(self._grid, logits, side="right") - 1, 0, len(self._grid) - 2)
        share = (logits - self._grid[left]) / (self._grid[left + 1] - self._grid[left])
        start, end = bands[which, :, left].T, bands[which, :, left + 1].T
        result: FloatArray = np.minimum(start + share * (end - start), end)
        return result
