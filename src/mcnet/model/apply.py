"""Apply a model to log files of any size, and count the rows whose field values are unknown."""

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mcnet._shared.arrays import FloatArray, ScoreType, sums_by
from mcnet._shared.files import is_url, local_path, whole_file
from mcnet._shared.messages import percent, warn
from mcnet.errors import Advice, InputError
from mcnet.model.model import CalibrationModel, refuse_probabilities
from mcnet.rows.columns import DescribeRow, as_floats, scores_column
from mcnet.rows.contexts import ANY
from mcnet.rows.csv_files import ShortRows, canonical_csv_text, csv_separator, typed_csv_text, types_of_texts
from mcnet.rows.fields import FieldColumn, derivation, source_column
from mcnet.rows.formats import column_at
from mcnet.rows.locations import Format, Locations, RemoteFile, read_options
from mcnet.rows.logs import (
    FilePaths,
    describe_row_in,
    expand_paths,
    file_format,
    open_log,
    readable,
    require_columns,
    short_rows_of,
    source_name,
    unchanged_files,
)

if TYPE_CHECKING:
    from mcnet.sketch.sketch import Sketch

# Rows whose field values a model has not seen in its fit: how many there are, by field and altogether.


class UnseenValues:
    """Counts rows, and those among them with a value that the model has not seen.

    Attributes
    ----------
    total : the rows counted, or their weight.
    unseen : those of them with an unseen value in at least one field.
    by_field : the same for each field of the model.
    """

    def __init__(self, model: CalibrationModel) -> None:
        """Count nothing yet."""
        self._contexts = model.contexts
        self.total = 0.0
        self.unseen = 0.0
        self.by_field = dict.fromkeys(model.needed_fields, 0.0)

    @staticmethod
    def of_sketch(model: CalibrationModel, sketch: "Sketch") -> "UnseenValues":
        """Return the counts of the rows behind a sketch, by their weight."""
        counts = UnseenValues(model)
        columns = {column.name: column for column in sketch.contexts.columns(sketch.contexts.all())}
        weight = sums_by(sketch.context, sketch.weight, len(sketch.contexts))
        counts.add([columns[name] for name in model.needed_fields], weight)
        return counts

    @property
    def share(self) -> float:
        """Return the share of rows with an unseen value, from 0 to 1."""
        return self.unseen / self.total if self.total else 0.0

    def add(self, field: Any, weight: FloatArray) -> None:
        """Count rows, given by their fields (as in `predict`) and their weights."""
        self.total += float(weight.sum())
        columns: Sequence[FieldColumn] = self._contexts.given(field) if self.by_field else []
        if not columns:
            return
        places = [self._contexts.names.index(name) for name in self.by_field]
        unknown = self._contexts.field_codes(columns)[:, places] == ANY
        if not unknown.any():
            return
        self.unseen += float(weight[unknown.any(axis=1)].sum())
        for index, name in enumerate(self.by_field):
            self.by_field[name] += float(weight[unknown[:, index]].sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the share of rows with unseen values, altogether and by field."""
        total = self.total or 1.0
        return {"share": self.share, "by_field": {name: part / total for name, part in self.by_field.items()}}


# Scores in another unit than those of the fit: their mean is far off, or most lie where the fit had none.

_ROWS_WORTH_A_WARNING = 100
_WILD_FACTOR = 30.0
_A_CELL_WIDER = 1.01
"""The ends in the history of a fit are means of cells, which differ by less than this factor from the scores there."""


class ScoresSeen:
    """Compares scores with those that the model was fitted on, by their mean and by their range."""

    def __init__(self, model: CalibrationModel) -> None:
        """Count nothing yet."""
        history = model.provenance
        self._low, self._high = history.get("lowest_score", 0.0), history.get("highest_score", 1.0)
        self._fitted_rows = history.get("rows", 0)
        self._mean: float | None = None
        if history.get("base_pcoc") and history.get("weight"):
            self._mean = history["base_pcoc"] * history["positives"] / history["weight"]
        self._total = self._outside = self._sum = 0.0

    def add(self, score: FloatArray, weight: FloatArray | None = None) -> None:
        """Count rows, given by their scores as probabilities and their weights."""
        outside = (score * _A_CELL_WIDER < self._low) | (score > self._high * _A_CELL_WIDER)
        self._total += float(len(score) if weight is None else weight.sum())
        self._sum += float(score.sum() if weight is None else weight @ score)
        self._outside += float(np.count_nonzero(outside) if weight is None else weight[outside].sum())

    def warn(self, name: str) -> None:
        """Warn if the scores cannot be those that the model was fitted on."""
        if min(self._total, self._fitted_rows) < _ROWS_WORTH_A_WARNING:
            return
        mean = self._sum / self._total
        if self._mean is not None and not self._mean / _WILD_FACTOR <= mean <= self._mean * _WILD_FACTOR:
            problem = f"the mean {name} is {mean:.3g}, and was {self._mean:.3g} in the fit of the model"
        elif self._outside > 0.5 * self._total:
            ends = f"{self._low:.3g} … {self._high:.3g}"
            problem = f"{percent(self._outside / self._total)} of the rows have a {name} outside {ends}, the range of "
            problem += "the fit of the model"
        else:
            return
        warn(f"{problem} (as probabilities); check that it is the same score in the same unit, or fit the model again")


# Calibrate log files of any size: keep every column and the order of the rows, add one column.


@dataclass(frozen=True)
class Applied:
    """How many rows were calibrated, and how many of them have no score, so that they got no probability."""

    rows: int
    missing: int

    @property
    def missing_share(self) -> float:
        """The share of rows without a score."""
        return self.missing / self.rows if self.rows else 0.0


@dataclass(frozen=True)
class NewColumn:
    """The column of calibrated probabilities that is added to rows.

    Attributes
    ----------
    name : what it is called.
    replace : whether it takes the place of a column of this name; otherwise such a column is refused.
    interval : the level of a credible interval, such as 0.9: its bounds are two more columns, named like the first one
        with `_low` and `_high` added. The model must have intervals.
    """

    name: str = "calibrated"
    replace: bool = False
    interval: float | None = None

    @property
    def names(self) -> list[str]:
        """The names of all columns that are added."""
        return [self.name] if self.interval is None else [self.name, f"{self.name}_low", f"{self.name}_high"]

    def check(self, read: Sequence[str], known: Sequence[str], source: str) -> None:
        """Refuse the names of columns that the model reads, or that the rows have already."""
        for name in self.names:
            if name in read:
                raise InputError(f"the new column cannot be {name!r}: the model reads that one")
            if name in known and not self.replace:
                advice = Advice("name another, or pass {replace}", replace=True)
                raise InputError(f"{source} has a column {name!r} already", advice=advice, column=name, file=source)


def apply_to_files(
    model: CalibrationModel,
    files: FilePaths,
    output: str | PathLike[str],
    *,
    score: str,
    field: Sequence[str] | None = None,
    column: NewColumn = NewColumn(),  # noqa: B008
    score_type: ScoreType | None = None,
    progress: Callable[[int], Any] | None = None,
    unseen: UnseenValues | None = None,
) -> Applied:
    """Write the rows of log files with one more column, their calibrated probability; or three, with its interval.

    Reads and writes every format of logs, by the ending of the names, in bounded memory; the output
    appears whole or not at all, and not at all if a file changes while it is read. The other columns stay as they are.
    CSV has no types: in an output of another format its score is a number, its fields are canonical strings (7.0 is
    "7", as in the fit), and any other column has the type that all its values have (see `types_of_texts`), for which
    the file is read once more. A row without a score gets no probability.
    """
    target: Path | RemoteFile = RemoteFile(fspath(output)) if is_url(output) else Path(local_path(output))
    source = source_name(files)
    paths = files if isinstance(files, Locations) else expand_paths(files)
    form, is_csv = file_format(target), file_format(paths[0]).is_csv
    local = [path for path in paths if isinstance(path, Path)]
    if isinstance(target, Path) and target.exists() and any(target.samefile(path) for path in local):
        raise InputError(f"{target} is one of the files to read; write to another file")
    if read_options().drop_missing:
        raise InputError(
            "apply keeps every row of a log, and one without a score gets no probability; leave out --drop-missing "
            "(drop_missing)"
        )
    fields, needed = _columns_of_fields(model, field), model.needed_fields
    derived = {column for column, name in zip(fields, needed, strict=True) if derivation(name) is not None}
    repeated = next(
        (name for at, name in enumerate(fields) if name in (score, *fields[:at]) and name not in derived), None
    )
    if repeated is not None:
        raise InputError(f"the column {repeated!r} is named twice, as a field and as another field or the score")
    # An object appears in a store when all of it was sent.
    whole: AbstractContextManager[Path | RemoteFile]
    whole = nullcontext(target) if isinstance(target, RemoteFile) else whole_file(target)
    with whole as part, unchanged_files(paths):
        log = open_log(paths, texts=fields, typed=False, all_kept=True, periods=derived)
        require_columns(log, (score, *fields), source=source)
        known = log.collect_schema().names()
        if column.interval is not None:
            model.interval([], None, column.interval)  # refused now, and not in the middle of the work
        added = column.names
        column.check((score, *fields), known, source)
        index = _unused_name({*known, *added})
        frame, names = log.with_row_index(index), [index, *known]
        work = _Work(
            model,
            score,
            score_type or model.score_type,
            describe_row_in(paths),
            progress,
            unseen,
            column.interval,
            short_rows_of(paths),
        )
        inputs = _inputs(names, index, score, fields, canonical=is_csv)
        result = _with_added(frame, inputs, work, added)
        if is_csv and not form.is_csv:
            number = typed_csv_text(column_at(names, score).str.strip_chars(), pl.Float64())
            plain = [name for name in fields if name not in derived]
            strings = (canonical_csv_text(column_at(names, name).cast(pl.String)).alias(name) for name in plain)
            with readable(source):
                types = types_of_texts(log, [name for name in known if name not in (score, *plain, *added)])
            others = (typed_csv_text(column_at(names, name), kind).alias(name) for name, kind in types.items())
            result = result.with_columns(number.alias(score), *strings, *others)
        storage_options = dict(read_options().storage_options)  # which the thread that writes does not see
        with readable(source, paths):
            work.run(lambda: _sink(result.drop(index), part, form, target.name, storage_options))
        work.scores.warn(score)
        if score_type is None and model.score_type == "logit":
            refuse_probabilities(work.extremes(), work.rows, name=score)
    return Applied(work.rows, work.missing)


def _with_added(frame: pl.LazyFrame, inputs: pl.Expr, work: "_Work", added: Sequence[str]) -> pl.LazyFrame:
    """Return the rows with the columns that are calculated from the inputs of each."""
    together = _unused_name({*frame.collect_schema().names(), *added})
    kind = pl.Struct({str(index): pl.Float64 for index in range(len(added))})
    made = inputs.map_batches(work, return_dtype=kind, is_elementwise=True).alias(together)
    parts = (pl.col(together).struct.field(str(index)).alias(name) for index, name in enumerate(added))
    return frame.with_columns(made).with_columns(*parts).drop(together)


def _columns_of_fields(model: CalibrationModel, given: Sequence[str] | None) -> Sequence[str]:
    """Return the column of each field that a model needs, by the names given for those or for all its fields."""
    needed, columns = model.needed_fields, [source_column(name) for name in model.needed_fields]
    every = sorted(model.fields), sorted(source_column(name) for name in model.fields)
    if given is None or sorted(given) in (sorted(needed), sorted(columns), *every):
        return columns
    if len(given) == len(model.fields) > len(needed):
        given = [column for column, name in zip(given, model.fields, strict=True) if name in needed]
    if len(given) != len(needed):
        has = f"the fields {', '.join(needed)}: name a column for each, in this order" if needed else "no field"
        raise InputError(f"{len(given)} columns of fields were given, but the model has {has}")
    for one, other in zip(given, needed, strict=True):
        if one != other and one in model.fields:
            raise InputError(
                f"the column {one!r} was given for the field {other!r}, but the model has a field {one!r} itself: name "
                f"the columns in the order {', '.join(needed)}"
            )
    return given


def _unused_name(taken: Collection[str]) -> str:
    """Return a name for the number of a row that no column has."""
    name = "row number"
    while name in taken:
        name += "_"
    return name


def _inputs(names: Sequence[str], index: str, score: str, fields: Sequence[str], *, canonical: bool) -> pl.Expr:
    """Return what the model reads of a row, and its number, so that a bad score can be named wherever it is met."""
    columns, scores = [column_at(names, name) for name in fields], column_at(names, score)
    if canonical:
        columns = [canonical_csv_text(column.cast(pl.String)) for column in columns]
        scores = scores.replace({"": None})  # what some programs write for a missing number
    return pl.struct(
        column_at(names, index).alias("row"),
        scores.alias("score"),
        *(column.alias(f"field {place}") for place, column in enumerate(columns)),
    )


@dataclass(eq=False)
class _Work:
    """Calibrates batches, in any thread; stops at once when asked to, and remembers why it failed."""

    model: CalibrationModel
    score: str
    score_type: ScoreType
    describe_row: DescribeRow
    progress: Callable[[int], Any] | None
    unseen: UnseenValues | None
    interval: float | None
    short_rows: ShortRows | None
    rows: int = 0
    missing: int = 0
    lowest: float = 1.0
    highest: float = 0.0
    scores: ScoresSeen = field(init=False)
    _error: BaseException | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.scores = ScoresSeen(self.model)

    def __call__(self, batch: pl.Series) -> pl.Series:
        if self._stopped.is_set():
            raise InputError("stopped")
        try:
            return self._calibrated(batch)
        except Exception as error:
            self._error = self._error or error
            raise

    def _calibrated(self, batch: pl.Series) -> pl.Series:
        results: list[FloatArray] = [np.empty(0)] * (1 if self.interval is None else 3)
        if len(batch) == 0:
            return _together(results)
        first, size = int(batch.struct.field("row")[0]), len(batch)
        given = as_floats(batch.struct.field("score"), self.score, lambda row: self.describe_row(first + row))
        rows = np.flatnonzero(~np.isnan(given))
        if len(rows) < size:
            given, batch = given[rows], batch.gather(rows)
        column = batch.struct.field
        fields = {name: column(f"field {index}") for index, name in enumerate(self.model.needed_fields)} or None
        if self.short_rows is not None and fields is not None:
            self.short_rows.check(fields.values())
        if len(rows):
            scores = scores_column(
                given,
                score_type=self.score_type,
                name=self.score,
                describe_row=lambda row: self.describe_row(first + int(rows[row])),
            )
            results = [self.model.predict(scores, fields, score_type="probability")]
            if self.interval is not None:
                results += self.model.interval(scores, fields, self.interval, score_type="probability")
        with self._lock:
            self.rows += size
            self.missing += size - len(rows)
            if len(rows):
                self.lowest, self.highest = min(self.lowest, scores.min()), max(self.highest, scores.max())
                self.scores.add(scores)
            if self.unseen is not None and len(rows):
                self.unseen.add(fields, np.ones(len(rows)))
            if self.progress is not None:
                self.progress(size)
        if len(rows) < size:
            every = np.full((len(results), size), np.nan)
            every[:, rows] = results
            results = list(every)
        return _together(results)

    def extremes(self) -> FloatArray:
        """Return the lowest and the highest score as probabilities; nothing if there was no row."""
        return np.array([self.lowest, self.highest] if self.rows > self.missing else [])

    def run(self, sink: Callable[[], None]) -> None:
        """Run the sink in its own thread, so that Ctrl-C is heard and ends it in good order."""
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


def _together(columns: Sequence[FloatArray]) -> pl.Series:
    """Return columns as one column of structs; NaN is missing."""
    return pl.DataFrame({str(index): column for index, column in enumerate(columns)}, nan_to_null=True).to_struct()


def _sink(
    frame: pl.LazyFrame, target: Path | RemoteFile, form: Format, name: str, storage_options: dict[str, str]
) -> None:
    path = fspath(target)
    stored: dict[str, Any] = {"maintain_order": True}
    if isinstance(target, RemoteFile):
        stored["storage_options"] = storage_options or None
    if form.layout == "lines":
        stored |= {"compression": "gzip" if name.lower().endswith(".gz") else "uncompressed", "check_extension": False}
    if form.is_csv:
        stored["separator"] = csv_separator(form)
    if form.kind == "parquet":
        stored["compression"] = "snappy"  # what every engine reads, in half the time of the default
    getattr(frame, f"sink_{form.engine}")(path, **stored)
