"""SQL: DuckDB gives the bits of predict, and no text breaks out of its quotes."""

from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.curves.curves import Curves
from mcnet.export.sql import MOST_CASES, export_sql, sql_text
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document
from mcnet.rows.column_types import COLUMN_TYPES
from mcnet.rows.contexts import Contexts
from mcnet.rows.sql_dialects import DIALECTS

FORMS = ("case", "tables")


def _run(text, columns, table="impressions", output="calibrated"):
    """Return the new column in the order of the rows, and the names of all columns."""
    connection = duckdb.connect(config={"threads": 1})
    number = len(next(iter(columns.values())))
    connection.register("arrow", pa.table({"place of row": np.arange(number), **columns}))
    connection.execute(f"CREATE TABLE {table} AS SELECT * FROM arrow")
    found = connection.sql(text).to_arrow_table()
    return found.sort_by("place of row")[output].to_numpy(zero_copy_only=False), found.column_names


def _model(values, field="site"):
    contexts = Contexts((field,), (tuple(values),), np.arange(len(values), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.9]), np.array([0.01 * (c + 1), 0.5 + 0.01 * c])) for c in range(len(values) + 1)]
    return CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))


def test_many_rows_have_the_bits_of_predict(large_model, rows_for, predicted):
    scores, fields = rows_for(large_model, 200_000)
    found, _ = _run(sql_text(large_model, form="tables"), {"score": scores, **fields})
    np.testing.assert_array_equal(found, predicted(large_model, scores, fields))


def test_the_select_form_has_the_bits_of_predict(two_field_model, rows_for):
    scores, fields = rows_for(two_field_model, 3_000)
    found, _ = _run(sql_text(two_field_model, form="case"), {"score": scores, **fields})
    np.testing.assert_array_equal(found, two_field_model.predict(scores, fields))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20)
@given(data=st.data())
def test_nasty_models_have_the_bits_of_predict(nasty_models, rows_for, predicted, form, data):
    model = data.draw(nasty_models)
    scores, fields = rows_for(model, 200)
    renamed = {name: f"Column {i}" for i, name in enumerate(fields)}
    columns = {
        "score": scores,
        **{renamed[name]: pa.array(column.tolist(), pa.string()) for name, column in fields.items()},
    }
    found, _ = _run(sql_text(model, form=form, fields=renamed), columns)
    np.testing.assert_array_equal(found, predicted(model, scores, fields))


@pytest.mark.parametrize("form", FORMS)
def test_names_are_quoted(form):
    model = _model(["NL", None], field='fi"eld; --')
    columns = {'sc"ore': np.array([0.2, 0.4]), 'fi"eld; --': pa.array(["NL", None])}
    text = sql_text(
        model, form=form, source=("main", 'im"press.ions'), score='sc"ore', output='ou"t', tables='main.mo"del'
    )
    found, names = _run(text, columns, table='"im""press.ions"', output='ou"t')
    np.testing.assert_array_equal(found, model.predict([0.2, 0.4], ["NL", None]))
    assert names == ["place of row", *columns, 'ou"t']


@pytest.mark.parametrize("form", FORMS)
def test_a_null_or_nan_score_gives_null_and_scores_outside_are_taken_as_the_ends(form):
    model = _model(["a"])
    scores = pa.array([None, np.nan, -1.0, 2.0, np.inf], pa.float64(), from_pandas=False)
    found, _ = _run(sql_text(model, form=form), {"score": scores, "site": ["a"] * 5})
    low, high = model.predict([0.0, 1.0], ["a", "a"])
    np.testing.assert_array_equal(found, [np.nan, np.nan, low, high, high])


@pytest.mark.parametrize("form", FORMS)
def test_fields_may_be_numbers_and_scores_may_be_decimals(form):
    model = _model(["7", "8", "true"])
    scores = pa.array([0.25, 0.5, 0.75]).cast(pa.decimal128(5, 3))
    found, _ = _run(sql_text(model, form=form), {"score": scores, "site": np.array([7, 8, 9])})
    np.testing.assert_array_equal(found, model.predict([0.25, 0.5, 0.75], [7, 8, 9]))


@pytest.mark.parametrize("form", FORMS)
def test_running_it_again_replaces_the_model(form):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE impressions AS SELECT 0.3::DOUBLE AS score, 'a' AS site")
    for model in (_model(["a"]), _model(["b"])):
        found = connection.execute(sql_text(model, form=form)).fetchall()
        assert found == [(0.3, "a", model.predict([0.3], ["a"])[0])]


def test_large_models_are_written_as_tables_by_default(large_model):
    small = len(large_model.curves.probabilities) <= MOST_CASES
    assert ("CREATE TABLE" in sql_text(large_model)) is not small
    assert "CREATE TABLE" not in sql_text(_model(["a"]))


@pytest.mark.parametrize(
    ("dialect", "text", "quoted"),
    [
        ("duckdb", "a'b\\", "'a''b\\'"),
        ("postgresql", "a'b", "'a''b'"),
        ("postgresql", "a'\\b", "E'a''\\\\b'"),
        ("bigquery", "a'b\\", "'a\\'b\\\\'"),
        ("bigquery", "line\nbreak é", "'line\\U0000000abreak é'"),
        ("bigquery", '`"', "'\\`\\\"'"),
    ],
)
def test_texts_are_quoted_as_each_dialect_wants(dialect, text, quoted):
    assert DIALECTS[dialect].text(text) == quoted


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", FORMS)
def test_each_dialect_says_where_it_comes_from_and_holds_the_knots(tmp_path, dialect, form):
    model = _model(["'; DROP TABLE x; --", "a\\b", None])
    export_sql(model, tmp_path / "model.sql", dialect=dialect, form=form)
    text = (tmp_path / "model.sql").read_text(encoding="utf-8")
    assert model_document(model)["checksum"] in text.splitlines()[1]
    assert DIALECTS[dialect].text("'; DROP TABLE x; --") in text
    assert DIALECTS[dialect].text_type in text
    for line in text.splitlines():
        assert line.startswith("-- ") or "--" not in line.replace("; --'", "")


def test_a_zero_character_is_refused():
    with pytest.raises(mcnet.NotSupportedError, match="zero character"):
        sql_text(_model(["a\0b"]))


@pytest.mark.parametrize(
    "options",
    [{"dialect": "oracle"}, {"form": "view"}, {"source": "a..b"}, {"source": ""}, {"fields": {"country": "c"}}],
)
def test_unknown_options_are_refused(options):
    with pytest.raises(mcnet.InputError):
        sql_text(_model(["a"]), **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(6, 4)])
def test_the_words_of_postgresql_give_doubles_whatever_the_score_is(two_field_model, rows_for, form, kind, monkeypatch):
    monkeypatch.setitem(COLUMN_TYPES, "postgresql", COLUMN_TYPES["duckdb"])  # which runs the query here
    scores, fields = rows_for(two_field_model, 300)
    column = pa.array(np.round(scores, 4)).cast(kind, safe=False)
    expected = two_field_model.predict([float(score) for score in column.to_pylist()], fields)
    fields = {name: pa.array(values.tolist(), pa.string()) for name, values in fields.items()}
    found, _ = _run(sql_text(two_field_model, dialect="postgresql", form=form), {"score": column, **fields})
    np.testing.assert_array_equal(found, expected)
    flat = CalibrationModel("base", {}, Contexts.none(), Curves.constant(0.25))
    found, _ = _run(sql_text(flat, dialect="postgresql", form=form), {"score": column})
    assert found.dtype == np.float64
    assert set(found) == {0.25}


@pytest.mark.parametrize("dialect", ["duckdb", "postgresql", "bigquery"])
def test_tables_without_fields_are_joined_by_an_equality_of_both_sides(monkeypatch, dialect):
    curves = Curves.of([(np.array([0.1, 0.5, 0.9]), np.array([0.05, 0.3, 0.6]))])
    model = CalibrationModel("isotonic", {}, Contexts.none(), curves)
    joined = sql_text(model, dialect=dialect, form="tables").split("JOIN")[-1]
    assert "curve = CASE WHEN" in joined
    # DuckDB runs the range join that BigQuery is given, if the quotes are its own.
    words = replace(DIALECTS["duckdb"], name=dialect)
    monkeypatch.setitem(DIALECTS, dialect, words if dialect == "bigquery" else DIALECTS[dialect])
    scores = pa.array([None, 0.0, 0.3, 0.5, 1.0])
    found, _ = _run(sql_text(model, dialect=dialect, form="tables"), {"score": scores})
    np.testing.assert_array_equal(found, [np.nan, *model.predict([0.0, 0.3, 0.5, 1.0])])


def test_bigquery_gets_no_statement_that_is_too_long_for_it(large_model):
    text = sql_text(large_model, dialect="duckdb", form="tables")
    if len(text) < 1_100_000:
        sql_text(large_model, dialect="bigquery", form="tables")
        return
    with pytest.warns(mcnet.CalibrationWarning, match="takes at most 1 MB at once: run its statements one by one"):
        text = sql_text(large_model, dialect="bigquery", form="tables")
    statements = text.split(";\n")
    assert max(map(len, statements)) < 1_000_000
    assert all(part.startswith(("CREATE", "INSERT", "SELECT", "--")) for part in statements[:-1])
    with pytest.raises(mcnet.NotSupportedError, match=r"a statement has .* MB, .*form='tables'"):
        sql_text(large_model, dialect="bigquery", form="case")


def test_one_select_of_thousands_of_pieces_is_warned_of():
    knots = np.linspace(0.01, 0.99, 5_100)
    model = CalibrationModel("isotonic", {}, Contexts.none(), Curves.of([(knots, knots**2 / 2 + 0.1 * knots)]))
    with pytest.warns(mcnet.CalibrationWarning, match=r"form='case' writes 5,\d+ pieces .* form='tables' joins them"):
        sql_text(model, form="case")
    sql_text(model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", ["", "a\0b"])
def test_names_that_no_column_can_have_are_refused(form, bad):
    for model, options in [
        (_model(["a"], field=bad), {}),
        (_model(["a"]), {"score": bad or None, "fields": {"site": bad}}),
        (_model(["a"]), {"output": bad}),
    ]:
        with pytest.raises(mcnet.InputError, match="cannot be the name of a column"):
            sql_text(model, form=form, **options)
