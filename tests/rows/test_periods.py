"""Periods: a moment lies in the period that begins at or before it, whatever type it has."""

from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnet.errors import InputError
from mcnet.rows.periods import MOST_PERIODS, cut_to_periods, fitting_period, period_to_show

MOMENTS = st.datetimes(datetime(2002, 1, 1), datetime(2033, 5, 1)).map(lambda moment: moment.replace(microsecond=0))
WRITTEN = {"1h": "%Y-%m-%d %H:00", "1d": "%Y-%m-%d", "1mo": "%Y-%m", "1y": "%Y"}


@given(st.lists(MOMENTS, min_size=1, max_size=20), st.sampled_from(sorted(WRITTEN)))
def test_every_way_to_write_a_moment_gives_the_same_period(moments, every):
    expected = [moment.strftime(WRITTEN[every]) for moment in moments]
    seconds = [int(moment.replace(tzinfo=UTC).timestamp()) for moment in moments]
    for column in (
        moments,
        [moment.isoformat() for moment in moments],
        [moment.isoformat(" ") for moment in moments],
        [(moment + timedelta(hours=2)).isoformat() + ".25+02:00" for moment in moments],
        [(moment - timedelta(minutes=210)).isoformat(" ")[:-3] + "-0330" for moment in moments],
        [moment.isoformat() + "Z" for moment in moments],
        [(moment + timedelta(hours=2)).isoformat(" ") + "+02" for moment in moments],
        [(moment - timedelta(hours=5)).isoformat(" ") + " -0500" for moment in moments],
        [moment.isoformat().replace("T", "t") + ",125z" for moment in moments],
        [moment.isoformat(" ") + " UTC" for moment in moments],
        seconds,
        [str(number) for number in seconds],
        [1000 * number for number in seconds],
        [number + 0.5 for number in seconds],
    ):
        assert cut_to_periods(pl.Series("t", column), every).to_list() == expected


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1), st.integers(1, 1000))
def test_numbers_are_cut_to_multiples(numbers, step):
    expected = [str(number - number % step) for number in numbers]
    assert cut_to_periods(pl.Series("t", numbers), str(step)).to_list() == expected


@given(st.tuples(MOMENTS, MOMENTS).map(sorted))
def test_the_period_that_fits_leaves_few_enough(ends):
    every = fitting_period(*ends)
    moments = pl.datetime_range(
        *ends, timedelta(seconds=max(1, int((ends[1] - ends[0]).total_seconds()) // 5000)), eager=True
    )
    assert cut_to_periods(moments, every).n_unique() <= MOST_PERIODS + 1
    assert fitting_period(*(end.isoformat() for end in ends)) == every


@given(st.integers(0, 10**8), st.integers(0, 10**6))
def test_the_step_that_fits_leaves_few_enough(low, width):
    step = int(fitting_period(low, low + width))
    assert width // step < MOST_PERIODS
    assert step == 1 or width // (step / 2.5) >= MOST_PERIODS


def test_days_missing_moments_and_zones_are_cut_too():
    days = pl.Series("t", [date(2024, 5, 1), None])
    assert cut_to_periods(days, "1w").to_list() == ["2024-04-29", None]
    zoned = pl.Series("t", [datetime(2024, 5, 1, 23, tzinfo=UTC)]).dt.convert_time_zone("Europe/Amsterdam")
    assert cut_to_periods(zoned, "1d").to_list() == ["2024-05-01"]  # in UTC
    assert cut_to_periods(zoned.dt.replace_time_zone(None), "1d").to_list() == [
        "2024-05-02"
    ]  # as the clock there shows
    assert cut_to_periods(pl.Series("t", [None, None]), "1d").to_list() == [None, None]
    assert cut_to_periods(pl.Series("t", [1.5e9, float("nan")]), "1d").to_list() == ["2017-07-14", None]


@pytest.mark.parametrize(
    ("column", "every", "message"),
    [
        (["2024-05-01"], "0h", "not a period"),
        (["2024-05-01"], "1 hour", "not a period"),
        (["2024-05-01"], "5", "needs a unit"),
        ([7, 8], "1d", "plain numbers such as 7"),
        ([1373349600000000, 1373349600000001], "1d", "look like microseconds since 1970: divide them by 1,000,"),
        (["2024-05-01", "later"], "1d", "t has 'later', which is not a timestamp"),
        (["2026-11-17 10:30:00", "2026-11-17 10:30:00 PM"], "1h", "t has '2026-11-17 10:30:00 PM', which is not a"),
        (["2026-11-17T10:30:00+02:00[Europe/Paris]"], "1h", r"t has '2026-11-17T10:30:00\+02:00\[Europe/Paris\]'"),
        (["2026-11-17 10:30:00whatever"], "1h", "t has '2026-11-17 10:30:00whatever'"),
        (["2026-11-17 10:30:00 "], "1h", "t has '2026-11-17 10:30:00 '"),
        (["2026-11-17 10:30:00+99:99"], "1h", r"t has '2026-11-17 10:30:00\+99:99'"),
        (["2026-11-17 24:00"], "1h", "t has '2026-11-17 24:00'"),
        (["2026-02-30"], "1h", "t has '2026-02-30'"),
        ([b"2026-02-03", b"\xff"], "1h", "t has bytes that are not UTF-8"),
        (["2026111713"], "1h", "t has plain numbers such as 2026111713, not timestamps"),
        ([2026111713, None, 1800000000], "1d", "t has plain numbers such as 2026111713"),
        ([20261117, None], "1d", "t has plain numbers such as 20261117"),
        ([1.5e9, float("inf")], "1h", "t has inf, which is neither a timestamp nor a number of 64 bits; leave the row"),
        ([1.0, float("-inf")], "10", "t has -inf, which is neither"),
        (pl.Series([1, 2**63], dtype=pl.UInt64), "1h", "t has 9223372036854775808, which is neither"),
        ([1e300], "10", r"t has 1e\+300, which is neither"),
        ([timedelta(hours=1)], "1h", r"t is a column of Duration.*, not of timestamps"),
        ([[1], [2]], "1h", r"t is a column of List\(Int64\), not of timestamps"),
    ],
)
def test_what_cannot_be_cut_is_refused(column, every, message):
    with pytest.raises(InputError, match=message):
        cut_to_periods(pl.Series("t", column), every)


def test_months_are_cut_as_days():
    assert cut_to_periods(pl.Series("month", ["2026-11", "2026-12"]), "1y").to_list() == ["2026", "2026"]


def test_a_number_that_is_no_timestamp_is_named_by_its_row():
    with pytest.raises(InputError, match="t has inf in line 12, which is neither a timestamp"):
        cut_to_periods(pl.Series("t", [1.5e9, None, float("inf")]), "1d", describe_row=lambda row: f"line {10 + row}")
    with pytest.raises(InputError, match="it has inf, which is neither a timestamp"):
        fitting_period(0.0, float("inf"))


@pytest.mark.parametrize("write", [lambda m: m, datetime.isoformat, lambda m: int(m.timestamp()), lambda m: m.date()])
@pytest.mark.parametrize(
    ("step", "batch"), [(timedelta(minutes=1), 50), (timedelta(hours=5), 200), (timedelta(days=9), 70)]
)
def test_a_period_found_batch_by_batch_is_the_one_that_fits_the_whole_column(write, step, batch):
    begin = datetime(2024, 2, 28, tzinfo=UTC)
    column = pl.Series("t", [None, *(write(begin + step * row) for row in range(400))])
    found = period_to_show(column[start : start + batch] for start in range(0, len(column), batch))
    values = column.drop_nulls()
    if values.n_unique() <= MOST_PERIODS:
        assert found is None
        return
    assert found == fitting_period(values.min(), values.max())
    assert cut_to_periods(column, found).n_unique() <= 1 + MOST_PERIODS


def test_an_automatic_period_leaves_few_values_alone_and_refuses_many_texts():
    few = pl.Series("t", ["mon", "tue", None])
    assert period_to_show([few]) is None
    with pytest.raises(InputError, match=r"t has 121 values or more, and 120 can be shown; t has '(v\d+|mon|tue)'"):
        period_to_show([few, pl.Series("t", [f"v{number}" for number in range(119)])])
