"""Structured Streaming into a journal: every micro-batch counts exactly once, also across restarts."""

from collections.abc import Callable, Collection, Sequence
from os import PathLike

from pyspark.sql import DataFrame

from mcnet._shared.typing import ScoreType
from mcnet._shared.user_warnings import warn
from mcnet.errors import InputError
from mcnet.sketch.from_table import NoUsableRowsError
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.spark.periods import journal as sketches_per_period
from mcnet.tracking.journal import Journal

__all__ = ["batch_source", "journal_writer"]


def batch_source(stream: str, batch: int) -> str:
    """Return the name under which a journal knows one micro-batch of a stream."""
    return f"{stream}, batch {batch}"


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
    journal : the journal, or its folder, where the driver can write.
    stream : the name of the stream: one per query, and another one when its checkpoint is begun anew.
    time, every, score, label, field, weight, resolution, score_type, negatives_kept : as in `mcnet.spark.journal`.
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
                resolution=resolution,
                score_type=score_type,
                negatives_kept=negatives_kept,
                drop_missing=drop_missing,
            )
        except NoUsableRowsError as error:
            warn(f"batch {number} of the stream adds nothing: {error}")
            return
        target.add_parts(parts, source=batch_source(stream, number), allow=allow)

    return add
