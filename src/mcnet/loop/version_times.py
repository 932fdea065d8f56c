"""Which periods came after the fit of a version."""

from collections.abc import Iterable, Sequence

from mcnet.errors import InputError
from mcnet.tracking.period import elapsed_periods, sorted_periods
from mcnet.versions.version import Version

__all__ = ["VersionTimes", "ends_after", "ends_at_or_after"]

HALF_A_PERIOD = 0.5
"""Slack for periods that are not all of one length, such as months."""


class VersionTimes:
    """The places of periods, and of the ends of fits, on one line of time."""

    def __init__(self, periods: Sequence[str], versions: Iterable[Version], delay: int) -> None:
        """Order the periods; a fit that ended with a period of another kind is as one that does not tell its end."""
        ends = set()
        for version in versions:
            if version.fitted_until is not None and _are_alike(periods, version.fitted_until):
                ends.add(version.fitted_until)
        order = sorted_periods(list({*periods, *ends}))
        self._behind = dict(zip(order, elapsed_periods(order).tolist(), strict=True))
        self._delay = delay

    def tells(self, version: Version) -> bool:
        """Tell whether it is known until when a version was fitted."""
        return version.fitted_until in self._behind

    def could_serve(self, version: Version, period: str) -> bool:
        """Tell whether a version was made from what was known when a period was predicted."""
        end = self._behind[version.fitted_until or ""]
        return bool(end > self._behind[period] + self._delay + HALF_A_PERIOD)


def _are_alike(periods: Sequence[str], other: str) -> bool:
    try:
        sorted_periods([*periods[:1], other])
    except InputError:
        return False
    return True


def ends_at_or_after(version: Version, period: str) -> bool:
    """Tell whether a version has learnt a period; False if it does not tell, or has periods of another kind."""
    end = version.fitted_until
    return end is not None and _are_alike([period], end) and sorted_periods([period, end])[-1] == end


def ends_after(version: Version, period: str) -> bool:
    """Tell whether a version has learnt a later period."""
    return version.fitted_until != period and ends_at_or_after(version, period)
