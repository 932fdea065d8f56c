"""Columns of the X that scikit-learn passes around: tables, arrays and sparse matrices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from mcnet.errors import InputError

__all__ = ["feature_column", "is_table_of_features", "without_columns"]


def is_table_of_features(X: Any) -> bool:
    """Tell whether X is a table with named columns, not an array."""
    return hasattr(X, "columns") and hasattr(X, "drop")


def feature_column(X: Any, name: Any) -> Any:
    """Return one column of X, by its name or, in an array, by its number."""
    if is_table_of_features(X):
        if name not in list(X.columns):
            raise InputError(f"X has no column {name!r} to be a field; it has {', '.join(map(str, X.columns))}")
        return X[name]
    if isinstance(name, bool) or not isinstance(name, int | np.integer):
        raise InputError(f"field is {name!r}, but X is not a table: give the number of the column")
    if not -X.shape[1] <= name < X.shape[1]:
        raise InputError(f"X has no column {name} to be a field; it has {X.shape[1]} columns")
    return _sparse_columns(X, [name]).toarray().ravel() if issparse(X) else X[:, name]


def without_columns(X: Any, names: list[Any]) -> Any:
    """Return X without some of its columns."""
    if is_table_of_features(X):
        is_polars = type(X).__module__.partition(".")[0] == "polars"
        return X.drop(names) if is_polars else X.drop(columns=names)
    kept = np.setdiff1d(np.arange(X.shape[1]), np.array(names) % X.shape[1])
    if issparse(X):
        return _sparse_columns(X, kept).tocsr()
    rest = X[:, kept]
    return rest if rest.dtype != object else _numbers(rest)


def _sparse_columns(X: Any, columns: Any) -> Any:
    return X.tocsc()[:, columns]


def _numbers(rest: NDArray[Any]) -> NDArray[Any]:
    """Return the remaining columns of a mixed array as numbers, if they are numbers."""
    try:
        return rest.astype(np.float64)
    except (TypeError, ValueError):
        return rest
