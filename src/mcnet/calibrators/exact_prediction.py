"""Probabilities of the fitted function itself, not of its compiled curve."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mcnet._shared.math import logit
from mcnet._shared.typing import FloatArray, IntArray, ScoreType
from mcnet.data.columns import check_lengths, scores_column
from mcnet.data.fields import field_columns
from mcnet.errors import InputError, NotSupportedError
from mcnet.model.model import CalibrationModel

__all__ = ["predict_exactly"]


def predict_exactly(
    model: CalibrationModel,
    function: Callable[[FloatArray, IntArray], FloatArray],
    scores: Any,
    field: Any,
    codes: Any,
    score_type: ScoreType | None,
) -> FloatArray:
    """Return `function(logits, field codes)` of the rows; the codes are -1 where a value is unseen."""
    if codes is not None:
        raise InputError("codes name curves; with exact=True give the field itself")
    logits = logit(scores_column(scores, score_type=score_type or model.score_type))
    return function(logits, _field_codes(model, field, len(logits)))


def _field_codes(model: CalibrationModel, field: Any, rows: int) -> IntArray:
    """Return the codes `[rows, fields]` of each row's field values, -1 where a value is unseen."""
    contexts = model.contexts
    if model.balanced_by:
        field = None  # it weighed in the balance term and changes no curve
    if field is None and contexts.names:
        raise InputError(f"this {model.method} model needs the field {', '.join(contexts.names)}; pass field=")
    if field is None:
        return np.zeros((rows, 0), dtype=np.int64)
    if not contexts.names:
        raise NotSupportedError(f"this {model.method} model was fitted without a field; call it without field=")
    codes: IntArray = contexts.field_codes(field_columns(field)).astype(np.int64)
    check_lengths(score=range(rows), field=codes)
    return codes
