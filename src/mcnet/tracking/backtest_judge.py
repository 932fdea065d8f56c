"""The result of one period: sums from which log-loss, PCOC and errors by field value follow."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.data.fields import MISSING_LABEL
from mcnet.metrics.group_sums import GroupSums, group_sums
from mcnet.metrics.scoring import CLIP
from mcnet.sketch.sketch import Sketch

__all__ = ["period_sums"]

EPSILON = 0.01
"""What F-RCE adds to the label of every row, as everywhere in mcnet."""
MOST_VALUES_PER_PERIOD = 50
"""This many field values of a period, the largest, have their level recorded."""


def period_sums(sketch: Sketch, probabilities: Mapping[str, FloatArray], levels_of: tuple[str, ...]) -> dict[str, Any]:
    """Return the sums of a period as JSON-able values.

    Parameters
    ----------
    sketch : the rows of the period, with their labels.
    probabilities : for each forecaster, one probability per cell.
    levels_of : the forecasters whose expected positives are recorded per field value.
    """
    weight, positives = sketch.weight, np.minimum(sketch.positives, sketch.weight)
    sums = {
        name: group_sums(p, positives / weight, sketch.context, weight, count=len(sketch.contexts))
        for name, p in probabilities.items()
    }
    return {
        "rows": sketch.rows,
        "weight": float(weight.sum()),
        "positives": float(positives.sum()),
        "forecasters": {
            name: _figures(p, weight, positives, sums[name], bool(sketch.contexts.names))
            for name, p in probabilities.items()
        },
        "values": _values(sketch, [sums[name] for name in levels_of]),
    }


def _figures(
    p: FloatArray, weight: FloatArray, positives: FloatArray, sums: GroupSums, has_fields: bool
) -> list[float | None]:
    """Return the loss of all rows, the sums for PCOC and its interval, and F-RCE."""
    inside = np.clip(p, CLIP, 1.0 - CLIP)
    loss = -float(positives @ np.log(inside) + (weight - positives) @ np.log1p(-inside))
    total = sums.total()
    moments = (total.predicted, total.predicted_squared, total.predicted_positive)
    error = float(sums.weight @ (np.abs(sums.positives - sums.predicted) / (sums.positives + EPSILON * sums.weight)))
    return [loss, *(float(column[0]) for column in moments), error / float(weight.sum()) if has_fields else None]


def _values(sketch: Sketch, levels: list[GroupSums]) -> list[list[Any]]:
    """Return (field, value, weight, positives, expected positives …) of the largest field values."""
    found: list[list[Any]] = []
    for column in sketch.contexts.columns(sketch.contexts.all()):
        number = len(column.values)
        merged = [part.merged(column.codes, number) for part in levels]
        weight = merged[0].weight
        for code in np.argsort(-weight, kind="stable")[:MOST_VALUES_PER_PERIOD]:
            if weight[code] > 0.0:
                value = MISSING_LABEL if column.values[code] is None else column.values[code]
                expected = [float(part.predicted[code]) for part in merged]
                found.append([column.name, value, float(weight[code]), float(merged[0].positives[code]), *expected])
    return found
