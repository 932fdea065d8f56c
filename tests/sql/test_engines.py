"""One sketch from every engine: the cells of `scan`, bit for bit, on rows that are hard on all of them."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

import mcnet
from mcnet.sketch.grid import LogitGrid

pytestmark = pytest.mark.filterwarnings("ignore:field 'many' has 100,000 values:mcnet.CalibrationWarning")

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")

TEXTS = ["NL", "nl", "é漢🙂", 'it\'s \\ "quoted"', "", " ", "7", "7.0", "line\nbreak", "(missing)", "NULL", None]


def _nasty_rows() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    edges = LogitGrid(512).edges
    ends = [0.0, -0.0, 1.0, 5e-324, 2.2e-308, 1e-7, 1.0 - 1e-7, 1.0 - 2.0**-53, 0.5]
    score = np.concatenate([edges, np.nextafter(edges, 0.0), np.nextafter(edges, 1.0), ends, rng.random(2_000)])
    score = np.concatenate([score, rng.beta(0.2, 6.0, 110_000 - len(score))])
    rows = len(score)
    label = (rng.random(rows) < score).astype(np.int64)
    return pl.DataFrame(
        {
            "score": score,
            "label": label,
            "clicked": label == 1,
            "weight": rng.integers(0, 4, rows).astype(np.float64),
            "fold number": rng.integers(0, 3, rows),
            "Text of it": pl.Series([TEXTS[i] for i in rng.integers(0, len(TEXTS), rows)], dtype=pl.String),
            "whole": pl.Series([None if i == 3 else int(i) - 2 for i in rng.integers(0, 6, rows)], dtype=pl.Int64),
            "fraction": rng.choice([7.0, 0.5, -0.0, 1e21, 0.1], rows),
            "many": [f"value {i % 100_000}" for i in range(rows)],
            "at": pl.Series([datetime(2024, 5, 1) + timedelta(minutes=int(i)) for i in rng.integers(0, 4_000, rows)]),
        }
    )


ROWS = _nasty_rows()
CASES = {
    "no field": {},
    "texts": {"field": "Text of it"},
    "two fields": {"field": ["Text of it", "whole"]},
    "fractions": {"field": "fraction"},
    "weights": {"field": "Text of it", "weight": "weight"},
    "negatives": {"weight": "weight", "negatives_kept": 0.25, "field": "whole"},
    "folds": {"field": "whole", "folds": "fold number"},
    "coarse": {"resolution": 100, "field": "whole"},
    "exact": {"resolution": "exact"},
    "booleans": {"label": "clicked", "field": "whole"},
    "periods": {"field": "at", "every": {"at": "6h"}},
    "many values": {"field": "many"},
}
SLOW = {"coarse", "exact"}
"""Cases that one engine settles for all that run the same text."""


def scanned(rows, options):
    """Return the sketch that every engine has to give."""
    return mcnet.scan(rows, **{"score": "score", "label": "label", **options})


@pytest.fixture(scope="module")
def expected():
    return {case: scanned(ROWS, options) for case, options in CASES.items()}


@pytest.fixture(scope="module")
def duckdb_connection():
    connection = duckdb.connect(config={"threads": 2})
    connection.register("rows of it", ROWS.to_arrow())
    yield connection
    connection.close()


@pytest.mark.parametrize("case", CASES)
def test_duckdb_gives_the_cells_of_scan(duckdb_connection, expected, case):
    found = mcnet.scan(duckdb_connection, table=("rows of it",), **{"score": "score", "label": "label", **CASES[case]})
    assert found == expected[case]
    assert (found.rows, found.columns) == (expected[case].rows, expected[case].columns)


@pytest.fixture(scope="module")
def postgresql_table(postgresql):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    types = {"score": "float8", "label": "int", "clicked": "boolean", "weight": "float8", "fold number": "smallint"}
    types |= {"Text of it": "text", "whole": "bigint", "fraction": "float8", "many": "text", "at": "timestamp"}
    with psycopg.connect(postgresql, autocommit=True) as connection:
        columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
        connection.execute(f'CREATE TABLE "rows of it" ({columns})')
        with connection.cursor() as cursor, cursor.copy('COPY "rows of it" FROM STDIN') as copy:
            for row in ROWS.select(list(types)).iter_rows():
                copy.write_row(row)
        connection.execute('ANALYZE "rows of it"')
    return postgresql


@pytest.mark.parametrize("case", [case for case in CASES if case not in SLOW])
def test_postgresql_gives_the_cells_of_scan(postgresql_table, expected, case):
    import psycopg

    with psycopg.connect(postgresql_table) as connection:
        found = mcnet.scan(connection, table=("rows of it",), **{"score": "score", "label": "label", **CASES[case]})
    assert found == expected[case]


def test_postgresql_over_adbc_gives_the_cells_of_scan(postgresql_table, expected):
    adbc = pytest.importorskip(
        "adbc_driver_postgresql.dbapi", reason="the ADBC driver is not installed: pip install adbc-driver-postgresql"
    )
    with adbc.connect(postgresql_table) as connection:
        for case in ("texts", "booleans"):
            options = {"score": "score", "label": "label", **CASES[case]}
            assert mcnet.scan(connection, table=("rows of it",), **options) == expected[case]


def test_postgresql_takes_scores_of_other_types(postgresql_table):
    import psycopg

    with psycopg.connect(postgresql_table) as connection:
        kinds = "score::real AS narrow, round(score::numeric, 6) AS exact, score::text AS text, label::numeric"
        connection.execute(f'CREATE TEMP TABLE other AS SELECT {kinds} FROM "rows of it" WHERE "whole" = 2')
        for score in ("narrow", "exact", "text"):
            found = mcnet.scan(connection, table="other", score=score, label="label")
            rows = connection.execute(f"SELECT {score}::float8, label FROM other").fetchall()
            expected = mcnet.Sketch.from_rows([float(row[0]) for row in rows], [float(row[1]) for row in rows])
            assert found == expected


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory):
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: pip install chdb")
    path = tmp_path_factory.mktemp("clickhouse") / "rows.parquet"
    ROWS.write_parquet(path)
    connection = session.Session()
    connection.query("CREATE DATABASE base")
    connection.query(f"CREATE TABLE base.`rows of it` ENGINE = Memory AS SELECT * FROM file('{path}', Parquet)")
    yield connection
    connection.close()


@pytest.mark.parametrize("case", [case for case in CASES if case not in SLOW])
def test_clickhouse_gives_the_cells_of_scan(clickhouse, expected, case):
    query = mcnet.sketch_query(
        ("base", "rows of it"), dialect="clickhouse", **{"score": "score", "label": "label", **CASES[case]}
    )
    assert mcnet.Sketch.from_table(clickhouse.query(query, "ArrowTable")) == expected[case]


def test_logits_agree_within_the_rounding_of_an_exponential(duckdb_connection):
    logits = ROWS.select(l=(pl.col("score").clip(1e-6, 1 - 1e-6) / (1 - pl.col("score").clip(1e-6, 1 - 1e-6))).log())
    rows = logits.with_columns(label=ROWS["label"])
    duckdb_connection.register("logits", rows.to_arrow())
    options = {"score": "l", "label": "label", "score_type": "logit"}
    found = mcnet.scan(duckdb_connection, table="logits", **options)
    expected = mcnet.scan(rows, **options)
    assert (found.rows, found.total_positives) == (expected.rows, expected.total_positives)
    np.testing.assert_allclose(found.score.mean(), expected.score.mean(), rtol=1e-6)
    cells = [set(zip(sketch.cells.key, sketch.weight, strict=True)) for sketch in (found, expected)]
    assert len(cells[0] ^ cells[1]) <= 20, "scores within one rounding of an edge, and no others"
