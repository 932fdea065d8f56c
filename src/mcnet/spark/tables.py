"""What is asked of a Spark table before it is read: its columns, and numbers that a vector of Spark ML holds."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mcnet.errors import InputError

__all__ = ["column_named", "names_of", "number_column", "require_columns", "require_frame", "unused_name"]


def require_frame(df: Any) -> None:
    """Refuse what is not a Spark table."""
    if not all(hasattr(df, name) for name in ("sparkSession", "schema", "withColumn")):
        raise InputError(f"mcnet.spark was given {type(df).__module__}.{type(df).__name__}; give a Spark DataFrame")


def require_columns(df: DataFrame, columns: Iterable[str]) -> None:
    """Refuse a table that lacks a column, or has two of one name."""
    require_frame(df)
    for column in columns:
        if not isinstance(column, str):
            raise InputError(f"mcnet.spark takes names of columns, not {type(column).__name__}")
        found = df.columns.count(column)
        if found != 1:
            has = f"it has {', '.join(df.columns)}" if found == 0 else "give each column its own name"
            raise InputError(f"the Spark table has {'no' if found == 0 else 'two'} column {column!r}; {has}")
        twins = [name for name in df.columns if name.lower() == column.lower() and name != column]
        if twins and df.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            raise InputError(f"Spark takes {column!r} and {twins[0]!r} for one column; give each its own name")


def names_of(field: str | Sequence[str] | None) -> list[str]:
    """Return the names of fields, given as one name, several, or None."""
    return [] if field is None else [field] if isinstance(field, str) else list(field)


def column_named(name: str) -> Column:
    """Return the column of exactly this name: in Spark a dot would ask for a part of a struct."""
    return F.col("`" + name.replace("`", "``") + "`")


def number_column(df: DataFrame, name: str) -> Column:
    """Return a column of numbers; of a vector of Spark ML (`probability`, `rawPrediction`) the entry of class 1.

    Of texts, one that is no number ends the job: outside ANSI mode Spark takes it for a missing value.
    """
    kind, column = df.schema[name].dataType.simpleString(), column_named(name)
    if kind == "vector":
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(column)[1]
    if kind.startswith("string"):
        message = F.concat(F.lit(f"{name} is not a number: '"), column, F.lit("'; convert the column first"))
        number = column.try_cast("double")
        return F.when(number.isNull() & column.isNotNull(), F.raise_error(message).cast("double")).otherwise(number)
    return column


def unused_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that no column has; Spark takes names of other case for the same."""
    known = {name.lower() for name in taken}
    while wanted.lower() in known:
        wanted += "_"
    return wanted
