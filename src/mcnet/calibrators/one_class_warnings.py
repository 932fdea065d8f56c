"""Warnings that name what the rows do not tell: field values, or ranges of scores, with one class only."""

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import IntArray
from mcnet._shared.user_warnings import warn
from mcnet.sketch.sketch import Sketch

__all__ = ["warn_of_gaps"]

_MOST_VALUES_TO_NAME = 100
_FEWEST_EXPECTED = 10.0
"""Positives (or negatives) that the scores must expect in a range without any, before a warning is given."""


def warn_of_gaps(method: str, sketch: Sketch) -> None:
    """Warn of field values and of low or high ranges of scores that have one class only."""
    _warn_of_values(method, sketch)
    keys, place = _numbered(sketch.cells.key)
    columns = (sketch.weight, sketch.positives, sketch.weight * sketch.score)
    weight, positives, expected = (np.bincount(place, column) for column in columns)
    score = expected / weight
    below = int(np.argmax(positives > 0.0))
    if expected[:below].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no positives below score {score[below]:.3g} ({weight[:below].sum():,.0f} rows)")
    above = len(keys) - int(np.argmax((weight - positives)[::-1] > 0.0))
    if (weight - expected)[above:].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no negatives above score {score[above - 1]:.3g} ({weight[above:].sum():,.0f} rows)")


def _numbered(key: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
    """Return the distinct keys in order, and the number of each cell's key among them."""
    lowest = int(key.min())
    width = int(key.max()) - lowest + 1
    if width > len(key):
        keys, place = np.unique(key, return_inverse=True)
        return keys, place
    there = np.bincount(key - lowest, minlength=width) > 0
    return np.flatnonzero(there) + lowest, (np.cumsum(there) - 1)[key - lowest]


def _warn_of_values(method: str, sketch: Sketch) -> None:
    number = len(sketch.contexts)
    if not sketch.contexts.names or number > _MOST_VALUES_TO_NAME:
        return  # a long tail has such values by nature
    context = sketch.context
    weight, positives = (np.bincount(context, column, number) for column in (sketch.weight, sketch.positives))
    one_sided = np.flatnonzero((weight > 0.0) & ((positives <= 0.0) | (positives >= weight)))
    if len(one_sided):
        kind = "positives" if positives[one_sided[0]] <= 0.0 else "negatives"
        name = sketch.contexts.labels()[one_sided[0]]
        more = f" (and {len(one_sided) - 1} more of one class only)" if len(one_sided) > 1 else ""
        warn(f"{method}: {name} has no {kind}{more}; its curve leans on the common one")
