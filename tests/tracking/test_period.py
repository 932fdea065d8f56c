from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnet.errors import InputError
from mcnet.tracking.period import elapsed_periods, period_text, sorted_periods


@pytest.mark.parametrize(
    "period",
    [
        datetime(2026, 11, 16, 13),
        "2026-11-16T13",
        "2026-11-16 13:00",
        "2026-11-16T13:00:00",
        "2026-11-16T13:00Z",
        np.datetime64("2026-11-16T13"),
        datetime(2026, 11, 16, 14, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_equal_moments_have_one_text(period):
    assert period_text(period) == "2026-11-16T13:00"


@pytest.mark.parametrize("period", [date(2026, 11, 16), "2026-11-16", "2026-11-16T00", datetime(2026, 11, 16)])
def test_a_moment_at_midnight_is_its_day(period):
    assert period_text(period) == "2026-11-16"


@pytest.mark.parametrize("period", [True, 1.5, None, "", " x", "a\nb", "2026-13-01", "2026-11-16T25:00"])
def test_what_is_no_period_is_refused(period):
    with pytest.raises(InputError, match="period"):
        period_text(period)


@given(st.lists(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), min_size=2, unique=True))
def test_texts_sort_as_the_moments_do(moments):
    moments = sorted({moment.replace(microsecond=0) for moment in moments})
    texts = [period_text(moment) for moment in moments]
    assert sorted_periods(texts[::-1]) == texts


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, unique=True))
def test_numbers_sort_as_numbers(numbers):
    assert sorted_periods([period_text(n) for n in numbers]) == [str(n) for n in sorted(numbers)]


def test_periods_of_different_kinds_are_refused():
    with pytest.raises(InputError, match="different kinds"):
        sorted_periods(["2026-11-16", "7"])


def test_a_gap_counts_as_what_it_is():
    days = [period_text(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=d)) for d in (0, 1, 2, 3, 10, 11)]
    assert elapsed_periods(days).tolist() == [11, 10, 9, 8, 1, 0]
    assert elapsed_periods(days, now=period_text(date(2026, 1, 13))).tolist() == [12, 11, 10, 9, 2, 1]
