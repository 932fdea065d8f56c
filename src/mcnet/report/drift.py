"""Drift: calibration per period, from one sketch per period."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.typing import CodeArray, MaskArray
from mcnet.metrics.evaluate_sketch import predict_cells
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import GroupSums, group_sums
from mcnet.plots.drift import Drift
from mcnet.sketch.sketch import Sketch

__all__ = ["PeriodSums", "drift_of", "period_sums", "prepare_drift"]

SERIES = ("before", "after")
PeriodSums = dict[str, tuple[GroupSums, ...]]
"""For each period, the sums of every context before and after calibration."""


def period_sums(
    calibrator: Any, periods: Mapping[str, Sketch], contexts: Sequence[CodeArray], number: int
) -> PeriodSums:
    """Return the sums of every context per period; `contexts` has the context of each sketch's cells."""
    return {
        period: tuple(
            group_sums(p, sketch.rate, of_cells, sketch.weight, count=number)
            for p in (sketch.score, predict_cells(calibrator, sketch))
        )
        for (period, sketch), of_cells in zip(periods.items(), contexts, strict=True)
    }


def drift_of(sums: PeriodSums, contexts: NDArray[np.intp] | None = None) -> Drift:
    """Return the PCOC per period of some contexts together, or of all."""
    totals = [
        [(part if contexts is None else part.where(_mask(part, contexts))).total() for part in parts]
        for parts in sums.values()
    ]
    columns = np.array([[group_pcoc(part) for part in parts] for parts in totals])[..., 0]
    pcoc, low, high = np.moveaxis(columns, 2, 0)
    weight = np.array([float(parts[0].weight[0]) for parts in totals])
    return Drift(tuple(sums), SERIES, pcoc.T, low.T, high.T, weight)


def prepare_drift(calibrator: Any, periods: Mapping[str, Sketch]) -> Drift:
    """Return the PCOC of raw and calibrated scores per period, with intervals, over all rows."""
    flat = [np.zeros(len(sketch), dtype=np.int32) for sketch in periods.values()]
    return drift_of(period_sums(calibrator, periods, flat, 1))


def _mask(sums: GroupSums, contexts: NDArray[np.intp]) -> MaskArray:
    inside = np.zeros(len(sums), dtype=bool)
    inside[contexts] = True
    return inside
