"""Apply a model to a Spark table: as a Spark SQL expression, or through Arrow with the compiled loop."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType
from mcnet.calibrators.base import Calibrator
from mcnet.errors import InputError, NotSupportedError
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, ContextMap, Exported, Pieces
from mcnet.export.sql import sigmoid_expression
from mcnet.model.model import CalibrationModel, calibrated_batch, packed_model, unpacked_model
from mcnet.model.model_file import as_model
from mcnet.rows.fields import derivation, source_column
from mcnet.rows.sql_dialects import dialect_named
from mcnet.spark.sketching import column_named, number_column, require_columns, table_of_arrays, unused_name

# The pieces of curves as arrays: a logarithm proposes the piece of a score, comparisons decide.

_RESOLUTIONS = (64, 512)
"""Cells per unit of logit that are tried, until few pieces share a cell."""

_MOST_STEPS = 12
"""A score is compared with the ends of this many pieces at most."""

_MOST_CELLS = 2_000_000
"""The longest array that is sent to executors."""

_MARGIN = 1e-3
"""The part of a cell by which an engine's logarithm may be wrong, and much more."""


@dataclass(frozen=True)
class PieceArrays:
    """Where to begin the search for a score's piece, by grid and cell of the score."""

    pieces: Pieces
    resolution: int
    first: IntArray
    """By grid and cell, the first piece that the scores of the cell can be in."""
    steps: int
    """How many pieces further a score's own piece may be."""

    @staticmethod
    def of(pieces: Pieces) -> "PieceArrays | None":
        """Return the arrays, or None where they would be too long, or too many pieces share a cell."""
        for resolution in _RESOLUTIONS:
            result = _first_pieces(pieces, resolution)
            if result is not None and result[1] <= _MOST_STEPS:
                return PieceArrays(pieces, resolution, *result)
        return None

    def search(self, rows: DataFrame, x: str, curve: str, column: str) -> tuple[DataFrame, Column]:
        """Return rows with the piece of the score `x`, and the probability that it gives."""
        pieces, grids = self.pieces, self.pieces.grid_of
        shift = pieces.curve_begin - pieces.grid_begin[grids]
        cells = len(self.first) // pieces.grids
        arrays: dict[str, FloatArray | IntArray] = {
            "first": self.first,
            "begin": grids * cells,
            "shift": shift,
            "starts": pieces.starts,
            "stops": pieces.stops,
            "values": pieces.values,
            "slopes": pieces.slopes,
            "ceilings": pieces.ceilings,
        }
        table = table_of_arrays(rows.sparkSession, arrays)

        def item(name: str, index: Column) -> Column:
            return table.select(name).scalar()[index]

        names = [
            unused_name(name, [*rows.columns, column]) for name in ("clipped", "piece_from", "piece", "piece_values")
        ]
        clipped, begun, piece, values = map(F.col, names)
        logit = F.ln(clipped / (1.0 - clipped))
        cell = (logit * float(self.resolution) + float(_lowest_cell(self.resolution))).cast("int")
        chosen = F.when(clipped < item("stops", begun), begun)
        for step in range(1, self.steps):
            chosen = chosen.when(clipped < item("stops", begun + step), begun + step)
        line = item("slopes", values) * (clipped - item("starts", piece)) + item("values", values)
        rows = (
            rows.withColumn(names[0], _clipped(x))
            .withColumn(names[1], item("first", item("begin", column_named(curve)) + cell))
            .withColumn(names[2], chosen.otherwise(begun + self.steps) if self.steps else begun)
            .withColumn(names[3], piece + item("shift", column_named(curve)))
        )
        return rows, F.least(line, item("ceilings", values))


def _lowest_cell(resolution: int) -> int:
    """Return what makes the number of the lowest score's cell a little more than 0."""
    return math.ceil(math.log(HIGHEST_SCORE / LOWEST_SCORE) * resolution) + 1


def _first_pieces(pieces: Pieces, resolution: int) -> tuple[IntArray, int] | None:
    """Return the first piece of each grid and cell, and how many more share the cell at most."""
    lowest = _lowest_cell(resolution)
    cells = np.arange(2.0 * lowest + 1.0) - lowest
    if pieces.grids * len(cells) > _MOST_CELLS:
        return None

    def piece_at(starts: FloatArray, numbers: FloatArray) -> IntArray:
        scores = np.clip(1.0 / (1.0 + np.exp(-numbers / resolution)), LOWEST_SCORE, HIGHEST_SCORE)
        return np.maximum(starts.searchsorted(scores, "right") - 1, 0)

    first, steps = [], 0
    for grid in range(pieces.grids):
        starts = pieces.starts[pieces.of_grid(grid)]
        low, high = piece_at(starts, cells - _MARGIN), piece_at(starts, cells + (1.0 + _MARGIN))
        first.append(low + pieces.grid_begin[grid])
        steps = max(steps, int((high - low).max()))
    return np.concatenate(first), steps


# A model as Spark SQL: joins find the curve of a row, arrays the piece of its score.

_TEXTS = ("string", "boolean", "byte", "short", "integer", "long", "date")
"""Types whose values Spark writes as mcnet does."""


def is_good_as_expression(df: DataFrame, model: CalibrationModel) -> bool:
    """Tell whether Spark SQL gives the bits of `predict` for these rows, in less time than Python takes."""
    return (
        not model.sums_up  # whose curves are made for the export, near those of predict
        and not _types_written_differently(df, model)
        and not df.isStreaming  # where tables of one row cannot be looked up
        and len({name.lower() for name in df.columns}) == len(df.columns)
        and PieceArrays.of(Pieces.of(model.curves)) is not None
    )


def _types_written_differently(df: DataFrame, model: CalibrationModel) -> list[tuple[str, str]]:
    """Return the fields whose values Spark writes in other texts than mcnet, with their types."""
    types = {name: df.schema[source_column(name)].dataType.typeName() for name in model.needed_fields}
    return [(name, kind) for name, kind in types.items() if kind not in _TEXTS or derivation(name) is not None]


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
    rows, made = _joined(rows, pieces, x, curve, column) if arrays is None else arrays.search(rows, x, curve, column)
    probability = F.when(column_named(x).isNotNull(), made).alias(column)
    names = [column if name.lower() == column.lower() else name for name in df.columns]
    names = names if column in names else [*names, column]
    return rows.select(*(probability if name == column else column_named(name) for name in names))


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
    for index, (name, digits) in enumerate(zip(known.names, known.digits, strict=True)):
        value, digit = unused_name(f"value_{index}", taken), unused_name(f"digit_{index}", taken)
        listed = {string: number for string, number in digits.items() if string is not None}
        table = pa.table({value: pa.array(list(listed), pa.string()), digit: pa.array(listed.values(), pa.int64())})
        same = F.col(value) == column_named(name).cast("string")
        rows = rows.join(F.broadcast(spark.createDataFrame(table)), same, "left").drop(value)
        missing = F.lit(digits.get(None, 0))
        chosen = F.when(column_named(name).isNull(), missing).otherwise(F.coalesce(F.col(digit), F.lit(0)))
        parts.append(chosen * known.strides[index])
    total = F.lit(0).cast("long")
    for part in parts:
        total = total + part
    rows = rows.withColumn(key, total)
    contexts = pa.table({key: pa.array(known.curves, pa.int64()), curve: pa.array(known.curves.values(), pa.int64())})
    rows = rows.join(F.broadcast(spark.createDataFrame(contexts)), key, "left")
    return rows.select(*map(column_named, columns), F.coalesce(F.col(curve), F.lit(0)).cast("int").alias(curve))


def _joined(rows: DataFrame, pieces: Pieces, x: str, curve: str, column: str) -> tuple[DataFrame, Column]:
    """Find the piece of each score among those of its curve by a join: slow, and right for any number of pieces."""
    score, numbers = _clipped(x), pieces.columns()
    names = {name: unused_name(f"piece_{name}", [*rows.columns, column]) for name in numbers}
    piece = {name: F.col(of_piece) for name, of_piece in names.items()}
    table = pa.table(numbers).rename_columns(names)
    inside = (piece["curve"] == F.col(curve)) & (score >= piece["low"]) & (score < piece["high"])
    rows = rows.join(F.broadcast(rows.sparkSession.createDataFrame(table)), inside, "left")
    return rows, F.least(piece["slope"] * (score - piece["low"]) + piece["value"], piece["ceiling"])


def _clipped(x: str) -> Column:
    return F.least(F.greatest(column_named(x), F.lit(LOWEST_SCORE)), F.lit(HIGHEST_SCORE))


# Apply a model to a Spark table: as a Spark SQL expression, or through Arrow with the compiled loop.

_PARTS = ("served", "low", "high")
"""The parts of what `calibrated_batch` returns for an interval."""


def apply(
    df: DataFrame,
    model: CalibrationModel | Calibrator | str | PathLike[str],
    *,
    score: str | None = None,
    column: str = "calibrated",
    replace: bool = False,
    score_type: ScoreType | None = None,
    interval: float | None = None,
    sql: bool | None = None,
) -> DataFrame:
    """Return a Spark table with one more column, the calibrated probability of each row; or three, with its interval.

    The probabilities are those of `predict`, to the last bit. A missing score gives a missing probability; a score
    outside [0, 1] ends the job with a message.

    Parameters
    ----------
    df : the rows; the fields of the model are columns of it.
    model : a model, a fitted calibrator, or the path of a saved model.
    score : the column of scores; by default the one that the model was fitted on. Of a vector of Spark ML, such as
        `probability`, the entry of class 1 is taken.
    column : the name of the new column; one that exists is refused unless `replace` is set.
    score_type : "probability" or "logit"; by default what the model was fitted on.
    interval : the level of a credible interval, such as 0.9: its bounds are two more columns, named like the first one
        with `_low` and `_high` added.
    sql : True writes the model as a Spark SQL expression, so that executors run no Python and need no mcnet; logits
        then go through Spark's exponential, which may differ from NumPy's in the last digit, and combinations of
        several fields that have no curve of their own are within 1e-4 of `predict`. False sends the rows
        through Arrow to the compiled loop in the Python of the executors, which takes longer. By default an expression
        wherever it gives the bits of `predict`: for probabilities, without an interval, with fields of strings, whole
        numbers, booleans or days, in a table that is no stream, and a model that is not too large for it.

    Returns
    -------
    The table with the columns added; like any table of Spark it is computed when it is used.
    """
    chosen = as_model(model, "applied")
    score = score or chosen.provenance.get("columns", {}).get("score", "score")
    columns = [source_column(name) for name in chosen.needed_fields]
    require_columns(df, (score, *columns))
    added = [column] if interval is None else [column, f"{column}_low", f"{column}_high"]
    for new in added:
        if new in (score, *columns):
            raise InputError(f"the new column cannot be {new!r}: the model reads that one")
        # Spark takes names of other case for the same.
        known = [name for name in df.columns if name.lower() == new.lower()]
        if known and not replace:
            problem = f"the Spark table has a column {known[0]!r} already"
            raise InputError(f"{problem}; name another, drop it, or replace it with apply(…, replace=True)")
    takes = score_type or chosen.score_type
    number = number_column(df, score).cast("double")
    if sql is None:
        sql = interval is None and takes == "probability" and is_good_as_expression(df, chosen)
    if sql:
        if interval is not None:
            raise NotSupportedError("an interval cannot be written as SQL; leave interval or sql out")
        return with_calibrated(df, chosen, number, takes, column)
    if interval is not None:
        chosen.interval([], None, interval)  # refused now, and not in the middle of a job
    fields = [column_named(name) for name in columns]
    made = _arrow_function(chosen, takes, interval)(number, *fields)
    if interval is None:
        return df.withColumn(column, made)
    together = unused_name("interval", [*df.columns, *added])
    whole = df.withColumn(together, made)
    for part, name in zip(_PARTS, added, strict=True):
        whole = whole.withColumn(name, F.col(together)[part])
    return whole.drop(together)


def _arrow_function(model: CalibrationModel, score_type: ScoreType, interval: float | None) -> Callable[..., Column]:
    """Return a function of columns that executors compute in Python, batch by batch.

    The model travels inside the function, once per job and executor: Spark itself broadcasts functions above 1 MB.
    """
    packed = packed_model(model)
    digest, names = sha256(packed).digest(), model.needed_fields

    def calibrated(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        served = unpacked_model(digest, packed)
        for scores, *fields in batches:
            yield calibrated_batch(served, scores, dict(zip(names, fields, strict=True)), score_type, interval)

    def calibrated_alone(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from calibrated((scores,) for scores in batches)

    double = DoubleType()
    kind = double if interval is None else StructType([StructField(part, double) for part in _PARTS])
    function: Callable[..., Column] = F.arrow_udf(calibrated if names else calibrated_alone, kind)
    return function
