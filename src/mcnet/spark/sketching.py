"""Sketch a Spark table: the query of `mcnet.sketch_query`, run where the rows are."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mcnet._shared.arrays import ScoreType
from mcnet.errors import InputError
from mcnet.rows.derived import DEFAULT_BINS, edges_of
from mcnet.rows.fields import Edges, number_fields, source_column
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution, RowSpec, field_names
from mcnet.rows.sql_dialects import dialect_named
from mcnet.sketch.query import query_spec, query_text, timestamp_columns
from mcnet.sketch.query_rows import ABOUT, MARKS, spec_text
from mcnet.sketch.sketch import Sketch

# What is asked of a Spark table before it is read: its columns, and numbers that a vector of Spark ML holds.


def require_columns(df: DataFrame, columns: Iterable[str]) -> None:
    """Refuse a table that lacks a column, or has two of one name."""
    if not all(hasattr(df, name) for name in ("sparkSession", "schema", "withColumn")):
        raise InputError(f"mcnet.spark was given {type(df).__module__}.{type(df).__name__}; give a Spark DataFrame")
    for column in columns:
        if not isinstance(column, str):
            raise InputError(f"mcnet.spark takes names of columns, not {type(column).__name__}")
        result = df.columns.count(column)
        if result != 1:
            has = f"it has {', '.join(df.columns)}" if result == 0 else "give each column its own name"
            raise InputError(f"the Spark table has {'no' if result == 0 else 'two'} column {column!r}; {has}")
        twins = [name for name in df.columns if name.lower() == column.lower() and name != column]
        if twins and df.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            raise InputError(f"Spark takes {column!r} and {twins[0]!r} for one column; give each its own name")


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


# Sketch a Spark table: the query of `mcnet.sketch_query`, run where the rows are, in Spark SQL expressions alone.


def sketch(
    df: DataFrame,
    *,
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    folds: int | str = 1,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    drop_missing: bool = False,
    value: str | None = None,
    value_per_positive: str | None = None,
    like: Any = None,
) -> Sketch:
    """Sketch a Spark table in one pass; only the cells of the sketch come to the driver.

    The sketch is that of `mcnet.scan` on the same rows, bit for bit, whatever the partitions, their order, and tasks
    that run twice, as long as scores are probabilities and weights whole numbers. Executors run no Python.

    Parameters
    ----------
    df : the rows, a table of Spark or of Spark Connect.
    score, label, weight : names of columns. Of a score that is a vector of Spark ML, such as `probability`, the entry
        of class 1 is taken.
    field : the name of a field column, or a list of names. Those derived from a column (`age:number`, `ts:hour`) are
        cut in Spark, timestamps in UTC.
    folds : into how many folds to split the rows, or the name of a column of fold numbers. Rows in Spark have no order,
        so a number splits the rows behind each cell at random, the same way every time.
    resolution : cells per unit of logit, or "exact" to keep every distinct score.
    score_type : "probability" or "logit". Logits go through Spark's exponential: a score within its rounding of an edge
        of the grid may fall into the neighbouring cell.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    drop_missing : leave out rows whose score, label or weight is missing instead of refusing them; the sketch counts
        them in `dropped_rows`.
    value, value_per_positive : names of columns; see `mcnet.Sketch.from_rows`.
    like : a sketch or a model: numbers that are fields are cut as there. Without it the edges are quantiles of the
        rows, as Spark's `approxQuantile` finds them; parts of one sketch need the same.

    Returns
    -------
    The sketch of the rows.
    """
    fields = field_names(field)
    given = [name for name in (weight, folds, value, value_per_positive) if isinstance(name, str)]
    sources = {name: source_column(name) for name in fields}
    require_columns(df, dict.fromkeys((score, label, *sources.values(), *given)))
    known = edges_of(like)
    numbers = number_fields(fields)
    edges = {name: known.get(name) or _quantiles(df, sources[name]) for name in numbers}
    spec = query_spec(
        RowSpec(
            score,
            label,
            fields,
            weight,
            folds,
            resolution,
            score_type,
            negatives_kept,
            value=value,
            value_per_positive=value_per_positive,
            edges=edges,
        )
    )
    zoned = [name for name in timestamp_columns(spec) if df.schema[name].dataType.typeName() == "timestamp"]
    rows = df.withColumns({name: number_column(df, name) for name in (score, label, *given)})
    with _view(rows) as view:
        query = query_text(spec, view, dialect_named("spark"), zoned=zoned)
        # What the query says of itself is the same in every row, and Arrow has the types: neither need travel.
        cells = df.sparkSession.sql(query).drop(ABOUT, MARKS).toArrow()
    description = pa.DictionaryArray.from_arrays(pa.nulls(len(cells), pa.int8()).fill_null(0), [spec_text(spec)])
    return Sketch.from_table(cells.append_column(ABOUT, description), drop_missing=drop_missing)


def _quantiles(df: DataFrame, column: str) -> Edges:
    """Return the edges of a number that is a field, chosen from the rows of a table."""
    number = number_column(df, column).cast("double")
    known = df.select(number.alias("x")).where(F.col("x").isNotNull() & ~F.isnan("x"))
    quantiles = known.approxQuantile("x", [k / DEFAULT_BINS for k in range(DEFAULT_BINS)], _QUANTILE_ERROR)
    return tuple(sorted(set(quantiles)))[1:]


_QUANTILE_ERROR = 0.002


@contextmanager
def _view(df: DataFrame) -> Iterator[str]:
    """Give a table a name of its own for a query."""
    name = f"mcnet_rows_{uuid4().hex}"
    df.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        df.sparkSession.catalog.dropTempView(name)
