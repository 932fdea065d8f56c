"""Periods as users name them (moments, dates, whole numbers, labels) in one canonical, sortable form."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from mcnet._shared.typing import FloatArray
from mcnet.data.periods import TIMESTAMP, duration_seconds, parse_every
from mcnet.errors import InputError

__all__ = [
    "delay_in_periods",
    "elapsed_periods",
    "is_moment",
    "period_length",
    "period_position",
    "period_seconds",
    "period_text",
    "periods_between",
    "sorted_periods",
]

_MOMENT = re.compile(TIMESTAMP)
_BEGINS_AS_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]")
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
        return _moment_text(period)
    if isinstance(period, date):
        return period.isoformat()
    if isinstance(period, int) and not isinstance(period, bool):
        return str(int(period))
    if not isinstance(period, str) or not period or period.strip() != period or not period.isprintable():
        raise InputError(
            f"the period is {period!r}; it must be a moment, a date, a whole number, or a printable label that sorts"
        )
    match = _MOMENT.fullmatch(period)
    if match is None:
        if _BEGINS_AS_MOMENT.match(period):
            raise InputError(f"the period {period!r} is not a timestamp; write it as 2026-11-16T13:00")
        return str(int(period)) if _NUMBER.fullmatch(period) else period
    month, day, hour, minute, second, sign, hours, minutes = match.groups()
    zone = f"{sign}{hours}:{minutes or '00'}" if sign else ""
    text = f"{month}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}{zone}"
    try:
        return _moment_text(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise InputError(f"the period {period!r} is not a timestamp ({error}); write it as 2026-11-16T13:00") from None


def _moment_text(moment: datetime) -> str:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    if moment.microsecond:
        raise InputError(f"the period {moment.isoformat()} has fractions of a second; name a period by a whole second")
    if (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return moment.date().isoformat()
    return moment.isoformat(timespec="seconds" if moment.second else "minutes")


def _kind(text: str) -> str:
    if _NUMBER.fullmatch(text):
        return "whole numbers"
    return "moments" if _MOMENT.fullmatch(text) else "labels"


def is_moment(text: str) -> bool:
    """Tell whether a canonical period is a moment, not a number or a label."""
    return _kind(text) == "moments"


def _position(text: str, kind: str) -> float:
    """Return where a period lies on a line: its number, or its seconds since 1970."""
    if kind == "whole numbers":
        return float(text)
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def period_position(text: str) -> float | None:
    """Return where a canonical period lies on a line (its number, or its seconds since 1970); None for a label."""
    kind = _kind(text)
    return None if kind == "labels" else _position(text, kind)


def sorted_periods(texts: Sequence[str]) -> list[str]:
    """Return canonical periods in their order; refuse a mixture of moments, numbers and labels.

    >>> sorted_periods(["10", "9"])
    ['9', '10']
    """
    kinds = {_kind(text): text for text in texts}
    if len(kinds) > 1:
        (one, first), (other, second) = sorted(kinds.items())[:2]
        raise InputError(
            f"the periods are of different kinds: {one} such as {first!r} and {other} such as {second!r}; "
            "name all periods alike"
        )
    return sorted(texts, key=int) if "whole numbers" in kinds else sorted(texts)


def elapsed_periods(texts: Sequence[str], now: str | None = None) -> FloatArray:
    """Return how many periods before `now` (the last one, if not given) each of the sorted periods lies.

    The length of a period is the most frequent step from one to the next, so a gap counts as what it is. Labels have
    no length: each counts as one.

    >>> elapsed_periods(["2026-11-01", "2026-11-02", "2026-11-05", "2026-11-06"]).tolist()
    [5.0, 4.0, 1.0, 0.0]
    >>> elapsed_periods(["mon", "tue"]).tolist()
    [1.0, 0.0]
    """
    kind = _kind(texts[0]) if texts else "labels"
    if kind == "labels":
        places = np.arange(len(texts), dtype=np.float64)
        return (len(texts) - 1 if now is None else float(np.searchsorted(list(texts), now))) - places
    places = np.array([_position(text, kind) for text in texts])
    end = places[-1] if now is None else _position(now, kind)
    return np.asarray((end - places) / _most_frequent_step(places))


def _most_frequent_step(places: FloatArray) -> float:
    steps, numbers = np.unique(np.diff(places), return_counts=True)
    return float(steps[np.argmax(numbers)]) if len(steps) else 1.0  # the shortest of equally frequent ones


def period_seconds(texts: Sequence[str]) -> float | None:
    """Return the length of a period in seconds: the most frequent step; None if the sorted periods are no moments.

    >>> period_seconds(["2026-11-01", "2026-11-02", "2026-11-05", "2026-11-06"])
    86400.0
    """
    if not texts or _kind(texts[0]) != "moments":
        return None
    return _most_frequent_step(np.array([_position(text, "moments") for text in texts]))


def period_length(texts: Sequence[str], every: str | None = None) -> float | None:
    """Return the length of a period in seconds, or as a number if periods are numbers; None if it cannot be told.

    It is `every` or, if that is not given, the most frequent step between the sorted periods. Of one period alone the
    length is guessed from how it is written: a day, an hour or a minute.

    >>> period_length(["2026-11-16T13:00"]), period_length(["1", "2", "3"]), period_length(["mon", "tue"])
    (3600.0, 1.0, None)
    """
    kind = _kind(texts[0]) if texts else "labels"
    if kind == "labels":
        return None
    places = np.array([_position(text, kind) for text in texts])
    if every is not None:
        step = parse_every(every)
        if (step.unit is None) == (kind == "whole numbers"):
            return float(step.number) if step.unit is None else duration_seconds(every)
    if len(texts) > 2 or (len(texts) == 2 and kind == "moments"):
        return _most_frequent_step(places)
    if kind == "whole numbers":
        return None
    return next(float(unit) for unit in (86_400, 3_600, 60, 1) if places[0] % unit == 0)


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
