"""What an auxiliary network gained on rows that it was not trained on."""

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score

from mcnet._shared.typing import FloatArray

__all__ = ["FeatureGain"]


@dataclass(frozen=True)
class FeatureGain:
    """Log-loss and AUC on the rows held back, without the auxiliary network and with it.

    The calibrator without it has seen these rows, the one with it has not: the gain is rather under- than overstated.
    They also decided when to stop, so among noise the gain is a little above 0 by choice.
    """

    rows: int
    log_loss_before: float
    log_loss_after: float
    standard_error: float
    """Of the difference between the two losses."""
    auc_before: float
    auc_after: float
    """NaN where the rows held back are of one class."""

    @staticmethod
    def of(label: FloatArray, weight: FloatArray | None, before: FloatArray, after: FloatArray) -> "FeatureGain":
        """Compare two predictions of the same rows."""
        counts = np.ones_like(label) if weight is None else weight
        losses = [-(label * np.log(p) + (1.0 - label) * np.log1p(-p)) for p in (before, after)]
        mass = float(counts.sum())
        means = [float((counts * loss).sum()) / mass for loss in losses]
        differences = losses[1] - losses[0] - (means[1] - means[0])
        return FeatureGain(
            rows=len(label),
            log_loss_before=means[0],
            log_loss_after=means[1],
            standard_error=float(np.sqrt(((counts * differences) ** 2).sum())) / mass,
            auc_before=_auc(label, counts, before),
            auc_after=_auc(label, counts, after),
        )

    @property
    def log_loss(self) -> float:
        """Return how much the log-loss fell."""
        return self.log_loss_before - self.log_loss_after

    @property
    def auc(self) -> float:
        """Return how much the AUC rose."""
        return self.auc_after - self.auc_before


def _auc(label: FloatArray, weight: FloatArray, probability: FloatArray) -> float:
    """Return the AUC; a fractional label is a positive and a negative of that share."""
    positive, negative = weight * label, weight * (1.0 - label)
    if not positive.sum() > 0.0 or not negative.sum() > 0.0:
        return float("nan")
    sides = np.repeat([1, 0], len(label))
    return float(roc_auc_score(sides, np.tile(probability, 2), sample_weight=np.concatenate([positive, negative])))
