"""Sketch log files of any size, tables in memory and lazy tables, in one pass and bounded memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from mcnet._shared.arrays import ScoreType
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError
from mcnet.rows.columns import DescribeRow, describe_row
from mcnet.rows.fields import FieldColumn, column_names, field_columns, is_lazy, is_table
from mcnet.rows.locations import Location, Locations, read_options, read_with
from mcnet.rows.logs import (
    UnchangedFiles,
    batches,
    describe_row_in,
    expand_paths,
    file_format,
    open_log,
    readable,
    short_rows_of,
    source_name,
)
from mcnet.rows.periods import AutomaticPeriod, cut_to_periods
from mcnet.sketch.build import (
    Batch,
    ColumnNames,
    LargestWeight,
    RowReading,
    sketch_batches,
    sketch_columns,
    sketch_parts,
    warn_of_mistakes,
)
from mcnet.sketch.checks import check_columns, file_digests
from mcnet.sketch.folds import check_folds
from mcnet.sketch.grid import DEFAULT_RESOLUTION, Resolution
from mcnet.sketch.query import is_connection, scan_connection
from mcnet.sketch.sketch import Sketch
from mcnet.sketch.sketch_file import is_sketch_file, load_sketch
from mcnet.sketch.views import rename_values

if TYPE_CHECKING:
    import polars as pl

__all__ = ["are_sketches", "has_column", "scan", "scan_in_parts", "sketch_files"]

# Sketch log files of any size, tables in memory and lazy tables, in one pass and bounded memory.


def scan(
    rows: Any,
    *,
    score: str,
    label: str,
    field: str | Sequence[str] | None = None,
    weight: str | None = None,
    folds: int | str = 1,
    resolution: Resolution = DEFAULT_RESOLUTION,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str | AutomaticPeriod] | None = None,
    drop_missing: bool = False,
    where: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    separator: str | None = None,
    table: str | Sequence[str] | None = None,
    dialect: str | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Sketch:
    """Sketch log files, a table, or a table of a database in one pass; files and lazy tables in bounded memory.

    Parameters
    ----------
    rows : Parquet, CSV, TSV, JSONL or Arrow files (paths, globs, folders, addresses such as s3://bucket/log.parquet,
        - for standard input), or a table of Delta or Iceberg, or a table of Polars, pandas or Arrow, or a LazyFrame of
        Polars, or a connection to a database (DuckDB, DB-API, ADBC), which then groups the rows itself.
    score, label, weight : names of columns; see Sketch.from_rows.
    field : the name of a field column, or a list of names.
    folds : into how many folds to split the rows, or the name of a column of fold numbers.
    resolution : cells per unit of logit, or "exact" to keep every distinct score.
    score_type : "probability" or "logit".
    negatives_kept : the fraction of negatives that survived down-sampling; they are weighted back.
    every : fields of timestamps and the periods to cut them to: {"time": "1h"}. The units are m, h, d, w, mo and y; a
        plain number is for columns that count.
    drop_missing : leave out the rows whose score, label or weight is missing, and count them in `dropped_rows`,
        instead of refusing them.
    where : a condition on the rows of files, in SQL as Polars reads it; with a connection, in the engine's own SQL.
    storage_options : settings of object stores, as Polars takes them; the others come from the environment.
    separator : what divides the columns of CSV files, if it is no comma.
    table : with a connection, the name of the table or view; see `sketch_query`.
    dialect : with a connection, the engine's SQL, if the driver does not tell; see `sketch_query`.
    progress : a function that is called with the number of rows of each batch read from files.

    Returns
    -------
    The sketch of the rows.
    """
    fields = [] if field is None else [field] if isinstance(field, str) else list(field)
    check_columns(score, label, weight, folds, fields, every or {})
    if is_connection(rows):
        if table is None:
            raise InputError("scan was given a connection; name the table with table=")
        return scan_connection(
            rows,
            table,
            dialect=dialect,
            score=score,
            label=label,
            field=fields,
            weight=weight,
            folds=folds,
            resolution=resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
            every=every or {},
            where=where,
            drop_missing=drop_missing,
        )
    if hasattr(rows, "raw_connection"):
        raise InputError("scan was given an engine of SQLAlchemy; give its connection: engine.raw_connection()")
    if type(rows).__module__.startswith("sqlalchemy"):
        raise InputError(
            f"scan was given {type(rows).__name__} of SQLAlchemy; give a connection: engine.connect(), "
            "session.connection() or engine.raw_connection()"
        )
    if table is not None or dialect is not None:
        raise InputError(
            f"table and dialect are for connections to databases; leave them out for {type(rows).__name__}"
        )
    if where is not None and (is_table(rows) or is_lazy(rows)):
        raise InputError("where is for files and databases; filter the table before it is scanned")
    chosen = _Columns(score, label, weight, folds if isinstance(folds, str) else None, fields, every or {})
    number = None if isinstance(folds, str) else check_folds(folds)
    reading = RowReading(number, resolution, score_type, negatives_kept, drop_missing or read_options().drop_missing)
    if is_table(rows):
        return chosen.in_final_periods(_scan_table(rows, chosen, reading))
    if is_lazy(rows):
        names = replace(chosen.names, source="the lazy table")
        found = chosen.batches(rows, names, progress)
        return chosen.in_final_periods(sketch_batches(found, names, reading, columns=chosen.remembered))
    if not isinstance(rows, str | PathLike | Sequence):
        raise InputError(
            f"scan was given {type(rows).__name__}; give files or a table, or columns to mcnet.Sketch.from_rows"
        )
    with read_with(storage_options=storage_options, separator=separator, where=where) as options:
        return _scan_files(expand_paths(rows), source_name(rows), options.where, chosen, reading, progress)


def scan_files(
    paths: Locations,
    *,
    score: str,
    label: str,
    field: Sequence[str],
    weight: str | None,
    folds: int,
    resolution: Resolution,
    score_type: ScoreType,
    negatives_kept: float,
    every: Mapping[str, str | AutomaticPeriod],
    progress: Callable[[int], Any] | None,
) -> Sketch:
    """Sketch log files whose names were expanded before; see `scan` for the parameters."""
    fields = list(field)
    check_columns(score, label, weight, folds, fields, every)
    chosen = _Columns(score, label, weight, None, fields, every)
    options = read_options()
    reading = RowReading(check_folds(folds), resolution, score_type, negatives_kept, options.drop_missing)
    return _scan_files(paths, source_name(paths), options.where, chosen, reading, progress)


def _scan_files(
    paths: Locations,
    source: str,
    where: str | None,
    chosen: "_Columns",
    reading: RowReading,
    progress: Callable[[int], Any] | None,
) -> Sketch:
    with UnchangedFiles(paths).reading():
        found, names, sources = chosen.file_batches(paths, source, where, progress)
        sketch = sketch_batches(found, names, reading, columns=chosen.remembered, sources=sources)
    return chosen.in_final_periods(sketch)


def scan_in_parts(
    paths: Locations,
    *,
    score: str,
    label: str,
    field: Sequence[str],
    weight: str | None,
    resolution: Resolution,
    score_type: ScoreType,
    negatives_kept: float,
    every: Mapping[str, str],
    most_cells: int,
    largest_weight: LargestWeight | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Iterator[Sketch]:
    """Sketch log files in one pass, in several sketches where one would have too many cells to keep in memory.

    Parameters
    ----------
    paths : the files, their names expanded.
    score, label, field, weight, resolution, score_type, negatives_kept, every, progress : as in `scan`.
    most_cells : a sketch that has grown beyond this many cells is yielded, and a new one begun.
    largest_weight : where the largest weight of a row is noted.

    Yields
    ------
    Sketch : their sum is what `scan` returns. A file that changes meanwhile is refused after the last one.
    """
    fields = list(field)
    check_columns(score, label, weight, 1, fields, every)
    chosen = _Columns(score, label, weight, None, fields, every)
    options = read_options()
    reading = RowReading(1, resolution, score_type, negatives_kept, options.drop_missing, largest_weight)
    with UnchangedFiles(paths).reading():
        found, names, sources = chosen.file_batches(paths, source_name(paths), options.where, progress)
        parts = sketch_parts(found, names, reading, columns=chosen.remembered, sources=sources, most_cells=most_cells)
        for number, part in enumerate(parts):
            if number == 0:
                warn_of_mistakes(part, score, label, periods=every)
            yield part


class _Columns:
    """The columns of a scan by name, and the batches of a lazy table that has them."""

    def __init__(
        self,
        score: str,
        label: str,
        weight: str | None,
        folds: str | None,
        fields: list[str],
        every: Mapping[str, str | AutomaticPeriod],
    ) -> None:
        self.score, self.label, self.weight, self.folds = score, label, weight, folds
        self.fields, self.every = fields, every

    @property
    def names(self) -> ColumnNames:
        """Return what messages call the columns."""
        return ColumnNames(self.score, self.label, self.weight or "weight", self.folds or "folds")

    @property
    def remembered(self) -> dict[str, str]:
        """Return the columns that the sketch remembers."""
        return {"score": self.score, "label": self.label} | ({} if self.weight is None else {"weight": self.weight})

    @property
    def numbers(self) -> list[str]:
        """Return the columns of numbers."""
        return [name for name in (self.score, self.label, self.weight, self.folds) if name is not None]

    def field_columns(
        self, table: Any, first_row: int = 0, describe_row: DescribeRow = describe_row
    ) -> list[FieldColumn]:
        """Return the fields of a table, timestamps cut to their periods."""
        if not self.fields:
            return []
        return field_columns({name: self._values(table, name, first_row, describe_row) for name in self.fields})

    def _values(self, table: Any, name: str, first_row: int, describe_row: DescribeRow) -> Any:
        if name not in self.every:
            return table[name]
        import polars as pl

        column, every = pl.Series(name, table[name]), self.every[name]
        if isinstance(every, AutomaticPeriod):
            return every.cut(column)
        return cut_to_periods(column, every, first_row=first_row, describe_row=describe_row)

    def in_final_periods(self, sketch: Sketch) -> Sketch:
        """Return the sketch with the periods that were found while reading."""
        for name, every in self.every.items():
            texts = every.final_texts() if isinstance(every, AutomaticPeriod) else None
            if texts is not None:
                sketch = rename_values(sketch, name, texts)
        return sketch

    def file_batches(
        self, paths: Locations, source: str, where: str | None, progress: Callable[[int], Any] | None
    ) -> tuple[Iterator[Batch], ColumnNames, tuple[str, ...] | None]:
        """Return the rows of log files, what messages call them, and a digest of each file if all are on disk."""
        sources = file_digests(paths, where)
        unique = None if sources is None else tuple(dict.fromkeys(sources))
        if sources is not None and unique is not None and len(unique) < len(sources):
            warn(f"{len(sources) - len(unique):,} of the {len(sources):,} files are copies of others; all are read")
        names = replace(self.names, source=source, describe_row=describe_row_in(paths), where=where)
        frame = open_log(paths, numbers=self.numbers, texts=self.fields, periods=self.every)
        return self.batches(frame, names, progress, paths), names, unique

    def batches(
        self,
        frame: "pl.LazyFrame",
        names: ColumnNames,
        progress: Callable[[int], Any] | None,
        paths: Sequence[Location] = (),
    ) -> Iterator[Batch]:
        """Yield the rows of a lazy table; of files, the one that cannot be read is named."""
        first_row = 0
        columns = [*self.numbers, *self.fields]
        short_rows = short_rows_of(paths) if paths else None
        for table in batches(frame, columns, source=names.source, paths=paths, progress=progress):
            if short_rows is not None:
                short_rows.check(table[name] for name in columns)
            yield Batch(
                first_row,
                table[self.score],
                table[self.label],
                None if self.weight is None else table[self.weight],
                None if self.folds is None else table[self.folds],
                self.field_columns(table, first_row, names.describe_row),
            )
            first_row += len(table)


def _scan_table(table: Any, chosen: _Columns, reading: RowReading) -> Sketch:
    known = column_names(table)
    for name in (*chosen.numbers, *chosen.fields):
        if name not in known:
            raise InputError(f"the table has no column {name!r}; it has {', '.join(known)}")
    return sketch_columns(
        table[chosen.score],
        table[chosen.label],
        None if chosen.weight is None else table[chosen.weight],
        chosen.field_columns(table),
        reading.folds if chosen.folds is None else table[chosen.folds],
        chosen.names,
        resolution=reading.resolution,
        score_type=reading.score_type,
        negatives_kept=reading.negatives_kept,
        drop_missing=reading.drop_missing,
        columns=chosen.remembered,
    )


# One sketch from log files, or from saved sketches.


def are_sketches(paths: Sequence[Location]) -> bool:
    """Tell whether the files are sketches, not logs."""
    return any(is_sketch_file(path) for path in paths)


def has_column(paths: Locations, name: str) -> bool:
    """Tell whether logs have a column, or saved sketches a field, of this name."""
    if are_sketches(paths):
        return all(name in load_sketch(path).contexts.names for path in paths)
    with readable(source_name(paths)):
        return name in open_log(paths).collect_schema()


def unnamed_column(path: Any, column: str) -> InputError:
    """Return the error of a log whose column of scores or labels was not named."""
    advice = Advice(f"name its column of {column}s", shell=f"name its column of {column}s with --{column}")
    return InputError(f"{path} is a log", advice=advice, column=column, file=str(path))


def sketch_files(
    paths: Locations,
    *,
    sketched: bool | None = None,
    score: str | None = None,
    label: str | None = None,
    field: Sequence[str] | None = None,
    weight: str | None = None,
    folds: int = 1,
    resolution: Resolution | None = None,
    score_type: ScoreType = "probability",
    negatives_kept: float = 1.0,
    every: Mapping[str, str | AutomaticPeriod] | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Sketch:
    """Return the sketch of log files (see `scan`), or the sum of files that are sketches already.

    Saved sketches know their fields: with `field` they are reduced to those, without it they keep all. Whether any of
    the files is a sketch is looked up unless `sketched` tells.
    """
    saved = [] if sketched is False else [path for path in paths if is_sketch_file(path)]
    if not saved:
        if score is None or label is None:
            file_format(paths[0])  # refuse a file that is not a log before asking for its columns
            lacking = "score" if score is None else "label"
            raise unnamed_column(paths[0], lacking)
        return scan_files(
            paths,
            score=score,
            label=label,
            field=field or [],
            weight=weight,
            folds=folds,
            resolution=DEFAULT_RESOLUTION if resolution is None else resolution,
            score_type=score_type,
            negatives_kept=negatives_kept,
            every=every or {},
            progress=progress,
        )
    if len(saved) < len(paths):
        log = next(path for path in paths if path not in saved)
        raise InputError(f"{saved[0]} is a sketch and {log} a log; sketch the log first, or read them apart")
    if negatives_kept != 1.0 or weight is not None or score_type != "probability" or resolution is not None:
        raise InputError(
            f"{saved[0]} is a saved sketch: weight, logits, sampling and resolution were settled when it was made"
        )
    total = Sketch.merged([load_sketch(path) for path in saved])
    if field:
        total = total.only(*field)
    for name, period in (every or {}).items():
        total = _in_periods(total, name, period)
    return total.with_folds(folds) if folds > 1 and total.folds == 1 else total


def _in_periods(sketch: Sketch, name: str, period: str | AutomaticPeriod) -> Sketch:
    if isinstance(period, str):
        return sketch.in_periods(name, period)
    import polars as pl

    values = sketch.only(name).contexts.values[0]
    period.cut(pl.Series(name, values, dtype=pl.String))
    return sketch if period.every is None else sketch.in_periods(name, period.every)
