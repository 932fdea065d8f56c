"""A sketch per period of a Spark table, and Structured Streaming into a journal."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from os import PathLike
from typing import Any

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mcnet._shared.arrays import ScoreType
from mcnet._shared.messages import warn
from mcnet.errors import InputError
from mcnet.rows.fields import MISSING_LABEL, source_column
from mcnet.rows.periods import COUNTED_SECONDS, Every, cut_to_periods, duration_seconds, parse_every
from mcnet.rows.spec import DEFAULT_RESOLUTION, Resolution, field_names
from mcnet.sketch.query import NoUsableRowsError
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.views import sketches_by
from mcnet.spark.sketching import column_named, require_columns, sketch, unused_name
from mcnet.store.journal import Journal

# A sketch per period: timestamps of any kind are cut to periods in Spark, and written as text as everywhere else.

_DAY_SECONDS = 86_400
_CALENDAR = {"w": "week", "mo": "month", "y": "year"}
"""The units that are cut by the calendar, by their names in Spark."""

_TIMESTAMP = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$"
_AHEAD = r"([+-](?!00:?00)\d\d:?\d\d)$"
_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")


def sketches_per_period(
    df: DataFrame,
    *,
    time: str,
    every: str,
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    value: str | None = None,
    value_per_positive: str | None = None,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    drop_missing: bool = False,
    like: Any = None,
) -> dict[str, Sketch]:
    """Sketch a Spark table in one pass, with one sketch per period.

    The periods are those of `Journal.add_files` on the same rows; `journal.add_parts(parts, source=…)` adds them to a
    journal as a whole.

    Parameters
    ----------
    df : the rows.
    time : the column of timestamps (taken in UTC), days, texts such as 2026-11-16T13:05, or numbers that
        count.
    every : the length of a period, such as "1h" or "1d"; a plain number for a column that counts.
    score, label, field, weight, value, value_per_positive, resolution, score_type, negatives_kept, drop_missing, like :
        as in `mcnet.spark.sketch`.

    Returns
    -------
    The sketch of each period, in the order of the periods.
    """
    fields = field_names(field)
    require_columns(df, [time])
    if time in fields:
        raise InputError(f"the column {time!r} is used twice; leave it out of the fields")
    cut = cut_timestamps(df, time, every)
    # A column that a field is derived from stays as it is.
    period = unused_name("period", df.columns) if time in map(source_column, fields) else time
    whole = sketch(
        df.withColumn(period, cut),
        score=score,
        label=label,
        field=[*fields, period],
        weight=weight,
        value=value,
        value_per_positive=value_per_positive,
        resolution=resolution,
        score_type=score_type,
        negatives_kept=negatives_kept,
        drop_missing=drop_missing,
        like=like,
    )
    parts = sketches_by(whole.in_periods(period, every), period)
    if MISSING_LABEL in parts:
        raise InputError(f"the Spark table has rows without a timestamp in {time}; drop these rows, or give them one")
    return parts


def cut_timestamps(df: DataFrame, time: str, every: str) -> Column:
    """Return timestamps cut in Spark, never more coarsely than `cut_to_periods` cuts them.

    So a shuffle carries a few timestamps per period instead of all of them, and `cut_to_periods` alone decides what a
    period is.
    """
    step = parse_every(every)
    kind, timestamps = df.schema[time].dataType.typeName(), column_named(time)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        cut_to_periods(pl.Series(time, [datetime(2026, 1, 1)]), every)  # refuses a step without a unit
    if kind in _NUMBERS:
        return _cut_numbers(timestamps, kind, step, every)
    if kind == "date" and step.unit in _CALENDAR:
        return F.trunc(timestamps, _CALENDAR[step.unit])
    if kind == "timestamp":
        return _cut_micros(timestamps, step)
    if kind in ("string", "timestamp_ntz"):
        return _cut_texts(timestamps.cast("string"), step)
    return timestamps


def _cut_micros(timestamps: Column, step: Every) -> Column:
    """Cut timestamps by their microseconds since 1970, which no time zone of a session changes."""
    micros = F.unix_micros(timestamps)
    if step.unit in ("m", "h"):
        length = step.number * (60 if step.unit == "m" else 3600) * 1_000_000
        return F.timestamp_micros(micros - F.pmod(micros, F.lit(length)))
    length = _DAY_SECONDS * 1_000_000
    days = F.date_from_unix_date(((micros - F.pmod(micros, F.lit(length))) / length).cast("int"))
    return F.trunc(days, _CALENDAR[step.unit]) if step.unit in _CALENDAR else days


def _cut_texts(texts: Column, step: Every) -> Column:
    """Cut strings of timestamps: by what is written, or, with a time zone, so that the same UTC periods come of it."""
    if step.unit is None:
        return texts
    # Only a whole minute surely lies in one period of UTC, however far a zone is ahead of it.
    minute = F.concat(F.substring(texts, 1, 16), F.regexp_extract(texts, _AHEAD, 1))
    if step.unit == "m":
        cut = F.substring(texts, 1, 16)
    elif step.unit == "h":
        cut = F.concat(F.substring(texts, 1, 13), F.lit(":00"))
    else:
        cut = F.substring(texts, 1, 10)
    return F.when(~texts.rlike(_TIMESTAMP), texts).when(texts.rlike(_AHEAD), minute).otherwise(cut)


def _cut_numbers(timestamps: Column, kind: str, step: Every, every: str) -> Column:
    if kind in ("float", "double"):
        timestamps = F.when(~F.isnan(timestamps), timestamps)
    numbers = F.floor(timestamps).cast("long")
    if step.unit is None:
        return numbers - F.pmod(numbers, F.lit(step.number))
    length = min(int(duration_seconds(every)), _DAY_SECONDS) if step.unit in ("m", "h") else _DAY_SECONDS
    if _DAY_SECONDS % length:
        length = 60
    cut = numbers  # those that count nothing are kept, so that `cut_to_periods` can refuse them
    for factor in (1, 1000):
        first, last = (end * factor for end in COUNTED_SECONDS)
        # The first period has begun before its first second that counts.
        begins = F.greatest(numbers - F.pmod(numbers, F.lit(length * factor)), F.lit(first))
        cut = F.when(numbers.between(first, last), begins).otherwise(cut)
    return cut


# Structured Streaming into a journal: every micro-batch counts exactly once, also across restarts.


def journal_writer(
    journal: Journal | str | PathLike[str],
    *,
    stream: str,
    time: str,
    every: str,
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    value: str | None = None,
    value_per_positive: str | None = None,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    drop_missing: bool = False,
    allow: str | Collection[str] = (),
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that adds each micro-batch of a stream to a journal.

    A batch is one source of the journal, named by the stream and the number of the batch, and is added as a whole.
    After a restart from its checkpoint Spark gives the last batch again under the same number and with the same rows,
    and the journal, which has them already, stays as it is. Under the same number with other rows, as after the loss of
    the checkpoint, the batch is refused with a message: give the stream another name then.

    Parameters
    ----------
    journal : the journal of a head, as `Store.journal` returns it, or the address of a store: a file where the driver
        can write, or postgresql://….
    stream : the name of the stream: one per query, and another one when its checkpoint is begun anew.
    time, every, score, label, field, weight, value, value_per_positive, resolution, score_type, negatives_kept : as in
        `mcnet.spark.journal`.
    drop_missing : leave out rows whose score, label or weight is missing; otherwise such a row ends the stream.
    allow : as in `Journal.add`; rows that are implausible, and not allowed, end the stream.

    Returns
    -------
    A function of a micro-batch and its number, for `stream.writeStream.foreachBatch(…)`.
    """
    if not isinstance(stream, str) or not stream.strip():
        raise InputError(f"stream is {stream!r}; it must be a text that names the stream")
    target = journal if isinstance(journal, Journal) else Journal(journal)

    def add(batch: DataFrame, number: int) -> None:
        if batch.isEmpty():
            return
        try:
            parts = sketches_per_period(
                batch,
                time=time,
                every=every,
                score=score,
                label=label,
                field=field,
                weight=weight,
                value=value,
                value_per_positive=value_per_positive,
                resolution=resolution,
                score_type=score_type,
                negatives_kept=negatives_kept,
                drop_missing=drop_missing,
                like=target.edges(),
            )
        except NoUsableRowsError as error:
            warn(f"batch {number} of the stream adds nothing: {error}")
            return
        target.add_parts(parts, source=f"{stream}, batch {number}", allow=allow)

    return add
