"""Ids of rows: were the rows to calibrate on held back from the base predictor's training?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.data.columns import as_array
from mcnet.data.fields import FieldColumn, field_columns
from mcnet.errors import InputError

__all__ = ["refuse_overlap"]


def refuse_overlap(row_ids: Any, base_row_ids: Any) -> None:
    """Raise if a row is among those that the base predictor was trained on.

    >>> refuse_overlap([7, 8], [1, 2, 8])
    Traceback (most recent call last):
    ...
    mcnet.errors.InputError: the base predictor was trained on 1 of the 2 rows (first: row 1, id 8); ...
    """
    own, base = as_array(row_ids, "row_ids"), as_array(base_row_ids, "base_row_ids")
    if len(own) == 0 or len(base) == 0:
        return
    if own.dtype.kind in "iu" and base.dtype.kind in "iu":
        shared = np.isin(own, base)
    else:
        shared = _shared_texts(_texts("row_ids", own), _texts("base_row_ids", base))
    if shared.any():
        first = int(shared.argmax())
        raise InputError(
            f"the base predictor was trained on {int(shared.sum()):,} of the {len(own):,} rows "
            f"(first: row {first}, id {own[first]}); an auxiliary network needs rows that were held back from it"
        )


def _texts(name: str, ids: NDArray[Any]) -> FieldColumn:
    (column,) = field_columns({name: ids})
    if None in column.values:
        row = int((column.codes == column.values.index(None)).argmax())
        raise InputError(f"{name} is missing in row {row}; every row needs an id")
    return column


def _shared_texts(own: FieldColumn, base: FieldColumn) -> NDArray[np.bool_]:
    known = set(base.values)
    return np.array([value in known for value in own.values], dtype=bool)[own.codes]
