"""Log files: the one place where paths, globs and folders become a lazy table."""

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.atomic_files import is_disk_full
from mcnet.data.csv_files import (
    canonical_csv_text,
    csv_separator,
    guessed_csv_types,
    plain_name,
    refuse_repeated_names,
    with_plain_names,
)
from mcnet.errors import FileFormatError, InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "BATCH_ROWS",
    "FilePaths",
    "batches",
    "column_at",
    "describe_row_in",
    "expand_paths",
    "file_format",
    "open_log",
    "readable",
    "require_columns",
    "source_name",
]

FilePaths = str | PathLike[str] | Sequence[str | PathLike[str]]

BATCH_ROWS = 1 << 19
"""Rows read from a log at a time."""

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


def expand_paths(files: FilePaths) -> list[Path]:
    """Return the files that paths, globs and folders name, each group sorted by name."""
    given = [files] if isinstance(files, str | PathLike) else list(files)
    if not given:
        raise InputError("no file was given; name at least one")
    found: list[Path] = []
    for item in given:
        path = Path(item)
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and _known_format(p))
            if not inside:
                raise InputError(f"the folder {path} has no Parquet, CSV or Arrow file")
            found += inside
        else:
            matches = sorted(p for p in map(Path, glob.glob(fspath(item), recursive=True)) if p.is_file())
            if not matches:
                kind = "no file matches" if glob.has_magic(fspath(item)) else "there is no file"
                raise InputError(f"{kind} {fspath(item)}")
            found += matches
    return found


def source_name(files: FilePaths) -> str:
    """Return the files as the user named them, for messages."""
    return fspath(files) if isinstance(files, str | PathLike) else ", ".join(str(file) for file in files)


def _known_format(path: Path) -> str | None:
    return next((kind for suffix, kind in _FORMATS.items() if path.name.lower().endswith(suffix)), None)


def file_format(path: Path) -> str:
    """Return "parquet", "csv", "tsv" or "arrow", by the ending of the name.

    >>> file_format(Path("log.csv.gz"))
    'csv'
    """
    kind = _known_format(path)
    if kind is None:
        raise InputError(f"{path} is of no known format; files end in {', '.join(_FORMATS)}")
    return kind


def open_log(
    files: FilePaths, *, numbers: Sequence[str] = (), texts: Sequence[str] = (), typed: bool = True
) -> "pl.LazyFrame":
    """Return log files as one lazy table.

    Every command reads logs through this function, so that a field value means the same in each of them.

    Parameters
    ----------
    files : Parquet, CSV, TSV or Arrow files: paths, globs or folders, all of one format.
    numbers : columns of numbers. In CSV, where types are guessed from the first rows, they may have fractions later.
    texts : field columns. In CSV they are read as text and put into canonical form (see `canonical_csv_text`).
    typed : whether the other columns of CSV files get a guessed type; if not, they stay the text they are.
    """
    paths = expand_paths(files)
    kinds = {file_format(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"files of different formats ({', '.join(sorted(kinds))}); read one format at a time")
    kind = kinds.pop()
    with readable(source_name(files)):
        if kind in ("csv", "tsv"):
            return _open_csv(paths, csv_separator(kind), numbers, texts, typed)
        return _open_tables(paths, kind, texts)


def _open_csv(
    paths: list[Path], separator: str, numbers: Sequence[str], texts: Sequence[str], typed: bool
) -> "pl.LazyFrame":
    import polars as pl

    refuse_repeated_names(paths, separator)
    if not typed:
        return with_plain_names(pl.scan_csv(paths, separator=separator, infer_schema=False, glob=False))
    types = guessed_csv_types(paths, separator)
    names = [plain_name(name) for name in types]
    chosen = dict(zip(names, types.values(), strict=True))
    # A column of whole numbers in the first rows may have fractions, or other texts, in later ones.
    chosen |= {name: pl.Float64() for name in numbers if name in chosen and chosen[name].is_integer()}
    chosen |= {name: pl.String() for name in texts if name in chosen}
    schema = dict(zip(types, chosen.values(), strict=True))
    frame = with_plain_names(pl.scan_csv(paths, separator=separator, schema=schema, glob=False))
    return frame.with_columns(
        canonical_csv_text(column_at(names, name)).alias(name) for name in texts if name in chosen
    )


def _open_tables(paths: list[Path], kind: str, texts: Sequence[str]) -> "pl.LazyFrame":
    """Return Parquet or Arrow files as one table; where files disagree on a type, in one that has them all."""
    import polars as pl

    def scan(source: Any) -> pl.LazyFrame:
        return pl.scan_parquet(source, glob=False) if kind == "parquet" else pl.scan_ipc(source, glob=False)

    schemas = [scan(path).collect_schema() for path in paths] if len(paths) > 1 else []
    if all(schema == schemas[0] for schema in schemas) or len({frozenset(schema) for schema in schemas}) > 1:
        return scan(paths)
    names = schemas[0].names()
    mixed = [name for name in texts if name in names and len({schema[name] for schema in schemas}) > 1]
    frames = []
    for path, schema in zip(paths, schemas, strict=True):
        frame = scan(path).select(column_at(schema.names(), name) for name in names)
        # A field that is a number in one file and a text in another: the text that both have in a sketch.
        frames.append(
            frame.with_columns(canonical_csv_text(column_at(names, name).cast(pl.String)).alias(name) for name in mixed)
        )
    return pl.concat(frames, how="vertical_relaxed")


def column_at(names: Sequence[str], name: str) -> "pl.Expr":
    """Return the expression of a column by its place: Polars takes names like `^x$` and `*` for patterns."""
    import polars as pl

    return pl.nth(names.index(name))


@contextmanager
def readable(source: str) -> Iterator[None]:
    """Turn what Polars and the system say of an unreadable file into one FileFormatError."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        if is_disk_full(error):
            raise  # it is the output that cannot be written
        raise FileFormatError(f"{source} cannot be read: {_first_line(error)}") from None


def require_columns(frame: "pl.LazyFrame", columns: Sequence[str], *, source: str) -> None:
    """Refuse a log that lacks a column."""
    with readable(source):
        known = frame.collect_schema().names()
    for column in columns:
        if column not in known:
            raise InputError(f"{source} has no column {column!r}; it has {', '.join(known)}")


def batches(
    frame: "pl.LazyFrame",
    columns: Sequence[str],
    *,
    source: str,
    progress: Callable[[int], Any] | None = None,
) -> Iterator["pl.DataFrame"]:
    """Yield the columns in batches, in the order of the rows; call `progress` with the size of each batch."""
    require_columns(frame, columns, source=source)
    names = frame.collect_schema().names()
    chosen = frame.select(column_at(names, column) for column in columns)
    with readable(source):
        for batch in chosen.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            yield batch
            if progress is not None:
                progress(len(batch))


def describe_row_in(files: FilePaths) -> Callable[[int], str]:
    """Return a function that names a row for messages: of several files, the file and the row in it.

    The rows of the files are counted only when a row has to be named.
    """
    paths = expand_paths(files)

    def describe(row: int) -> str:
        if len(paths) == 1:
            return f"row {row}"
        import polars as pl

        for path in paths:
            number = int(open_log(path, typed=False).select(pl.len()).collect().item())
            if row < number:
                return f"row {row} of {os.fspath(path)}"
            row -= number
        return f"row {row}"

    return describe


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
