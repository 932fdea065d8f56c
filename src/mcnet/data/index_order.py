"""Columns of pandas whose indexes tell that they are not in the same order."""

from collections.abc import Mapping
from typing import Any

from mcnet._shared.user_warnings import warn

__all__ = ["warn_of_other_order"]


def warn_of_other_order(field: Any = None, **columns: Any) -> None:
    """Warn of columns of pandas that have the index of the first one in another order: rows are taken by position.

    Parameters
    ----------
    field : a column, a mapping of names to columns, or a table.
    columns : other columns by name.
    """
    fields = field if isinstance(field, Mapping) else {"field": field}
    indexed = {name: column.index for name, column in {**columns, **fields}.items() if _is_pandas(column)}
    if len(indexed) < 2:
        return
    (first, index), *others = indexed.items()
    for name, other in others:
        if other is index or index.equals(other) or len(index) != len(other) or not index.is_unique:
            continue
        if other.isin(index).all() and other.is_unique:
            warn(
                f"{first} and {name} have the same pandas index in another order, and rows are taken by position; "
                f"if they are to go together by index, pass {name}.reindex({first}.index)"
            )
            return


def _is_pandas(column: Any) -> bool:
    return type(column).__module__.partition(".")[0] == "pandas" and hasattr(column, "index")
