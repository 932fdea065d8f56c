"""Periods: moments of any kind (timestamps, dates, counters, texts) cut to hours, days or steps."""

import re
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from mcnet.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "MOST_PERIODS",
    "Every",
    "cut_to_periods",
    "divisor_of_coarser_periods",
    "duration_seconds",
    "fitting_period",
    "parse_every",
    "truncation_unit",
    "typed_moments",
]

MOST_PERIODS = 120
"""The most periods that a plot over time shows: three months are days, not hours."""

_STEPS = {"1m": 60, "5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "1d": 86_400, "1w": 604_800, "1mo": 2_419_200}
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": 2_592_000, "y": 31_536_000}
_LAST_STEP = "1y"
_EVERY = re.compile(r"(?P<number>[1-9]\d*)(?P<unit>m|h|d|w|mo|y)?")
_WRITTEN = {"m": "%Y-%m-%d %H:%M", "h": "%Y-%m-%d %H:%M", "d": "%Y-%m-%d", "w": "%Y-%m-%d", "mo": "%Y-%m", "y": "%Y"}

_CALENDAR = {"m": "minute", "h": "hour", "d": "day", "w": "day", "mo": "month", "y": "year", None: None}

_ZONE = r"^.{10}[T ]\d\d:\d\d[\d:.]*([+-]\d\d:?\d\d)$"

# Counters from 2001 to 2065, in seconds since 1970; a thousand times that in milliseconds.
_EPOCH = (1e9, 3e9)


@dataclass(frozen=True)
class Every:
    """A step: so many of a unit of time, or of a plain number where there is no unit."""

    number: int
    unit: str | None


def parse_every(every: str) -> Every:
    """Return a period such as "15m" or "100" in its parts."""
    match = _EVERY.fullmatch(every)
    if match is None:
        raise InputError(
            f"{every!r} is not a period; write a number and m, h, d, w, mo or y, as in 15m or 1d, or a plain number "
            "for a column that counts"
        )
    return Every(int(match["number"]), match["unit"])


def duration_seconds(every: str) -> float:
    """Return how long a period such as "15m" or "2d" is; a month counts as 30 days, a year as 365.

    >>> duration_seconds("2d")
    172800.0
    """
    step = parse_every(every)
    if step.unit is None:
        raise InputError(f"{every!r} has no unit; write how long it is as in 36h or 2d")
    return float(step.number * _UNIT_SECONDS[step.unit])


def truncation_unit(every: str) -> str | None:
    """Return the calendar unit that a period is made of: minute, hour, day, month or year; None if it has no unit.

    >>> truncation_unit("6h"), truncation_unit("2w"), truncation_unit("100")
    ('hour', 'day', None)
    """
    return _CALENDAR[parse_every(every).unit]


def cut_to_periods(column: "pl.Series", every: str) -> "pl.Series":
    """Return for each moment the text of the period it lies in, by the period's beginning.

    A moment with a time zone is converted to UTC, one without is taken as it is: to cut days as the clocks of a place
    show them, give local moments without a zone. Whole numbers from 1e9 to 3e9 (or a thousand times as many) are
    seconds (milliseconds) since 1970 if the period has a unit. A missing moment stays missing.

    >>> import polars as pl
    >>> cut_to_periods(pl.Series(["2024-05-01T13:05:00", "2024-05-01", None]), "6h").to_list()
    ['2024-05-01 12:00', '2024-05-01 00:00', None]
    >>> cut_to_periods(pl.Series(["2024-05-01T01:00:00+09:00", "2024-05-01T01:00:00"]), "1d").to_list()
    ['2024-04-30', '2024-05-01']
    >>> cut_to_periods(pl.Series([7, 19, 20]), "10").to_list()
    ['0', '10', '20']
    """
    import polars as pl

    step = parse_every(every)
    column = typed_moments(column)
    if column.dtype.is_numeric():
        numbers = column.fill_nan(None).floor().cast(pl.Int64) if column.dtype.is_float() else column.cast(pl.Int64)
        if step.unit is None:
            return (numbers // step.number * step.number).cast(pl.String)
        unit = _counted(numbers.drop_nulls())
        if unit is None:
            raise InputError(
                f"{column.name} has plain numbers such as {numbers.drop_nulls()[0]}, not timestamps; "
                f"cut it by a number, as in 100, not by {every}"
            )
        column = pl.from_epoch(numbers, time_unit=unit)
    elif step.unit is None:
        raise InputError(f"{column.name} has timestamps, so a period needs a unit: 15m, 1h, 1d, not {every}")
    begins = column.cast(pl.Datetime("us")) if column.dtype == pl.Date else column
    return begins.dt.truncate(every).dt.strftime(_WRITTEN[step.unit])


def fitting_period(low: Any, high: Any, most: int = MOST_PERIODS) -> str:
    """Return the finest usual period of which no more than `most` lie between two moments.

    >>> fitting_period("2024-05-01T00:00:00", "2024-05-04T00:00:00"), fitting_period("2024-05-01", "2024-08-01")
    ('1h', '1d')
    >>> fitting_period(0, 100_000)
    '1000'
    """
    import polars as pl

    ends = typed_moments(pl.Series("it", [low, high]))
    if ends.dtype.is_numeric():
        unit = _counted(ends)
        if unit is None:
            return _step(float(ends[1]) - float(ends[0]), most)
        ends = pl.from_epoch(ends.cast(pl.Int64), time_unit=unit)
    first, last = (_moment(end) for end in ends)
    seconds = (last - first).total_seconds()
    return next((every for every, length in _STEPS.items() if seconds / length < most), _LAST_STEP)


def divisor_of_coarser_periods(every: str) -> str:
    """Return the coarsest usual period that divides this one and every coarser one that `fitting_period` returns.

    Weeks do not divide months, nor 2 divide 5: days and powers of ten do.

    >>> divisor_of_coarser_periods("6h"), divisor_of_coarser_periods("1mo"), divisor_of_coarser_periods("500")
    ('6h', '1d', '100')
    """
    if every.isdigit():
        return "1" + "0" * (len(every) - 1)
    return "1d" if every in ("1w", "1mo", _LAST_STEP) else every


def _moment(value: date | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def _step(width: float, most: int) -> str:
    """Return the smallest of 1, 2, 5, 10, 20 … of which no more than `most` make up a width."""
    scale = 1
    while True:
        for digit in (1, 2, 5):
            if width / (digit * scale) < most:
                return str(digit * scale)
        scale *= 10


def _counted(numbers: "pl.Series") -> Any:
    """Return the unit ("s" or "ms") in which numbers count from 1970, None if they do not look like it."""
    if len(numbers) == 0:
        return "s"
    low, high = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if _EPOCH[0] * factor <= low and high <= _EPOCH[1] * factor:
            return unit
    return None


def typed_moments(column: "pl.Series") -> "pl.Series":
    """Return a column of moments or of numbers, from what a file or a sketch may hold of them.

    Moments have no time zone: those that had one are converted to UTC.
    """
    import polars as pl

    if column.dtype == pl.Null:
        return column.cast(pl.Datetime("us"))
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        return column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if column.dtype in (pl.Date, pl.Datetime) or column.dtype.is_numeric():
        return column
    texts = column.cast(pl.String, strict=False)
    numbers = texts.cast(pl.Int64, strict=False)
    if numbers.null_count() == texts.null_count():
        return numbers
    # Days and moments with and without seconds, fractions or a zone: to the second.
    whole = texts.str.replace(" ", "T").str.replace(r"^(\d{4}-\d\d-\d\d)$", "${1}T00:00")
    whole = whole.str.replace(r"^(.{10}T\d\d:\d\d)(Z|[+-]\d\d:?\d\d)?$", "${1}:00").str.slice(0, 19)
    moments = whole.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us")
    unread = texts.filter(moments.is_null() & texts.is_not_null())
    if len(unread):
        raise InputError(f"{column.name} has {unread[0]!r}, which is not a timestamp such as 2024-05-01T13:00")
    zones = texts.str.extract(_ZONE)
    if zones.null_count() == len(zones):
        return moments
    minutes = zones.str.slice(1, 2).cast(pl.Int64) * 60 + zones.str.slice(-2).cast(pl.Int64)
    ahead = pl.select(pl.when(zones.str.starts_with("-")).then(-minutes).otherwise(minutes)).to_series().fill_null(0)
    return (moments - (60_000_000 * ahead).cast(pl.Duration("us"))).alias(column.name)
