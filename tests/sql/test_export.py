"""The curve export on real engines: PostgreSQL and ClickHouse give the bits of predict; the rest is parsed."""

import numpy as np
import polars as pl
import pytest

from mcnet.curves.curves import Curves
from mcnet.data.contexts import Contexts
from mcnet.export.sql import sql_text
from mcnet.model.model import CalibrationModel
from mcnet.sql.dialects import DIALECTS

VALUES = ("'; DROP TABLE x; --", "a\\b", "é漢🙂", "line\nbreak", "7", "", None)
FORMS = ("case", "tables")


@pytest.fixture(scope="module")
def model():
    contexts = Contexts(("site",), (VALUES,), np.arange(len(VALUES), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.3, 0.9]), np.array([0.01 * (c + 1), 0.2, 0.5 + 0.01 * c])) for c in range(8)]
    return CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    score = np.r_[rng.random(2_000), 0.0, 1.0, 0.1, 0.3, 0.9, 5e-324]
    site = [(*VALUES, "other")[i] for i in rng.integers(0, len(VALUES) + 1, len(score))]
    return pl.DataFrame({"place": np.arange(len(score)), "score": score, "site": site})


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("score_type", ["probability", "logit"])
def test_every_dialect_is_parsed(model, dialect, form, score_type):
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install sqlglot")
    words = {"postgresql": "postgres"}.get(dialect, dialect)
    text = sql_text(model, dialect=dialect, form=form, score_type=score_type)
    statements = [part for part in sqlglot.parse(text, read=words, error_level=sqlglot.ErrorLevel.RAISE) if part]
    assert statements[-1].key == "select"
    assert {part.key for part in statements} <= {"select", "create", "drop", "insert", "transaction", "commit"}


@pytest.mark.parametrize("form", FORMS)
def test_clickhouse_gives_the_bits_of_predict(model, rows, tmp_path, form):
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    rows.write_parquet(tmp_path / "rows.parquet")
    connection = session.Session()
    connection.query("CREATE DATABASE exported")
    try:
        source = f"SELECT * FROM file('{tmp_path}/rows.parquet', Parquet)"
        connection.query(f"CREATE TABLE exported.log ENGINE = Memory AS {source}")
        text = sql_text(model, dialect="clickhouse", form=form, source="exported.log", tables="exported.model")
        *before, select = text.strip().removesuffix(";").split(";\n")
        for statement in before:
            connection.query(statement)
        found = pl.from_arrow(connection.query(select, "ArrowTable")).sort("place")
    finally:
        connection.query("DROP DATABASE exported")
        connection.close()
    np.testing.assert_array_equal(found["calibrated"], model.predict(rows["score"], rows["site"]))
    assert found.columns == [*rows.columns, "calibrated"]


def test_columns_may_have_any_name(tmp_path, rows):
    """ClickHouse takes a name for one of the query before it takes it for a column."""
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    contexts = Contexts(("s",), (VALUES,), np.arange(len(VALUES), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.3, 0.9]), np.array([0.01 * (c + 1), 0.2, 0.5 + 0.01 * c])) for c in range(8)]
    model = CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))
    logits = pl.DataFrame({"place": rows["place"], "x": np.linspace(-4.0, 4.0, len(rows)), "s": rows["site"]})
    logits.write_parquet(tmp_path / "rows.parquet")
    connection = session.Session()
    try:
        source = f"(SELECT * FROM file('{tmp_path}/rows.parquet', Parquet))"
        text = sql_text(model, dialect="clickhouse", form="case", source="log", score="x", score_type="logit")
        query = text.strip().removesuffix(";").replace("FROM `log`", f"FROM {source}")
        found = pl.from_arrow(connection.query(query, "ArrowTable")).sort("place")
    finally:
        connection.close()
    expected = model.predict(logits["x"], logits["s"], score_type="logit")
    np.testing.assert_allclose(found["calibrated"], expected, rtol=1e-12)
    assert found["s"].equals(logits["s"])


@pytest.mark.parametrize("form", FORMS)
def test_postgresql_gives_the_bits_of_predict(model, rows, postgresql, form):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE log (place int, score float8, site text)")
        with connection.cursor() as cursor, cursor.copy("COPY log FROM STDIN") as copy:
            for row in rows.iter_rows():
                copy.write_row(row)
        text = sql_text(model, dialect="postgresql", form=form, source="log", tables="exported_model")
        *before, select = text.strip().removesuffix(";").split(";\n")
        for statement in before:
            connection.execute(statement)
        found = dict(connection.execute(f"SELECT place, calibrated FROM ({select}) AS found").fetchall())
    expected = model.predict(rows["score"], rows["site"])
    np.testing.assert_array_equal([found[place] for place in range(len(rows))], expected)
