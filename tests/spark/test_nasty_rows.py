"""Spark on the rows that are hard on every engine: the cells of `scan`, by the function and by the printed query."""

import pytest
from tests.sql.test_engines import CASES, ROWS, scanned

import mcnet

pytestmark = pytest.mark.filterwarnings("ignore:field 'many' has 100,000 values:mcnet.CalibrationWarning")

NAMES = {"score": "score", "label": "label"}


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("nasty") / "rows.parquet"
    ROWS.write_parquet(path)
    frame = spark.read.parquet(str(path))
    frame.createOrReplaceTempView("nasty_rows")
    yield frame
    spark.catalog.dropTempView("nasty_rows")


@pytest.mark.parametrize("case", ["two fields", "negatives", "many values"])
def test_a_sketch_has_the_cells_of_scan(rows, case):
    from mcnet.spark import sketch

    assert sketch(rows, **{**NAMES, **CASES[case]}) == scanned(ROWS, CASES[case])


@pytest.mark.parametrize("case", ["texts", "folds", "periods"])
def test_the_printed_query_gives_the_cells_of_scan(spark, rows, case):
    query = mcnet.sketch_query("nasty_rows", dialect="spark", **{**NAMES, **CASES[case]})
    assert mcnet.Sketch.from_table(spark.sql(query).toArrow()) == scanned(ROWS, CASES[case])
