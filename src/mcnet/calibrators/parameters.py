"""Checks that several methods share: parameters, and warnings about field values or scores of one class."""

import math
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray
from mcnet._shared.messages import warn
from mcnet.errors import InputError
from mcnet.sketch.sketch import Sketch

__all__ = ["balanced_field_use", "check_beta_order", "check_bins", "check_penalties", "is_positive", "warn_of_gaps"]

# Checks of parameters that several methods share: bins and regularisers.


def check_bins(bins: Any, *, auto: bool = False) -> None:
    """Raise unless `bins` is a whole number above 0, or "auto" where the method can choose."""
    if auto and isinstance(bins, str) and bins == "auto":
        return
    if isinstance(bins, bool) or not isinstance(bins, Integral) or bins < 1:
        known = "'auto' or a whole number above 0" if auto else "a whole number above 0"
        raise InputError(f"bins is {bins!r}; it must be {known}")


def check_penalties(alpha_balance: Any, balance: Any) -> None:
    """Raise unless the weight of the balance term is a number ≥ 0 and its kind is known."""
    if not (isinstance(alpha_balance, Real) and 0.0 <= float(alpha_balance) < math.inf):
        raise InputError(f"alpha_balance is {alpha_balance!r}; it must be a number ≥ 0")
    if balance not in ("global", "field"):
        raise InputError(f"balance is {balance!r}; it must be 'global' or 'field'")


def is_positive(number: Any) -> bool:
    """Tell whether something is a number above 0, before it has been checked."""
    return isinstance(number, Real) and float(number) > 0.0


def balanced_field_use(alpha_balance: Any, field_aware: bool) -> Literal["none", "optional", "required"]:
    """Return whether a field is of use to the curves, needed by the balance term, or of no use."""
    if is_positive(alpha_balance):
        return "required"
    return "optional" if field_aware else "none"


def check_beta_order(beta_order: Any) -> None:
    """Raise unless the weight of the order regulariser is None or a number ≥ 0."""
    if beta_order is not None and not (isinstance(beta_order, Real) and 0.0 <= float(beta_order) < math.inf):
        raise InputError(f"beta_order is {beta_order!r}; it must be None or a number ≥ 0")


# Warnings about field values, or ranges of scores, that have one class only.

_MOST_VALUES_TO_NAME = 100
_FEWEST_EXPECTED = 10.0
"""Positives (or negatives) that the scores must expect in a range without any, before a warning is given."""


def warn_of_gaps(method: str, sketch: Sketch) -> None:
    """Warn of field values and of low or high ranges of scores that have one class only."""
    _warn_of_values(method, sketch)
    weight, positives, expected = _sums_by_key(sketch)
    score = expected / weight
    below = int(np.argmax(positives > 0.0))
    if expected[:below].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no positives below score {score[below]:.3g} ({weight[:below].sum():,.0f} rows)")
    above = len(weight) - int(np.argmax((weight - positives)[::-1] > 0.0))
    if (weight - expected)[above:].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no negatives above score {score[above - 1]:.3g} ({weight[above:].sum():,.0f} rows)")


def _sums_by_key(sketch: Sketch) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weight, positives and summed scores of the cells of each key, in order of the keys."""
    key = sketch.cells.key
    lowest = int(key.min())
    width = int(key.max()) - lowest + 1
    if width > len(key):  # the keys of a sketch of exact scores
        keys, key = np.unique(key, return_inverse=True)
        lowest, width = 0, len(keys)
    sums = np.zeros((3, width))
    for start in range(0, len(key), ROWS_AT_A_TIME):
        cells = slice(start, start + ROWS_AT_A_TIME)
        weight, place = sketch.weight[cells], key[cells] - lowest
        for total, column in zip(sums, (weight, sketch.positives[cells], weight * sketch.score[cells]), strict=True):
            total += np.bincount(place, column, width)
    weight, positives, expected = sums[:, sums[0] > 0.0]
    return weight, positives, expected


def _warn_of_values(method: str, sketch: Sketch) -> None:
    weight, positives = sketch.context_sums.T
    if not sketch.contexts.names or len(weight) > _MOST_VALUES_TO_NAME:
        return  # a long tail has such values by nature
    one_sided = np.flatnonzero((weight > 0.0) & ((positives <= 0.0) | (positives >= weight)))
    if len(one_sided):
        kind = "positives" if positives[one_sided[0]] <= 0.0 else "negatives"
        name = sketch.contexts.labels()[one_sided[0]]
        more = f" (and {len(one_sided) - 1} more of one class only)" if len(one_sided) > 1 else ""
        warn(f"{method}: {name} has no {kind}{more}; its curve stays near the common one")
