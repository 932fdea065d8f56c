"""One sketch from every engine: the cells of `scan`, on rows that are hard on all of them."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike

import mcnet
from mcnet.sketch.grid import LogitGrid

pytestmark = [
    pytest.mark.filterwarnings("ignore:field 'x' has 100,000 values:mcnet.CalibrationWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

TEXTS = ["NL", "nl", "é漢🙂", 'it\'s \\ "quoted"', "", " ", "7", "7.0", "line\nbreak", "(missing)", "NULL", None]
TYPES = {
    "score": "float8",
    "label": "int",
    "y": "boolean",
    "s": "float8",
    "fold number": "smallint",
    "Text of it": "text",
    "k": "bigint",
    "n": "float8",
    "x": "text",
    "f0": "timestamp",
    "w": "timestamptz",
}
"""The columns by their types in PostgreSQL; some have names that are likely inside a query."""

ZONE = "Asia/Kolkata"
"""The time zone of sessions, which must not matter."""


def _zoned(options):
    """Return what a query has to be told that does not see the types of columns."""
    return {**options, "zoned": [name for name in options.get("every", ()) if name == "w"]}


def _nasty_rows() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    ends = [0.0, -0.0, 1.0, 5e-324, 2.2e-308, 1e-7, 1.0 - 1e-7, 1.0 - 2.0**-53, 0.5]
    score = np.concatenate([ends, rng.random(2_000)])
    score = np.concatenate([score, rng.beta(0.2, 6.0, 110_000 - len(score))])
    rows = len(score)
    label = (rng.random(rows) < score).astype(np.int64)
    moments = [datetime(2024, 5, 1) + timedelta(minutes=int(i)) for i in rng.integers(0, 4_000, rows)]
    return pl.DataFrame(
        {
            "score": score,
            "label": label,
            "y": label == 1,
            "s": rng.integers(0, 4, rows).astype(np.float64),
            "fold number": rng.integers(0, 3, rows),
            "Text of it": pl.Series([TEXTS[i] for i in rng.integers(0, len(TEXTS), rows)], dtype=pl.String),
            "k": pl.Series([None if i == 3 else int(i) - 2 for i in rng.integers(0, 6, rows)], dtype=pl.Int64),
            "n": rng.choice([7.0, 0.5, -0.0, 1e21, 0.1], rows),
            "x": [f"value {i % 100_000}" for i in range(rows)],
            "f0": pl.Series(moments),
            "w": pl.Series([moment.replace(minute=0, tzinfo=UTC) for moment in moments]),
        }
    )


ROWS = _nasty_rows()
CASES = {
    "no field": {},
    "texts": {"field": "Text of it"},
    "two fields": {"field": ["Text of it", "k"]},
    "fractions": {"field": "n"},
    "weights": {"field": "Text of it", "weight": "s"},
    "negatives": {"weight": "s", "negatives_kept": 0.25, "field": "k"},
    "folds": {"field": "k", "folds": "fold number"},
    "coarse": {"resolution": 100, "field": "k"},
    "exact": {"resolution": "exact", "field": "k"},
    "booleans": {"label": "y", "field": "k"},
    "periods": {"field": "f0", "every": {"f0": "6h"}},
    "periods of moments with a zone": {"field": "w", "every": {"w": "1d"}},
    "moments": {"field": "w"},
    "many values": {"field": "x"},
    "condition": {"field": ["k", "n"], "where": "s > 1 -- and no others"},
}
LEFT_OUT = {
    "polars": [],
    "duckdb": [],
    "postgresql": ["coarse", "exact"],
    "clickhouse": ["coarse", "exact"],
    "spark": [
        *("no field", "texts", "fractions", "weights", "folds", "coarse", "booleans", "periods"),
        "periods of moments with a zone",
    ],
    "spark sql": ["no field", "two fields", "fractions", "weights", "coarse", "booleans", "moments", "many values"],
}
"""Cases that one engine settles for all that run the same text; Spark takes seconds for each."""


def _options(case):
    return {"score": "score", "label": "label", **CASES[case]}


@pytest.fixture(scope="module")
def expected():
    """Return the sketches that every engine has to give, made of columns in memory."""

    def scanned(score, label, where=None, **options):
        rows = ROWS if where is None else ROWS.filter(pl.sql_expr(where))
        return mcnet.scan(rows, score=score, label=label, **options)

    return {case: scanned(**_options(case)) for case in CASES}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with the rows in three Parquet files."""
    folder = tmp_path_factory.mktemp("nasty")
    for part in range(3):
        ROWS[part * 40_000 : (part + 1) * 40_000].write_parquet(folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def polars(files):
    return lambda **options: mcnet.scan(files, **options)


@pytest.fixture(scope="module")
def duckdb_connection():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("rows of it", ROWS.to_arrow())
        connection.execute(f"SET TimeZone = '{ZONE}'")
        yield connection


@pytest.fixture(scope="module")
def duckdb(duckdb_connection):
    return lambda **options: mcnet.scan(duckdb_connection, table=("rows of it",), **options)


@pytest.fixture(scope="module")
def postgresql_table(postgresql):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        columns = ", ".join(f'"{name}" {kind}' for name, kind in TYPES.items())
        connection.execute(f'CREATE TABLE "rows of it" ({columns})')
        with connection.cursor() as cursor, cursor.copy('COPY "rows of it" FROM STDIN') as copy:
            for row in ROWS.select(list(TYPES)).iter_rows():
                copy.write_row(row)
        connection.execute('ANALYZE "rows of it"')
    return postgresql


@pytest.fixture(scope="module")
def postgresql_engine(postgresql_table):
    import psycopg

    def sketched(**options):
        with psycopg.connect(postgresql_table, options=f"-c TimeZone={ZONE}") as connection:
            return mcnet.scan(connection, table=("rows of it",), **options)

    return sketched


@pytest.fixture(scope="module")
def clickhouse_session():
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    connection = session.Session()
    connection.query("CREATE DATABASE base")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def clickhouse(clickhouse_session, files):
    source = f"file('{files}/*.parquet', Parquet)"
    clickhouse_session.query(f"CREATE TABLE base.`rows of it` ENGINE = Memory AS SELECT * FROM {source}")

    def sketched(**options):
        query = mcnet.sketch_query(("base", "rows of it"), dialect="clickhouse", **_zoned(options))
        return mcnet.Sketch.from_table(clickhouse_session.query(query, "ArrowTable"))

    return sketched


@pytest.fixture(scope="module")
def spark_engine(spark, files):
    from mcnet.spark import sketch

    def sketched(where="true", **options):
        return sketch(spark.read.parquet(str(files)).where(where), **options)

    return sketched


@pytest.fixture(scope="module")
def spark_sql(spark, files):
    def sketched(**options):
        spark.read.parquet(str(files)).createOrReplaceTempView("nasty_rows")
        query = mcnet.sketch_query("nasty_rows", dialect="spark", **_zoned(options))
        return mcnet.Sketch.from_table(spark.sql(query))

    yield sketched
    spark.catalog.dropTempView("nasty_rows")


FIXTURES = {"postgresql": "postgresql_engine", "spark": "spark_engine", "spark sql": "spark_sql"}


@pytest.fixture(scope="module")
def engine(request):
    """Return the function by which an engine makes sketches of the rows."""
    return request.getfixturevalue(FIXTURES.get(request.param, request.param))


@pytest.mark.parametrize(
    ("engine", "case"),
    [(engine, case) for engine, without in LEFT_OUT.items() for case in CASES if case not in without],
    indirect=["engine"],
)
def test_every_engine_gives_the_cells_of_scan(engine, expected, case):
    found = engine(**_options(case))
    assert alike(found, expected[case])
    assert (found.rows, found.columns, found.folds) == (
        expected[case].rows,
        expected[case].columns,
        expected[case].folds,
    )


def test_postgresql_over_adbc_gives_the_cells_of_scan(postgresql_table, expected):
    adbc = pytest.importorskip(
        "adbc_driver_postgresql.dbapi", reason="the ADBC driver is not installed: pip install adbc-driver-postgresql"
    )
    with adbc.connect(postgresql_table) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"SET TIME ZONE '{ZONE}'")
        for case in ("texts", "booleans", "condition", "periods of moments with a zone"):
            assert alike(mcnet.scan(connection, table=("rows of it",), **_options(case)), expected[case])


def test_duckdb_over_adbc_gives_the_cells_of_scan(files, expected):
    pytest.importorskip("adbc_driver_manager", reason="ADBC is not installed: pip install adbc-driver-manager")
    adbc = pytest.importorskip("adbc_driver_duckdb.dbapi", reason="duckdb is not installed: pip install duckdb")
    with adbc.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE \"rows of it\" AS FROM '{files}/*.parquet'")
            cursor.execute(f"SET TimeZone = '{ZONE}'")
        for case in ("two fields", "booleans", "periods of moments with a zone"):
            assert alike(mcnet.scan(connection, table=("rows of it",), **_options(case)), expected[case])


def test_drivers_of_postgresql_give_the_same_texts(postgresql):
    adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the ADBC driver is not installed")
    import psycopg

    number = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    kinds = {"numeric": "'7.50'", "uuid": f"'{number}'", "date": "'2026-11-16'", "timestamptz": "'2026-11-16 07:00+02'"}
    made = ", ".join(f'{value}::{kind} AS "{kind}"' for kind, value in kinds.items())
    expected = ["7.5", number, "2026-11-16", "2026-11-16T05:00:00+00:00"]
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE kinds AS SELECT {made}, 0.25 AS p, 1 AS y")
        with adbc.connect(postgresql) as other:
            for driver in (connection, other):
                found = mcnet.scan(driver, table="kinds", score="p", label="y", field=list(kinds))
                assert [values[0] for values in found.contexts.values] == expected


def test_a_result_in_csv_has_the_values_of_the_engine(postgresql, tmp_path):
    """Empty and missing strings, numbers, booleans and timestamps, as `psql --csv` writes them."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")

    columns = {
        "v": ["", None, "NULL", "7.0", "True", "-0", 'a,b\n"c"'],
        "n": ["1.50", None, "100.00", "0.00001", "2.00", "NaN", "12345678901234567890"],
        "d": ["1e-5", "1e22", "7", None, "NaN", "-0", "Infinity"],
        "s": ["0.1", "2.5", None, "3", "NaN", "1e10", "-1"],
        "b": ["true", "false", None, "true", "true", "true", "false"],
        "t": ["2026-11-16 00:00:00", "2026-11-16 07:00:00.5", None, *["2026-11-16 07:00:00"] * 4],
        "z": ["2026-11-16 00:00:00+02", "2026-11-16 07:00:00.5+00", None, *["2026-11-16 07:00:00-03:30"] * 4],
    }
    kinds = {
        "v": "text",
        "n": "numeric",
        "d": "float8",
        "s": "real",
        "b": "boolean",
        "t": "timestamp",
        "z": "timestamptz",
    }
    with psycopg.connect(postgresql, options=f"-c TimeZone={ZONE}") as connection:
        described = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        connection.execute(f"CREATE TEMP TABLE mixed (p float8, y int, {described})")
        with connection.cursor() as cursor:
            for row in zip(*columns.values(), strict=True):
                places = ", ".join(f"%s::{kind}" for kind in kinds.values())
                cursor.execute(f"INSERT INTO mixed VALUES (0.25, 1, {places})", row)
        for name in columns:
            options = {"score": "p", "label": "y", "field": name}
            query = mcnet.sketch_query("mixed", dialect="postgresql", **options)
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT WITH CSV HEADER") as copy:
                (tmp_path / "result.csv").write_bytes(b"".join(bytes(part) for part in copy))
            found = mcnet.Sketch.from_table(tmp_path / "result.csv")
            rows = connection.execute(f"SELECT {name} FROM mixed").fetchall()
            values = [np.float32(row[0]) if name == "s" and row[0] is not None else row[0] for row in rows]
            assert alike(found, mcnet.Sketch.from_rows([0.25] * 7, [1] * 7, field={name: values})), name
            assert alike(mcnet.scan(connection, table="mixed", **options), found), name


def test_clickhouse_gives_values_and_not_how_it_stores_them(clickhouse_session):
    """In Arrow it writes an Enum or a DateTime as its number, and others as their bytes."""
    number = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    values = {
        "CAST('b', 'Enum8(\\'a\\' = 1, \\'b\\' = 2)')": "b",
        "toLowCardinality(toNullable('NL'))": "NL",
        f"toUUID('{number}')": number,
        "toNullable(toIPv4('10.0.0.1'))": "10.0.0.1",
        "toInt128('170141183460469231731687303715884105727')": str(2**127 - 1),
        "toDateTime('2026-11-16 07:00:00', 'Europe/Berlin')": "2026-11-16T06:00:00+00:00",
        "toDateTime64('2026-11-16 07:00:00', 3, 'UTC')": "2026-11-16T07:00:00+00:00",
        "CAST(NULL AS Nullable(DateTime))": None,
        "toDecimal64(7.5, 2)": "7.5",
        "true": "true",
    }
    names = [f"f{place}" for place in range(len(values))]
    made = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
    clickhouse_session.query(f"CREATE TABLE base.kinds ENGINE = Memory AS SELECT {made}, 0.25 AS p, 1 AS y, 'x' AS bad")
    query = mcnet.sketch_query("base.kinds", dialect="clickhouse", score="p", label="y", field=names)
    found = mcnet.Sketch.from_table(clickhouse_session.query(query, "ArrowTable"))
    assert [column[0] for column in found.contexts.values] == list(values.values())
    with pytest.raises(Exception, match="floating point value"):
        clickhouse_session.query(mcnet.sketch_query("base.kinds", dialect="clickhouse", score="bad", label="y"))


def test_postgresql_behind_sqlalchemy_gives_the_cells_of_scan(postgresql_table, expected):
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install sqlalchemy")
    engine = sqlalchemy.create_engine(postgresql_table.replace("://", "+psycopg://"))
    try:
        with pytest.raises(mcnet.InputError, match=r"engine\.raw_connection\(\)"):
            mcnet.scan(engine, table=("rows of it",), **_options("texts"))
        connection = engine.raw_connection()
        try:
            assert alike(mcnet.scan(connection, table=("rows of it",), **_options("texts")), expected["texts"])
        finally:
            connection.close()
        with engine.connect() as connection:
            assert alike(mcnet.scan(connection, table=("rows of it",), **_options("texts")), expected["texts"])
            with pytest.raises(mcnet.InputError, match="nowhere"):
                mcnet.scan(connection, table="nowhere", **_options("texts"))
            assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
        from sqlalchemy.orm import Session

        with Session(engine) as session, pytest.raises(mcnet.InputError, match=r"session\.connection\(\)"):
            mcnet.scan(session, table=("rows of it",), **_options("texts"))
    finally:
        engine.dispose()


def test_rows_may_come_as_the_connection_was_told(postgresql_table, expected):
    import psycopg

    for rows in (psycopg.rows.dict_row, psycopg.rows.namedtuple_row, psycopg.rows.scalar_row):
        with psycopg.connect(postgresql_table, row_factory=rows) as connection:
            for case in ("texts", "booleans"):
                assert alike(mcnet.scan(connection, table=("rows of it",), **_options(case)), expected[case])
    with psycopg.connect(postgresql_table, row_factory=psycopg.rows.dict_row) as connection:
        query = mcnet.sketch_query(("rows of it",), dialect="postgresql", **_options("texts"))
        assert alike(mcnet.Sketch.from_table(connection.execute(query)), expected["texts"])


def test_a_scan_that_failed_leaves_the_transaction_as_it_was(postgresql_table, expected):
    adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the ADBC driver is not installed")
    import psycopg

    with psycopg.connect(postgresql_table) as connection:
        connection.execute("CREATE TEMP TABLE kept AS SELECT 'x' AS score, 1 AS label")
        for table, found in (("nowhere", "nowhere"), ("kept", "double precision")):
            with pytest.raises(mcnet.InputError, match=found):
                mcnet.scan(connection, table=table, score="score", label="label")
        assert connection.execute("SELECT score FROM kept").fetchall() == [("x",)]
        assert alike(mcnet.scan(connection, table=("rows of it",), **_options("texts")), expected["texts"])
        connection.rollback()
    with adbc.connect(postgresql_table) as connection:  # whose driver takes nothing but a rollback
        with pytest.raises(mcnet.InputError, match=r"nowhere.*call rollback\(\)"):
            mcnet.scan(connection, table="nowhere", score="score", label="label")
        connection.rollback()
        assert alike(mcnet.scan(connection, table=("rows of it",), **_options("texts")), expected["texts"])


def test_postgresql_takes_scores_of_other_types(postgresql_table):
    import psycopg

    with psycopg.connect(postgresql_table) as connection:
        kinds = "score::real AS narrow, round(score::numeric, 6) AS exact, score::text AS text, label::numeric"
        connection.execute(f'CREATE TEMP TABLE other AS SELECT {kinds} FROM "rows of it" WHERE k = 2')
        for score in ("narrow", "exact", "text"):
            found = mcnet.scan(connection, table="other", score=score, label="label")
            rows = connection.execute(f"SELECT {score}::float8, label FROM other").fetchall()
            expected = mcnet.Sketch.from_rows([float(row[0]) for row in rows], [float(row[1]) for row in rows])
            assert alike(found, expected)


def test_parts_of_the_query_hide_no_table(duckdb_connection, expected):
    """Names that are parts of the query, and a column for each name inside it."""
    for name in ("grid", "edges", "places", "numbers", "scored"):
        duckdb_connection.register(name, ROWS.to_arrow())
        assert alike(mcnet.scan(duckdb_connection, table=name, **_options("two fields")), expected["two fields"])
        duckdb_connection.unregister(name)


def test_logits_agree_within_the_rounding_of_an_exponential(duckdb_connection):
    """Only rows that lie on an edge may be counted in the cell beside it."""
    score = ROWS["score"].clip(1e-6, 1 - 1e-6)
    rows = pl.DataFrame({"l": (score / (1 - score)).log(), "label": ROWS["label"]})
    cells = rows["l"].to_numpy() * 512
    on_edge = np.abs(cells - np.round(cells)) < 1e-7
    kept = ~on_edge | (np.round(cells) % 3 == 0)  # the edges of some cells
    rows, cells, on_edge = rows.filter(kept), cells[kept], on_edge[kept]
    duckdb_connection.register("logits", rows.to_arrow())
    options = {"score": "l", "label": "label", "score_type": "logit"}
    found, expected = mcnet.scan(duckdb_connection, table="logits", **options), mcnet.scan(rows, **options)
    assert (found.rows, found.total_positives) == (expected.rows, expected.total_positives)
    edges, first = LogitGrid(512).edges, LogitGrid(512).first
    near = np.bincount(np.round(cells[on_edge]).astype(int) - first, minlength=len(edges))
    sums = [np.zeros((len(edges), 3)) for _ in range(2)]
    for total, sketch in zip(sums, (found, expected), strict=True):
        np.add.at(total, sketch.cells.key - first, sketch.cells.sums)
    moved = np.abs(np.cumsum(sums[0][:, 0] - sums[1][:, 0]))
    assert (moved[:-1] <= near[1:]).all()
    inside = near[:-1] + near[1:] == 0
    assert inside.sum() > 3_000
    ours, theirs = (total[:-1][inside] for total in sums)
    assert np.array_equal(ours[:, :2], theirs[:, :2])
    assert (np.abs(ours - theirs)[:, 2] <= ours[:, 0]).all(), "a unit of the position per row"
