from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcnet.errors import InputError
from mcnet.rows.periods import cut_to_periods, delay_in_periods, elapsed_periods, period_text, sorted_periods

UNKNOWN = ["2026-11-16 10:30 PM", "2026-11-16T10:30+25", "2026-11-16T10:30+02:00[Europe/Paris]", "2026-11-16T1"]


@pytest.mark.parametrize(
    "period",
    [
        datetime(2026, 11, 16, 13),
        "2026-11-16T13",
        "2026-11-16 13:00",
        "2026-11-16T13:00:00",
        "2026-11-16T13:00Z",
        "2026-11-16t13:00z",
        "2026-11-16 15+02",
        "2026-11-16 15:00:00 +0200",
        "2026-11-16 13:00:00 UTC",
        "2026-11-16T08:30:00,25-04:30",
        np.datetime64("2026-11-16T13"),
        datetime(2026, 11, 16, 14, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_equal_moments_have_one_text(period):
    assert period_text(period) == "2026-11-16T13:00"


@pytest.mark.parametrize("period", [date(2026, 11, 16), "2026-11-16", "2026-11-16T00", datetime(2026, 11, 16)])
def test_a_moment_at_midnight_is_its_day(period):
    assert period_text(period) == "2026-11-16"


@pytest.mark.parametrize("period", [True, 1.5, None, "", " x", "a\nb", "2026-13-01", "2026-11-16T25:00", *UNKNOWN])
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


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)),
    st.sampled_from(
        ["%Y-%m", "%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S,%f"]
    ),
    st.sampled_from(["", "Z", " UTC", "+02", "-0330", "+05:45", " +0100", "+24", " PM", "[UTC]", "+2", "Z "]),
)
@example(datetime(2000, 1, 1, 0, 0, 1), "%Y-%m-%dT%H:%M:%S", "")
def test_a_period_is_read_as_the_timestamps_of_rows_are(moment, form, zone):
    text = moment.strftime(form) + zone
    try:
        begin = period_text(cut_to_periods(pl.Series("t", [text]), "1m")[0])
    except InputError:
        begin = None
    try:
        assert _to_the_minute(period_text(text)) == _to_the_minute(begin or text)
    except InputError:
        assert begin is None


def _to_the_minute(period):
    return (period if "T" in period else f"{period}T00:00")[: len("2026-11-16T13:00")]


def test_a_gap_counts_as_what_it_is():
    days = [period_text(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=d)) for d in (0, 1, 2, 3, 10, 11)]
    assert elapsed_periods(days).tolist() == [11, 10, 9, 8, 1, 0]


MONTHS = ["2026-02", "2026-03", "2026-07"]


def test_months_are_moments():
    months = [period_text(month) for month in MONTHS]
    assert months == ["2026-02-01", "2026-03-01", "2026-07-01"]
    assert elapsed_periods([period_text(f"2026-{m:02}") for m in (1, 3, 4, 5)])[0] == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize(("delay", "periods"), [("1mo", 1), ("2mo", 2), ("1y", 12), ("36h", 1), ("3", 3), (2, 2)])
def test_a_delay_of_months_is_as_many_periods(delay, periods):
    assert delay_in_periods(delay, [period_text(month) for month in MONTHS[:2]]) == periods


@pytest.mark.parametrize("delay", ["-1", "1.5", "abc", "2x", -1, 1.5, True, ""])
@pytest.mark.parametrize("periods", [["2026-01-01", "2026-02-01"], ["mon", "tue"]])
def test_a_wrong_delay_is_told_as_such(delay, periods):
    with pytest.raises(InputError, match="it must be a whole number of periods, 0 or more, or a duration"):
        delay_in_periods(delay, periods)


def test_a_length_of_time_needs_moments():
    with pytest.raises(InputError, match="delay is '2d', but periods such as 'mon' are not timestamps"):
        delay_in_periods("2d", ["mon", "tue"])
