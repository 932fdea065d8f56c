"""Columns looked up by their bytes have the codes and texts of the slow, obvious way: one value at a time."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet._shared import distinct_values as distinct
from mcnet._shared.distinct_values import distinct_rows, distinct_texts, rows_of_keys, take
from mcnet._shared.loops import numba_installed
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import field_columns, field_text, sort_key

LIMITS = {name: np.iinfo(name) for name in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")}

texts = st.text(st.characters(), max_size=6)  # halves of surrogate pairs included
plain_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)


@pytest.fixture(autouse=True, params=["compiled", "no compiler"])
def compiler(request, monkeypatch):
    """Take every column, however short, through the compiled loops, then all through NumPy."""
    if request.param == "compiled":
        monkeypatch.setattr(distinct, "worth_compiling", lambda rows, *_: rows > 0 and numba_installed())
    else:
        monkeypatch.setattr(distinct, "worth_compiling", lambda *_: False)
    return request.param


def check(holder, items):
    """Compare a column with the text of each item, and what is looked up in it with a dictionary."""
    (column,) = field_columns(holder)
    expected = [field_text(item) for item in items]
    assert set(column.values) >= set(expected)
    assert list(column.values) == sorted(column.values, key=sort_key)
    assert column.codes.dtype == np.int32
    assert [column.values[code] for code in column.codes] == expected
    table = np.arange(len(column.values), dtype=np.int32)[::-1] * 3
    assert column.mapped(table).tolist() == [table[code] for code in column.codes]
    part = column[1::2]
    assert [part.values[code] for code in part.codes] == expected[1::2]
    known = sorted(set(expected[::2]), key=sort_key)
    contexts = Contexts(("land",), (tuple(known),), np.arange(len(known), dtype=np.int32)[:, None])
    assert contexts.lookup([column]).tolist() == [known.index(e) if e in known else -1 for e in expected]


@settings(max_examples=60)
@given(st.lists(texts, min_size=1, max_size=30))
def test_numpy_texts(values):
    array = np.array(values)
    check(array, array.tolist())  # NumPy drops zeros at the end
    check(array[::-1], array[::-1].tolist())
    check(array.astype(array.dtype.newbyteorder()), array.tolist())


@settings(max_examples=60)
@given(st.lists(st.one_of(st.none(), plain_texts, st.sampled_from(["", "NL", "a text of more than 12 bytes"]))))
def test_polars_texts_and_categories(values):
    for kind in (pl.String, pl.Categorical):
        series = pl.Series("land", values, dtype=kind)
        check(series, values)
        check(series[2:], values[2:])
        check(pl.concat([series, series], rechunk=False), values * 2)
        check(series.drop_nulls(), [value for value in values if value is not None])


@settings(max_examples=60)
@given(st.data(), st.sampled_from(sorted(LIMITS)))
def test_whole_numbers_of_every_type_and_range(data, kind):
    low, high = LIMITS[kind].min, LIMITS[kind].max
    middle = data.draw(st.integers(low, high))
    near = st.integers(max(low, middle - 50), min(high, middle + 50))
    for numbers in (near, st.integers(low, high)):
        values = data.draw(st.lists(numbers, min_size=1, max_size=30))
        array = np.array(values, dtype=kind)
        check(array, values)
        check(array[::-1], values[::-1])
        check(pl.Series(array), values)


@settings(max_examples=60)
@given(st.lists(st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 7.0, np.nan, -np.nan])), min_size=1, max_size=30))
def test_fractions(values):
    check(np.array(values), values)
    single = np.array(values, dtype=np.float64).clip(-1e30, 1e30).astype(np.float32)
    check(single, single)


def test_moments_booleans_and_categories_of_others():
    moments = np.array(["2024-02-29", "NaT", "2024-03-01T01", "2024-02-29"], dtype="M8[s]")
    check(moments, moments)
    check(np.array([True, False, True]), [True, False, True])
    values = ["NL", None, "FR", "NL"]
    for holder in (
        pd.Series(values, dtype="category"),
        pd.Categorical(values),
        pa.array(values),
        pa.array(values).dictionary_encode(),
    ):
        check(holder, values)


@settings(max_examples=40)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=60), st.integers(-3, 3))
def test_tables_are_looked_up_by_key(values, beyond):
    keys = np.array(values, dtype=np.int64)
    low, high = int(keys.min()) - abs(beyond), int(keys.max())
    table = np.random.default_rng(0).integers(0, 1000, high - low + 1).astype(np.int32)
    for kind in (np.int64, np.int32, np.int8):
        assert take(table, keys.astype(kind), low).tolist() == [table[key - low] for key in values]
        rows = rows_of_keys(keys.astype(kind), low, high)
        for key, row in enumerate(rows.tolist(), low):
            assert (values[row] == key) if row >= 0 else key not in values


def test_more_distinct_values_than_the_first_table_holds(compiler):
    values = np.random.default_rng(0).permutation(np.repeat(np.arange(30_000), 2)).astype(np.float64) / 7
    found = distinct_rows(values)
    if compiler == "no compiler":
        assert found is None
        return
    codes, rows = found
    assert len(rows) == 30_000
    np.testing.assert_array_equal(values[rows][codes], values)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_whole_numbers_held_as_fractions(kind):
    values = np.random.default_rng(0).permutation(np.tile([*range(450), np.nan, -0.0], 3)).astype(kind)
    check(values, values.tolist())
    check(values * 2.0**40, (values * 2.0**40).tolist())  # their bits differ in the first places alone


def test_elements_of_an_odd_size_are_left_to_others():
    for array in (np.array([b"abc", b"d"]), np.array([0.5, 7.0], dtype=np.float16)):
        assert distinct_rows(array) is None
        check(array, array)


def test_texts_of_one_hash_are_left_to_others(compiler, monkeypatch):
    series = pl.Series(["NL", "", None, "a text of more than twelve bytes", "NL"])
    if compiler == "compiled":
        codes, rows = distinct_texts(series)
        assert series.gather(rows).gather(codes).to_list() == series.to_list()
        monkeypatch.setattr(distinct, "distinct_rows", lambda hashes: (np.zeros(len(hashes), np.int32), np.array([0])))
    assert distinct_texts(series) is None
    check(series, series.to_list())


def test_every_kind_of_column_gets_the_same_predictions():
    rng = np.random.default_rng(3)
    score, codes = rng.random(3_000), rng.integers(0, 4, 3_000)
    calibrator = mcnet.PlattField().fit(score, rng.random(3_000) < score, field=codes[:, None].astype(str)[:, 0])
    expected = calibrator.predict(score, field=codes.tolist())
    text = codes.astype(str)
    for field in (
        text,
        codes,
        codes.astype(np.int8),
        codes.astype(float),
        pl.Series(text),
        pl.Series(text, dtype=pl.Categorical),
        pd.Series(text),
        pd.Series(text, dtype="category"),
        pa.array(text.tolist()),
    ):
        np.testing.assert_array_equal(calibrator.predict(score, field=field), expected)
