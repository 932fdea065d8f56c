"""Sketches as Parquet files: one row per cell, plain columns, and a checksum of the whole file."""

import glob
import hashlib
import io
import json
import re
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl

from mcnet._shared.files import disk_path, is_url, local_path
from mcnet._shared.messages import first_line
from mcnet.errors import Advice, FileFormatError, InputError, McnetError
from mcnet.rows.contexts import Contexts
from mcnet.rows.derived import check_edges
from mcnet.rows.fields import field_columns
from mcnet.rows.locations import RemoteFile, read_options
from mcnet.rows.logs import readable
from mcnet.sketch.grid import POSITION_UNITS, Cells
from mcnet.sketch.sketch import Sketch

SKETCH_VERSION = 2
"""The version of a sketch without values, which earlier versions of mcnet read, too."""
_WITH_VALUES = 3
_WITH_DERIVED = 4
"""The version of a sketch with fields that are derived from columns."""
_WITH_PROPENSITY = 5
"""The version of a sketch whose rows are weighted by inverse propensity."""
_METADATA = "mcnet.sketch"
_COLUMNS = ("cell", "fold", "weight", "positives", "position")
_VALUES = ("value", "value_positive", "value_squares")
"""Σwv, Σwvy and Σwv² of a wide cell, in its first cell, in whole 10⁻⁶ units."""

_CHECKSUM_START = b'{"checksum": "'
_CHECKSUM_DIGITS = 64
_NO_CHECKSUM = b"0" * _CHECKSUM_DIGITS
"""What stands in the place of the checksum while it is computed."""

_PARQUET_MAGIC = b"PAR1"
_PARQUET_END = 8
"""A Parquet file ends with the size of its footer and the magic bytes."""

_METADATA_START = re.compile(rb'mcnet\.sketch.{1,8}\{"', re.DOTALL)
_VERSION_1 = re.compile(rb'mcnet\.sketch.{1,8}\{"version": 1,', re.DOTALL)


def parquet_bytes(sketch: Sketch) -> bytes:
    """Return the content of a sketch file; fields become columns `field:<name>` of strings."""
    frame = pl.DataFrame(
        {
            **{
                f"field:{column.name}": pl.Series(column.values, dtype=pl.String).gather(column.codes)
                for column in sketch.contexts.columns(sketch.context)
            },
            "cell": sketch.cells.key,
            "fold": sketch.fold,
            **dict(zip(("weight", "positives", "position"), sketch.cells.sums.T, strict=False)),
            **dict(zip(_VALUES, sketch.values.T, strict=False)),
        }
    )
    about = {
        "checksum": _NO_CHECKSUM.decode(),
        "version": _version(sketch),
        "resolution": sketch.resolution,
        "folds": sketch.folds,
        "rows": sketch.rows,
        "fields": list(sketch.contexts.names),
        "columns": dict(sketch.columns),
        "score_type": sketch.score_type,
        "negatives_kept": sketch.negatives_kept,
        "sources": list(sketch.sources),
        **({"dropped_rows": sketch.dropped_rows} if sketch.dropped_rows else {}),
        **({"value_kind": sketch.value_kind} if sketch.value_kind else {}),
        **({} if sketch.weight_squares is None else {"weight_squares": sketch.weight_squares}),
        **({"edges": sketch.contexts.edges} if sketch.contexts.edges else {}),
    }
    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata={_METADATA: json.dumps(about)})
    content = bytearray(buffer.getvalue())
    start = _checksum_start(content)
    content[start : start + _CHECKSUM_DIGITS] = _checksum(content).encode()
    return bytes(content)


def _version(sketch: Sketch) -> int:
    """Return the oldest version of the file that can describe a sketch."""
    if sketch.weight_squares is not None:
        return _WITH_PROPENSITY
    return _WITH_DERIVED if sketch.contexts.derived else _WITH_VALUES if sketch.value_kind else SKETCH_VERSION


def _checksum(content: bytes | bytearray) -> str:
    """Return the checksum of a file whose own place for it has zeros."""
    return hashlib.blake2b(content, digest_size=_CHECKSUM_DIGITS // 2).hexdigest()


def _checksum_start(content: bytes | bytearray) -> int:
    """Return where in a file the checksum is, -1 if there is none: in the metadata, which are at the end."""
    start = content.rfind(_CHECKSUM_START)
    return -1 if start < 0 else start + len(_CHECKSUM_START)


def is_sketch_file(path: str | PathLike[str]) -> bool:
    """Tell whether a file is a saved sketch (and not a log of rows); refuse one that is not on a disk."""
    if not isinstance(path, Path):
        if is_url(path):
            _refuse_remote_sketch(RemoteFile(fspath(path)))
            return False
        path = Path(local_path(path))
    if path.suffix != ".parquet" or not path.is_file():
        return False
    with readable(str(path)), path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - _PARQUET_END, 0))
        footer = int.from_bytes(file.read(4), "little")
        file.seek(max(size - _PARQUET_END - footer, 0))
        return _METADATA_START.search(file.read()) is not None


def _refuse_remote_sketch(file: RemoteFile) -> None:
    """Refuse a saved sketch in an object store, which would be taken for a log of rows."""
    if file.name.endswith(".parquet") and not glob.has_magic(file.url):
        with readable(file.url):
            about = pl.read_parquet_metadata(file.url, storage_options=dict(read_options().storage_options) or None)
        if _METADATA in about:
            disk_path(file, "a saved sketch")


def load_sketch(path: str | PathLike[str]) -> Sketch:
    """Load a sketch.

    Raises
    ------
    InputError : there is no such file.
    FileFormatError : the file is no sketch, is damaged, or was saved by another version of mcnet.
    """
    path = disk_path(path, "a saved sketch")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    with readable(str(path)):
        content = path.read_bytes()
    return sketch_of_bytes(content, str(path))


def sketch_of_bytes(given: bytes, name: str) -> Sketch:
    """Return the sketch that the content of a sketch file, or `stored_bytes`, describes.

    Parameters
    ----------
    given : the bytes.
    name : what to call them in messages.

    Raises
    ------
    FileFormatError : it is no sketch, is damaged, or was saved by another version of mcnet.
    """
    if given.startswith((_PACKED_MAGIC, _PACKED_WITH_EDGES)):
        return _unpacked(given, name)
    content = bytearray(given)
    if not (content.startswith(_PARQUET_MAGIC) and content.endswith(_PARQUET_MAGIC)):
        raise FileFormatError(f"{name} cannot be read as Parquet: it is another kind of file, or damaged")
    if _METADATA_START.search(content) is None:
        advice = Advice("make one with mcnet.scan", shell="make one with mcnet sketch")
        raise FileFormatError(f"{name} is a Parquet file but not a sketch", advice=advice, file=name)
    try:
        _check_integrity(content)
        frame = pl.read_parquet(io.BytesIO(content))
        return _sketch(json.loads(pl.read_parquet_metadata(io.BytesIO(content))[_METADATA]), frame)
    except (Exception, pl.exceptions.PanicException) as error:
        raise FileFormatError(f"{name} cannot be used as a sketch: {first_line(error)}") from None


# A sketch of few cells in a database: the same content in MessagePack, far cheaper to write and to read.

_PACKED_MAGIC = b"mcnet sketch 1\n"
_PACKED_WITH_EDGES = b"mcnet sketch 2\n"
_PACKED_DIGEST = 16
_MOST_PACKED_CELLS = 1_000
"""Larger sketches are Parquet, which compresses them."""


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    resolution: int | Literal["exact"]
    folds: int
    rows: int
    dropped_rows: int
    columns: dict[str, str]
    score_type: Literal["probability", "logit"]
    negatives_kept: float | None
    sources: tuple[str, ...] | None
    names: tuple[str, ...]
    values: tuple[tuple[str | None, ...], ...]
    table: bytes
    context: bytes
    key: bytes
    fold: bytes
    sums: bytes
    edges: dict[str, tuple[float, ...]] = {}  # what a sketch without derived fields leaves out


_packed_decoder = msgspec.msgpack.Decoder(_Packed)


def stored_bytes(sketch: Sketch) -> bytes:
    """Return a sketch as a database stores it: a sketch file or, of few cells, something shorter."""
    if len(sketch) > _MOST_PACKED_CELLS or sketch.value_kind is not None or sketch.weight_squares is not None:
        return parquet_bytes(sketch)
    cells, contexts = sketch.cells, sketch.contexts
    body = msgspec.msgpack.encode(
        (
            sketch.resolution,
            sketch.folds,
            sketch.rows,
            sketch.dropped_rows,
            dict(sketch.columns),
            sketch.score_type,
            sketch.negatives_kept,
            sketch.sources,
            contexts.names,
            contexts.values,
            np.ascontiguousarray(contexts.table, dtype="<i4").tobytes(),
            np.ascontiguousarray(cells.context, dtype="<i4").tobytes(),
            np.ascontiguousarray(cells.key, dtype="<i8").tobytes(),
            np.ascontiguousarray(cells.fold, dtype="<i2").tobytes(),
            np.ascontiguousarray(cells.sums, dtype="<f8").tobytes(),
            *([dict(contexts.edges)] if contexts.derived else []),
        )
    )
    magic = _PACKED_WITH_EDGES if contexts.derived else _PACKED_MAGIC
    return magic + hashlib.blake2b(body, digest_size=_PACKED_DIGEST).digest() + body


def _unpacked(content: bytes, name: str) -> Sketch:
    begin = len(_PACKED_MAGIC) + _PACKED_DIGEST
    digest, body = content[len(_PACKED_MAGIC) : begin], content[begin:]
    if hashlib.blake2b(body, digest_size=_PACKED_DIGEST).digest() != digest:
        raise FileFormatError(f"{name} does not match its checksum; it was altered or damaged: add the rows again")
    try:
        packed = _packed_decoder.decode(body)
        edges = {name: check_edges(name, given) for name, given in packed.edges.items()}
        # Without fields there is one context.
        number = len(packed.table) // (4 * len(packed.names)) if packed.names else 1
        table = np.frombuffer(packed.table, dtype="<i4").astype(np.int32).reshape(number, len(packed.names))
        context = np.frombuffer(packed.context, dtype="<i4").astype(np.int32)
        key = np.frombuffer(packed.key, dtype="<i8").astype(np.int64)
        fold = np.frombuffer(packed.fold, dtype="<i2").astype(np.int16)
        sums = np.frombuffer(packed.sums, dtype="<f8").astype(np.float64).reshape(-1, 3)
        sizes = np.array([len(values) for values in packed.values])
        if not (len(context) == len(key) == len(fold) == len(sums) and ((table >= 0) & (table < sizes)).all()):
            raise ValueError("its columns do not fit together")
        if len(context) and not 0 <= int(context.min()) <= int(context.max()) < len(table):
            raise ValueError("a cell has no context")
        sketch = Sketch(
            Contexts(packed.names, packed.values, table, edges),
            Cells(context, key, fold, sums),
            packed.resolution,
            packed.folds,
            packed.rows,
            packed.columns,
            packed.score_type,
            packed.negatives_kept,
            packed.sources,
            packed.dropped_rows,
        )
        problem = problem_of_cells(sketch)
        if problem:
            raise ValueError(problem)
    except (msgspec.MsgspecError, ValueError, TypeError, McnetError) as error:
        raise FileFormatError(f"{name} cannot be used as a sketch: {first_line(error)}") from None
    return sketch


def _check_integrity(content: bytearray) -> None:
    """Refuse content that does not match its checksum, before anything else reads it."""
    if _VERSION_1.search(content):
        raise FileFormatError("it was saved by mcnet 0.1, in an older format: make it again")
    start = _checksum_start(content)
    expected = bytes(content[start : start + _CHECKSUM_DIGITS])
    content[start : start + _CHECKSUM_DIGITS] = _NO_CHECKSUM
    if start < 0 or _checksum(content).encode() != expected:
        raise FileFormatError("its contents do not match its checksum; it was altered or damaged: make it again")


def _sketch(about: dict[str, Any], frame: pl.DataFrame) -> Sketch:
    if about["version"] not in range(SKETCH_VERSION, _WITH_PROPENSITY + 1):
        raise FileFormatError(f"it has version {about['version']}, this mcnet reads {_WITH_PROPENSITY}: upgrade mcnet")
    names = [f"field:{name}" for name in about["fields"]]
    values = _VALUES if about.get("value_kind") else ()
    lacking = [name for name in (*names, *_COLUMNS, *values) if name not in frame.columns]
    if lacking:
        raise FileFormatError(f"it lacks the column {lacking[0]!r}; make it again")
    edges = {name: check_edges(name, given) for name, given in about.get("edges", {}).items()}
    fields = field_columns({name.removeprefix("field:"): frame[name] for name in names}, edges) if names else []
    contexts, codes = Contexts.of(fields, len(frame))
    sums = np.column_stack([frame[name].to_numpy() for name in ("weight", "positives", "position", *values)])
    cells = Cells(codes, frame["cell"].to_numpy().astype(np.int64), frame["fold"].to_numpy().astype(np.int16), sums)
    sketch = Sketch(
        contexts,
        cells,
        about["resolution"],
        about["folds"],
        about["rows"],
        columns=about["columns"],
        score_type=about["score_type"],
        negatives_kept=about["negatives_kept"],
        known_sources=tuple(about["sources"]),
        dropped_rows=about.get("dropped_rows", 0),
        value_kind=about.get("value_kind"),
        weight_squares=about.get("weight_squares"),
    )
    problem = problem_of_cells(sketch)
    if problem:
        raise FileFormatError(f"{problem}; make it again")
    return replace(sketch, cells=cells.added_up())


def problem_of_cells(sketch: Sketch) -> str | None:
    """Return what is wrong with the cells of a sketch that was made elsewhere, or None."""
    weight, positives, position = sketch.cells.sums.T[:3]
    slack = 1.0 + 1e-9  # another engine may have added up in another order
    if sketch.score_type not in ("probability", "logit"):
        return f"its score type is {sketch.score_type!r}"
    if sketch.value_kind not in (None, "row", "positive") or not (sketch.values >= 0.0).all():
        return "a sum of values is missing, below 0, or of an unknown kind"
    if sketch.weight_squares is not None and not 0.0 < sketch.weight_squares < np.inf:
        return "its sum of squared weights is not above 0"
    if not np.isfinite(sketch.cells.sums).all():
        return "a sum of weights is missing, or beyond the largest number"
    if not (weight > 0.0).all():
        return "a cell has no weight"
    if not ((positives >= 0.0) & (positives <= weight * slack)).all():
        return "a cell has more positives than weight, or fewer than none"
    if not ((position >= 0.0) & (position <= weight * POSITION_UNITS * slack)).all():
        return "the mean position of a cell lies outside it"
    if not ((sketch.fold >= 0) & (sketch.fold < sketch.folds)).all():
        return f"a fold is not one of {sketch.folds}"
    if not sketch.grid.knows(sketch.cells.key):
        return f"a cell is none of resolution {sketch.resolution}"
    return None
