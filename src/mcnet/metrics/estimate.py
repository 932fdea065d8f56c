"""A measured figure with its confidence interval and, where noise alone produces an error, its floor."""

from dataclasses import dataclass
from math import nan

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric: its value on the rows given, an interval for its true value, and its noise floor.

    `floor` is the value to expect from perfectly calibrated probabilities on as many rows; it is NaN for
    metrics that noise does not push up. `note` says why a value is NaN or infinite, and is empty otherwise.

    >>> float(Estimate(0.98, 0.95, 1.01))
    0.98
    """

    value: float
    low: float = nan
    high: float = nan
    floor: float = nan
    note: str = ""

    def __float__(self) -> float:
        return self.value
