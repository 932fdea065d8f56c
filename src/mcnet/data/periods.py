"""Periods: timestamps of any kind (dates, counters, strings) cut to hours, days or steps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from mcnet.data.columns import DescribeRow
from mcnet.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "HOURS_IN_DIGITS",
    "MOST_PERIODS",
    "TIMESTAMP",
    "Every",
    "cut_to_periods",
    "divisor_of_coarser_periods",
    "duration_seconds",
    "fitting_period",
    "parse_every",
    "shown_periods",
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

TIMESTAMP = (
    r"(?P<month>[0-9]{4}-[0-9]{2})(?:-(?P<day>[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2})(?::?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?)?"
    r"(?: ?(?:[Zz]|UTC|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2}))?))?)?)?"
)
"""A timestamp in a string, all of it (ISO 8601, RFC 3339): a month or a day, a time to any precision, an offset."""

_LARGEST = {"hour": 23, "minute": 59, "second": 59, "hours": 23, "minutes": 59}

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")

# Counters from 2001 to 2065, in seconds since 1970; a thousand times that in milliseconds.
_EPOCH = (1e9, 3e9)

_DAYS_IN_DIGITS = (19_000_101, 20_991_231)
"""Numbers that can be a day written as 20261117."""

HOURS_IN_DIGITS = (1_900_010_100, 2_099_123_123)
"""Numbers that can be an hour written as 2026111713."""


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


def shown_periods(periods: Sequence[str], *, seconds: float | None = None) -> list[str]:
    """Return the canonical names of periods as people read them: midnight with its time among times of day.

    Parameters
    ----------
    periods : their canonical names, in which a timestamp at midnight is its day.
    seconds : the length of a period, if it is known; below a day, midnight gets its time in any case.

    >>> shown_periods(["2026-11-16", "2026-11-16T01:00"]), shown_periods(["2026-11-16", "2026-11-17"])
    (['2026-11-16T00:00', '2026-11-16T01:00'], ['2026-11-16', '2026-11-17'])
    """
    hours = (seconds is not None and seconds < _UNIT_SECONDS["d"]) or any(map(_HOUR.fullmatch, periods))
    return [f"{period}T00:00" if hours and _DAY.fullmatch(period) else period for period in periods]


def cut_to_periods(
    column: "pl.Series", every: str, *, first_row: int = 0, describe_row: DescribeRow | None = None
) -> "pl.Series":
    """Return for each timestamp the string of the period it lies in, by the period's beginning.

    A timestamp with a time zone is converted to UTC, one without is taken as it is: to cut days as local clocks show
    them, give local timestamps without a zone. If the period has a unit, whole numbers from 1e9 to 3e9 (or a thousand
    times as many) are seconds (milliseconds) since 1970, and 20261117 is a day. A missing timestamp stays missing.

    Parameters
    ----------
    column : the timestamps.
    every : the period, such as "1h".
    first_row, describe_row : what messages call the rows; without `describe_row` they name the value alone.

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
    column = typed_moments(column, first_row, describe_row)
    if column.dtype.is_numeric():
        numbers = column.fill_nan(None).floor().cast(pl.Int64) if column.dtype.is_float() else column.cast(pl.Int64)
        if step.unit is None:
            return (numbers // step.number * step.number).cast(pl.String)
        timestamps = _counted_timestamps(numbers)
        timestamps = _days_in_digits(numbers) if timestamps is None else timestamps
        if timestamps is None:
            raise InputError(
                f"{column.name} has plain numbers such as {numbers.drop_nulls()[0]}, not timestamps; "
                f"cut it by a number, as in 100, not by {every}"
            )
        column = timestamps
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
        timestamps = _counted_timestamps(ends.cast(pl.Int64))
        if timestamps is None:
            return _step(float(ends[1]) - float(ends[0]), most)
        ends = timestamps
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


def _counted_timestamps(numbers: "pl.Series") -> "pl.Series | None":
    """Return the timestamps whose seconds or milliseconds since 1970 are given; None if the numbers do not look so."""
    import polars as pl

    known = numbers.drop_nulls()
    if len(known) == 0:
        return pl.from_epoch(numbers, time_unit="s")
    low, high = int(known.min()), int(known.max())  # type: ignore[arg-type]
    if HOURS_IN_DIGITS[0] <= low and high <= HOURS_IN_DIGITS[1]:
        hours = (known.cast(pl.String) + "00").str.to_datetime("%Y%m%d%H%M", strict=False)
        if hours.null_count() == 0:
            raise InputError(
                f"{numbers.name} has {known[0]}, which is {hours[0]:%Y-%m-%d} at {hours[0].hour} o'clock or seconds "
                f"since 1970; write {hours[0]:%Y-%m-%dT%H:00}"
            )
    if _EPOCH[0] <= low and high <= _EPOCH[1]:
        return pl.from_epoch(numbers, time_unit="s")
    if 1e3 * _EPOCH[0] <= low and high <= 1e3 * _EPOCH[1]:
        return pl.from_epoch(numbers, time_unit="ms")
    return None


def _days_in_digits(numbers: "pl.Series") -> "pl.Series | None":
    """Return the days that numbers such as 20261117 write; None if one of the numbers writes none."""
    import polars as pl

    if not numbers.drop_nulls().is_between(*_DAYS_IN_DIGITS).all():
        return None
    days = numbers.cast(pl.String).str.to_date("%Y%m%d", strict=False)
    return days if days.null_count() == numbers.null_count() else None


def typed_moments(column: "pl.Series", first_row: int = 0, describe_row: DescribeRow | None = None) -> "pl.Series":
    """Return a column of timestamps or of numbers, from what a file or a sketch may hold of them.

    Timestamps have no time zone: those that had one are converted to UTC.

    Parameters
    ----------
    column : timestamps, days, numbers, or strings of these.
    first_row, describe_row : what messages call the rows; without `describe_row` they name the value alone.
    """
    import polars as pl

    if column.dtype == pl.Null:
        return column.cast(pl.Datetime("us"))
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        return column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if column.dtype in (pl.Date, pl.Datetime) or column.dtype.is_numeric():
        return column
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Binary):
        raise InputError(
            f"{column.name} is a column of {column.dtype}, not of timestamps; give timestamps, days, whole numbers, or "
            "strings such as 2024-05-01T13:00"
        )
    try:
        texts = column.cast(pl.String)
    except pl.exceptions.ComputeError:
        raise InputError(f"{column.name} has bytes that are not UTF-8, so no timestamps; convert the column") from None
    numbers = texts.cast(pl.Int64, strict=False)
    if numbers.null_count() == texts.null_count():
        return numbers
    moments = _parsed(texts)
    unread = (moments.is_null() & texts.is_not_null()).arg_true()
    if len(unread):
        row = "" if describe_row is None else f" in {describe_row(first_row + unread[0])}"
        raise InputError(
            f"{column.name} has {texts[unread[0]]!r}{row}, which is not a timestamp such as 2024-05-01T13:00 or, with "
            "a time zone, 2024-05-01T13:00+02:00"
        )
    return moments


def _parsed(texts: "pl.Series") -> "pl.Series":
    """Return strings as timestamps in UTC, to the second; what is not wholly understood is missing."""
    import polars as pl

    parts = texts.str.extract_groups(f"^{TIMESTAMP}$").struct.unnest()
    day = (parts["month"] + "-" + parts["day"].fill_null("01")).str.to_date("%Y-%m-%d", strict=False)
    number = {name: parts[name].cast(pl.Int64).fill_null(0) for name in _LARGEST}
    sign = pl.select(pl.when(parts["sign"] == "-").then(-1).otherwise(1)).to_series()
    seconds = 3600 * number["hour"] + 60 * number["minute"] + number["second"]
    seconds -= sign * (3600 * number["hours"] + 60 * number["minutes"])
    valid = pl.Series([True])
    for name, largest in _LARGEST.items():
        valid = valid & (number[name] <= largest)
    moments = day.cast(pl.Datetime("us")) + (1_000_000 * seconds).cast(pl.Duration("us"))
    return moments.set(~valid, None).alias(texts.name)
