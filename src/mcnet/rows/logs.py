"""Log files: the one place where paths, globs and folders become a lazy table."""

import glob
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import polars as pl

from mcnet._shared.files import is_disk_full, is_url, local_path
from mcnet._shared.messages import first_line, warn
from mcnet.errors import Advice, FileFormatError, InputError, McnetError
from mcnet.rows.columns import DescribeRow, RowName
from mcnet.rows.csv_files import ShortRows, csv_separator, is_empty_line, refuse_long_row
from mcnet.rows.fields import derivation_advice
from mcnet.rows.formats import Columns, check_folder_columns, column_at, open_format
from mcnet.rows.locations import (
    FORMAT_NAMES,
    FORMATS,
    STANDARD_INPUT,
    Format,
    LakeTable,
    Location,
    Locations,
    RemoteFile,
    file_state,
    lake_table,
    partition_types,
    partition_values,
    prune,
    read_options,
    read_with,
    standard_input,
)

FilePaths = str | PathLike[str] | Sequence[str | PathLike[str]]

BATCH_ROWS = 1 << 19
"""Rows read from a log at a time."""

_FORMAT_OF = {ending: form for form in FORMATS.values() for ending in form.endings}


def expand_paths(files: FilePaths) -> Locations:
    """Return what paths, globs and folders name, each group sorted by name; what was expanded before stays as it is.

    Addresses of object stores, tables of lakes and `-` for standard input stay one entry each.
    """
    if isinstance(files, Locations):
        return files
    given = [files] if isinstance(files, str | PathLike) else list(files)
    if not given:
        raise InputError("no file was given; name at least one")
    result: list[Location] = []
    for item in given:
        if isinstance(item, RemoteFile | LakeTable):
            result.append(item)
            continue
        item = local_path(item)
        if item == STANDARD_INPUT:
            result.append(standard_input())
        elif (table := lake_table(item)) is not None:
            result.append(table)
        elif is_url(item):
            result.append(RemoteFile(item))
        else:
            result += _expand_path(item)
    return Locations(result)


def _expand_path(item: str | PathLike[str]) -> list[Path]:
    """Return the files on disk that a path, a glob or a folder names."""
    path = Path(item)
    if path.is_file():
        return [path]
    if path.is_dir():
        inside = sorted(p for p in path.iterdir() if _is_log(p))
        # Deeper ones if all folders between stand for columns, such as dt=2026-11-16.
        deeper = ((p, p.parent.relative_to(path).parts) for p in path.rglob("*") if _is_log(p))
        inside += sorted(p for p, folders in deeper if folders and all("=" in part[1:] for part in folders))
        if not inside:
            raise InputError(f"the folder {path} has no {FORMAT_NAMES} file")
        return inside
    matches = sorted(p for p in map(Path, glob.glob(fspath(item), recursive=True)) if p.is_file())
    if not matches:
        kind = "no file matches" if glob.has_magic(fspath(item)) else "there is no file"
        raise InputError(f"{kind} {fspath(item)}")
    return matches


def _is_log(path: Path) -> bool:
    """Tell whether a file of a folder is a log; as for Spark, names that begin with _ or . are of files at work."""
    return path.is_file() and _known_format(path) is not None and not path.name.startswith(("_", "."))


_MOST_NAMED = 3
"""How many files a message names."""


def source_name(files: FilePaths | Locations) -> str:
    """Return the files as the user named them, for messages; of many files the first ones.

    >>> source_name(["a.csv", "b.csv"]), source_name([f"{hour}.csv" for hour in range(24)])
    ('a.csv, b.csv', '0.csv, 1.csv, 2.csv and 21 more')
    """
    if isinstance(files, str | PathLike):
        return fspath(files)
    names = [str(file) for file in files]
    rest = names[_MOST_NAMED:]
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(rest):,} more" if rest else "")


def _known_format(path: Location) -> Format | None:
    if isinstance(path, LakeTable):
        return FORMATS[path.kind]
    return next((form for ending, form in _FORMAT_OF.items() if path.name.lower().endswith(ending)), None)


def file_format(path: Location) -> Format:
    """Return the format of a table of a lake, or of a file by the ending of its name.

    A folder in an object store has no ending and is read as Parquet.

    >>> file_format(Path("log.csv.gz")).name
    'CSV'
    """
    form = _known_format(path)
    if form is None and isinstance(path, RemoteFile) and ("." not in path.name or path.url.endswith("/")):
        return FORMATS["parquet"]
    if form is None:
        hint = " (JSON, as models are, is no log)" if path.name.lower().endswith(".json") else ""
        raise InputError(f"{path} is of no known format{hint}; files end in {', '.join(_FORMAT_OF)}")
    return form


def open_log(
    files: FilePaths,
    *,
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
    periods: Collection[str] = (),
    typed: bool = True,
    all_kept: bool = False,
) -> pl.LazyFrame:
    """Return log files as one lazy table.

    Every command reads logs through this function, so that a field value means the same in each of them.
    """
    paths = files if isinstance(files, Locations) else expand_paths(files)
    columns = Columns(numbers, texts, periods, all_kept, typed)
    form, *others = dict.fromkeys(map(file_format, paths))
    if others:
        kinds = ", ".join(sorted(one.kind for one in (form, *others)))
        raise InputError(f"files of different formats ({kinds}); read one format at a time")
    where = read_options().where
    named = [path for path in paths if isinstance(path, Path) or (isinstance(path, RemoteFile) and path.is_one_file)]
    partitions = partition_types(named) if len(named) == len(paths) else {}
    if len(named) < len(paths) and len({tuple(partition_values(path).items()) for path in paths}) > 1:
        # Folders and globs of an object store, each below folders of its own.
        apart = [open_log(Locations([path]), **vars(columns)) for path in paths]
        return pl.concat(apart, how="vertical_relaxed")
    if form.layout == "lines":
        _warn_of_folders_without_columns([path for path in paths if path not in named])
    with readable(source_name(files), paths):
        if partitions and where is not None:
            paths = Locations(prune(paths, partitions, where))
        if partitions:
            check_folder_columns(paths, form, partitions, columns)
        return open_format(form, paths, partitions, columns)


def _warn_of_folders_without_columns(paths: Sequence[Location]) -> None:
    """Warn of globs of an object store whose files Polars opens without the columns of their folders."""
    for path in paths:
        if isinstance(path, RemoteFile) and any("=" in part[1:] for part in path.url.split("/")):
            warn(
                f"the folders of {path} are no columns: in an object store those of CSV and JSONL files are columns if "
                "each file is named, and not by a glob"
            )


class ChangedFileError(InputError):
    """A file was written to while it was read, so that its rows would count in part."""


@contextmanager
def unchanged_files(paths: Sequence[Location]) -> Iterator[None]:
    """Refuse, at the end of the block, a file that has changed; that is the reason of an error of mcnet inside, too."""
    states = {path: file_state(path) for path in paths if isinstance(path, Path)}
    problem = None
    try:
        yield
    except McnetError as error:
        problem = error
    for path, before in states.items():
        try:
            now = file_state(path)
        except OSError:
            raise ChangedFileError(f"{path} was removed while it was read; read it when it is complete") from None
        if now != before:
            sizes = f"{before[0]:,} bytes before, {now[0]:,} after"
            raise ChangedFileError(f"{path} changed while it was read ({sizes}); read it when it is complete")
    if problem is not None:
        raise problem


@contextmanager
def readable(source: str, paths: Sequence[Location] = (), columns: Sequence[str] | None = None) -> Iterator[None]:
    """Turn what Polars and the system say of an unreadable file into one FileFormatError."""
    try:
        yield
    except InputError as error:
        said, _, where = str(error).partition("\n\nThis error occurred")  # which Polars adds to what mcnet says
        if not where:
            raise
        raise InputError(said) from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        if is_disk_full(error):
            raise  # it is the output that cannot be written
        if "expanded paths were empty" in str(error):  # a folder or a glob in an object store
            raise InputError(f"there is no file at {source}") from None
        if "found more fields" in str(error):
            for path in paths:
                refuse_long_row(path, csv_separator(file_format(path)))
        if len(paths) > 1:
            _refuse_unreadable(paths, columns)
        raise FileFormatError(f"{source} cannot be read: {_reason(error)}") from None


def _refuse_unreadable(paths: Sequence[Location], columns: Sequence[str] | None) -> None:
    """Raise the error of the first file that cannot be read on its own: by its beginning and end, or by its rows."""
    for whole in (False, True):
        for path in paths:
            try:
                frame = open_log(Locations([path]))
                with readable(fspath(path)):
                    names = frame.collect_schema().names()
                    if not whole:
                        frame.select(pl.len()).collect()
                        continue
                    chosen = [column_at(names, name) for name in names if columns is None or name in columns]
                    for _ in frame.select(chosen).collect_batches(chunk_size=BATCH_ROWS):
                        pass
            except InputError:
                continue  # a file may be read differently from all files together


def require_columns(frame: pl.LazyFrame, columns: Sequence[str], *, source: str) -> None:
    """Refuse a log that lacks a column."""
    with readable(source):
        known = frame.collect_schema().names()
    for column in columns:
        if column not in known:
            problem = f"{source} has no column {column!r}; it has {', '.join(known)}"
            # Of a CSV file that was cut at the wrong character there is one column.
            mark = next((mark for mark in (";", "\t", "|", ",") if len(known) == 1 and mark in known[0]), None)
            hint = derivation_advice(column, known)
            advice = Advice(f"if {mark!r} separates its columns, pass {{separator}}", separator=mark) if mark else hint
            raise InputError(problem, advice=advice, column=column, file=source)


def batches(
    frame: pl.LazyFrame,
    columns: Sequence[str],
    *,
    source: str,
    paths: Sequence[Location] = (),
    progress: Callable[[int], Any] | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the columns in batches, in the order of the rows; call `progress` with the size of each batch."""
    require_columns(frame, columns, source=source)
    names = frame.collect_schema().names()
    chosen = frame.select(column_at(names, column) for column in columns)
    with readable(source, paths, columns):
        for batch in chosen.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            yield batch
            if progress is not None:
                progress(len(batch))


def short_rows_of(paths: Sequence[Location]) -> ShortRows | None:
    """Return what refuses short rows of CSV files; other files have none."""
    form = file_format(paths[0]) if paths else None
    return ShortRows(paths, csv_separator(form)) if form is not None and form.is_csv else None


def describe_row_in(paths: Sequence[Location]) -> DescribeRow:
    """Return a function that names a row for messages: of several files, the file and the row in it.

    The rows of the files are counted only when a row has to be named. Where a condition leaves out rows, those are
    counted that meet it. An empty line of a CSV file, whose values are all missing, is called one.
    """
    options = read_options()
    counted = "" if options.where is None else " of those that meet the condition"

    def empty(path: Location, row: int) -> str:
        form = file_format(path)
        is_empty = form.is_csv and options.where is None and is_empty_line(path, csv_separator(form), row)
        return " (an empty line)" if is_empty else ""

    def describe(row: int) -> RowName:
        # The options may be others by now.
        with read_with(storage_options=options.storage_options, separator=options.separator, where=options.where):
            if len(paths) == 1:
                return RowName(f"row {row}{counted}{empty(paths[0], row)}", row, os.fspath(paths[0]))
            left = row
            with suppress(McnetError):  # a file may be read differently alone; the error about the row matters more
                for path in paths:
                    number = int(open_log(Locations([path])).select(pl.len()).collect().item())
                    if left < number:
                        file = os.fspath(path)
                        return RowName(f"row {left}{counted} of {file}{empty(path, left)}", left, file)
                    left -= number
        return RowName(f"row {row}{counted} of all files", row)

    return describe


_PANIC = re.compile(r'called `Result::unwrap\(\)` on an `Err` value: \w+\((?:ErrString\()?"?(?P<said>.*?)"?\)*')
"""How Polars words an error that it did not expect."""


def _reason(error: BaseException) -> str:
    """Return what an error of Polars or of the system says, in one line."""
    said = first_line(error)
    if "_interval` type" in said:
        return "it has a column of the type INTERVAL; write the file with this column as a number or a string"
    panic = _PANIC.fullmatch(said)
    return said if panic is None else panic["said"]
