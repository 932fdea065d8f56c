"""Sketch a Spark table: the query of `mcnet.sketch_query`, run where the rows are, in Spark SQL expressions alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from mcnet._shared.typing import FloatArray, ScoreType
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.query import describe_rows, grid_arrays, query_text
from mcnet.sketch.query_cells import EdgeList
from mcnet.sketch.query_result import ABOUT, MARKS
from mcnet.sketch.sketch import Sketch
from mcnet.spark.tables import names_of, number_column, require_columns
from mcnet.sql.dialects import dialect_named

__all__ = ["sketch"]


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
) -> Sketch:
    """Sketch a Spark table in one pass; only the cells of the sketch come to the driver.

    The sketch is that of `mcnet.scan` on the same rows, bit for bit, whatever the partitions, their order, and tasks
    that run twice, as long as scores are probabilities and weights whole numbers. Executors run no Python.

    Parameters
    ----------
    df : the rows, a table of Spark or of Spark Connect.
    score, label, weight : names of columns. Of a score that is a vector of Spark ML, such as `probability`, the entry
        of class 1 is taken.
    field : the name of a field column, or a list of names.
    folds : into how many folds to split the rows, or the name of a column of fold numbers. Rows in Spark have no order,
        so a number splits the rows behind each cell at random, the same way every time.
    resolution : cells per unit of logit, or "exact" to keep every distinct score.
    score_type : "probability" or "logit". Logits go through Spark's exponential: a score within its rounding of an edge
        of the grid may fall into the neighbouring cell.
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    drop_missing : leave out rows whose score, label or weight is missing instead of refusing them; the sketch counts
        them in `dropped_rows`.

    Returns
    -------
    The sketch of the rows.
    """
    fields = names_of(field)
    given = [name for name in (weight, folds) if isinstance(name, str)]
    require_columns(df, (score, label, *fields, *given))
    about = describe_rows(
        score=score,
        label=label,
        field=fields,
        weight=weight,
        folds=folds,
        resolution=resolution,
        score_type=score_type,
        negatives_kept=negatives_kept,
    )
    rows = df.withColumns({name: number_column(df, name) for name in (score, label, *given)})
    arrays = grid_arrays(about.resolution)
    with _view(rows) as view, _view(_edge_table(df, arrays)) as edges:
        known = EdgeList(edges, len(arrays["offsets"])) if arrays else None
        query = query_text(about, view, dialect_named("spark"), folds=folds, edge_list=known)
        # What the query says of itself is the same in every row, and Arrow has the types: neither need travel.
        cells = df.sparkSession.sql(query).drop(ABOUT, MARKS).toArrow()
    description = pa.DictionaryArray.from_arrays(pa.nulls(len(cells), pa.int8()).fill_null(0), [about.text()])
    return Sketch.from_table(cells.append_column(ABOUT, description), drop_missing=drop_missing)


def _edge_table(df: DataFrame, arrays: Mapping[str, FloatArray]) -> DataFrame:
    """Return a table of one row with the arrays of a grid: Spark need not work them out."""
    # Spark reads arrays faster when it knows that nothing in them is missing.
    kind = pa.list_(pa.field("item", pa.float64(), nullable=False))
    table = pa.table({name: pa.array([array], kind) for name, array in arrays.items()} or {"edges": [None]})
    return df.sparkSession.createDataFrame(table)


@contextmanager
def _view(df: DataFrame) -> Iterator[str]:
    """Give a table a name of its own for a query."""
    name = f"mcnet_rows_{uuid4().hex}"
    df.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        df.sparkSession.catalog.dropTempView(name)
