"""Rows as an Arrow IPC stream, for bulk: read with every check that Arrow has, since the bytes are not trusted."""

import struct
from typing import Any

from mcnet._shared.messages import first_line
from mcnet.operations.service.problems import Problem

ARROW = "application/vnd.apache.arrow.stream"

_MESSAGE_HEADER, _BATCH_OF_DICTIONARY, _COMPRESSION = 2, 1, 3
"""Indexes of what is looked up in the tables of a message, by Arrow's Message.fbs."""


def check_rows(rows: int, most: int) -> None:
    """Refuse more rows than the service takes in one request."""
    if rows > most:
        raise Problem(
            413, f"the request has {rows:,} rows; this service takes at most {most:,} per request", limit=most
        )


def read_arrow(body: bytes, most_rows: int) -> dict[str, Any]:
    """Return the columns of a stream by their names.

    Refused are streams that are damaged, cut off (the marker of their end is missing), compressed (a few bytes could
    become gigabytes), or have columns that are neither numbers nor strings.
    """
    import pyarrow as pa

    buffer = pa.py_buffer(body)
    try:
        _check_messages(pa.BufferReader(buffer))
        with pa.ipc.open_stream(buffer) as reader:
            for column in reader.schema:
                _refuse_type(column)
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                check_rows(rows, most_rows)
                batch.validate(full=True)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, ValueError, KeyError, struct.error, MemoryError) as error:
        raise Problem(400, f"the body cannot be read as an Arrow IPC stream: {first_line(error)[:300]}") from None
    names = table.column_names
    if len(set(names)) < len(names):
        raise Problem(400, f"two columns have the same name: {', '.join(names)}", at="columns")
    return {name: _column(table[name]) for name in names}


def _column(column: Any) -> Any:
    """Return one array; texts in views (from Polars), numbers in dictionaries and missing values become plain ones."""
    import pyarrow as pa

    if pa.types.is_string_view(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.large_string())
    elif pa.types.is_dictionary(column.type) and not _is_text(column.type.value_type):
        column = column.cast(column.type.value_type)
    return column.combine_chunks()


def _is_text(kind: Any) -> bool:
    import pyarrow.types as known

    return bool(known.is_string(kind) or known.is_large_string(kind) or known.is_string_view(kind))


def _refuse_type(column: Any) -> None:
    import pyarrow.types as known

    scores = column.name == "score"
    kind = column.type.value_type if known.is_dictionary(column.type) else column.type
    if known.is_integer(kind) or known.is_floating(kind):
        return
    if not scores and (_is_text(kind) or known.is_boolean(kind) or known.is_null(kind)):
        return
    wanted = "numbers" if scores else "texts, numbers, or true and false"
    raise Problem(400, f"the column {column.name!r} is of type {column.type}; it must be {wanted}", at=column.name)


def _check_messages(stream: Any) -> None:
    """Refuse a stream that is compressed, that was cut off between two messages, or that other bytes follow."""
    import pyarrow as pa

    messages = pa.ipc.MessageReader.open_stream(stream)
    while True:
        begin = stream.tell()
        try:
            message = messages.read_next_message()
        except StopIteration:
            break
        if message.type not in ("record batch", "dictionary"):
            continue
        content = message.metadata.to_pybytes()
        table = _member(content, _root(content), _MESSAGE_HEADER)
        if table is not None and message.type == "dictionary":
            table = _member(content, table, _BATCH_OF_DICTIONARY)
        if table is not None and _offset(content, table, _COMPRESSION):
            raise Problem(400, "the stream is compressed, which this service does not read; send it uncompressed")
    if stream.tell() == begin:
        raise Problem(
            400, "the Arrow IPC stream lacks the marker of its end, so it may be cut off; close the writer, send all"
        )
    if stream.tell() < stream.size():
        more = stream.size() - stream.tell()
        raise Problem(400, f"{more:,} bytes follow the end of the Arrow IPC stream; send one stream per request")


def _root(content: bytes) -> int:
    return int(struct.unpack_from("<I", content, 0)[0])


def _offset(content: bytes, table: int, member: int) -> int:
    """Return where a member of a table of a FlatBuffer is, from the table's beginning; 0 if it is not there."""
    start = table - struct.unpack_from("<i", content, table)[0]
    if start < 0:
        raise ValueError("a message is damaged")
    if struct.unpack_from("<H", content, start)[0] < 6 + 2 * member:
        return 0
    return int(struct.unpack_from("<H", content, start + 4 + 2 * member)[0])


def _member(content: bytes, table: int, member: int) -> int | None:
    """Return where the table begins that is a member of another one."""
    offset = _offset(content, table, member)
    return table + offset + struct.unpack_from("<I", content, table + offset)[0] if offset else None
