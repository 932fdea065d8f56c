"""Which period it is now, and when it ends."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mcnet.data.periods import cut_to_periods
from mcnet.errors import InputError
from mcnet.tracking.period import period_text

__all__ = ["Present", "present"]


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
        raise InputError(f"{every!r} is no length of a period of time ({error}); write 15m, 1h or 1d") from None
    before = period_text(cut_to_periods(pl.Series("now", [begin[0] - timedelta(seconds=1)]), every)[0])
    return Present(period, before, end)
