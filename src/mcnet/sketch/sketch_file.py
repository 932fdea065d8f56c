"""Sketches as Parquet files, one row per cell in plain columns, and as short bytes for a database; with a checksum."""

import hashlib
import io
import zlib
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl

from mcnet._shared.arrays import ScoreType
from mcnet._shared.files import disk_path
from mcnet._shared.messages import first_line
from mcnet.errors import Advice, FileFormatError, InputError
from mcnet.rows.contexts import Contexts
from mcnet.rows.derived import check_edges
from mcnet.rows.fields import field_column, field_columns
from mcnet.rows.logs import readable
from mcnet.rows.spec import ValueKind
from mcnet.sketch.grid import POSITION_UNITS, Cells
from mcnet.sketch.sketch import Sketch

VERSION = 1
METADATA = "mcnet.sketch"
_SUMS = ("weight", "positives", "position", "value", "value_positive", "value_squares")
"""The last three are Σwv, Σwvy and Σwv² in whole 10⁻⁶ units; few sketches have them."""

_PACKED = b"mcnet sketch 1\n"
_DIGEST_BYTES = 16
_WORTH_COMPRESSING = 1 << 14
"""Fewer bytes than this take more time to compress than they are worth: those of a request of feedback."""
_MOST_BYTES = 1 << 29
"""What a client sends may unpack to no more than this."""


class _About(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a sketch file says beside its cells."""

    version: int
    resolution: int | Literal["exact"]
    folds: int
    rows: int
    fields: tuple[str, ...]
    columns: dict[str, str]
    score_type: ScoreType
    sources: tuple[str, ...]
    negatives_kept: float | None = 1.0
    dropped_rows: int = 0
    value_kind: ValueKind | None = None
    weight_squares: float | None = None
    edges: dict[str, tuple[float, ...]] = {}

    @staticmethod
    def of(sketch: Sketch) -> "_About":
        return _About(
            VERSION,
            fields=sketch.contexts.names,
            columns=dict(sketch.columns),
            sources=sketch.sources,
            edges=dict(sketch.contexts.edges),
            **{name: getattr(sketch, name) for name in _SAME},
        )

    def sketch(self, contexts: Contexts, cells: Cells) -> Sketch:
        """Return the sketch of these cells; refuse cells that no rows can have."""
        contexts = replace(contexts, edges={name: check_edges(name, given) for name, given in self.edges.items()})
        same = {name: getattr(self, name) for name in _SAME}
        sketch = Sketch(contexts, cells, columns=self.columns, known_sources=self.sources, **same)
        problem = problem_of_cells(sketch)
        if problem:
            raise FileFormatError(f"{problem}; make it again")
        return sketch


_SAME = (
    "resolution",
    "folds",
    "rows",
    "score_type",
    "negatives_kept",
    "dropped_rows",
    "value_kind",
    "weight_squares",
)
"""What is of the same name in a sketch."""


class _Version(msgspec.Struct):
    version: int


def _check_version(about: str | bytes) -> None:
    """Refuse what another version of mcnet wrote, before the rest is read, which may be of another shape."""
    version = msgspec.json.decode(about, type=_Version).version
    if version != VERSION:
        raise FileFormatError(f"it has version {version}, and this mcnet reads {VERSION}: make it again of its rows")


def _digest(about: bytes, frame: pl.DataFrame) -> str:
    """Return a digest of all that a file says, however it is laid out."""
    digest = hashlib.blake2b(about)
    for series in frame.iter_columns():
        values: Any = series
        if series.dtype == pl.String:
            column = field_column(series.name, series)
            digest.update(repr((series.name, column.values)).encode())
            values = column.codes
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def parquet_bytes(sketch: Sketch) -> bytes:
    """Return the content of a sketch file; fields become columns `field:<name>` of strings."""
    fields = {
        f"field:{column.name}": pl.Series(column.values, dtype=pl.String).gather(column.codes)
        for column in sketch.contexts.columns(sketch.context)
    }
    sums = dict(zip(_SUMS, sketch.cells.sums.T, strict=False))
    frame = pl.DataFrame({**fields, "cell": sketch.cells.key, "fold": sketch.fold, **sums})
    about = msgspec.json.encode(_About.of(sketch))
    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata={METADATA: about.decode(), "mcnet.digest": _digest(about, frame)})
    return buffer.getvalue()


def load_sketch(path: str | PathLike[str]) -> Sketch:
    """Load a sketch."""
    path = disk_path(path, "a saved sketch")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    with readable(str(path)):
        content = path.read_bytes()
    return sketch_of_bytes(content, str(path))


def sketch_of_bytes(content: bytes, name: str) -> Sketch:
    """Return the sketch that the content of a sketch file, or `stored_bytes`, describes."""
    if not content.startswith((_PACKED, b"PAR1")) or (content[:4] == b"PAR1" != content[-4:]):
        raise FileFormatError(f"{name} cannot be read as Parquet: it is another kind of file, or damaged")
    try:
        if content.startswith(_PACKED):
            return _unpacked(content)
        metadata = pl.read_parquet_metadata(io.BytesIO(content))
        if METADATA in metadata:
            return _of_frame(metadata, pl.read_parquet(io.BytesIO(content)))
    except (Exception, pl.exceptions.PanicException) as error:
        raise FileFormatError(f"{name} cannot be used as a sketch: {first_line(error)}") from None
    advice = Advice("make one with mcnet.scan", shell="make one with mcnet sketch")
    raise FileFormatError(f"{name} is a Parquet file but not a sketch", advice=advice, file=name)


def _of_frame(metadata: dict[str, str], frame: pl.DataFrame) -> Sketch:
    _check_version(metadata[METADATA])
    about = msgspec.json.decode(metadata[METADATA], type=_About)
    sums = _SUMS if about.value_kind else _SUMS[:3]
    names = [*(f"field:{name}" for name in about.fields), "cell", "fold", *sums]
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        raise FileFormatError(f"it lacks the column {lacking[0]!r}; make it again")
    if metadata.get("mcnet.digest") != _digest(metadata[METADATA].encode(), frame.select(names)):
        raise FileFormatError("its contents do not match its checksum; it was altered or damaged: make it again")
    fields = field_columns({name: frame[f"field:{name}"] for name in about.fields}, about.edges) if about.fields else []
    contexts, codes = Contexts.of(fields, len(frame))
    columns = (frame["cell"].cast(pl.Int64).to_numpy(), frame["fold"].cast(pl.Int16).to_numpy())
    cells = Cells(codes, *columns, frame.select(sums).cast(pl.Float64).to_numpy())
    return replace(about.sketch(contexts, cells), cells=cells.added_up())


# A sketch in a database: the same content in MessagePack, far cheaper to write and to read.


class _Packed(msgspec.Struct, array_like=True):
    about: _About
    values: tuple[tuple[str | None, ...], ...]
    table: bytes
    context: bytes
    key: bytes
    fold: bytes
    sums: bytes


_KINDS = (("table", "<i4"), ("context", "<i4"), ("key", "<i8"), ("fold", "<i2"), ("sums", "<f8"))


def stored_bytes(sketch: Sketch) -> bytes:
    """Return a sketch as a database stores it."""
    cells, contexts = sketch.cells, sketch.contexts
    columns = (contexts.table, cells.context, cells.key, cells.fold, cells.sums)
    arrays = [np.asarray(column, dtype=kind).tobytes() for column, (_, kind) in zip(columns, _KINDS, strict=True)]
    packed = msgspec.msgpack.encode(_Packed(_About.of(sketch), contexts.values, *arrays))
    body = zlib.compress(packed, 1 if len(packed) > _WORTH_COMPRESSING else 0)
    return _PACKED + hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def _unpacked(content: bytes) -> Sketch:
    begin = len(_PACKED) + _DIGEST_BYTES
    body = content[begin:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != content[len(_PACKED) : begin]:
        raise FileFormatError("it does not match its checksum; it was altered or damaged: add the rows again")
    unzipped = zlib.decompressobj()
    packed = msgspec.msgpack.decode(unzipped.decompress(body, _MOST_BYTES), type=_Packed)
    table, context, key, fold, sums = (np.frombuffer(getattr(packed, name), kind).copy() for name, kind in _KINDS)
    names = packed.about.fields
    table, sums = table.reshape(-1 if names else 1, len(names)), sums.reshape(len(key), -1)
    sizes = np.array([len(values) for values in packed.values], dtype=np.int64)  # clients send such bytes, too
    if not (len(context) == len(fold) == len(key) and ((table >= 0) & (table < sizes)).all()):
        raise FileFormatError("its columns do not fit together")
    if len(context) and not 0 <= context.min() <= context.max() < len(table):
        raise FileFormatError("a cell has no context")
    return packed.about.sketch(Contexts(names, packed.values, table), Cells(context, key, fold, sums))


def problem_of_cells(sketch: Sketch) -> str | None:
    """Return what is wrong with the cells of a sketch that was made elsewhere, or None."""
    weight, positives, position = sketch.cells.sums.T[:3]
    slack = 1.0 + 1e-9  # another engine may have added up in another order
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
