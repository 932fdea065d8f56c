"""Sketch log files of any size, tables in memory and lazy tables, in one pass and bounded memory."""

import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import disk_path, is_url, local_path
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError, McnetError
from mcnet.rows.derived import DEFAULT_BINS, EdgeSample, derived_column, edges_of, number_column
from mcnet.rows.fields import (
    column_names,
    derivation,
    derivation_advice,
    field_column,
    is_lazy,
    is_table,
    number_fields,
    source_column,
)
from mcnet.rows.locations import Location, Locations, read_options, read_with
from mcnet.rows.logs import (
    batches,
    describe_row_in,
    expand_paths,
    file_format,
    open_log,
    readable,
    short_rows_of,
    source_name,
    unchanged_files,
)
from mcnet.rows.periods import cut_to_periods
from mcnet.rows.spec import (
    DEFAULT_RESOLUTION,
    MORE_COLUMNS,
    Resolution,
    RowSpec,
    check_folds,
    check_search,
    field_names,
)
from mcnet.sketch.build import (
    Batch,
    LargestWeight,
    Origin,
    sketch_batches,
    sketch_columns,
    sketch_parts,
    warn_of_mistakes,
)
from mcnet.sketch.sketch import DIGEST_BYTES, Sketch
from mcnet.sketch.sketch_file import METADATA, load_sketch

_SAMPLED_BYTES = 1 << 16
"""Of a file, the first and the last bytes are read for its digest, and its size."""


_IN_MEMORY = Origin()


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
    every: Mapping[str, str] | None = None,
    drop_missing: bool = False,
    where: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    separator: str | None = None,
    table: str | Sequence[str] | None = None,
    dialect: str | None = None,
    progress: Callable[[int], Any] | None = None,
    value: str | None = None,
    value_per_positive: str | None = None,
    propensity: str | None = None,
    bins: int | None = None,
    like: Any = None,
    fields: str | None = None,
    exclude: str | Sequence[str] = (),
) -> Sketch:
    """Sketch log files, a table, or a table of a database in one pass; files and lazy tables in bounded memory.

    Parameters
    ----------
    rows : Parquet, CSV, TSV, JSONL or Arrow files (paths, globs, folders, addresses such as s3://bucket/log.parquet,
        - for standard input), or a table of Delta or Iceberg, or a table of Polars, pandas or Arrow, or a LazyFrame of
        Polars, or a connection to a database (DuckDB, DB-API, ADBC), which then groups the rows itself.
    score, label, weight : names of columns; see Sketch.from_rows.
    field : the name of a field column, or a list of names. "age:number" is a number cut into bins of nearly equal
        size, "ts:hour", "ts:weekday" and "ts:hour-of-week" are parts of a timestamp in UTC.
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
    value, value_per_positive, propensity : names of columns; see Sketch.from_rows.
    bins : into how many bins numbers that are fields are cut, 16 if None; their edges are chosen from the rows.
    like : a sketch, or a model: its edges are taken instead, as the parts of one sketch need.
    fields : "auto" instead of `field`: those that `mcnet.find_fields` finds in files or a table.
    exclude : with fields="auto", columns that are no candidates.

    Returns
    -------
    The sketch of the rows.
    """
    from mcnet.sketch.connection import is_connection, scan_connection

    spec = RowSpec(
        score,
        label,
        field_names(field),
        weight,
        folds if isinstance(folds, str) else check_folds(folds),
        resolution,
        score_type,
        negatives_kept,
        every or {},
        drop_missing=drop_missing,
        value=value,
        value_per_positive=value_per_positive,
        propensity=propensity,
        edges=edges_of(like),
    )
    spec.check()
    check_search(fields, spec.fields, exclude)
    with read_with(storage_options=storage_options, separator=separator, where=where, bins=bins):
        if fields is not None:
            from mcnet.field_search import search

            spec = replace(spec, fields=search(rows, spec, exclude=exclude).fields)
        if is_connection(rows):
            if table is None:
                raise InputError("scan was given a connection; name the table with table=")
            return scan_connection(rows, table, spec, dialect=dialect, where=where)
        _check_given(rows, table, dialect, where)
        if is_table(rows):
            return scan_table(rows, spec)
        if is_lazy(rows):
            origin = Origin("the lazy table")
            spec = _with_edges(spec, lambda columns: batches(rows, columns, source=origin.name))
            return sketch_batches(_batches(rows, spec, origin, progress), spec, origin)
        (sketch,) = scan_in_parts(expand_paths(rows), spec, progress=progress, source=source_name(rows))
        return sketch


def _check_given(rows: Any, table: Any, dialect: str | None, where: str | None) -> None:
    """Refuse what cannot be scanned without a connection, and arguments of connections and files alone."""
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
    if not (is_table(rows) or is_lazy(rows) or isinstance(rows, str | PathLike | Sequence)):
        raise InputError(
            f"scan was given {type(rows).__name__}; give files or a table, or columns to mcnet.Sketch.from_rows"
        )


def scan_in_parts(
    paths: Locations,
    spec: RowSpec,
    *,
    most_cells: int | None = None,
    largest_weight: LargestWeight | None = None,
    progress: Callable[[int], Any] | None = None,
    source: str | None = None,
) -> Iterator[Sketch]:
    """Sketch log files in one pass, in several sketches where one would have too many cells to keep in memory."""
    spec.check()
    with unchanged_files(paths):
        if number_fields(spec.fields):
            spec = with_edges(paths, spec)
        where = read_options().where
        digests = [_file_digest(path, where) for path in paths if isinstance(path, Path)]
        unique = tuple(dict.fromkeys(digests))
        if len(unique) < len(digests) == len(paths):
            warn(f"{len(digests) - len(unique):,} of the {len(digests):,} files are copies of others; all are read")
        known = unique if len(digests) == len(paths) else None  # not if some are not on a disk
        origin = Origin(source or source_name(paths), describe_row_in(paths), where, known)
        frame = open_log(paths, numbers=spec.numbers, texts=spec.field_columns, periods=spec.freely_written)
        read = _batches(frame, spec, origin, progress, paths)
        parts = sketch_parts(read, spec, origin, most_cells=most_cells, largest_weight=largest_weight)
        for number, part in enumerate(parts):
            if number == 0:
                warn_of_mistakes(part, spec)
            yield part


def _file_digest(path: Path, where: str | None) -> str:
    """Return the same digest for copies of a file, whatever their names, if the rows meet the same condition."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=b"" if where is None else b"where")
    if where is not None:
        digest.update(repr(where).encode())
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLED_BYTES))
        if size > _SAMPLED_BYTES:
            file.seek(-min(_SAMPLED_BYTES, size - _SAMPLED_BYTES), 2)
            digest.update(file.read())
    return digest.hexdigest()


def _batches(
    frame: pl.LazyFrame,
    spec: RowSpec,
    origin: Origin,
    progress: Callable[[int], Any] | None,
    paths: Sequence[Location] = (),
) -> Iterator[Batch]:
    """Yield the rows of a lazy table; of files, the one that cannot be read is named."""
    first_row = 0
    columns = list(dict.fromkeys([*spec.numbers, *spec.field_columns]))
    short_rows = short_rows_of(paths)
    for table in batches(frame, columns, source=origin.name, paths=paths, progress=progress):
        if short_rows is not None:
            short_rows.check(table[name] for name in columns)
        yield _columns(table, spec, first_row, origin)
        first_row += len(table)


def scan_table(table: Any, spec: RowSpec) -> Sketch:
    """Sketch a table in memory."""
    spec.check()
    known = column_names(table)
    for name in (*spec.numbers, *spec.field_columns):
        if name not in known:
            problem = f"the table has no column {name!r}; it has {', '.join(known)}"
            raise InputError(problem, advice=derivation_advice(name, known), column=name)
    spec = _with_edges(spec, lambda _: [table])
    return sketch_columns(_columns(table, spec), spec)


def _columns(table: Any, spec: RowSpec, first_row: int = 0, origin: Origin = _IN_MEMORY) -> Batch:
    """Return the columns of a table: None where it has no such column, timestamps cut to their periods."""
    describe_row = origin.in_batch(first_row)
    values = {name: table[source_column(name)] for name in spec.fields}
    for name in spec.fields:
        if derivation(name) is not None:
            values[name] = derived_column(name, values[name], spec.edges.get(name), describe_row=describe_row)
    if spec.every:
        for name, every in spec.every.items():
            values[name] = cut_to_periods(pl.Series(name, table[name]), every, describe_row=describe_row)
    names = (spec.score, spec.label, spec.weight, spec.fold_column)
    score, label, weight, folds = (None if name is None else table[name] for name in names)
    more = {role: table[name] for role, name in spec.columns.items() if role in MORE_COLUMNS}
    fields = [field_column(name, column) for name, column in values.items()]
    return Batch(first_row, score, label, weight, folds, fields, more)


# Edges of numbers that are fields: chosen once, before the rows are read.


def with_edges(paths: Locations, spec: RowSpec) -> RowSpec:
    """Return how log files are read, with the edges of every number that is a field, chosen from these very files."""

    def read(columns: list[str]) -> Iterable[Any]:
        frame = open_log(paths, texts=spec.field_columns, periods=spec.freely_written)
        return batches(frame, columns, source=source_name(paths), paths=paths)

    return _with_edges(spec, read)


def _with_edges(spec: RowSpec, read: Callable[[list[str]], Iterable[Any]]) -> RowSpec:
    """Choose the edges that are not known yet; `read` returns tables that have the columns asked for."""
    options, wanted = read_options(), number_fields(spec.fields)
    known = {name: edges for name, edges in {**options.edges, **spec.edges}.items() if name in wanted}
    samples = {name: EdgeSample() for name in wanted if name not in known}
    if samples:
        first_row = 0
        for table in read(list(dict.fromkeys(map(source_column, samples)))):
            for name, sample in samples.items():
                sample.add(number_column(name, table[source_column(name)], _IN_MEMORY.in_batch(first_row)))
            first_row += len(table)
        known |= {name: sample.edges(options.bins or DEFAULT_BINS) for name, sample in samples.items()}
        for name, edges in known.items():
            if not edges:
                warn(f"{source_column(name)} has one number or none: the field {name!r} tells rows apart no further")
    options.edges.update(known)
    return replace(spec, edges=known)


# One sketch from log files, or from saved sketches.


def is_sketch_file(path: str | PathLike[str]) -> bool:
    """Tell whether a file is a saved sketch (and not a log of rows); refuse one that is not on a disk."""
    name = local_path(path)
    remote = is_url(name)
    if not name.endswith(".parquet") or (glob.has_magic(name) if remote else not Path(name).is_file()):
        return False
    try:
        with readable(name):
            options = dict(read_options().storage_options) or None
            result = METADATA in pl.read_parquet_metadata(name, storage_options=options)
    except McnetError:
        if remote:
            raise
        return False  # a damaged file is told of by what reads it
    if result and remote:
        disk_path(name, "a saved sketch")
    return result


def are_sketches(paths: Sequence[Location]) -> bool:
    """Tell whether the files are sketches, not logs."""
    return any(is_sketch_file(path) for path in paths)


def has_column(paths: Locations, name: str) -> bool:
    """Tell whether logs have a column, or saved sketches a field, of this name."""
    if are_sketches(paths):
        return all(name in load_sketch(path).contexts.names for path in paths)
    with readable(source_name(paths)):
        return name in open_log(paths).collect_schema()


def columns_of(paths: Locations, name: str) -> Iterator[pl.Series]:
    """Yield a column of logs, some rows at a time, or the values of a field of saved sketches."""
    if are_sketches(paths):
        for path in paths:
            yield pl.Series(name, load_sketch(path).only(name).contexts.values[0], dtype=pl.String)
    else:
        log = open_log(paths, texts=[name], periods=[name])
        for table in batches(log, [name], source=source_name(paths), paths=paths):
            yield table[name]


def unnamed_column(path: Any, column: str) -> InputError:
    """Return the error of a log whose column of scores or labels was not named."""
    advice = Advice(f"name its column of {column}s", shell=f"name its column of {column}s with --{column}")
    return InputError(f"{path} is a log", advice=advice, column=column, file=str(path))


def sketch_files(
    paths: Locations,
    spec: RowSpec,
    *,
    sketched: bool | None = None,
    largest_weight: LargestWeight | None = None,
    progress: Callable[[int], Any] | None = None,
) -> Sketch:
    """Return the sketch of log files (see `scan`), or the sum of files that are sketches already.

    Saved sketches know their fields: with names of fields they are reduced to those, without they keep all. Whether any
    of the files is a sketch is looked up unless `sketched` tells. The largest weight of a row of logs is noted in
    `largest_weight`.
    """
    saved = [] if sketched is False else [path for path in paths if is_sketch_file(path)]
    if not saved:
        if spec.score is None or spec.label is None:
            file_format(paths[0])  # refuse a file that is not a log before asking for its columns
            lacking = "score" if spec.score is None else "label"
            raise unnamed_column(paths[0], lacking)
        (sketch,) = scan_in_parts(paths, spec, largest_weight=largest_weight, progress=progress)
        return sketch
    if len(saved) < len(paths):
        log = next(path for path in paths if path not in saved)
        raise InputError(f"{saved[0]} is a sketch and {log} a log; sketch the log first, or read them apart")
    if not spec.only_names:
        raise InputError(
            f"{saved[0]} is a saved sketch: weight, value, logits, sampling and resolution were settled when it was "
            "made"
        )
    total = Sketch.merged([load_sketch(path) for path in saved])
    if spec.fields:
        total = total.only(*spec.fields)
    for name, period in spec.every.items():
        total = total.in_periods(name, period)
    if isinstance(spec.folds, int) and spec.folds > 1 and total.folds == 1:
        total = total.with_folds(spec.folds)
    return total
