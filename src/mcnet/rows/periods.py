"""Periods: timestamps of any kind cut to hours, days or steps, in one canonical, sortable form."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import FloatArray
from mcnet.errors import InputError
from mcnet.rows.columns import DescribeRow
from mcnet.rows.fields import canonical_texts

if TYPE_CHECKING:
    import polars as pl

MOST_PERIODS = 120
"""The most periods that a plot over time shows: three months are days, not hours."""

HALF_A_PERIOD = 0.5
"""Slack for periods that are not all of one length, such as months."""

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

COUNTED_SECONDS = (1_000_000_000, 2_000_000_000)
"""Numbers that are seconds since 1970, of 2001 to 2033, or a thousand times as many milliseconds.

Above them lie hours written as 2026111713, which must not be taken for seconds.
"""


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


def same_length(one: str, other: str) -> bool:
    """Tell whether two periods are equally long.

    >>> same_length("24h", "1d"), same_length("100", "1d")
    (True, False)
    """
    units = parse_every(one).unit, parse_every(other).unit
    return one == other or (None not in units and duration_seconds(one) == duration_seconds(other))


def truncation_unit(every: str) -> str | None:
    """Return the calendar unit that a period is made of: minute, hour, day, month or year; None if it has no unit.

    >>> truncation_unit("6h"), truncation_unit("2w"), truncation_unit("100")
    ('hour', 'day', None)
    """
    return _CALENDAR[parse_every(every).unit]


def shown_periods(periods: Sequence[str], *, seconds: float | None = None) -> list[str]:
    """Return the canonical names of periods as people read them: midnight with its time among times of day.

    >>> shown_periods(["2026-11-16", "2026-11-16T01:00"]), shown_periods(["2026-11-16", "2026-11-17"])
    (['2026-11-16T00:00', '2026-11-16T01:00'], ['2026-11-16', '2026-11-17'])
    """
    hours = (seconds is not None and seconds < _UNIT_SECONDS["d"]) or any(map(_HOUR.fullmatch, periods))
    return [f"{period}T00:00" if hours and _DAY.fullmatch(period) else period for period in periods]


def cut_to_periods(column: "pl.Series", every: str, *, describe_row: DescribeRow | None = None) -> "pl.Series":
    """Return for each timestamp the string of the period it lies in, by the period's beginning.

    A timestamp with a time zone is converted to UTC, one without is taken as it is: to cut days as local clocks show
    them, give local timestamps without a zone. If the period has a unit, whole numbers from 1e9 to 2e9 (or a thousand
    times as many) are seconds (milliseconds) since 1970. A missing timestamp stays missing.

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
    if step.unit is None:
        column = typed_timestamps(column, describe_row)
        if not column.dtype.is_numeric():
            raise InputError(f"{column.name} has timestamps, so a period needs a unit: 15m, 1h, 1d, not {every}")
        return (_whole_numbers(column, describe_row) // step.number * step.number).cast(pl.String)
    column = timestamps_of(column, f"cut it by a number, as in 100, not by {every}", describe_row)
    begins = column.cast(pl.Datetime("us")) if column.dtype == pl.Date else column
    return begins.dt.truncate(every).dt.strftime(_WRITTEN[step.unit])


def timestamps_of(
    column: "pl.Series",
    advice: str = "give timestamps, days, or seconds since 1970",
    describe_row: DescribeRow | None = None,
) -> "pl.Series":
    """Return a column as timestamps or days without a time zone, whole numbers read as `cut_to_periods` says."""
    column = typed_timestamps(column, describe_row)
    if not column.dtype.is_numeric():
        return column
    numbers = _whole_numbers(column, describe_row)
    timestamps = _counted_timestamps(numbers)
    if timestamps is None:
        example = numbers.drop_nulls()[0]
        for factor, unit in ((1_000, "microseconds"), (1_000_000, "nanoseconds")):
            if counted_seconds(example // factor) is not None and example // factor > COUNTED_SECONDS[1]:
                advice = f"they look like {unit} since 1970: divide them by {factor:,}, to milliseconds"
        raise InputError(f"{column.name} has plain numbers such as {example}, not timestamps; {advice}")
    return timestamps


def counted_seconds(number: float) -> int | None:
    """Return the seconds since 1970 that a number counts, in seconds or milliseconds; None if it does not look so.

    >>> counted_seconds(1_800_000_000), counted_seconds(1_800_000_000_000), counted_seconds(7)
    (1800000000, 1800000000, None)
    """
    first, last = COUNTED_SECONDS
    if first <= number <= last:
        return int(number)
    return int(number // 1000) if 1000 * first <= number <= 1000 * last else None


def fitting_period(low: Any, high: Any) -> str:
    """Return the finest usual period of which no more than MOST_PERIODS lie between two timestamps.

    >>> fitting_period("2024-05-01T00:00:00", "2024-05-04T00:00:00"), fitting_period("2024-05-01", "2024-08-01")
    ('1h', '1d')
    >>> fitting_period(0, 100_000)
    '1000'
    """
    import polars as pl

    ends = typed_timestamps(pl.Series("it", [low, high]))
    if ends.dtype.is_numeric():
        timestamps = _counted_timestamps(_whole_numbers(ends))
        if timestamps is None:
            width = float(ends[1]) - float(ends[0])
            round_steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
            return str(next(step for step in round_steps if width / step < MOST_PERIODS))
        ends = timestamps
    seconds = (ends[1] - ends[0]).total_seconds()
    return next((every for every, length in _STEPS.items() if seconds / length < MOST_PERIODS), _LAST_STEP)


def period_to_show(columns: Iterable["pl.Series"]) -> str | None:
    """Return the finest usual period that cuts columns of timestamps to MOST_PERIODS values at most."""
    known: dict[str, None] = {}
    waiting, ends = [], []
    for column in columns:
        waiting.append(column.drop_nulls().unique(maintain_order=True))
        if len(known) <= MOST_PERIODS:
            known |= dict.fromkeys(canonical_texts(waiting[-1]))
        if len(known) <= MOST_PERIODS:
            continue
        try:
            for typed in map(typed_timestamps, waiting):
                ends += [end for end in (typed.min(), typed.max()) if end is not None]
            period = fitting_period(min(ends), max(ends))
        except InputError as error:
            most = f"{column.name} has {len(known):,} values or more, and {MOST_PERIODS} can be shown"
            raise InputError(f"{most}; {error}") from None
        waiting = []
    return period if ends else None


def _whole_numbers(column: "pl.Series", describe_row: DescribeRow | None = None) -> "pl.Series":
    """Return numbers rounded down, NaN as missing; refuse one that 64 bits cannot hold, such as an infinite one."""
    import polars as pl

    known = column.fill_nan(None).floor() if column.dtype.is_float() else column
    whole = known.cast(pl.Int64, strict=False)
    beyond = (whole.is_null() & known.is_not_null()).arg_true()
    if len(beyond):
        raise InputError(
            f"{column.name} has {column[beyond[0]]}{_in_row(beyond[0], describe_row)}, which is neither a "
            "timestamp nor a number of 64 bits; leave the row out, or leave the value empty"
        )
    return whole


def _in_row(row: int, describe_row: DescribeRow | None) -> str:
    return "" if describe_row is None else f" in {describe_row(row)}"


def _counted_timestamps(numbers: "pl.Series") -> "pl.Series | None":
    """Return the timestamps whose seconds or milliseconds since 1970 are given; None if the numbers do not look so."""
    import polars as pl

    known = numbers.drop_nulls()
    if len(known) == 0:
        return pl.from_epoch(numbers, time_unit="s")
    low, high = int(known.min()), int(known.max())  # type: ignore[arg-type]
    first, last = COUNTED_SECONDS
    if first <= low and high <= last:
        return pl.from_epoch(numbers, time_unit="s")
    if 1000 * first <= low and high <= 1000 * last:
        return pl.from_epoch(numbers, time_unit="ms")
    return None


def typed_timestamps(column: "pl.Series", describe_row: DescribeRow | None = None) -> "pl.Series":
    """Return a column of timestamps or of numbers, from what a file or a sketch may hold of them.

    Timestamps have no time zone: those that had one are converted to UTC.
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
        strings = column.cast(pl.String)
    except pl.exceptions.ComputeError:
        raise InputError(f"{column.name} has bytes that are not UTF-8, so no timestamps; convert the column") from None
    numbers = strings.cast(pl.Int64, strict=False)
    if numbers.null_count() == strings.null_count():
        return numbers
    timestamps = parsed_timestamps(strings)
    unread = (timestamps.is_null() & strings.is_not_null()).arg_true()
    if len(unread):
        row = _in_row(unread[0], describe_row)
        raise InputError(
            f"{column.name} has {strings[unread[0]]!r}{row}, which is not a timestamp such as 2024-05-01T13:00 or, "
            "with a time zone, 2024-05-01T13:00+02:00"
        )
    return timestamps


def parsed_timestamps(texts: "pl.Series") -> "pl.Series":
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
    timestamps = day.cast(pl.Datetime("us")) + (1_000_000 * seconds).cast(pl.Duration("us"))
    return timestamps.set(~valid, None).alias(texts.name)


# Periods as users name them (timestamps, dates, whole numbers, labels) in one canonical, sortable form.

_CANONICAL_TIMESTAMP = re.compile(TIMESTAMP)
_BEGINS_AS_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)")
_MONTH_SECONDS = duration_seconds("1y") / 12
_SHORTEST_MONTH = duration_seconds("28d")


def period_text(period: Any) -> str:
    """Return the canonical text of a period: equal periods have equal texts, whatever their type.

    A timestamp is written as short as it can be (`2026-11-16`, `2026-11-16T13:00`), so that strings sort as the
    timestamps do. One with a time zone is converted to UTC, one without is taken as it is; a month is its first day. A
    whole number is written in digits, any other label as it is, unless it begins as a timestamp does.

    >>> from datetime import date, datetime
    >>> period_text(datetime(2026, 11, 16, 13)), period_text("2026-11-16T13"), period_text(date(2026, 11, 16))
    ('2026-11-16T13:00', '2026-11-16T13:00', '2026-11-16')
    >>> period_text(7), period_text("week 07"), period_text("2026-11")
    ('7', 'week 07', '2026-11-01')
    """
    if isinstance(period, np.generic):
        period = period.item() if period.dtype.kind != "M" else period.astype("datetime64[us]").item()
    if isinstance(period, datetime):
        return _timestamp_text(period)
    if isinstance(period, date):
        return period.isoformat()
    if isinstance(period, int) and not isinstance(period, bool):
        return str(int(period))
    if not isinstance(period, str) or not period or period.strip() != period or not period.isprintable():
        raise InputError(
            f"the period is {period!r}; it must be a timestamp, a date, a whole number, or a printable label that sorts"
        )
    match = _CANONICAL_TIMESTAMP.fullmatch(period)
    if match is None:
        if _BEGINS_AS_TIMESTAMP.match(period):
            raise InputError(f"the period {period!r} is not a timestamp; write it as 2026-11-16T13:00")
        return str(int(period)) if _NUMBER.fullmatch(period) else period
    month, day, hour, minute, second, sign, hours, minutes = match.groups()
    zone = f"{sign}{hours}:{minutes or '00'}" if sign else ""
    string = f"{month}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}{zone}"
    try:
        return _timestamp_text(datetime.fromisoformat(string))
    except (ValueError, OverflowError) as error:
        raise InputError(f"the period {period!r} is not a timestamp ({error}); write it as 2026-11-16T13:00") from None


def _timestamp_text(timestamp: datetime) -> str:
    if timestamp.tzinfo is not None:
        timestamp = timestamp.astimezone(UTC).replace(tzinfo=None)
    if timestamp.microsecond:
        raise InputError(
            f"the period {timestamp.isoformat()} has fractions of a second; name a period by a whole second"
        )
    if (timestamp.hour, timestamp.minute, timestamp.second) == (0, 0, 0):
        return timestamp.date().isoformat()
    return timestamp.isoformat(timespec="seconds" if timestamp.second else "minutes")


def _kind(text: str) -> str:
    if _NUMBER.fullmatch(text):
        return "whole numbers"
    return "timestamps" if _CANONICAL_TIMESTAMP.fullmatch(text) else "labels"


def is_timestamp(text: str) -> bool:
    """Tell whether a canonical period is a timestamp, not a number or a label."""
    return _kind(text) == "timestamps"


def period_position(text: str) -> float | None:
    """Return where a canonical period lies on a line (its number, or its seconds since 1970); None for a label."""
    kind = _kind(text)
    if kind == "labels":
        return None
    return float(text) if kind == "whole numbers" else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _positions(texts: Sequence[str]) -> FloatArray | None:
    """Return where sorted periods lie on a line; None for labels, and where there are none."""
    if not texts or _kind(texts[0]) == "labels":
        return None
    return np.array([period_position(text) for text in texts], dtype=np.float64)


def sorted_periods(texts: Sequence[str]) -> list[str]:
    """Return canonical periods in their order; refuse a mixture of timestamps, numbers and labels.

    >>> sorted_periods(["10", "9"])
    ['9', '10']
    """
    kinds = {_kind(string): string for string in texts}
    if len(kinds) > 1:
        (one, first), (other, second) = sorted(kinds.items())[:2]
        raise InputError(
            f"the periods are of different kinds: {one} such as {first!r} and {other} such as {second!r}; "
            "name all periods alike"
        )
    return sorted(texts, key=int) if "whole numbers" in kinds else sorted(texts)


def elapsed_periods(texts: Sequence[str]) -> FloatArray:
    """Return how many periods before the last one each of the sorted periods lies.

    The length of a period is the most frequent step from one to the next, so a gap counts as what it is. Labels have
    no length: each counts as one.

    >>> elapsed_periods(["2026-11-01", "2026-11-02", "2026-11-05", "2026-11-06"]).tolist()
    [5.0, 4.0, 1.0, 0.0]
    >>> elapsed_periods(["mon", "tue"]).tolist()
    [1.0, 0.0]
    """
    positions = _positions(texts)
    if positions is None:
        return len(texts) - 1 - np.arange(len(texts), dtype=np.float64)
    return np.asarray((positions[-1] - positions) / _most_frequent_step(positions))


def _most_frequent_step(positions: FloatArray) -> float:
    steps, numbers = np.unique(np.diff(positions), return_counts=True)
    return float(steps[np.argmax(numbers)]) if len(steps) else 1.0  # the shortest of equally frequent ones


def period_seconds(texts: Sequence[str]) -> float | None:
    """Return the length of a period in seconds: the most frequent step; None if the sorted periods are no timestamps.

    >>> period_seconds(["2026-11-01", "2026-11-02", "2026-11-05", "2026-11-06"])
    86400.0
    """
    positions = _positions(texts)
    return None if positions is None or not is_timestamp(texts[0]) else _most_frequent_step(positions)


def period_length(texts: Sequence[str], every: str | None = None) -> float | None:
    """Return the length of a period in seconds, or as a number if periods are numbers; None if it cannot be told.

    It is `every` or, if that is not given, the most frequent step between the sorted periods. Of one period alone the
    length is guessed from how it is written: a day, an hour or a minute.

    >>> period_length(["2026-11-16T13:00"]), period_length(["1", "2", "3"]), period_length(["mon", "tue"])
    (3600.0, 1.0, None)
    """
    positions = _positions(texts)
    if positions is None:
        return None
    timestamps = is_timestamp(texts[0])
    if every is not None:
        step = parse_every(every)
        if (step.unit is not None) == timestamps:
            return float(step.number) if step.unit is None else duration_seconds(every)
    if len(texts) > 2 or (len(texts) == 2 and timestamps):
        return _most_frequent_step(positions)
    if not timestamps:
        return None
    return next(float(unit) for unit in (86_400, 3_600, 60, 1) if positions[0] % unit == 0)


def delay_in_periods(delay: int | str, periods: Sequence[str], every: str | None = None) -> int:
    """Return a delay in whole periods, from a number of them or from a length of time such as "2d".

    The length of a period is `every` or, if that is not given, the most frequent step between the sorted periods.

    >>> delay_in_periods("36h", ["2026-11-01", "2026-11-02"]), delay_in_periods(2, []), delay_in_periods("2h", [], "1h")
    (2, 2, 2)
    """
    if isinstance(delay, str) and not delay.isdecimal():
        try:
            late = duration_seconds(delay)
        except InputError:
            raise _no_delay(delay) from None
        length = period_seconds(periods) if every is None or every.isdecimal() else duration_seconds(every)
        if length is None:
            raise InputError(
                f"delay is {delay!r}, but periods such as {periods[0]!r} are not timestamps; give a number of periods"
                if periods
                else f"delay is {delay!r}, and there are no periods yet to convert it; give a number of periods"
            )
        if delay.endswith(("mo", "y")) and length >= _SHORTEST_MONTH:  # both by the calendar
            late, length = round(late / _MONTH_SECONDS), max(1, round(length / _MONTH_SECONDS))
        return int(np.ceil(late / length - 1e-9))
    if isinstance(delay, bool) or not isinstance(delay, int | np.integer | str) or int(delay) < 0:
        raise _no_delay(delay)
    return int(delay)


def _no_delay(delay: Any) -> InputError:
    return InputError(
        f"delay is {delay!r}; it must be a whole number of periods, 0 or more, or a duration, such as 36h, 2d or 1mo"
    )


def periods_between(periods: Sequence[str], since: Any, until: Any) -> list[str]:
    """Return the sorted periods from `since` to `until`, both included."""
    ends = [None if end is None else period_text(end) for end in (since, until)]
    order = sorted_periods([*periods, *(end for end in ends if end is not None)])
    first = 0 if ends[0] is None else order.index(ends[0])
    last = len(order) if ends[1] is None else len(order) - order[::-1].index(ends[1])
    inside = set(order[first:last])
    return [period for period in periods if period in inside]
