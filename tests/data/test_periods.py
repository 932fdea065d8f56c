"""Periods: a moment lies in the period that begins at or before it, whatever type it has."""

from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnet.data.automatic_period import AutomaticPeriod
from mcnet.data.fields import field_columns
from mcnet.data.periods import MOST_PERIODS, cut_to_periods, fitting_period
from mcnet.errors import InputError

MOMENTS = st.datetimes(datetime(2002, 1, 1), datetime(2050, 1, 1)).map(lambda moment: moment.replace(microsecond=0))
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
        (["2024-05-01", "later"], "1d", "t has 'later', which is not a timestamp"),
    ],
)
def test_what_cannot_be_cut_is_refused(column, every, message):
    with pytest.raises(InputError, match=message):
        cut_to_periods(pl.Series("t", column), every)


def _texts(column: pl.Series) -> list[str | None]:
    field = field_columns({"t": column})[0]
    return [field.values[code] for code in field.codes]


@pytest.mark.parametrize("write", [lambda m: m, datetime.isoformat, lambda m: int(m.timestamp()), lambda m: m.date()])
@pytest.mark.parametrize(
    ("step", "batch"), [(timedelta(minutes=1), 50), (timedelta(hours=5), 200), (timedelta(days=9), 70)]
)
def test_a_period_found_batch_by_batch_is_the_one_that_fits_the_whole_column(write, step, batch):
    begin = datetime(2024, 2, 28, tzinfo=UTC)
    column = pl.Series("t", [None, *(write(begin + step * row) for row in range(400))])
    found = AutomaticPeriod()
    parts = [found.cut(column[start : start + batch]) for start in range(0, len(column), batch)]
    final = found.final_texts()
    values = column.drop_nulls()
    if values.n_unique() <= MOST_PERIODS:
        assert final is None
        return
    assert found.every == fitting_period(values.min(), values.max())
    texts = [text for part in parts for text in _texts(part)]
    assert [final.get(text, text) for text in texts] == cut_to_periods(column, found.every).to_list()
    assert len(set(texts)) < 20 * MOST_PERIODS


def test_an_automatic_period_leaves_few_values_alone_and_refuses_many_texts():
    few = AutomaticPeriod()
    assert few.cut(pl.Series("t", ["mon", "tue", None])).to_list() == ["mon", "tue", None]
    assert few.every is None
    with pytest.raises(InputError, match=r"t has 121 values or more, and 120 can be shown; t has '(v\d+|mon|tue)'"):
        few.cut(pl.Series("t", [f"v{number}" for number in range(119)]))
