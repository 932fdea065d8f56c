"""Sketches made by engines are equal where their cells and counts are, and mean scores to eleven digits."""

import numpy as np
import pytest

from mcnet.sketch.sketch import Sketch


def alike(one, other):
    """Tell whether two sketches say the same."""
    mine, its = one.cells, other.cells
    same = (one.resolution, one.folds, one.contexts) == (other.resolution, other.folds, other.contexts)
    return (
        same
        and len(mine) == len(its)
        and all(np.array_equal(*columns) for columns in zip((mine.context, mine.key, mine.fold), (its.context, its.key, its.fold)))
        and np.allclose(np.delete(mine.sums, 2, axis=1), np.delete(its.sums, 2, axis=1), rtol=1e-13)
        and np.allclose(one.score, other.score, rtol=1e-9)
    )


@pytest.fixture(autouse=True)
def engines_round(monkeypatch):
    monkeypatch.setattr(Sketch, "__eq__", alike)
