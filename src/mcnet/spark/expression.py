"""A model as Spark SQL: joins find the curve of a row, arrays the piece of its score."""

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mcnet._shared.typing import ScoreType
from mcnet.errors import NotSupportedError
from mcnet.export.contents import Exported
from mcnet.export.context_map import ContextMap
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces
from mcnet.export.sql_case import sigmoid_expression
from mcnet.model.model import CalibrationModel
from mcnet.spark.piece_arrays import PieceArrays
from mcnet.spark.tables import column_named, unused_name
from mcnet.sql.dialects import dialect_named

__all__ = ["is_good_as_expression", "with_calibrated"]

_TEXTS = ("string", "boolean", "byte", "short", "integer", "long", "date")
"""Types whose values Spark writes as mcnet does."""

_PIECE = ("curve", "low", "high", "value", "slope", "ceiling")


def is_good_as_expression(df: DataFrame, model: CalibrationModel) -> bool:
    """Tell whether Spark SQL gives the bits of `predict` for these rows, in less time than Python takes."""
    return (
        not model.asks_family  # whose curves are made for the export, near those of predict
        and not _types_written_differently(df, model)
        and not df.isStreaming  # where tables of one row cannot be looked up
        and len({name.lower() for name in df.columns}) == len(df.columns)
        and PieceArrays.of(Pieces.of(model.curves)) is not None
    )


def _types_written_differently(df: DataFrame, model: CalibrationModel) -> list[tuple[str, str]]:
    """Return the fields whose values Spark writes in other texts than mcnet, with their types."""
    types = {name: df.schema[name].dataType.typeName() for name in model.fields}
    return [(name, kind) for name, kind in types.items() if kind not in _TEXTS]


def with_calibrated(
    df: DataFrame, model: CalibrationModel, number: Column, score_type: ScoreType, column: str
) -> DataFrame:
    """Return the table with the calibrated probability of each row, computed by expressions of Spark SQL.

    Parameters
    ----------
    df : the rows; the fields of the model are columns of it.
    model : the model.
    number : the score, a double.
    score_type : what the score is.
    column : the name of the new column.
    """
    for name, kind in _types_written_differently(df, model):
        raise NotSupportedError(
            f"the field {name!r} is of the type {kind}, which Spark and mcnet write as different texts; cast it to "
            "a string as the fit has it, or leave sql out"
        )
    exported, words = Exported.of(model), dialect_named("spark")
    pieces, known = Pieces.of(exported.curves), ContextMap.of(exported.contexts)
    x = unused_name("x", df.columns)
    quoted = words.column(x)
    rows = df.withColumn(x, number)
    if score_type == "logit":
        rows = rows.withColumn(x, F.expr(sigmoid_expression(quoted, words)))
    else:
        rows = rows.withColumn(x, _checked(column_named(x)))
    curve = unused_name("curve_number", [*df.columns, column, x])
    rows, arrays = _with_curve(rows, known, curve, column), PieceArrays.of(pieces)
    made = _joined(rows, pieces, x, curve, column) if arrays is None else arrays.applied(rows, x, curve, column)
    names = [column if name.lower() == column.lower() else name for name in df.columns]
    return made.select(*map(column_named, names if column in names else [*names, column]))


def _checked(score: Column) -> Column:
    """Return the score; one that `predict` refuses ends the job."""
    message = F.concat(F.lit("score has a value outside [0, 1]: "), score.cast("string"))
    return F.when((score >= 0.0) & (score <= 1.0), score).when(score.isNotNull(), F.raise_error(message).cast("double"))


def _with_curve(rows: DataFrame, known: ContextMap, curve: str, column: str) -> DataFrame:
    """Find the digit of each field value and the curve of the digits, by hash joins."""
    spark, columns = rows.sparkSession, rows.columns
    taken = [*columns, column, curve]
    key = unused_name("context_key", taken)
    parts = []
    for place, (name, digits) in enumerate(zip(known.names, known.digits, strict=True)):
        value, digit = unused_name(f"value_{place}", taken), unused_name(f"digit_{place}", taken)
        listed = {text: number for text, number in digits.items() if text is not None}
        table = pa.table({value: pa.array(list(listed), pa.string()), digit: pa.array(listed.values(), pa.int64())})
        same = F.col(value) == column_named(name).cast("string")
        rows = rows.join(F.broadcast(spark.createDataFrame(table)), same, "left").drop(value)
        missing = F.lit(digits.get(None, 0))
        chosen = F.when(column_named(name).isNull(), missing).otherwise(F.coalesce(F.col(digit), F.lit(0)))
        parts.append(chosen * known.strides[place])
    total = F.lit(0).cast("long")
    for part in parts:
        total = total + part
    rows = rows.withColumn(key, total)
    contexts = pa.table({key: pa.array(known.curves, pa.int64()), curve: pa.array(known.curves.values(), pa.int64())})
    rows = rows.join(F.broadcast(spark.createDataFrame(contexts)), key, "left")
    return rows.select(*map(column_named, columns), F.coalesce(F.col(curve), F.lit(0)).cast("int").alias(curve))


def _joined(rows: DataFrame, pieces: Pieces, x: str, curve: str, column: str) -> DataFrame:
    """Find the piece of each score among those of its curve by a join: slow, and right for any number of pieces."""
    columns, taken = rows.columns, [*rows.columns, column]
    score = F.least(F.greatest(column_named(x), F.lit(LOWEST_SCORE)), F.lit(HIGHEST_SCORE))
    names = {name: unused_name(f"piece_{name}", taken) for name in _PIECE}
    piece = {name: F.col(of_piece) for name, of_piece in names.items()}
    table = _pieces_table(pieces).rename_columns(names)
    inside = (piece["curve"] == F.col(curve)) & (score >= piece["low"]) & (score < piece["high"])
    rows = rows.join(F.broadcast(rows.sparkSession.createDataFrame(table)), inside, "left")
    line = piece["slope"] * (score - piece["low"]) + piece["value"]
    made = F.when(column_named(x).isNotNull(), F.least(line, piece["ceiling"]))
    return rows.select(*(column_named(name) for name in columns if name.lower() != column.lower()), made.alias(column))


def _pieces_table(pieces: Pieces) -> pa.Table:
    """Return one row per piece of every curve, with the columns of _PIECE."""
    grids = [pieces.of_grid(int(grid)) for grid in pieces.grid_of]
    parts = [pieces.of_curve(curve) for curve in range(pieces.curves)]
    return pa.table(
        {
            "curve": np.repeat(np.arange(pieces.curves), [part.stop - part.start for part in parts]),
            "low": np.concatenate([pieces.starts[grid] for grid in grids]),
            "high": np.concatenate([pieces.stops[grid] for grid in grids]),
            "value": pieces.values,
            "slope": pieces.slopes,
            "ceiling": pieces.ceilings,
        }
    )
