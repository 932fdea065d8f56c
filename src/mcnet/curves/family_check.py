"""Check a family of curves: they must rise for every combination of field values."""

from collections.abc import Sequence

import numpy as np

from mcnet.curves.family import Combination, CurveFamily

__all__ = ["family_problem"]

_LARGEST_LOG_SLOPE = 300.0
"""Beyond this, exp of a log-slope times the width of a panel may overflow."""

_LARGEST_LOGIT = 1e6


def family_problem(family: CurveFamily, sizes: Sequence[int]) -> str | None:
    """Return what is wrong with a family for fields of this many values each, or None.

    Values beyond a field's numbers share the common curve.
    With knots in order and finite numbers, every curve of the family rises: its slopes are exponentials.
    """
    return _shape_problem(family, sizes) or _number_problem(family)


def _shape_problem(family: CurveFamily, sizes: Sequence[int]) -> str | None:
    knots, moves = len(family.knots), len(family.offset_by)
    if knots == 0 or not 0 <= family.origin < knots:
        return f"a family of curves has {knots} knots and its origin at knot {family.origin}"
    if family.log_slope.shape != (knots + 1,) or family.log_slope_by.shape != (knots + 1, moves):
        return f"a family of curves with {knots} knots needs {knots + 1} log-slopes"
    if family.fields != len(sizes):
        return f"a family of curves is for {family.fields} fields, and there are {len(sizes)}"
    for combination in family.combinations:
        problem = _combination_problem(combination, sizes)
        if problem:
            return problem
    expected = [*sizes, *(len(combination.keys) for combination in family.combinations)]
    for part, size in zip(family.numbers, expected, strict=True):
        if part.ndim != 2 or len(part) > size or part.shape[1] != moves:
            return f"a family of curves has numbers of shape {part.shape} for {size} values of a field"
    return None


def _combination_problem(combination: Combination, sizes: Sequence[int]) -> str | None:
    first, second = combination.first, combination.second
    if not (0 <= first < len(sizes) and 0 <= second < len(sizes) and first != second):
        return f"a family of curves combines the fields {first} and {second} of {len(sizes)}"
    if not 0 < combination.size <= sizes[second]:
        return f"a combination of fields counts {combination.size} values where there are {sizes[second]}"
    keys = combination.keys
    if len(keys) and not (keys[0] >= 0 and keys[-1] < sizes[first] * sizes[second] and (np.diff(keys) > 0).all()):
        return "the pairs of values of a combination are not in order, or not pairs of values"
    return None


def _number_problem(family: CurveFamily) -> str | None:
    parts = (family.knots, family.log_slope, family.offset_by, family.log_slope_by, *family.numbers)
    if not (all(np.isfinite(part).all() for part in parts) and np.isfinite(family.offset)):
        return "a number of a family of curves is not finite"
    if not (np.diff(family.knots) > 0.0).all() or np.abs(family.knots).max() > _LARGEST_LOGIT:
        return "the knots of a family of curves are not in order"
    if not family.limit > 0.0:
        return f"the limit of a family of curves is {family.limit}; it must be above 0"
    # However the values are combined, a number is at most the sum of the largest ones.
    largest = sum((np.abs(part).max(axis=0, initial=0.0) for part in family.numbers), np.zeros(len(family.offset_by)))
    log_slope = np.abs(family.log_slope) + np.abs(family.log_slope_by) @ largest
    if log_slope.max() > _LARGEST_LOG_SLOPE:
        return (
            f"a log-slope of a family of curves may be {log_slope.max():.3g}; it must be at most {_LARGEST_LOG_SLOPE:g}"
        )
    if abs(family.offset) + np.abs(family.offset_by) @ largest > _LARGEST_LOGIT:
        return "an offset of a family of curves is too large"
    return None
