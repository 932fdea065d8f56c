"""Numbers as text: rates, counts, ratios with their intervals."""

from dataclasses import dataclass
from math import isfinite

__all__ = ["Figure", "count", "figure", "percent", "with_interval"]


def figure(value: float, digits: int = 4) -> str:
    """Return a number with `digits` decimals, or two significant digits where those would show nothing; – if unknown.

    >>> figure(1.23456), figure(0.00123456), figure(0.0000123), figure(float("nan")), figure(float("inf"))
    ('1.2346', '0.0012', '1.2e-05', '–', '∞')
    """
    if not isfinite(value):
        return "∞" if value == float("inf") else "–"
    return f"{value:.{digits}f}" if abs(value) >= 10.0 ** (1 - digits) or value == 0.0 else f"{value:.2g}"


def count(value: float) -> str:
    """Return a number of rows with a separator of thousands, and decimals only where weights are fractions.

    >>> count(1234567.0), count(0.5)
    ('1,234,567', '0.5')
    """
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.4g}"


def percent(share: float) -> str:
    """Return a share in per cent, with a space before the sign that does not break.

    >>> percent(0.01234)
    '1.23\\xa0%'
    """
    return f"{100.0 * share:.3g}\N{NO-BREAK SPACE}%"


@dataclass(frozen=True)
class Figure:
    """A value as text, and the text beside (or below) it: its interval or its error."""

    value: str
    beside: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.beside})" if self.beside else self.value


def with_interval(value: float, low: float, high: float, digits: int = 3) -> Figure:
    """Return a value and, where it is known, its interval.

    >>> str(with_interval(1.1, 1.0, 1.2)), str(with_interval(1.1, float("nan"), float("nan")))
    ('1.100 (1.000 … 1.200)', '1.100')
    """
    known = isfinite(low)
    return Figure(figure(value, digits), f"{figure(low, digits)} … {figure(high, digits)}" if known else "")
