"""What two sketches of the same rows have in common, wherever they were made."""

import numpy as np


def alike(one, other):
    """Tell whether two sketches have the same cells: an engine may round the mean score of one another way."""
    mine, its = one.cells, other.cells
    same = (one.resolution, one.folds, one.contexts) == (other.resolution, other.folds, other.contexts)
    return (
        same
        and len(mine) == len(its)
        and bool(
            np.array_equal(mine.context, its.context)
            and np.array_equal(mine.key, its.key)
            and np.array_equal(mine.fold, its.fold)
            and np.allclose(np.delete(mine.sums, 2, axis=1), np.delete(its.sums, 2, axis=1), rtol=1e-13)
            and np.allclose(one.score, other.score, rtol=1e-9)
        )
    )
