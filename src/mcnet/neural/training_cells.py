"""The cells of a sketch as the networks take them."""

import numpy as np

from mcnet.networks.training_points import TrainingCells
from mcnet.sketch.sketch import Sketch

__all__ = ["training_cells"]


def training_cells(sketch: Sketch, *, field_aware: bool = True) -> TrainingCells:
    """Return the cells of a sketch; with field_aware=False, its contexts are groups of rows that share one function."""
    contexts, cells = sketch.contexts, (sketch.logit, sketch.weight, sketch.positives)
    if not contexts.names:
        return TrainingCells.of(*cells)
    context = sketch.context.astype(np.int64)
    if not field_aware:
        return TrainingCells.of(*cells, context, np.empty((len(contexts), 0), dtype=np.int64), ())
    sizes = tuple(len(known) for known in contexts.values)
    return TrainingCells.of(*cells, context, contexts.table.astype(np.int64), sizes)
