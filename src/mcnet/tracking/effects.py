"""The effects of periods: how much a period differs from what was forecast, beyond the noise of its rows."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray

__all__ = ["EffectVariance"]

HALF_LIFE = 60.0
"""Periods over which the variance is averaged."""
EXPECTED_VARIANCE = 0.02
"""What the variance is expected to be: a standard deviation of 0.14 logits …"""
EXPECTED_PERIODS = 3.0
"""… counting as this many periods."""


@dataclass
class EffectVariance:
    """The variance v of what a period changes, in logits, by the method of moments: var(residual) = I + v · I².

    I is the information of a group of rows, Σ w p (1 − p). Both sums are forgotten slowly.
    """

    cap: float | None = None
    """A squared residual counts at most this many times what was expected of it; None for no limit."""
    excess: float = 0.0
    size: float = 0.0

    @property
    def value(self) -> float:
        """The variance."""
        return max(self.excess / self.size, 0.0) if self.size else EXPECTED_VARIANCE

    def overdispersion(self, information: float) -> float:
        """Return how many rows of a period with this information are worth one independent row."""
        return 1.0 + self.value * information

    def add(self, residual: FloatArray, information: FloatArray) -> None:
        """Take in the residuals (positives minus expected ones) of groups of rows, and their information."""
        seen = information > 1e-9
        if not seen.any():
            return
        residual, information = residual[seen], information[seen]
        squared = residual**2
        if self.cap is not None:
            squared = np.minimum(squared, self.cap * information * (1.0 + self.value * information))
        if not self.size:
            self.size = EXPECTED_PERIODS * float(np.sum(information**2))
            self.excess = EXPECTED_VARIANCE * self.size
        kept = 2.0 ** (-1.0 / HALF_LIFE)
        self.excess = kept * self.excess + float(np.sum(squared - information))
        self.size = kept * self.size + float(np.sum(information**2))

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return asdict(self)
