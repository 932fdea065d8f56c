"""The curve export on real engines gives the bits of predict, whatever types the columns have; the rest is parsed."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.curves.curves import Curves
from mcnet.export.sql import sql_text
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import HOURS, WEEKDAYS, field_text
from mcnet.rows.sql_dialects import DIALECTS

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


DECIMALS = [
    "1.50",
    "100.00",
    "-2.00",
    "0.00001000",
    "0",
    "12345678901234567890",
    "9007199254740993",
    "0.1234567890123456",
]
LONG = ["123456789012345678.01", "123456789012345678.02", "-0.12345678901234567", "-0.12345678901234568"]
DECIMALS = [*map(Decimal, [*DECIMALS, *LONG, "123456789012345678.03", "0.30000000000000004", "9.99"]), None]
SMALL = ["0.00001234567890123456789", "0.00001234567890123456788", "0.0001", "-0.00009", "0.0000000000123", "0.00001"]
SMALL = [*map(Decimal, [*SMALL, "0.000010000000000000000000000001", "-0.000000000200000000000000000001"]), None]
FLOATS = [0.5, 7.0, -0.0, 1e-5, 1e22, 1e23, 123456789.125, 0.1 + 0.2, 5e-324, float("inf"), float("nan"), 9.75, None]
SINGLES = [float(np.float32(0.1)), 2.5, 3.0, float("nan"), 0.375, None]
TIMESTAMPS = [
    datetime(2026, 11, 16),
    datetime(2026, 11, 16, 7),
    datetime(2026, 11, 16, 7, 0, 0, 250_000),
    datetime(2026, 10, 25, 1, 30),
    datetime(1969, 12, 31, 23, 59, 59, 1),
    datetime(2027, 1, 1, 1),
    None,
]
ZONED = [None if moment is None else moment.replace(tzinfo=UTC) for moment in TIMESTAMPS]
UNSEEN = {
    "123456789012345678.03",
    "1.0000000000000000000001e-05",
    "9.99",
    "9.75",
    "0.375",
    "2027-01-01T01:00:00",
    "2027-01-01T01:00:00+00:00",
}
TYPED = {
    "n": DECIMALS,
    "f": SMALL,
    "d": FLOATS,
    "s": SINGLES,
    "t": TIMESTAMPS,
    "z": ZONED,
    "day": [date(2026, 11, 16), None],
}
"""Columns by name; no engine writes all of their values as mcnet does. Some of each are unknown to the model."""

KINDS = {
    "duckdb": {
        "n": "DECIMAL(38,17)",
        "f": "DECIMAL(38,37)",
        "d": "DOUBLE",
        "s": "FLOAT",
        "t": "TIMESTAMP",
        "z": "TIMESTAMPTZ",
        "day": "DATE",
    },
    "postgresql": {
        "n": "numeric(40,18)",
        "f": "numeric",
        "d": "float8",
        "s": "real",
        "t": "timestamp",
        "z": "timestamptz",
        "day": "date",
    },
    "clickhouse": {
        "n": "Nullable(Decimal(76,18))",
        "f": "Nullable(Decimal(76,40))",
        "d": "Nullable(Float64)",
        "s": "Nullable(Float32)",
        "z": "Nullable(DateTime64(6, 'Europe/Berlin'))",
        "day": "Nullable(Date32)",
    },
    "spark": {
        "n": "DECIMAL(38,17)",
        "f": "DECIMAL(38,37)",
        "d": "DOUBLE",
        "s": "FLOAT",
        "t": "TIMESTAMP_NTZ",
        "z": "TIMESTAMP",
        "day": "DATE",
    },
}


@pytest.fixture(scope="module")
def typed_model():
    """Return a model that knows most values of TYPED, each with its own curve."""
    values = {field_text(value) for column in TYPED.values() for value in column} - UNSEEN - {None}
    known = (
        *sorted({*values, "1.50", "NaN", "1e-5", "0.00001", "1E999999999", "2026-11-16 07:00:00"}),
        None,
    )  # strings alone have the last ones
    contexts = Contexts(("v",), (known,), np.arange(len(known), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.9]), np.array([0.002 * (c + 1), 0.5 + 0.004 * c])) for c in range(len(known) + 1)]
    return CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))


def _expected(model, name):
    return model.predict(np.full(len(TYPED[name]), 0.3), pl.Series(TYPED[name], dtype=pl.Object).to_list())


def _as_written(value):
    """Return a value as every engine reads it from a string."""
    return "NULL" if value is None else f"'{value}'"


def _statements(model, dialect, form, name, **options):
    """Return the statements that make tables, and the query; each column has a table of its own."""
    text = sql_text(model, dialect=dialect, form=form, source=f"{name}_log", fields={"v": "v"}, **options)
    *before, select = text.strip().removesuffix(";").split(";\n")
    return before, select


@pytest.mark.parametrize("form", FORMS)
def test_postgresql_compares_values_of_every_type(typed_model, postgresql, form):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    for settings in ("-c TimeZone=Europe/Berlin", "-c TimeZone=Asia/Kolkata -c DateStyle=German"):
        with psycopg.connect(postgresql, autocommit=True, options=settings) as connection:
            for name, kind in KINDS["postgresql"].items():
                rows = ", ".join(f"({i}, 0.3, {_as_written(v)}::{kind})" for i, v in enumerate(TYPED[name]))
                connection.execute(f"CREATE TEMP TABLE {name}_log (place, score, v) AS VALUES {rows}")
                before, select = _statements(typed_model, "postgresql", form, name, tables="typed_model")
                for statement in before:
                    connection.execute(statement)
                found = connection.execute(f"SELECT calibrated FROM ({select}) AS f ORDER BY place").fetchall()
                assert [row[0] for row in found] == _expected(typed_model, name).tolist(), (name, settings)


@pytest.mark.parametrize("form", FORMS)
def test_decimals_with_more_digits_than_a_double_are_compared_by_all_of_them(postgresql, form):
    """The model knows no double in this field, and PostgreSQL has decimals that are not numbers."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    known = ("123456789012345678.01", "123456789012345678.02", None)
    contexts = Contexts(("v",), (known,), np.arange(len(known), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.9]), np.array([0.01 * (c + 1), 0.5 + 0.01 * c])) for c in range(len(known) + 1)]
    model = CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))
    values = [*map(Decimal, [*known[:2], "123456789012345678.03", "123456789012345680", "NaN", "Infinity"]), None]
    with psycopg.connect(postgresql, autocommit=True) as connection:
        rows = ", ".join(f"({i}, 0.3, {_as_written(v)}::numeric)" for i, v in enumerate(values))
        connection.execute(f"CREATE TEMP TABLE long_log (place, score, v) AS VALUES {rows}")
        before, select = _statements(model, "postgresql", form, "long", tables="long_model")
        for statement in before:
            connection.execute(statement)
        found = connection.execute(f"SELECT calibrated FROM ({select}) AS f ORDER BY place").fetchall()
    expected = model.predict(np.full(len(values), 0.3), values)
    assert [row[0] for row in found] == expected.tolist()
    assert len(set(expected.tolist())) == 4


@pytest.mark.parametrize("form", FORMS)
def test_duckdb_compares_values_of_every_type(typed_model, form):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'Asia/Kolkata'")
        for name, kind in KINDS["duckdb"].items():
            rows = ", ".join(f"({i}, 0.3, CAST({_as_written(v)} AS {kind}))" for i, v in enumerate(TYPED[name]))
            connection.execute(f"CREATE TABLE {name}_log AS FROM (VALUES {rows}) AS t (place, score, v)")
            before, select = _statements(typed_model, "duckdb", form, name)
            for statement in before:
                connection.execute(statement)
            found = connection.execute(f"SELECT calibrated FROM ({select}) ORDER BY place").fetchall()
            assert [row[0] for row in found] == _expected(typed_model, name).tolist(), name


@pytest.mark.parametrize("form", FORMS)
def test_clickhouse_compares_values_of_every_type(typed_model, form):
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    connection = session.Session()
    try:
        connection.query("CREATE DATABASE typed")
        for name, kind in KINDS["clickhouse"].items():
            values = [None if v is None else v.isoformat()[:26] if name == "z" else v for v in TYPED[name]]
            kind = kind.replace("Europe/Berlin", "UTC") if name == "z" else kind
            rows = ", ".join(f"({i}, 0.3, {_as_written(v)})" for i, v in enumerate(values))
            made = f"place Int32, score Float64, v {kind}"
            connection.query(f"CREATE TABLE typed.{name}_log ({made}) ENGINE = Memory")
            connection.query(f"INSERT INTO typed.{name}_log VALUES {rows}")
            if name == "z":
                zone = KINDS["clickhouse"]["z"]
                connection.query(f"ALTER TABLE typed.z_log MODIFY COLUMN v {zone}")
            options = {"source": f"typed.{name}_log", "tables": "typed.model"}
            text = sql_text(typed_model, dialect="clickhouse", form=form, **options)
            *before, select = text.strip().removesuffix(";").split(";\n")
            for statement in before:
                connection.query(statement)
            found = connection.query(f"SELECT calibrated FROM ({select}) ORDER BY place", "ArrowTable")
            assert found["calibrated"].to_pylist() == _expected(typed_model, name).tolist(), name
    finally:
        connection.query("DROP DATABASE typed")
        connection.close()


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("form", FORMS)
def test_spark_compares_values_of_every_type(typed_model, spark, form, ansi):
    """Outside ANSI mode Spark writes small decimals with an exponent."""
    before_test = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        _compare_on_spark(typed_model, spark, form)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before_test)


def _compare_on_spark(typed_model, spark, form):
    for name, kind in KINDS["spark"].items():
        rows = ", ".join(f"({i}, 0.3D, CAST({_as_written(v)} AS {kind}))" for i, v in enumerate(TYPED[name]))
        spark.sql(f"SELECT * FROM VALUES {rows} AS t (place, score, v)").createOrReplaceTempView(f"{name}_log")
        before, select = _statements(typed_model, "spark", form, name)
        for statement in before if name == "n" else ():  # the tables are the same for every column
            spark.sql(statement)
        found = spark.sql(f"SELECT calibrated FROM ({select}) ORDER BY place").collect()
        assert [row[0] for row in found] == _expected(typed_model, name).tolist(), name
        spark.catalog.dropTempView(f"{name}_log")
    for table in ("values", "numbers", "contexts", "pieces") if form == "tables" else ():
        spark.sql(f"DROP TABLE mcnet_{table}")


@pytest.mark.parametrize(
    ("values", "kind", "value"),
    [
        (("1.5", "2"), "interval", "1 day"),
        (("1.5", "2"), "bytea", "1.5"),
        (("NL", "US"), "numeric", "1.5"),
        (("NL", "US"), "timestamp", "2026-11-16"),
        (("2026-11-16T07:00:00",), "timestamptz", "2026-11-16 07:00:00+00"),
        (("2026-11-16T07:00:00+00:00",), "timestamp", "2026-11-16 07:00:00"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_cannot_be_compared_ends_the_query(postgresql, values, kind, value, form):
    """The pooled curve for every row would be wrong in silence."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    contexts = Contexts(("v",), (values,), np.arange(len(values), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.9]), np.array([0.01 * (c + 1), 0.5 + 0.01 * c])) for c in range(len(values) + 1)]
    model = CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE TEMP TABLE v_log AS SELECT 0.3 AS score, '{value}'::{kind} AS v")
        before, select = _statements(model, "postgresql", form, "v", tables="other_model")
        for statement in before:
            connection.execute(statement)
        with pytest.raises(psycopg.Error, match=r'mcnet cannot compare the column r."v".*cast it to strings'):
            connection.execute(select).fetchall()
        connection.execute("UPDATE v_log SET v = NULL")
        assert connection.execute(select).fetchone()[-1] == model.predict([0.3], [None])[0]


def test_strings_of_other_types_are_compared_as_they_are(postgresql, model):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    text = sql_text(model, dialect="postgresql", form="case", source="kinds_log").strip().removesuffix(";")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE TYPE pg_temp.sites AS ENUM ('7', 'other')")
        connection.execute("CREATE DOMAIN pg_temp.named AS text")
        for kind in ("pg_temp.sites", "pg_temp.named", "varchar(5)", "char(1)", "smallint", "name"):
            connection.execute(f"CREATE TEMP TABLE kinds_log AS SELECT 0.3::float8 AS score, '7'::{kind} AS site")
            assert connection.execute(text).fetchone()[-1] == model.predict([0.3], ["7"])[0], kind
            connection.execute("DROP TABLE kinds_log")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["char(5)", "pg_temp.code"])
def test_values_of_a_fixed_width_have_no_blanks_in_the_scan_and_in_the_export(postgresql, tmp_path, kind, form):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    columns = {"score": "score", "label": "click", "field": "country"}
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE DOMAIN pg_temp.code AS char(5)")
        connection.execute(f"CREATE TEMP TABLE padded (score float8, click int, country {kind})")
        values = [(0.1 + i % 80 / 100, int(i % 7 < (4 if i % 2 else 1)), ("NL", "FR", None)[i % 3]) for i in range(900)]
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO padded VALUES (%s, %s, %s)", values)
        sketch = mcnet.scan(connection, table="padded", **columns)
        assert set(sketch.contexts.values[0]) == {"NL", "FR", None}
        query = mcnet.sketch_query("padded", dialect="postgresql", **columns)
        with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER)") as copied:
            (tmp_path / "result.csv").write_bytes(b"".join(copied))
        assert mcnet.Sketch.from_table(tmp_path / "result.csv") == sketch
        fitted = mcnet.PlattField().fit_sketch(sketch).model_
        text = sql_text(fitted, dialect="postgresql", form=form, source="padded", tables="padded_model")
        *before, select = text.strip().removesuffix(";").split(";\n")
        for statement in before:
            connection.execute(statement)
        for row in connection.execute(select).fetchall()[:9]:
            value = None if row[2] is None else row[2].rstrip()
            assert row[-1] == fitted.predict([row[0]], [value])[0], row
            assert value is None or row[-1] != fitted.predict([row[0]], ["unseen"])[0]


# Hours and weekdays of timestamps: in UTC, with a time zone or without, whatever the time zone of the session.

INSTANTS = ("2026-11-16T23:30:00", "2026-11-17T04:15:00", "2026-11-18T12:00:00")


@pytest.fixture(scope="module")
def clock_model():
    """A model with a curve per hour of the week."""
    values = tuple(f"{day} {hour}" for day in WEEKDAYS for hour in HOURS)
    contexts = Contexts(("ts:hour-of-week",), (values,), np.arange(len(values), dtype=np.int32)[:, None])
    curves = [(np.array([0.1, 0.9]), np.array([0.001 * (c + 1), 0.5])) for c in range(len(values) + 1)]
    return CalibrationModel("platt-field", {}, contexts, Curves.of(curves))


def _clock_rows(dialect, form):
    """Return the rows of INSTANTS as VALUES; with a zone, by other clocks."""
    written = [instant.replace("T", " ") for instant in INSTANTS]
    if form.endswith("zone"):
        written = ["2026-11-17 04:30:00+05:00", "2026-11-16 23:15:00-05:00", "2026-11-18 12:00:00+00:00"]
    cast = {
        ("duckdb", "timestamp"): "CAST('{}' AS TIMESTAMP)",
        ("duckdb", "timestamp with zone"): "CAST('{}' AS TIMESTAMPTZ)",
        ("postgresql", "timestamp"): "CAST('{}' AS TIMESTAMP)",
        ("postgresql", "timestamp with zone"): "CAST('{}' AS TIMESTAMPTZ)",
        ("postgresql", "string"): "CAST('{}' AS TEXT)",
        ("postgresql", "string with zone"): "CAST('{}' AS TEXT)",
        ("spark", "timestamp"): "TIMESTAMP_NTZ'{}'",
        ("spark", "timestamp with zone"): "TIMESTAMP'{}'",
    }.get((dialect, form), "'{}'")
    return ", ".join(f"({place}, 0.5e0, {cast.format(stamp)})" for place, stamp in enumerate(written))


CLOCK_FORMS = ("timestamp", "timestamp with zone", "string", "string with zone")


def _clock_select(model, dialect):
    expected = model.predict([0.5] * 3, {"ts": [*INSTANTS]})
    assert len(set(expected)) == 3
    return expected, sql_text(model, dialect=dialect, form="case", source="log").strip().removesuffix(";")


@pytest.mark.parametrize("form", CLOCK_FORMS)
def test_duckdb_cuts_timestamps_in_utc(clock_model, form):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install duckdb")
    expected, select = _clock_select(clock_model, "duckdb")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Kolkata'")
        connection.execute(
            f"CREATE TABLE log AS SELECT * FROM (VALUES {_clock_rows('duckdb', form)}) AS t (place, score, ts)"
        )
        found = connection.execute(f"SELECT calibrated FROM ({select}) ORDER BY place").fetchall()
    np.testing.assert_allclose([row[0] for row in found], expected, rtol=1e-12)


@pytest.mark.parametrize("form", CLOCK_FORMS)
def test_postgresql_cuts_timestamps_in_utc(clock_model, postgresql, form):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install psycopg")
    expected, select = _clock_select(clock_model, "postgresql")
    with psycopg.connect(postgresql, options="-c TimeZone=Asia/Kolkata") as connection:
        connection.execute(
            f"CREATE TEMPORARY TABLE log AS SELECT * FROM (VALUES {_clock_rows('postgresql', form)}) "
            "AS t (place, score, ts)"
        )
        found = connection.execute(f"SELECT calibrated FROM ({select}) AS made ORDER BY place").fetchall()
    np.testing.assert_allclose([row[0] for row in found], expected, rtol=1e-12)


def test_spark_cuts_timestamps_in_utc(clock_model, spark):
    expected, select = _clock_select(clock_model, "spark")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        for form in CLOCK_FORMS:
            values = _clock_rows("spark", form)
            spark.sql(f"SELECT * FROM VALUES {values} AS t (place, score, ts)").createOrReplaceTempView("log")
            found = spark.sql(f"SELECT calibrated FROM ({select}) ORDER BY place").collect()
            np.testing.assert_allclose([row[0] for row in found], expected, rtol=1e-12)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        spark.catalog.dropTempView("log")


@pytest.mark.parametrize("kind", ["DateTime64(6, 'UTC')", "DateTime64(6, 'Asia/Kolkata')", "String"])
def test_clickhouse_cuts_timestamps_in_utc(clock_model, tmp_path, kind):
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    expected, select = _clock_select(clock_model, "clickhouse")
    opened = session.Session(str(tmp_path))
    stamps = [f"toDateTime64('{stamp.replace('T', ' ')}', 6, 'UTC')" for stamp in INSTANTS]
    values = ", ".join(f"({place}, 0.5, {stamp})" for place, stamp in enumerate(stamps))
    if kind == "String":
        values = _clock_rows("clickhouse", "string with zone")
    opened.query("CREATE DATABASE d ENGINE = Atomic")
    opened.query(f"CREATE TABLE d.log (place Int32, score Float64, ts {kind}) ENGINE = Memory")
    opened.query(f"INSERT INTO d.log VALUES {values}")
    settings = "SETTINGS session_timezone = 'Asia/Kolkata'"
    query = select.replace("`log`", "d.log")
    found = str(opened.query(f"SELECT calibrated FROM ({query}) ORDER BY place {settings}", "CSV")).split()
    opened.close()
    np.testing.assert_allclose([float(row) for row in found], expected, rtol=1e-12)


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "trino"])
def test_other_dialects_look_for_the_zone_of_a_string(clock_model, dialect):
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install sqlglot")
    (select,) = sqlglot.parse(sql_text(clock_model, dialect=dialect, form="case", source="log"), read=dialect)[:1]
    patterns = {found.expression.name for found in select.find_all(sqlglot.exp.RegexpLike)}
    patterns = {pattern for pattern in patterns if "[Zz]" in pattern}
    assert patterns
    whole = re.fullmatch if dialect == "snowflake" else re.search  # REGEXP_LIKE of Snowflake is for the whole string
    for form in ("string", "string with zone"):
        for stamp in re.findall(r"20[-0-9:+ ]+", _clock_rows("trino", form)):
            assert {bool(whole(pattern, stamp)) for pattern in patterns} == {form == "string with zone"}
