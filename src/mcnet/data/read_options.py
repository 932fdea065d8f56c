"""Options of reading files: settings of object stores, separators, conditions on rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from mcnet.errors import InputError

__all__ = ["ReadOptions", "read_options", "read_with", "unusable_condition"]


@dataclass
class ReadOptions:
    """What holds for every file that is opened meanwhile.

    Attributes
    ----------
    storage_options : settings of object stores, as Polars takes them; what is not there comes from the environment.
    separator : what divides the columns of CSV files; None for a comma, or a tab in TSV files.
    where : a condition on the rows, in SQL.
    drop_missing : leave out rows whose score, label or weight is missing.
    dropped_rows : how many rows were left out so far.
    """

    storage_options: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None
    where: str | None = None
    drop_missing: bool = False
    dropped_rows: int = 0


_current: ContextVar[ReadOptions | None] = ContextVar("mcnet read options", default=None)


def read_options() -> ReadOptions:
    """Return the options that hold now."""
    return _current.get() or ReadOptions()


@contextmanager
def read_with(
    *,
    storage_options: Mapping[str, str] | None = None,
    separator: str | None = None,
    where: str | None = None,
    drop_missing: bool = False,
) -> Iterator[ReadOptions]:
    """Let options hold for every file that is opened inside; those not given stay as they are."""
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        raise InputError(f"the separator is {separator!r}; it must be one character, such as ';'")
    before = read_options()
    options = replace(
        before,
        storage_options={**before.storage_options, **(storage_options or {})},
        separator=before.separator if separator is None else separator,
        where=before.where if where is None else where,
        drop_missing=before.drop_missing or drop_missing,
        dropped_rows=0,
    )
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)
        before.dropped_rows += options.dropped_rows


def unusable_condition(where: str, error: BaseException) -> InputError:
    """Return the error about a condition on rows that Polars refused."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "date/datetime/time" in reason:
        reason = "it compares timestamps with a text; write DATE '2026-11-16' or TIMESTAMP '2026-11-16 07:00'"
    return InputError(f"the condition {where!r} cannot be used: {reason}")
