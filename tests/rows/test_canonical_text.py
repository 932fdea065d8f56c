"""The canonical text of a field value is the same whatever the container."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnet.rows.fields import field_columns, field_text

ZONES = ["UTC", "Europe/Amsterdam", "Asia/Kolkata", "America/New_York"]
MOMENTS = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2100, 1, 1))
DURATIONS = st.timedeltas(dt.timedelta(days=-9_999), dt.timedelta(days=9_999))


def texts(column):
    (found,) = field_columns({"x": column})
    return [found.values[code] for code in found.codes]


@settings(max_examples=50)
@given(st.lists(MOMENTS, min_size=1, max_size=8))
def test_equal_moments_have_one_text_in_every_time_zone(moments):
    moments = [moment.replace(tzinfo=dt.UTC) for moment in moments]
    expected = [field_text(moment) for moment in moments]
    assert all(text.endswith("+00:00") for text in expected)
    for zone in ZONES:
        local = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
        assert texts(local) == expected
        assert texts(moments + local) == expected + expected
        assert texts(pl.Series(moments).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)) == expected
        assert texts(pa.array(local, pa.timestamp("us", zone))) == expected
        assert texts(pd.Series(moments, dtype="datetime64[us, UTC]").dt.tz_convert(zone).astype(object)) == expected


@settings(max_examples=50)
@given(st.lists(DURATIONS, min_size=1, max_size=8))
def test_durations_have_one_text_in_every_container(durations):
    expected = [field_text(duration) for duration in durations]
    series = pd.Series(durations, dtype="timedelta64[us]")
    for column in (
        durations,
        series,
        series.astype("category"),
        series.astype(object),
        series.to_numpy(),
        pl.Series(durations, dtype=pl.Duration("us")),
        pa.array(durations, pa.duration("us")),
    ):
        assert texts(column) == expected, type(column)


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**53), 2**53)), min_size=1, max_size=8))
def test_whole_numbers_have_one_text_in_every_container(numbers):
    expected = [None if number is None else str(number) for number in numbers]
    floats = [np.nan if number is None else float(number) for number in numbers]
    for column in (
        numbers,
        floats,
        np.array(floats),
        pd.Series(numbers, dtype="Int64"),
        pd.Series(floats),
        pd.Series(floats).astype("category"),
        pl.Series(numbers, dtype=pl.Int64),
        pl.Series(numbers, dtype=pl.Int128),
        pl.Series(expected, dtype=pl.String),
        pl.Series(expected, dtype=pl.String).cast(pl.Categorical),
        pa.array(numbers, pa.int64()),
        pa.array(expected, pa.string()),
    ):
        assert texts(column) == expected, type(column)


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s"])
def test_the_unit_of_a_duration_does_not_matter(unit):
    assert texts(np.array([90_000], dtype="m8[s]").astype(f"m8[{unit}]")) == ["1 day, 1:00:00"]
