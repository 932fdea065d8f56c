"""Equal-mass bins over the cells of a sketch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.math import sums_by
from mcnet._shared.typing import FloatArray
from mcnet.sketch.sketch import Sketch

__all__ = ["bin_of", "equal_mass_cuts", "equal_mass_edges"]


def equal_mass_cuts(places: NDArray[Any], weight: FloatArray, bins: int) -> NDArray[np.intp]:
    """Return after which of the distinct values to cut, for at most `bins` parts of (nearly) equal weight, none empty.

    `places` has the number of each entry's value, from 0, all of which occur.

    >>> equal_mass_cuts(np.array([0, 1, 2, 3]), np.ones(4), 2)
    array([1])
    """
    mass = np.cumsum(sums_by(places, weight, int(places.max()) + 1))
    wanted = mass[-1] * np.arange(1, bins) / bins
    # A tiny slack: the cut belongs after the value whose mass reaches the target, rounding or not.
    last = np.unique(np.searchsorted(mass, wanted * (1.0 - 1e-12)))
    return last[last < len(mass) - 1]


def equal_mass_edges(sketch: Sketch, bins: int) -> FloatArray:
    """Return the interior edges that cut the rows into `bins` parts of (nearly) equal weight.

    Rows of one cell are never parted, so there may be fewer bins than asked; no bin is empty. An edge lies midway
    between the cells it parts.
    """
    keys, inverse = np.unique(sketch.cells.key, return_inverse=True)
    last = equal_mass_cuts(inverse, sketch.weight, bins)
    below, above = sketch.grid.upper(keys[last]), sketch.grid.lower(keys[last + 1])
    middle = 0.5 * (below + above)
    # Between neighbouring floats the middle may round to the lower one, which belongs left of the edge.
    return np.where(middle > below, middle, above)


def bin_of(scores: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the bin of each score: bins are half-open [edge, next edge)."""
    return np.searchsorted(edges, scores, side="right")
