"""Whether a new model can be served: its file, its fields and scores, and its probabilities on rows of the journal."""

import tempfile
from pathlib import Path

import numpy as np

from mcnet.errors import McnetError
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.model.file import load, save_model
from mcnet.model.model import CalibrationModel
from mcnet.sketch.sketch import Sketch

__all__ = ["invalid"]


def invalid(candidate: CalibrationModel, rows: Sketch, current: CalibrationModel | None) -> str:
    """Return what is wrong with a candidate, in a sentence; nothing if it can be served.

    It must come back from its file as it was (checksum, schema, order of scores), take the same scores and fields as
    the current model and the rows, and give probabilities inside (0, 1) that rise with the score on the rows.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.json"
            save_model(candidate, path)
            served = load(path)
    except (McnetError, ValueError) as error:
        return f"the new model is not valid: {error}"
    for whose, fields in (
        ("the current model", None if current is None else current.fields),
        ("the rows", rows.contexts.names),
    ):
        lacking = [name for name in fields or () if name not in served.fields]
        if lacking:
            return f"the new model lacks the field {lacking[0]!r} of {whose}"
    more = [] if current is None else [name for name in served.fields if name not in current.fields]
    if more:
        return f"the new model needs the field {more[0]!r}, which clients of the current one do not send"
    if current is not None and current.score_type != served.score_type:
        return f"the new model takes {served.score_type}s as scores, the current one {current.score_type}s"
    try:
        probability = predict_cells(served, rows)
    except McnetError as error:
        return f"the new model cannot predict the rows of the journal: {error}"
    if not (np.isfinite(probability).all() and (probability > 0.0).all() and (probability < 1.0).all()):
        return "the new model gives probabilities that are not inside (0, 1)"
    order = np.lexsort((rows.score, rows.context))
    falls = (np.diff(probability[order]) < 0.0) & (np.diff(rows.context[order]) == 0)
    return f"the new model gives a higher score a lower probability, {int(falls.sum())} times" if falls.any() else ""
