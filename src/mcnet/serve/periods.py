"""Which period it is now, and when it ends."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mcnet.data.periods import cut_to_periods, parse_every
from mcnet.errors import InputError
from mcnet.tracking.period import period_text

__all__ = ["Present", "named_period", "present"]

_SLACK = timedelta(minutes=5)
"""By how much the clock of a client may be ahead."""

_FIRST_YEAR = 1970
"""Moments of this year are counters in a wrong unit, or no moments at all."""

_WRITTEN = {"y": "%Y"}
"""How periods are written that are not named by the day or the moment they begin."""


@dataclass(frozen=True)
class Present:
    """The period that a moment lies in."""

    period: str
    previous: str
    """The period before it, the last one that has ended."""
    end: datetime
    """When it ends, in UTC."""


def present(every: str, now: datetime | None = None) -> Present:
    """Return the period that a moment (by default the present one) lies in.

    Parameters
    ----------
    every : the length of a period, such as "1h".
    now : a moment in UTC.

    >>> present("1h", datetime(2026, 11, 16, 0, 25))
    Present(period='2026-11-16', previous='2026-11-15T23:00', end=datetime.datetime(2026, 11, 16, 1, 0))
    """
    import polars as pl

    moment = (now or datetime.now(UTC)).replace(tzinfo=None)
    column = pl.Series("now", [moment])
    period = period_text(cut_to_periods(column, every)[0])
    try:
        begin = column.dt.truncate(every)
        end = begin.dt.offset_by(every)[0]
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{every!r} is not the length of a period ({error}); write 15m, 1h or 1d") from None
    before = period_text(cut_to_periods(pl.Series("now", [begin[0] - timedelta(seconds=1)]), every)[0])
    return Present(period, before, end)


def named_period(period: str | int, every: str, now: datetime | None = None) -> str:
    """Return the canonical name of a period; refuse one that a service with periods of this length cannot have.

    Parameters
    ----------
    period : as a client names it, by the moment it begins.
    every : the length of a period, such as "1h".
    now : the present moment in UTC; by the clock, if not given.

    >>> named_period("2026-11-16T13", "1h", datetime(2026, 11, 16, 13, 25))
    '2026-11-16T13:00'
    """
    now = (now or datetime.now(UTC)).replace(tzinfo=None)
    text = period_text(period)
    form = _WRITTEN.get(parse_every(every).unit or "")
    try:
        begin = datetime.fromisoformat(text) if form is None else datetime.strptime(text, form)
        if begin.year <= _FIRST_YEAR:
            raise ValueError
    except ValueError:
        raise InputError(
            f"the period is {text!r}; this service has periods of {every}, named by the moment they begin, such as "
            f"{present(every, now).period}"
        ) from None
    named = present(every, begin).period
    if named != text:
        raise InputError(f"the period {text} is not one of {every}: that moment lies in the period {named}")
    if begin > now + _SLACK:
        raise InputError(
            f"the period {text} has not begun: it is {period_text(now.replace(microsecond=0))} UTC by the clock of "
            "this service; send rows of a past or the present period"
        )
    return text
