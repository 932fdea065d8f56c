"""The difference in loss between two forecasts of the same periods, with an interval over periods."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

__all__ = ["Comparison", "compared", "mean_difference"]

LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """The candidate's way of predicting beside another, on periods that neither was fitted on."""

    other: str
    """What it was compared with."""
    periods: int
    first: str
    last: str
    difference: float
    """Log-loss per unit of weight, above that of the other: negative is better."""
    low: float
    high: float
    """The 95 % interval of the difference; it takes periods, not rows, as independent, and neighbours as related."""

    @property
    def is_worse(self) -> bool:
        """Whether more than chance says that the candidate is worse."""
        return bool(self.low > 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-able values."""
        return asdict(self)


def compared(other: str, periods: Sequence[str], losses: ArrayLike, weight: ArrayLike) -> Comparison:
    """Compare on periods, given the summed loss of the candidate above that of the other in each."""
    return Comparison(other, len(periods), periods[0], periods[-1], *mean_difference(losses, weight))


def mean_difference(losses: ArrayLike, weight: ArrayLike) -> tuple[float, float, float]:
    """Return Σ losses / Σ weight over periods, with its 95 % interval: (value, low, high).

    The error is that of a ratio over clusters, which are the periods. Neighbouring periods may be related:
    covariances up to a lag of n^(1/3) periods count, with falling weights (Bartlett). Few periods tell little of
    their spread, which Student's t takes into account. One period has no interval: its ends are infinite.

    >>> value, low, high = mean_difference([1.0, 2.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0])
    >>> value, round(low, 2), round(high, 2)
    (2.0, 0.7, 3.3)
    """
    loss, size = np.asarray(losses, dtype=np.float64), np.asarray(weight, dtype=np.float64)
    number, total = len(size), float(size.sum())
    value = float(loss.sum()) / total
    if number < 2:
        return value, -np.inf, np.inf
    rest = loss - value * size
    variance = float(rest @ rest)
    reach = int(number ** (1.0 / 3.0))
    for lag in range(1, min(reach, number - 1)):
        variance += 2.0 * (1.0 - lag / reach) * float(rest[lag:] @ rest[:-lag])
    error = np.sqrt(max(variance, 0.0) * number / (number - 1.0)) / total
    reach_of_interval = float(stdtrit(number - 1, 0.5 + LEVEL / 2.0)) * float(error)
    return value, value - reach_of_interval, value + reach_of_interval
