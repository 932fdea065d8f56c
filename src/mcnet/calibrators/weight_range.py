"""Scale weights so that sums of products neither overflow nor vanish."""

import numpy as np

from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch

__all__ = ["MOST_WEIGHT", "in_weight_range"]

MOST_WEIGHT = 1e12
"""Sketches of a larger total weight are scaled down to it for the fit."""
LEAST_WEIGHT = 1e-6
"""Sketches of a smaller total weight are scaled up to it for the fit."""
LARGEST_FACTOR = 1e300
"""The most that weights are multiplied by: the factor itself must be a finite number."""


def in_weight_range(sketch: Sketch) -> Sketch:
    """Return the sketch with a total weight that sums of products can be computed with.

    A weight counts as that many rows. More rows than MOST_WEIGHT make no fit more certain, fewer than LEAST_WEIGHT none
    less so.
    """
    with np.errstate(over="ignore"):
        total = sketch.total_weight
    if not np.isfinite(sketch.cells.sums).all() or not np.isfinite(total):
        raise InputError("the weights add up to more than a float can represent; divide them all by one number")
    if LEAST_WEIGHT <= total <= MOST_WEIGHT:
        return sketch
    return sketch * min(float(np.clip(total, LEAST_WEIGHT, MOST_WEIGHT)) / total, LARGEST_FACTOR)
