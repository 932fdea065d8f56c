"""Warnings of likely mistakes with columns: ids as fields, scores and labels swapped, shares as weights."""

import re
from collections.abc import Collection

import numpy as np

from mcnet._shared.user_warnings import warn
from mcnet.sketch.sketch import Sketch

__all__ = ["warn_of_mistakes"]

_VALUES_WORTH_A_WARNING = 1_000
"""A field with more values than this, most of them with a single row, is probably an id."""

_BEGINS_AS_DAY = re.compile(r"\d{4}-\d\d-\d\d").match

_NEARLY_ZERO = 1.01e-7
"""Scores of 0 and 1 are clipped to this distance from 0 and 1."""

_LIGHTEST_ROW = 0.01
"""Weights that are less than this on average are probably shares, not numbers of rows."""
_ROWS_WORTH_A_WARNING = 100
"""This many rows, at least, must be too light."""


def warn_of_mistakes(sketch: Sketch, score: str, label: str, periods: Collection[str] = ()) -> None:
    """Warn of columns that are probably not what they were taken for; `periods` are no fields but times."""
    _warn_of_ids(sketch, periods)
    _warn_of_swapped_columns(sketch, score, label)
    _warn_of_light_rows(sketch)


def _warn_of_ids(sketch: Sketch, periods: Collection[str]) -> None:
    """Warn of a field with a different value in most rows."""
    for name, values in zip(sketch.contexts.names, sketch.contexts.values, strict=True):
        # Moments may be cut to periods later.
        if (
            name not in periods
            and len(values) > _VALUES_WORTH_A_WARNING
            and 2 * len(values) > sketch.rows
            and not _BEGINS_AS_DAY(values[0] or "")
        ):
            warn(
                f"field {name!r} has {len(values):,} values in {sketch.rows:,} rows; if it is an id, leave it out: "
                "rare values have too few rows for their own curves"
            )


def _warn_of_swapped_columns(sketch: Sketch, score: str, label: str) -> None:
    """Warn of scores that are all 0 or 1 beside labels that are fractions."""
    grid, cells = sketch.grid, sketch.cells
    sample = cells.key[:: max(1, len(cells) // 100)]
    for keys in (sample, cells.key):  # a look at a few cells settles the usual case
        if ((grid.lower(keys) > _NEARLY_ZERO) & (grid.upper(keys) < 1.0 - _NEARLY_ZERO)).any():
            return
    if (sketch.positives != np.floor(sketch.positives)).any():
        warn(
            f"every {score} is 0 or 1 and {label} has fractions; "
            "if the columns of scores and labels are swapped, swap them back"
        )


def _warn_of_light_rows(sketch: Sketch) -> None:
    """Warn of weights that add up to next to no rows: methods with a prior would keep to it, and intervals be wide."""
    with np.errstate(over="ignore"):  # too much to be added up is said elsewhere
        total = sketch.total_weight
    if sketch.rows >= _ROWS_WORTH_A_WARNING and 0.0 < total < _LIGHTEST_ROW * sketch.rows:
        warn(
            f"the weights of {sketch.rows:,} rows add up to {total:.3g}, and a weight counts as that many rows; "
            "if weights are shares, divide them by their mean"
        )
