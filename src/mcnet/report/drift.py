"""Drift: calibration period by period, from one sketch a period."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet.data.fields import MISSING_LABEL, sort_key
from mcnet.errors import InputError
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import GroupSums, group_sums
from mcnet.plots.drift import Drift
from mcnet.sketch.cells import Cells
from mcnet.sketch.sketch import Sketch

__all__ = ["PeriodSums", "drift_of", "period_sums", "prepare_drift", "sketches_by"]

SERIES = ("before", "after")
PeriodSums = dict[str, tuple[GroupSums, ...]]
"""For each period, the sums of every context before and after calibration."""


def sketches_by(sketch: Sketch, name: str) -> dict[str, Sketch]:
    """Return one sketch for each value of a field (a day, an hour), in order, without that field.

    Scan the time column as one more field, and this parts the sketch by time.

    >>> sketch = Sketch.from_rows([0.1, 0.2], [0, 1], field={"country": ["NL", "NL"], "day": ["mon", "tue"]})
    >>> {day: part.total_weight for day, part in sketches_by(sketch, "day").items()}
    {'mon': 1.0, 'tue': 1.0}
    """
    if name not in sketch.contexts.names:
        raise InputError(f"the sketch has no field {name!r}; it has {', '.join(sketch.contexts.names) or 'none'}")
    place = sketch.contexts.names.index(name)
    codes = sketch.contexts.table[sketch.context, place]
    others = [other for other in sketch.contexts.names if other != name]
    parts = {}
    values = sketch.contexts.values[place]
    for code in sorted(range(len(values)), key=_by_number_or_text(values)):
        value, inside = values[code], codes == code
        if inside.any():
            # Contexts that a period lacks go too: only() keeps what its cells use.
            used, renumbered = np.unique(sketch.context[inside], return_inverse=True)
            kept = sketch.cells.take(inside)
            cells = Cells(renumbered.astype(np.int32), kept.key, kept.fold, kept.sums)
            share = float(kept.sums[:, 0].sum()) / sketch.total_weight
            part = replace(sketch, contexts=sketch.contexts.subset(used), cells=cells, rows=round(sketch.rows * share))
            parts[MISSING_LABEL if value is None else value] = part.only(*others)
    return parts


def _by_number_or_text(values: Sequence[str | None]) -> Callable[[int], Any]:
    """Return the order of periods: by number if all are numbers (9 before 10), else by text; the missing one last."""
    try:
        numbers = [np.inf if value is None else float(value) for value in values]
    except ValueError:
        return lambda code: sort_key(values[code])
    return lambda code: (values[code] is None, numbers[code])


def period_sums(
    calibrator: Any, periods: Mapping[str, Sketch], contexts: Sequence[NDArray[np.int32]], number: int
) -> PeriodSums:
    """Return the sums of every context, period by period; `contexts` has the context of each sketch's cells."""
    return {
        period: tuple(
            group_sums(p, sketch.rate, of_cells, sketch.weight, count=number)
            for p in (sketch.score, predict_cells(calibrator, sketch))
        )
        for (period, sketch), of_cells in zip(periods.items(), contexts, strict=True)
    }


def drift_of(sums: PeriodSums, contexts: NDArray[np.intp] | None = None) -> Drift:
    """Return PCOC by period of some contexts together, or of all."""
    totals = [
        [(part if contexts is None else part.where(_mask(part, contexts))).total() for part in parts]
        for parts in sums.values()
    ]
    columns = np.array([[group_pcoc(part) for part in parts] for parts in totals])[..., 0]
    pcoc, low, high = np.moveaxis(columns, 2, 0)
    weight = np.array([float(parts[0].weight[0]) for parts in totals])
    return Drift(tuple(sums), SERIES, pcoc.T, low.T, high.T, weight)


def prepare_drift(calibrator: Any, periods: Mapping[str, Sketch]) -> Drift:
    """Return the PCOC of raw and calibrated scores with intervals, period by period, over all rows."""
    flat = [np.zeros(len(sketch), dtype=np.int32) for sketch in periods.values()]
    return drift_of(period_sums(calibrator, periods, flat, 1))


def _mask(sums: GroupSums, contexts: NDArray[np.intp]) -> NDArray[np.bool_]:
    inside = np.zeros(len(sums), dtype=bool)
    inside[contexts] = True
    return inside
