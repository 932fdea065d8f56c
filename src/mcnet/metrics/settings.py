"""The settings of an evaluation."""

from dataclasses import dataclass

from mcnet.metrics.scoring import CLIP

__all__ = ["MetricSettings"]


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """What the metrics of an evaluation depend on besides the rows; see `mcnet.evaluate`."""

    epsilon: float = 0.01
    drop_empty: bool = False
    level: float = 0.95
    bins: int = 20
    width_bins: int = 100
    bin_size: int = 1000
    clip: float = CLIP
    seed: int = 0
