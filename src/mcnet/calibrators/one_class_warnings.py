"""Warnings about field values, or ranges of scores, that have one class only."""

import numpy as np

from mcnet._shared.math import ROWS_AT_A_TIME
from mcnet._shared.typing import FloatArray
from mcnet._shared.user_warnings import warn
from mcnet.sketch.sketch import Sketch

__all__ = ["warn_of_gaps"]

_MOST_VALUES_TO_NAME = 100
_FEWEST_EXPECTED = 10.0
"""Positives (or negatives) that the scores must expect in a range without any, before a warning is given."""


def warn_of_gaps(method: str, sketch: Sketch) -> None:
    """Warn of field values and of low or high ranges of scores that have one class only."""
    _warn_of_values(method, sketch)
    weight, positives, expected = _sums_by_key(sketch)
    score = expected / weight
    below = int(np.argmax(positives > 0.0))
    if expected[:below].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no positives below score {score[below]:.3g} ({weight[:below].sum():,.0f} rows)")
    above = len(weight) - int(np.argmax((weight - positives)[::-1] > 0.0))
    if (weight - expected)[above:].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no negatives above score {score[above - 1]:.3g} ({weight[above:].sum():,.0f} rows)")


def _sums_by_key(sketch: Sketch) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weight, positives and summed scores of the cells of each key, in order of the keys."""
    key = sketch.cells.key
    lowest = int(key.min())
    width = int(key.max()) - lowest + 1
    if width > len(key):  # the keys of a sketch of exact scores
        keys, key = np.unique(key, return_inverse=True)
        lowest, width = 0, len(keys)
    sums = np.zeros((3, width))
    for start in range(0, len(key), ROWS_AT_A_TIME):
        cells = slice(start, start + ROWS_AT_A_TIME)
        weight, place = sketch.weight[cells], key[cells] - lowest
        for total, column in zip(sums, (weight, sketch.positives[cells], weight * sketch.score[cells]), strict=True):
            total += np.bincount(place, column, width)
    weight, positives, expected = sums[:, sums[0] > 0.0]
    return weight, positives, expected


def _warn_of_values(method: str, sketch: Sketch) -> None:
    weight, positives = sketch.context_sums.T
    if not sketch.contexts.names or len(weight) > _MOST_VALUES_TO_NAME:
        return  # a long tail has such values by nature
    one_sided = np.flatnonzero((weight > 0.0) & ((positives <= 0.0) | (positives >= weight)))
    if len(one_sided):
        kind = "positives" if positives[one_sided[0]] <= 0.0 else "negatives"
        name = sketch.contexts.labels()[one_sided[0]]
        more = f" (and {len(one_sided) - 1} more of one class only)" if len(one_sided) > 1 else ""
        warn(f"{method}: {name} has no {kind}{more}; its curve stays near the common one")
