"""From a trained function of (logit, field codes) to one curve per context."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import logit, sums_by
from mcnet._shared.typing import FloatArray
from mcnet.curves.compile import DENSE_PER_LOGIT, Projection, compile_table, dense_scores, project_monotone
from mcnet.curves.curves import Curves
from mcnet.data.contexts import Contexts
from mcnet.sketch.sketch import Sketch

__all__ = ["TrainedFunction", "compiled_curves"]

_SCORES_PER_LOGIT = 4 * DENSE_PER_LOGIT
# How far beside a jump, in logits, its two values are asked: the logit of a score may miss the edge by a rounding.
_BESIDE_JUMP = 1e-9
_CURVES_PER_BLOCK = 64


class TrainedFunction(Protocol):
    """A trained function of the logit and the field codes."""

    def predict(self, logit: FloatArray, codes: NDArray[Any]) -> FloatArray:
        """Return the probability of each row from its logit and its field codes `[rows, fields]`."""

    def kinks(self) -> FloatArray | None:
        """Return the scores at which the function has kinks."""

    def jumps(self) -> FloatArray | None:
        """Return the scores at which the function jumps."""


def compiled_curves(
    function: TrainedFunction, contexts: Contexts, sketch: Sketch, *, guarantee: bool
) -> tuple[Curves, Projection]:
    """Return the pooled curve and one per context; with `guarantee`, what falls is projected."""
    scores = dense_scores(function.kinks(), function.jumps(), per_logit=_SCORES_PER_LOGIT)
    logits = logit(scores)
    jump = np.flatnonzero(scores[:-1] == scores[1:])
    logits[jump] -= _BESIDE_JUMP
    logits[jump + 1] += _BESIDE_JUMP
    fields = len(contexts.names)
    codes = np.full((1, fields), -1, dtype=np.int64)
    if fields:
        codes = np.concatenate([codes, contexts.table.astype(np.int64)])
    pairs, moved, largest = [], 0, 0.0
    masses = _masses(sketch, contexts, scores) if guarantee else None
    for start in range(0, len(codes), _CURVES_PER_BLOCK):  # in blocks, to bound the memory
        part = codes[start : start + _CURVES_PER_BLOCK]
        asked = np.tile(logits, len(part)), np.repeat(part, len(logits), axis=0)
        values = function.predict(*asked).reshape(len(part), -1)
        if masses is not None:
            values, projection = project_monotone(values, masses(start, len(part)))
            moved, largest = moved + projection.curves, max(largest, projection.largest)
        pairs += compile_table(scores, values).pairs()
    curves = Curves.of(pairs)
    if masses is None:
        falling = sum(bool((np.diff(values) < 0.0).any()) for _, values in pairs)
        return curves, Projection(falling, curves.largest_drop())
    return curves, Projection(moved, largest)


def _masses(sketch: Sketch, contexts: Contexts, scores: FloatArray) -> Callable[[int, int], FloatArray]:
    """Return how much weight lies at each of the scores, for blocks of curves (the pooled one first)."""
    place = np.minimum(np.searchsorted(scores, sketch.score), len(scores) - 1)
    pooled = sums_by(place, sketch.weight, len(scores))
    known = bool(contexts.names and sketch.contexts.names)
    which = contexts.lookup(sketch.contexts.columns(sketch.context)) if known else np.zeros(0, dtype=np.int32)

    def block(start: int, number: int) -> FloatArray:
        mass = np.tile(pooled * 1e-6, (number, 1))
        for row in range(number):
            if start + row == 0:
                mass[row] = pooled
            elif known:
                own = which == start + row - 1
                mass[row] += sums_by(place[own], sketch.weight[own], len(scores))
        return mass

    return block
