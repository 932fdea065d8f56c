"""Values of Arrow columns as Python has them, those of types that an engine has made its own among them."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from mcnet.errors import InputError

__all__ = ["arrow_values"]


def arrow_values(name: str, kind: Any, distinct: Any) -> list[Any]:
    """Return distinct values of a field as Python has them.

    Parameters
    ----------
    name : the name of the field.
    kind : the type of the field in Arrow. A driver may have made it its own (an extension of Arrow).
    distinct : the values, as Arrow stores them.
    """
    if getattr(distinct.type, "unit", None) == "ns":  # which Python has not
        import pyarrow as pa

        zoned = hasattr(distinct.type, "tz")
        micros = pa.timestamp("us", distinct.type.tz) if zoned else str(distinct.type).replace("ns", "us")
        distinct = distinct.cast(micros, safe=False)
    try:
        values: list[Any] = distinct.to_pylist()
    except (ValueError, OverflowError) as error:  # texts that are not UTF-8, days beyond the calendar of Python
        raise InputError(f"field {name!r} has a value that cannot be read ({error}); cast it to text") from None
    own = getattr(kind, "extension_name", None)
    if own is None:
        return values
    if own == "arrow.uuid":
        return [UUID(bytes=value) for value in values]
    engine_type = getattr(kind, "type_name", own)
    if engine_type == "numeric":  # of PostgreSQL, in texts such as 7.50
        return [Decimal(value) for value in values]
    if any(isinstance(value, bytes) for value in values):
        raise InputError(f"field {name!r} is of the type {engine_type}, whose values are not known; cast it to text")
    return values
