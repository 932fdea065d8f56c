"""Field values have one text, whatever holds them; contexts are found by it."""

import datetime as dt
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.errors import InputError
from mcnet.rows import contexts as combinations
from mcnet.rows import fields
from mcnet.rows.contexts import ANY, Contexts
from mcnet.rows.fields import field_columns, field_text


def texts(holder):
    (column,) = field_columns(holder)
    assert column.codes.dtype == np.int32
    assert list(column.values) == sorted(column.values, key=lambda v: (v is None, v or ""))
    return [column.values[code] for code in column.codes]


def holders(values, numpy=None, polars=None, arrow=None):
    """Return the same values in every kind of column there is."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    yield "list", list(values)
    yield "tuple", tuple(values)
    yield "objects", objects
    yield "pandas objects", pd.Series(objects, dtype=object)
    yield "pandas categories", pd.Series(objects).astype("category")
    yield "pandas Categorical", pd.Categorical(values)
    yield "Polars", pl.Series("", values, dtype=polars, strict=False)
    yield "Arrow", pa.array(values, arrow)
    yield "Arrow chunks", pa.chunked_array([pa.array(values[:1], arrow), pa.array(values[1:], arrow)])
    yield "Arrow dictionary", pa.array(values, arrow).dictionary_encode()
    if numpy is not None:
        yield "array", np.array(values, dtype=numpy)
        yield "pandas", pd.Series(np.array(values, dtype=numpy))


TEXTS = ["NL", "", "é ", "日本", "NL"]
CASES = {
    "texts": (TEXTS, TEXTS, {"numpy": str}),
    "texts and missing": (["NL", None, ""], ["NL", None, ""], {}),
    "whole numbers": ([7, -1, 0], ["7", "-1", "0"], {"numpy": np.int64}),
    "small numbers": ([7, -128, 127], ["7", "-128", "127"], {"numpy": np.int8, "arrow": pa.int8()}),
    "huge numbers": ([2**62, 2**53 + 1], [str(2**62), str(2**53 + 1)], {"numpy": np.int64}),
    "unsigned": (
        [2**64 - 1, 2**64 - 2],
        [str(2**64 - 1), str(2**64 - 2)],
        {"numpy": np.uint64, "polars": pl.UInt64, "arrow": pa.uint64()},
    ),
    "floats": ([7.0, 0.5, -0.0, 1e-7], ["7", "0.5", "0", "1e-07"], {"numpy": np.float64}),
    "floats and NaN": ([7.0, float("nan")], ["7", None], {"numpy": np.float64}),
    "booleans": ([True, False], ["true", "false"], {"numpy": bool}),
    "days": ([dt.date(2024, 2, 29)] * 2, ["2024-02-29"] * 2, {"numpy": "M8[D]"}),
    "moments": (
        [dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
        ["2024-02-29", "2024-02-29T01:02:03.000004"],
        {"numpy": "M8[us]"},
    ),
    "decimals": ([Decimal("7.00"), Decimal("0.50")], ["7", "0.5"], {"arrow": pa.decimal128(10, 2)}),
    "only missing": ([None, None], [None, None], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_one_value_has_one_text_whatever_holds_it(case):
    values, expected, types = CASES[case]
    for name, holder in holders(values, **types):
        assert texts(holder) == expected, name


@pytest.mark.parametrize(
    "holder",
    [
        pl.Series("", TEXTS, dtype=pl.Categorical),
        pl.Series("", TEXTS, dtype=pl.Enum(sorted(set(TEXTS)))),
        pl.Series("", TEXTS, dtype=pl.Categorical).to_arrow(),
        pd.Series(TEXTS, dtype="string"),
        pd.Series(TEXTS, dtype="string[pyarrow]"),
        pd.Index(TEXTS),
        np.array([t.encode() for t in TEXTS], dtype=object),
        pa.array(TEXTS, pa.large_string()),
        pa.chunked_array([pa.array(TEXTS[:2]).dictionary_encode(), pa.array(TEXTS[2:]).dictionary_encode()]),
        pa.array(["left out", *TEXTS]).dictionary_encode()[1:],
    ],
)
def test_columns_of_texts_of_every_kind(holder):
    assert texts(holder) == TEXTS


@pytest.mark.parametrize(
    "holder",
    [
        pd.Series(["NL", pd.NA], dtype="string"),
        pd.Series(["NL", None]),
        pd.Series(["NL", None], dtype="category"),
        pl.Series(["NL", None], dtype=pl.Categorical),
        pl.Series(["NL", None], dtype=pl.Categorical).to_arrow(),
        pa.DictionaryArray.from_arrays(pa.array([0, None], pa.uint8()), pa.array(["NL"])),
    ],
)
def test_missing_texts_are_missing_everywhere(holder):
    assert texts(holder) == ["NL", None]


@pytest.mark.parametrize(
    "holder",
    [
        pd.Series([7, pd.NA], dtype="Int64"),
        pd.Series([7, None], dtype="float64"),
        pl.Series([7, None]),
        pa.array([7, None]),
        [7, None],
        [7, pd.NaT],
        ["7", float("nan")],
        np.array([7.0, np.nan], dtype=np.float32),
    ],
)
def test_missing_numbers_are_missing_everywhere(holder):
    assert texts(holder) == ["7", None]


def test_moments_of_every_unit_have_the_text_of_python():
    moment = dt.datetime(2024, 2, 29, 1)
    for unit in ("s", "ms", "us", "ns", "h"):
        assert texts(np.array([moment, None], dtype=f"M8[{unit}]")) == ["2024-02-29T01:00:00", None]
    assert texts(pd.Series([moment, None])) == ["2024-02-29T01:00:00", None]
    assert texts(pl.Series([moment, None])) == ["2024-02-29T01:00:00", None]


def test_moments_of_arrow_finer_than_those_of_python_lose_what_python_has_not():
    for zone, ending in ((None, ""), ("UTC", "+00:00")):
        moments = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", zone))
        assert texts(moments) == [f"2023-11-14T22:13:20.123456{ending}", None]
    assert texts(pa.array([1_001], pa.time64("ns"))) == ["00:00:00.000001"]


def test_types_that_a_driver_has_made_its_own_have_the_texts_of_their_values():
    """As ADBC gives them of PostgreSQL, and ClickHouse and DuckDB in Arrow."""
    number = UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([number.bytes, None], pa.binary(16)))
    assert texts(uuids) == [str(number), None]
    assert texts(pa.chunked_array([uuids, uuids])) == [str(number), None] * 2
    numeric = pa.opaque(pa.string(), "numeric", "PostgreSQL")
    decimals = pa.array(["7.50", "7.00", None, "NaN", "-Infinity"])
    assert texts(pa.ExtensionArray.from_storage(numeric, decimals)) == ["7.5", "7", None, None, "-inf"]
    json = pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "citext", "PostgreSQL"), pa.array(["NL"]))
    assert texts(json) == ["NL"]
    unknown = pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "inet", "PostgreSQL"), pa.array([b"\x01"]))
    with pytest.raises(mcnet.InputError, match="is of the type inet, whose values are not known; cast it to text"):
        field_columns({"address": unknown})


def test_decimals_with_more_digits_than_a_double_stay_different_values():
    many = ["123456789012345678.01", "123456789012345678.02", "-0.12345678901234567891", "1.23456789012345678e-05"]
    assert texts(list(map(Decimal, many))) == many
    assert texts(pl.Series(many[:3]).cast(pl.Decimal(38, 20))) == many[:3]
    assert texts(pa.array(list(map(Decimal, many)), pa.decimal256(60, 30))) == many
    assert texts([Decimal("0.000010"), Decimal("-2.50E-11"), Decimal("1E-400")]) == ["1e-05", "-2.5e-11", "1e-400"]


@pytest.mark.parametrize("exponent", range(-30, 30))
def test_a_decimal_of_the_digits_of_a_double_has_its_text(exponent):
    for number in (1.0, -1.5, 1.2345678901234567, 9.999999999999999, 2 / 3):
        value = number * 2.0**exponent
        assert field_text(Decimal(repr(value))) == field_text(value)


def test_infinite_decimals_are_infinite_numbers():
    assert texts([Decimal("Infinity"), Decimal("-Infinity"), Decimal("NaN")]) == ["inf", "-inf", None]


def test_bytes_that_are_no_text_stay_different_values():
    values = [b"NL", b"\xff", b"\xfe", "\u00e9".encode()]
    for kind in (bytes, bytearray, memoryview):  # as drivers of databases return them
        assert texts([kind(value) for value in values]) == ["NL", "\\xff", "\\xfe", "\u00e9"]


def test_values_of_arrow_that_python_has_not_are_refused_by_the_name_of_the_field():
    days = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    with pytest.raises(mcnet.InputError, match="field 'day' has a value that cannot be read"):
        field_columns({"day": days})
    with pytest.raises(mcnet.InputError, match="field 'lists' holds values that cannot be compared"):
        field_columns({"lists": pa.array([[1], [2]])})


def test_true_and_1_are_two_values_in_any_order():
    assert texts([1, True, "1", 1.0]) == ["1", "true", "1", "1"]
    assert texts([True, 1, 0, False]) == ["true", "1", "0", "false"]


def test_halves_of_surrogate_pairs_are_replaced():
    assert field_text("a\ud800b") == "a?b"


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.none(), st.text(max_size=5), st.integers(-3, 3), st.floats(-2, 2)), min_size=1, max_size=30)
)
def test_a_column_gives_the_text_of_each_of_its_values(values):
    assert texts(values) == [field_text(value) for value in values]


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_whole_numbers_keep_every_digit(values):
    assert texts(np.array(values)) == [str(value) for value in values]
    near = [values[0] // 2 + v % 1000 for v in values]
    assert texts(np.array(near)) == [str(value) for value in near]


@pytest.mark.parametrize("field", ["NL", b"NL", 7, iter(["NL"]), object()])
def test_what_is_not_a_column_is_refused(field):
    with pytest.raises(mcnet.InputError, match="not a column; pass one value per row"):
        field_columns(field)


def test_values_that_cannot_be_compared_are_refused():
    with pytest.raises(mcnet.InputError, match="cannot be compared"):
        field_columns([["NL"], ["FR"]])
    with pytest.raises(mcnet.InputError, match=r"shape \(1, 1, 1\)"):
        field_columns({"land": np.zeros((1, 1, 1))})
    with pytest.raises(mcnet.InputError, match="empty mapping"):
        field_columns({})


def test_tables_and_mappings_name_their_fields():
    columns = {"land": ["NL", "FR"], "device": [1, 2]}
    for table in (columns, pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        assert [(c.name, c.values) for c in field_columns(table)] == [("land", ("FR", "NL")), ("device", ("1", "2"))]
    assert [c.name for c in field_columns(np.array([["NL", "1"]]))] == ["field_1", "field_2"]
    assert [c.name for c in field_columns(pd.Series(["NL"], name="land"))] == ["land"]
    assert [c.name for c in field_columns(["NL"])] == ["field"]
    assert field_columns(None) == []


class TestContexts:
    def of(self, **columns):
        columns = field_columns(columns)
        return Contexts.of(columns, len(columns[0]))

    def test_only_combinations_that_occur_are_contexts(self):
        contexts, codes = self.of(land=["NL", "FR", "NL"], device=[2, None, 2])
        assert contexts.labels() == ["FR / (missing)", "NL / 2"]
        assert codes.tolist() == [1, 0, 1]
        assert contexts.rows() == [{"land": "FR", "device": None}, {"land": "NL", "device": "2"}]

    def test_two_fields_of_one_name_are_refused(self):
        column = field_columns(["a"])[0]
        with pytest.raises(mcnet.InputError, match="same name"):
            Contexts.of([column, column], 1)

    @settings(max_examples=60)
    @given(st.data(), st.booleans())
    def test_every_row_is_found_again_and_no_other(self, data, dense):
        number = data.draw(st.integers(1, 30))
        values = [None, "a", "b", "", "c"]
        draw = st.lists(st.sampled_from(values), min_size=number, max_size=number)
        one, two = data.draw(draw), data.draw(draw)
        kept = combinations._MOST_DENSE_KEYS
        try:
            combinations._MOST_DENSE_KEYS = kept if dense else 0
            for columns in ({"x": one}, {"x": one, "y": two}, {"x": one, "y": two, "z": one}):
                contexts, codes = self.of(**columns)
                np.testing.assert_array_equal(contexts.lookup(field_columns(columns)), codes)
                asked = {name: [*values, "new"] for name in columns}
                asked["x"] = [*values[::-1], "new"]
                found = contexts.lookup(field_columns(asked)).tolist()
                known = {tuple(row): place for place, row in enumerate(zip(*columns.values(), strict=True))}
                for row, place in zip(zip(*asked.values(), strict=True), found, strict=True):
                    assert place == (codes[known[row]] if row in known else -1)
                    assert contexts.find(row) == place
        finally:
            combinations._MOST_DENSE_KEYS = kept

    @pytest.mark.parametrize("limit", [0, 4_000_000])
    def test_any_stands_for_every_value_not_listed(self, limit, monkeypatch):
        monkeypatch.setattr(combinations, "_MOST_DENSE_KEYS", limit)
        table = np.array([[0, 0], [0, ANY], [ANY, 1], [ANY, ANY]], dtype=np.int32)
        contexts = Contexts(("land", "device"), (("NL",), ("1", "2")), table)
        asked = {"land": ["NL", "NL", "XX", "XX", "XX"], "device": ["1", "9", "2", "9", "1"]}
        expected = [0, 1, 2, 3, -1]
        assert contexts.lookup(field_columns(asked)).tolist() == expected
        assert [contexts.find(row) for row in zip(*asked.values(), strict=True)] == expected
        one = Contexts(("land",), (("FR", "NL"),), np.array([[0], [1], [ANY]], dtype=np.int32))
        assert one.lookup(field_columns(["NL", "XX", None, "FR"])).tolist() == [1, 2, 2, 0]
        assert [one.find([v]) for v in ("NL", "XX", None, "FR")] == [1, 2, 2, 0]
        assert contexts.labels() == ["NL / 1", "NL / (any)", "(any) / 2", "(any) / (any)"]

    def test_united_contexts_know_both(self):
        one, _ = self.of(land=["NL", "FR"], device=[1, 1])
        other, _ = self.of(land=["ES", "FR"], device=[2, 1])
        both, mine, its = one.united(other)
        assert both.labels() == ["ES / 2", "FR / 1", "NL / 1"]
        assert (mine.tolist(), its.tolist()) == ([1, 2], [0, 1])

    @pytest.mark.parametrize("fields", [40, 62, 70])
    def test_any_number_of_fields_is_combined_and_found_again(self, fields):
        bits = np.random.default_rng(0).integers(0, 2, (200, fields))
        columns = field_columns({f"f{f}": bits[:, f] for f in range(fields)})
        contexts, codes = Contexts.of(columns, len(bits))
        np.testing.assert_array_equal(contexts.lookup(columns), codes)
        unseen = field_columns({f"f{f}": [*(1 - bits[:5, f]), 7] for f in range(fields)})
        assert contexts.lookup(unseen).tolist() == [-1] * 6
        assert contexts.lookup([column[:3] for column in columns]).tolist() == codes[:3].tolist()

    def test_fields_are_matched_by_name_and_a_bare_column_means_the_only_one(self):
        contexts, _ = self.of(land=["NL", "FR"])
        assert contexts.lookup(field_columns(["FR"])).tolist() == [0]
        assert contexts.lookup(field_columns({"land": ["FR"]})).tolist() == [0]
        with pytest.raises(mcnet.InputError, match="fields given: device; needed: land"):
            contexts.lookup(field_columns({"device": ["FR"]}))
        bare, _ = Contexts.of(field_columns(["NL", "FR"]), 2)
        assert bare.lookup(field_columns(pd.Series(["NL"], name="land"))).tolist() == [1]

    def test_a_table_with_more_columns_than_fields_is_told_which_are_too_many(self):
        contexts, _ = self.of(land=["NL", "FR"])
        with pytest.raises(mcnet.InputError, match=r"no fields of the fit \(score, device\); needed: land alone"):
            contexts.lookup(field_columns({"score": [0.1], "land": ["FR"], "device": [1]}))


def test_a_field_shorter_than_the_scores_is_refused_by_name():
    with pytest.raises(mcnet.InputError, match="field land has 1"):
        mcnet.Sketch.from_rows([0.1, 0.2], [0, 1], field={"land": ["NL"]})


def test_contexts_are_found_in_others_by_the_fields_that_these_know():
    known, _ = Contexts.of(field_columns({"country": ["NL", "FR"]}), 2)
    other, _ = Contexts.of(field_columns({"day": [1, 2, 1], "country": ["NL", "US", "FR"]}), 3)
    assert known.indices_of(other).tolist() == [known.find([row["country"]]) for row in other.rows()]
    assert Contexts.none().indices_of(other).tolist() == [-1, -1, -1]


ROWS_OF_EACH = 50
DISTINCT = {
    "decimals": pl.Series([Decimal("1.50"), Decimal("-2.25"), Decimal("7.00"), None]),
    "wide decimals": pl.Series([Decimal("1.50"), Decimal("12345678901234567.25")]).cast(pl.Decimal(38, 18)),
    "days": pl.Series([dt.date(2026, 11, 16), dt.date(1900, 1, 1), None]),
    "timestamps": pl.Series([dt.datetime(2026, 11, 16), dt.datetime(2026, 11, 16, 7, 0, 0, 5), None]),
    "zoned": pl.Series([dt.datetime(2026, 11, 16, tzinfo=dt.UTC)]).dt.convert_time_zone("Asia/Kolkata"),
    "durations": pl.Series([dt.timedelta(hours=30), dt.timedelta(microseconds=-1)]),
    "times": pl.Series([dt.time(7), dt.time(7, 0, 1), None]),
    "whole numbers": pl.Series([7, -(2**63), None]),
    "few whole numbers": pl.Series([7, 9, None]),
    "wide whole numbers": pl.Series([7, 2**64 - 1, None], dtype=pl.UInt64),
    "fractions": pl.Series([0.5, 7.0, None, float("nan")]),
    "booleans": pl.Series([True, False, None]),
    "bytes": pl.Series([b"NL", b"F\xffR", None]),
    "bytes of texts": pl.Series([b"NL", "Ã…".encode(), None]),
}


@pytest.mark.parametrize("kind", DISTINCT)
def test_the_text_of_a_value_is_made_once_however_often_it_comes(kind, monkeypatch):
    values = DISTINCT[kind]
    expected = [field_text(value) for value in values.to_list()] * ROWS_OF_EACH
    made = []
    monkeypatch.setattr(fields, "field_text", lambda value: made.append(value) or field_text(value))
    (column,) = field_columns({"x": pl.concat([values] * ROWS_OF_EACH)})
    assert [column.values[code] for code in column.codes] == expected
    assert len(made) < 3 * len(values)


def test_pandas_timestamps_with_a_time_zone_have_the_texts_of_utc(monkeypatch):
    moments = pd.Series(pd.to_datetime(["2026-11-16T01:00", None, "2026-11-16T00:00"])).dt.tz_localize("Asia/Kolkata")
    made = []
    monkeypatch.setattr(fields, "field_text", lambda value: made.append(value) or field_text(value))
    (column,) = field_columns({"x": pd.concat([moments] * ROWS_OF_EACH)})
    found = [column.values[code] for code in column.codes]
    assert found == ["2026-11-15T19:30:00+00:00", None, "2026-11-15T18:30:00+00:00"] * ROWS_OF_EACH
    assert len(made) == 3


def test_a_day_beyond_the_calendar_is_refused_by_the_name_of_the_field():
    with pytest.raises(InputError, match="field 'day' has a day beyond the calendar"):
        field_columns({"day": pl.Series([10**8]).cast(pl.Int32).cast(pl.Date)})


def test_a_lazy_table_as_a_field_is_refused():
    for lazy in (pl.LazyFrame({"x": [1]}), {"x": pl.LazyFrame({"x": [1]})}, {"x": pl.col("x")}):
        with pytest.raises(InputError, match="collect"):
            field_columns(lazy)
    with pytest.raises(InputError, match="score is a LazyFrame of Polars, which has no values yet; collect it"):
        mcnet.Sketch.from_rows(pl.LazyFrame({"x": [1]}), [1])
    with pytest.raises(InputError, match="field is an expression of Polars, which has no values yet; collect it"):
        field_columns(pl.col("x"))


def test_a_column_of_a_log_that_is_called_field_has_a_name(tmp_path):
    score, label, field = [0.1, 0.2, 0.3, 0.4] * 20, [0, 1, 1, 0] * 20, ["NL", "FR"] * 40
    log = pd.DataFrame({"score": score, "label": label, "field": field})
    fitted = mcnet.BayesMCNet(bins=2).fit_sketch(mcnet.scan(log, score="score", label="label", field="field"))
    fitted.save(tmp_path / "model.json")
    bare = mcnet.BayesMCNet(bins=2).fit(score, label, field=np.array(field)).model_
    country = pd.Series(field, name="country")
    for model in (fitted, mcnet.load(tmp_path / "model.json")):
        for other in ({"country": field}, country):
            with pytest.raises(mcnet.InputError, match="fields given: country; needed: field"):
                model.predict(score, field=other)
        for same in ({"field": field}, np.array(field), country.rename("field"), country.rename(None)):
            np.testing.assert_array_equal(model.predict(score, field=same), bare.predict(score, field=country))
