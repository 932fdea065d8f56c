"""The answer for a row does not depend on its neighbours, nor on the container of its field value."""

from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mcnet


class Country(str, Enum):  # noqa: UP042 (what people write; its str() is not its text)
    NL = "NL"
    FR = "FR"


class Device(IntEnum):
    PHONE = 1
    TABLET = 2


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Shouting(str):
    """A text that shows itself otherwise."""

    def __str__(self):
        return self.upper() + "!"

    def __repr__(self):
        return "shouting"


class Everything:
    """A value that says it equals any other."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("NL")

    def __str__(self):
        return "everything"


KNOWN = ["NL", "FR", "1", "2", "0.5", "true", "false", "2024-01-01", "", "nl", "1/2", "everything", None]


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    score = rng.random(13_000)
    field = [KNOWN[i % len(KNOWN)] for i in range(len(score))]
    rates = np.linspace(0.1, 0.9, len(KNOWN))[np.arange(len(score)) % len(KNOWN)]
    return mcnet.PerField("platt").fit(score, rng.random(len(score)) < rates, field=field).model_


VALUES = st.one_of(
    st.sampled_from(KNOWN),
    st.sampled_from([Country.NL, Country.FR, Device.PHONE, Device.TABLET, Colour.RED, Colour.BLUE]),
    st.sampled_from([Shouting("nl"), Shouting("NL"), Everything(), np.str_("NL"), b"NL", b"nl", np.bytes_(b"NL")]),
    st.sampled_from([True, False, np.True_, np.False_, 1, 2, 1.0, 2.0, 0.5, -0.0, 0.0, 10**30, float("inf")]),
    st.sampled_from([np.int8(1), np.uint64(2), np.float32(0.5), np.float64(1.0), np.float16(0.5), np.float32(0.1)]),
    st.sampled_from([Decimal("1"), Decimal("1.0"), Decimal("0.5"), Decimal("NaN"), Fraction(1, 2), Fraction(1)]),
    st.sampled_from([complex(1), None, float("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT")]),
    st.sampled_from([date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, 12), time(12, 30)]),
    st.sampled_from([pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01 12:00"), np.datetime64("2024-01-01")]),
    st.text(max_size=3),
    st.integers(-3, 3),
    st.floats(),
)


@settings(max_examples=400)
@given(value=VALUES, before=st.lists(VALUES, max_size=12), after=st.lists(VALUES, max_size=3))
@example(value=Country.NL, before=["NL"], after=[])
@example(value=Fraction(1, 2), before=[0.5], after=[])
@example(value=1, before=[True], after=[Decimal(1)])
@example(value="NL", before=[Everything()], after=[])
def test_a_row_has_the_same_answer_alone_and_in_any_list(model, value, before, after):
    alone = model.predict_one(0.3, (value,))
    assert model.predict([0.3], [value])[0] == alone
    assert model.predict([0.3], {"field": [value]})[0] == alone
    batch = [*before, value, *after]
    assert model.predict(np.full(len(batch), 0.3), batch)[len(before)] == alone
    long = [*before, value, *after] * 20  # more rows than the short path takes
    assert model.predict(np.full(len(long), 0.3), long)[len(before)] == alone
    objects = np.empty(len(batch), dtype=object)
    objects[:] = batch
    assert model.predict(np.full(len(batch), 0.3), objects)[len(before)] == alone
    assert model.predict(np.full(len(batch), 0.3), pd.Series(objects, dtype=object))[len(before)] == alone


COLUMNS = {
    "texts": (["NL", "FR", "unseen", "", None], pl.String),
    "whole numbers": ([1, 2, -3, 1, None], pl.Int64),
    "fractions": ([0.5, 1.0, 2.5, float("inf"), None], pl.Float64),
    "booleans": ([True, False, True, True, None], pl.Boolean),
    "days": ([date(2024, 1, 1), date(2024, 1, 2), date(1, 1, 1), date(9999, 12, 31), None], pl.Date),
    "moments": (
        [datetime(2024, 1, 1), datetime(2024, 1, 1, 1, 2, 3, 4), datetime(1990, 1, 1), None],
        pl.Datetime("us"),
    ),
    "times": ([time(1, 2, 3), time(0), time(12), None], pl.Time),
    "decimals": ([Decimal("0.50"), Decimal("1.00"), Decimal("2.25"), None], pl.Decimal(10, 2)),
    "bytes": ([b"NL", b"nl", b"", None], pl.Binary),
    "categories": (["NL", "FR", "unseen", None], pl.Categorical),
    "enum": (["NL", "FR", "unseen", None], pl.Enum(["FR", "NL", "unseen"])),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("missing", [True, False])
def test_a_value_has_the_same_answer_in_every_kind_of_column(model, name, missing):
    values, kind = COLUMNS[name]
    values = values if missing else values[:-1]
    expected = [model.predict_one(0.3, (value,)) for value in values]
    series = pl.Series("field", values, dtype=kind)
    arrow = series.to_arrow()
    pandas = arrow.to_pandas()
    scores = np.full(len(values), 0.3)
    columns = {
        "list": values,
        "polars": series,
        "polars table": pl.DataFrame({"field": series}),
        "arrow": arrow,
        "arrow chunks": pa.chunked_array([arrow[:2], arrow[2:]]),
        "arrow table": pa.table({"field": arrow}),
        "pandas": pandas,
        "pandas table": pandas.to_frame("field"),
        "pandas objects": pd.Series(values, dtype=object),
        "pandas categories": pd.Series(values, dtype=object).astype("category"),
        "polars, many rows": series.sample(len(series)).head(0).append(pl.concat([series] * 20)),
    }
    for container, column in columns.items():
        rows = len(column)
        found = model.predict(np.full(rows, 0.3), column)[: len(values)]
        assert found.tolist() == expected, container
    assert model.predict(scores, values).tolist() == expected
