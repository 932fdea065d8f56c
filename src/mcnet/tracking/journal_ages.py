"""The age of a count: how many periods after the end of a period its positives were counted."""

from datetime import datetime
from typing import Any

from mcnet.data.periods import parse_every
from mcnet.errors import InputError
from mcnet.tracking.period import period_position, period_text

__all__ = ["age_when_counted", "check_recount"]


def check_recount(source: str | None, age: float | None, counted: Any = None) -> None:
    """Refuse an age without the name of a source: counts of one source at several ages replace one another."""
    if age is not None and counted is not None:
        raise InputError("age and counted both give the time of counting; give one of them")
    if (age is not None or counted is not None) and source is None:
        raise InputError(
            f"{'age' if counted is None else 'counted'} was given without a source; a count of a later age takes the "
            "place of the earlier ones of the same source, so name the source alike for every count "
            "(source='orders'), or all counts add up"
        )


def age_when_counted(period: str, every: str, counted: Any) -> float:
    """Return how many periods after the end of a period lies the moment at which its positives were counted.

    Parameters
    ----------
    period : the canonical period, by its beginning.
    every : the length of a period, such as "1d"; a plain number where periods are numbers.
    counted : a moment, or a number where periods are numbers.

    >>> age_when_counted("2026-11-14", "1d", "2026-11-16T12:00"), age_when_counted("7", "1", 10)
    (1.5, 2.0)
    """
    moment = counted.replace(microsecond=0) if isinstance(counted, datetime) else counted
    text = period_text(moment)
    begin, now = period_position(period), period_position(text)
    step = parse_every(every)
    if begin is None or now is None or (step.unit is None) != text.lstrip("-").isdigit():
        raise InputError(f"counted is {counted!r}, and a period is {period}; give a moment on the same line of time")
    end = begin + step.number if step.unit is None else _end(period, every)
    if now < end:
        raise InputError(
            f"counted is {text}, but the period {period} ends after that; leave its rows out until it is over"
        )
    return (now - end) / (end - begin)


def _end(period: str, every: str) -> float:
    import polars as pl

    end = pl.Series([datetime.fromisoformat(period)]).dt.offset_by(every)[0]
    found = period_position(period_text(end))
    assert found is not None
    return found
