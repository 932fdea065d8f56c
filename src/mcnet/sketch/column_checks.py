"""Check the names of columns before anything is read: they must be texts, and each used once."""

from collections.abc import Mapping
from typing import Any

from mcnet.errors import InputError

__all__ = ["check_columns"]


def check_columns(
    score: str, label: str, weight: str | None, folds: int | str, fields: list[str], every: Mapping[str, Any]
) -> None:
    """Refuse names that are no names, or used twice, before anything is read."""
    columns = [score, label, *(column for column in (weight, folds) if isinstance(column, str)), *fields]
    for column in (score, label, *fields):
        if not isinstance(column, str):
            raise InputError(
                f"scan takes names of columns, not {type(column).__name__}; give columns to mcnet.Sketch.from_rows"
            )
    if len(set(columns)) < len(columns):
        twice = next(c for c in columns if columns.count(c) > 1)
        raise InputError(
            f"the column {twice!r} is used twice; score, label, fields, weight and folds must be different columns"
        )
    for name in every:
        if name not in fields:
            raise InputError(f"every names {name!r}, which is not a field of this scan; pass it as a field too")
