"""Sketch rows held in memory, a chunk at a time."""

from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.data.columns import as_array, as_floats, check_lengths, labels_column, scores_column, weights_column
from mcnet.data.fields import field_columns
from mcnet.data.negative_sampling import restore_negatives
from mcnet.errors import InputError
from mcnet.sketch.accumulator import Accumulator
from mcnet.sketch.folds import check_folds, deal_rows, folds_column
from mcnet.sketch.grid import Resolution, make_grid
from mcnet.sketch.sketch import Sketch

__all__ = ["CHUNK", "sketch_arrays"]

CHUNK = 1 << 18
"""Rows validated and added at a time: the temporary columns stay in the cache."""


def sketch_arrays(
    scores: Any,
    labels: Any,
    field: Any,
    weight: Any,
    folds: Any,
    resolution: Resolution,
    score_type: ScoreType,
    negatives_kept: float,
) -> Sketch:
    """Sketch whole columns; see Sketch.from_rows for the parameters."""
    score, label = as_array(scores, "score"), as_array(labels, "label")
    weights = None if weight is None else as_array(weight, "weight")
    fields = field_columns(field)
    dealt = None if isinstance(folds, int | np.integer) else folds_column(folds)
    check_lengths(score=score, label=label, weight=weights, folds=dealt, **{f"field {c.name}": c for c in fields})
    if len(score) == 0:
        raise InputError("score is empty; at least one row is needed")
    number = check_folds(folds) if dealt is None else int(dealt.max()) + 1
    grid = make_grid(resolution)
    accumulator = Accumulator(grid, number)
    # The usual rows are looked at while they are added; what is wrong with them is then found out.
    plain = weights is None and negatives_kept == 1.0 and score_type == "probability"
    for start in range(0, len(score), CHUNK):
        part = slice(start, min(start + CHUNK, len(score)))
        w: FloatArray | None = None
        if plain:
            y = as_floats(label[part], "label", start)
            s = as_floats(score[part], "score", start)
        else:
            y = labels_column(label[part], first_row=start)
            w = None if weights is None else weights_column(weights[part], first_row=start)
            y, w = restore_negatives(y, w, negatives_kept)
            s = scores_column(score[part], score_type=score_type, first_row=start, clip=False)
        fold = None if dealt is None else dealt[part]
        if dealt is None and number > 1:
            fold = deal_rows(start, len(y), number)
        if not accumulator.add(s, y, w, [column[part] for column in fields], fold):
            labels_column(y, first_row=start)
            scores_column(s, first_row=start)
    if accumulator.rows == 0:
        raise InputError("every row has weight 0; at least one row with a weight above 0 is needed")
    contexts, cells = accumulator.finish()
    columns = {"score_type": score_type, "negatives_kept": float(negatives_kept)}
    return Sketch(contexts, cells, grid.resolution, number, accumulator.rows, columns)
