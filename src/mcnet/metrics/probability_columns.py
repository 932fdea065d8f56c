"""The columns every metric works on: probability, label (a fraction when rows are aggregated), weight."""

import numpy as np
import numpy.typing as npt

from mcnet._shared.typing import FloatArray
from mcnet.data.columns import without_mask
from mcnet.errors import InputError

__all__ = ["columns", "is_whole", "order_by_probability"]


def columns(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the three columns as float64, with weight 1 where none is given.

    A row of weight `w` and label `y` stands for `w·y` positive and `w·(1−y)` negative rows, everywhere in
    this package.

    >>> columns([0.1, 0.2], [0, 1])
    (array([0.1, 0.2]), array([0., 1.]), array([1., 1.]))
    """
    p = np.asarray(without_mask(probabilities), dtype=np.float64)
    y = np.asarray(without_mask(labels), dtype=np.float64)
    w = np.ones(p.shape) if weight is None else np.asarray(without_mask(weight), dtype=np.float64)
    for name, column in (("probabilities", p), ("labels", y), ("weight", w)):
        if column.ndim != 1:
            raise InputError(f"{name} has {column.ndim} dimensions; pass one value per row (a flat array)")
        if column.size != p.size:
            raise InputError(
                f"{name} has {column.size} rows but probabilities has {p.size}; pass columns of the same rows"
            )
        if not np.isfinite(column).all():
            row = int(np.argmin(np.isfinite(column)))
            raise InputError(f"{name} has a value missing, NaN or infinite in row {row}; leave such rows out")
    if p.size == 0:
        raise InputError("there are no rows to evaluate; pass at least one")
    if not w.any():
        raise InputError(f"the weights of all {p.size} rows are 0; at least one row must count")
    return p, y, w


def is_whole(column: FloatArray) -> bool:
    """Tell whether every value is 0 or 1; a look at a few of them settles the usual case."""
    return all(bool(((part == 0.0) | (part == 1.0)).all()) for part in (column[:100], column))


def order_by_probability(p: FloatArray) -> npt.NDArray[np.intp] | slice:
    """Return an index that sorts `p`; for a sorted column it is a slice, which costs nothing to apply."""
    if p.size < 2 or bool((p[1:] >= p[:-1]).all()):
        return slice(None)
    return np.argsort(p)
