"""The field codes of rows whose probability is asked of the fitted function itself, not of its compiled curve."""

from typing import Any

import numpy as np

from mcnet._shared.typing import IntArray
from mcnet.data.columns import check_lengths
from mcnet.data.fields import field_columns
from mcnet.errors import InputError, NotSupportedError
from mcnet.model.model import CalibrationModel

__all__ = ["exact_codes"]


def exact_codes(model: CalibrationModel, field: Any, rows: int) -> IntArray:
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
