"""Apply a model to a Spark table: through Arrow, with the compiled loop in the Python of the executors."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from os import PathLike

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from mcnet._shared.arrays import ScoreType
from mcnet.calibrators.base import Calibrator
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel, calibrated_batch, packed_model, unpacked_model
from mcnet.model.model_file import as_model
from mcnet.rows.fields import source_column
from mcnet.spark.sketching import column_named, number_column, require_columns, unused_name

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
) -> DataFrame:
    """Return a Spark table with one more column, the calibrated probability of each row; or three, with its interval.

    The probabilities are those of `predict`, to the last bit. A missing score gives a missing probability; a score
    outside [0, 1] ends the job with a message. Executors need mcnet; where they have none, run the query that
    `mcnet.export.export_model(model, "model.sql", dialect="spark")` writes.

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
