"""The result of a period beside its forecasts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.metrics.field_error import group_pcoc
from mcnet.metrics.group_sums import group_sums
from mcnet.metrics.scoring import CLIP
from mcnet.sketch.sketch import Sketch

__all__ = ["Judged", "judge_forecasts", "period_pcoc", "sketch_log_loss"]

Pcoc = tuple[float | None, float | None, float | None]
"""A PCOC and the ends of its interval; None for what is not finite."""


@dataclass(frozen=True)
class Judged:
    """The losses of one period, summed over its rows."""

    period: str
    digest: str
    """Of the rows of this and all earlier periods."""
    rows: int
    weight: float
    positives: float
    base_loss: float
    """Of the scores as they are."""
    tracker_loss: float
    """Of the model that the tracker had when the period was predicted."""
    before_loss: float | None
    """Of the model that it had one period earlier; None where there was none."""
    base_pcoc: Pcoc
    tracker_pcoc: Pcoc

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them."""
        return asdict(self)

    @staticmethod
    def restored(state: Mapping[str, Any]) -> "Judged":
        """Return what `to_dict` described."""
        return Judged(**{**state, "base_pcoc": tuple(state["base_pcoc"]), "tracker_pcoc": tuple(state["tracker_pcoc"])})


def judge_forecasts(period: str, digest: str, sketch: Sketch, tracker: FloatArray, before: FloatArray | None) -> Judged:
    """Judge the forecasts for a period, one probability per cell, by its rows."""
    return Judged(
        period,
        digest,
        sketch.rows,
        sketch.total_weight,
        sketch.total_positives,
        sketch_log_loss(sketch, sketch.score),
        sketch_log_loss(sketch, tracker),
        None if before is None else sketch_log_loss(sketch, before),
        period_pcoc(sketch, sketch.score),
        period_pcoc(sketch, tracker),
    )


def sketch_log_loss(sketch: Sketch, probability: FloatArray) -> float:
    """Return the log-loss of all rows of a sketch, given one probability per cell."""
    inside = np.clip(probability, CLIP, 1.0 - CLIP)
    positives = np.minimum(sketch.positives, sketch.weight)
    return -float(positives @ np.log(inside) + (sketch.weight - positives) @ np.log1p(-inside))


def period_pcoc(sketch: Sketch, probability: FloatArray) -> Pcoc:
    """Return predicted over observed positives of a period, with the interval of independent rows."""
    all_rows = np.zeros(len(sketch), dtype=np.int64)
    ends = group_pcoc(group_sums(probability, sketch.rate, all_rows, sketch.weight, count=1))
    low_to_high = [float(end[0]) for end in ends]
    value, low, high = (end if np.isfinite(end) else None for end in low_to_high)
    return value, low, high
