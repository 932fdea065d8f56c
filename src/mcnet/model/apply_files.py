"""Calibrate log files of any size: every column and the order of the rows kept, one column added."""

import threading
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.typing import ScoreType
from mcnet.data.columns import scores_column
from mcnet.data.files import FilePaths, expand_paths, file_format, open_log, readable, require_columns, source_name
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.model.unseen import UnseenValues

__all__ = ["apply_to_files"]


def apply_to_files(
    model: CalibrationModel,
    files: FilePaths,
    output: str | PathLike[str],
    *,
    score: str,
    column: str = "calibrated",
    replace: bool = False,
    score_type: ScoreType | None = None,
    progress: Callable[[int], Any] | None = None,
    unseen: UnseenValues | None = None,
) -> int:
    """Write the rows of log files with one more column, their calibrated probability; return how many rows.

    Reads and writes Parquet, CSV and Arrow, by the ending of the names, in bounded memory; the output appears whole or
    not at all.

    Parameters
    ----------
    model : the model to apply; its fields are columns of the files.
    score : the column of scores.
    column : the name of the new column; one that exists is refused unless `replace` is set.
    score_type : "probability" or "logit"; by default what the model was fitted on.
    progress : is called with a number of rows each time that many are done, from any thread.
    unseen : counts the rows with field values that the model has not seen, if it is given.
    """
    target = Path(output)
    source = source_name(files)
    kind = file_format(target)
    _refuse_input(target, expand_paths(files))
    frame, score_of, fields_of = _columns(model, files, source, kind, score, column, replace)
    work = _Work(model, score, score_type or model.score_type, progress)
    work.unseen = unseen
    index = "row"
    while index in frame.collect_schema().names():
        index += "_"
    # The number of a row travels with it, so that a bad score can be named wherever it is met.
    inputs = pl.struct(pl.col(index).alias("row"), score_of.alias("score"), *fields_of)
    added = inputs.map_batches(work, return_dtype=pl.Float64, is_elementwise=True).alias(column)
    result = frame.with_row_index(index).with_columns(added).drop(index)
    with whole_file(target) as part, readable(source):
        work.run(lambda: _sink(result, part, kind, target.name))
    return work.rows


def _refuse_input(target: Path, paths: list[Path]) -> None:
    if target.exists() and any(target.samefile(path) for path in paths):
        raise InputError(f"{target} is one of the files to read; write to another file")


def _columns(
    model: CalibrationModel, files: FilePaths, source: str, kind: str, score: str, column: str, replace: bool
) -> tuple[pl.LazyFrame, pl.Expr, list[pl.Expr]]:
    """Return the rows, and where in them the score and the fields are found."""
    typed = open_log(files)
    require_columns(typed, (score, *model.fields), source=source)
    schema = typed.collect_schema()
    if column in schema and not replace:
        raise InputError(f"{source} has a column {column!r} already; name another, or pass replace=True")
    if column in (score, *model.fields):
        raise InputError(f"the new column cannot be {column!r}: the model reads that one")
    fields = [f"field:{name}" for name in model.fields]
    if kind in ("csv", "tsv") and all(file_format(path) in ("csv", "tsv") for path in expand_paths(files)):
        # From CSV to CSV every other column stays the text it is: 007 must not become 7.
        read = {name: pl.col(name).cast(schema[name]) for name in (score, *model.fields)}
        frame = open_log(files, typed=False)
    else:
        read = {name: pl.col(name) for name in (score, *model.fields)}
        frame = typed
    return frame, read[score], [read[name].alias(alias) for name, alias in zip(model.fields, fields, strict=True)]


class _Work:
    """Calibrates batches, in any thread; stops at once when it is told to, and remembers why it failed."""

    def __init__(
        self, model: CalibrationModel, score: str, score_type: ScoreType, progress: Callable[[int], Any] | None
    ) -> None:
        self.model, self.score, self.score_type, self.progress = model, score, score_type, progress
        self.rows = 0
        self.unseen: UnseenValues | None = None
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, batch: pl.Series) -> pl.Series:
        if self._stopped.is_set():
            raise InputError("stopped")
        try:
            return self._calibrated(batch)
        except Exception as error:
            self._error = self._error or error
            raise

    def _calibrated(self, batch: pl.Series) -> pl.Series:
        if len(batch) == 0:
            return pl.Series([], dtype=pl.Float64)
        column = batch.struct.field
        first = int(column("row")[0])
        scores = scores_column(column("score"), score_type=self.score_type, name=self.score, first_row=first)
        fields = {name: column(f"field:{name}") for name in self.model.fields} or None
        result = self.model.predict(scores, fields, score_type="probability")
        with self._lock:
            self.rows += len(batch)
            if self.unseen is not None:
                self.unseen.add(fields, np.ones(len(batch)))
            if self.progress is not None:
                self.progress(len(batch))
        return pl.Series(result)

    def run(self, sink: Callable[[], None]) -> None:
        """Run the sink in a thread of its own, so that Ctrl-C is heard and ends it in good order."""
        begun, ended = threading.Event(), threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            with self._lock:
                if self._stopped.is_set():
                    return
                begun.set()
            try:
                sink()
            except BaseException as error:
                failures.append(error)
            ended.set()

        try:
            threading.Thread(target=work, daemon=True).start()
            ended.wait()
        except BaseException:
            # An interrupt may come before the thread has begun; under the lock it either never begins or is waited for.
            with self._lock:
                self._stopped.set()
            if begun.is_set():
                ended.wait()
            raise
        if failures:
            # Polars adds the expression to the message; the people who read it want the reason alone.
            raise (self._error or failures[0]) from None


def _sink(frame: pl.LazyFrame, path: Path, kind: str, name: str) -> None:
    if kind == "parquet":
        # Snappy is what every engine reads, and takes half the time of the default.
        frame.sink_parquet(path, compression="snappy", maintain_order=True)
    elif kind == "arrow":
        frame.sink_ipc(path, maintain_order=True)
    else:
        frame.sink_csv(
            path,
            separator="\t" if kind == "tsv" else ",",
            compression="gzip" if name.endswith(".gz") else "uncompressed",
            check_extension=False,
            maintain_order=True,
        )
