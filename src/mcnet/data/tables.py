"""Tables of Polars, pandas and Arrow: recognise them, without importing the libraries."""

from typing import Any

from mcnet.errors import InputError

__all__ = ["column_names", "is_lazy", "is_table", "refuse_lazy"]

_TABLES = ("DataFrame", "Table", "RecordBatch")


def is_table(rows: Any) -> bool:
    """Tell whether this is a table in memory: a DataFrame of Polars or pandas, a Table or RecordBatch of Arrow."""
    return type(rows).__module__.partition(".")[0] in ("polars", "pandas", "pyarrow") and any(
        base.__name__ in _TABLES for base in type(rows).__mro__
    )


def is_lazy(rows: Any) -> bool:
    """Tell whether this is a LazyFrame of Polars."""
    return type(rows).__module__.startswith("polars") and type(rows).__name__ == "LazyFrame"


def refuse_lazy(values: Any, name: str) -> None:
    """Refuse a LazyFrame or an expression of Polars where values are needed."""
    if is_lazy(values) or (type(values).__module__.startswith("polars") and type(values).__name__ == "Expr"):
        raise InputError(
            f"{name} is a {type(values).__name__} of Polars, which has no values yet; collect it first, or give a "
            "LazyFrame and names of columns to mcnet.scan"
        )


def column_names(table: Any) -> list[str]:
    """Return the names of the columns of a table."""
    if hasattr(table, "column_names"):  # Arrow
        return list(table.column_names)
    if hasattr(table, "schema") and hasattr(table.schema, "names") and not callable(table.schema.names):
        return list(table.schema.names)  # a RecordBatch of Arrow
    return [str(name) for name in table.columns]
