"""Log files and globs as one lazy table, read in batches of bounded memory."""

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnet._shared.atomic_files import is_disk_full
from mcnet.errors import FileFormatError, InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "BATCH_ROWS",
    "FilePaths",
    "batches",
    "expand_paths",
    "file_format",
    "open_log",
    "readable",
    "require_columns",
    "source_name",
]

FilePaths = str | PathLike[str] | Sequence[str | PathLike[str]]

BATCH_ROWS = 1 << 19

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


def expand_paths(files: FilePaths) -> list[Path]:
    """Return the files that paths, globs and folders stand for, each group in order of name."""
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
                raise InputError(f"the folder {path} holds no Parquet, CSV or Arrow file")
            found += inside
        else:
            matches = sorted(p for p in map(Path, glob.glob(fspath(item), recursive=True)) if p.is_file())
            if not matches:
                kind = "no file matches" if glob.has_magic(fspath(item)) else "there is no file"
                raise InputError(f"{kind} {fspath(item)}")
            found += matches
    return found


def source_name(files: FilePaths) -> str:
    """Return how the files were named, for messages."""
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
    """Return log files (Parquet, CSV, Arrow; paths, globs, folders) as one lazy table.

    CSV has no types: the first rows tell them, but a column named in `numbers` may hold fractions later on, and one in
    `texts` (a field) is read as text, in the canonical form that its values have in other formats. `typed=False` leaves
    all columns of CSV files as the text they are.
    """
    import polars as pl

    paths = expand_paths(files)
    kinds = {file_format(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"files of different formats ({', '.join(sorted(kinds))}); read one format at a time")
    kind = kinds.pop()
    if kind == "parquet":
        return pl.scan_parquet(paths)
    if kind == "arrow":
        return pl.scan_ipc(paths)
    separator = "\t" if kind == "tsv" else ","
    if not typed:
        return pl.scan_csv(paths, separator=separator, infer_schema=False)
    with readable(str(paths[0])):
        return _scan_csv(paths, separator, numbers, texts)


def _scan_csv(paths: list[Path], separator: str, numbers: Sequence[str], texts: Sequence[str]) -> "pl.LazyFrame":
    import polars as pl

    guessed = pl.scan_csv(paths, separator=separator, infer_schema_length=10_000).collect_schema()
    types: dict[str, pl.DataType | type[pl.DataType]] = dict(guessed)
    types |= {name: pl.Float64 for name in numbers if name in guessed and guessed[name].is_integer()}
    types |= {name: pl.String for name in texts if name in guessed}
    frame = pl.scan_csv(paths, separator=separator, schema=types)
    return frame.with_columns(
        pl.col(name)
        .str.replace(r"^(-?\d+)\.0+$", "${1}")
        .str.replace(r"^(-?\d+\.\d*[1-9])0+$", "${1}")
        .replace({"True": "true", "False": "false"})
        for name in texts
        if name in guessed
    )


@contextmanager
def readable(source: str) -> Iterator[None]:
    """Turn what Polars and the system say of an unreadable file into one sentence."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
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
    """Yield the chosen columns in batches, in the order of the rows; `progress` hears of each batch's size."""
    require_columns(frame, columns, source=source)
    with readable(source):
        for batch in frame.select(columns).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            yield batch
            if progress is not None:
                progress(len(batch))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
