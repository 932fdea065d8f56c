"""The sketch query and its result: what it refuses, how the result may arrive, and that every dialect is one."""

import json

import polars as pl
import pytest
from tests.sketches import alike

import mcnet
from mcnet.rows.sql_dialects import DIALECTS

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")

ROWS = pl.DataFrame(
    {
        "p": [0.1, 0.1, 0.4, 0.7, 0.7, 0.99],
        "click": [0, 1, 1, 0, 1, 1],
        "country": ["NL", "FR", "NL", None, "7", "é"],
        "n": [1, 2, 3, 4, 0, 1],
        "day": ["2024-05-01 10:00", "2024-05-01 12:00", "2024-05-02 01:00", None, "2024-05-02 03:00", "2024-05-03"],
    }
)
NAMES = {"score": "p", "label": "click", "field": "country"}


@pytest.fixture
def connection():
    with duckdb.connect() as opened:
        opened.register("rows", ROWS.to_arrow())
        yield opened


def _result(connection, table="rows", **options):
    return connection.sql(mcnet.sketch_query(table, **{**NAMES, **options})).pl()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_parsed_as_one_query(dialect):
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install sqlglot")
    options = [
        {},
        {"weight": "n", "negatives_kept": 0.1, "folds": "part of it", "field": ["it's", "b`c", 'd"e']},
        {"score_type": "logit", "every": {"country": "1h"}, "resolution": "exact", "where": "day > 3"},
        {"label_type": "boolean", "resolution": 64, "every": {"country": "1d"}, "zoned": ["country"]},
    ]
    for given in options:
        text = mcnet.sketch_query(("base", "rows of it"), dialect=dialect, **{**NAMES, **given})
        words = {"postgresql": "postgres"}.get(dialect, dialect)
        (parsed,) = sqlglot.parse(text, read=words, error_level=sqlglot.ErrorLevel.RAISE)
        assert parsed.key == "select"
        tables = {table.name for table in parsed.find_all(sqlglot.exp.Table)}
        assert "rows of it" in tables
        limit = DIALECTS[dialect].longest
        assert limit is None or len(text.encode()) < limit


def test_no_statement_of_any_resolution_is_too_long_for_an_engine():
    for dialect in DIALECTS.values():
        text = mcnet.sketch_query("t", dialect=dialect.name, resolution=4096, **NAMES)
        assert dialect.longest is None or len(text.encode()) < dialect.longest


def test_the_result_may_arrive_as_any_table(connection, tmp_path):
    expected = mcnet.scan(ROWS, **NAMES)
    result = _result(connection)
    result.write_parquet(tmp_path / "result.parquet")
    result.write_csv(tmp_path / "result.csv")
    query = mcnet.sketch_query("rows", **NAMES)
    tables = [result, result.lazy(), result.to_arrow(), result.to_pandas(), connection.sql(query)]
    for table in [*tables, tmp_path / "result.parquet", str(tmp_path / "result.csv")]:
        found = mcnet.Sketch.from_table(table)
        assert alike(found, expected)
        assert (found.rows, found.columns, found.score_type) == (expected.rows, expected.columns, expected.score_type)
    assert alike(mcnet.Sketch.from_table(connection.execute(query)), expected)
    assert alike(mcnet.Sketch.from_table(connection.sql(query).to_arrow_reader()), expected)
    upper = result.rename({name: name.upper() for name in result.columns})
    assert alike(mcnet.Sketch.from_table(upper), expected)


def test_decimals_keep_all_of_their_digits_or_are_refused(connection, tmp_path):
    prices = ["123456789012345678.01", "123456789012345678.02", "1.50", "100.00", None, "123456789012345678.02"]
    rows = ROWS.with_columns(pl.Series("country", prices).cast(pl.Decimal(22, 2)))
    connection.register("prices", rows.to_arrow())
    expected = mcnet.scan(rows, **NAMES)
    assert expected.contexts.values == (("1.5", "100", "123456789012345678.01", "123456789012345678.02", None),)
    result = _result(connection, "prices")
    result.write_csv(tmp_path / "result.csv")
    for table in (result, result.to_pandas(), tmp_path / "result.csv"):
        assert alike(mcnet.Sketch.from_table(table), expected)
    assert alike(mcnet.scan(connection, table="prices", **NAMES), expected)
    rounded = result.with_columns(pl.col("country").cast(pl.Float64))
    for table in (rounded, rounded.to_arrow(), rounded.to_pandas()):
        with pytest.raises(
            mcnet.InputError, match=r"'country' has the double .* a client has rounded it; save .*Parquet"
        ):
            mcnet.Sketch.from_table(table)
    short = rounded.filter(pl.col("country") < 1000)
    assert mcnet.Sketch.from_table(short).contexts.values == (("1.5", "100"),)


def test_a_cursor_of_plain_rows_is_read(connection):
    class Cursor:
        def __init__(self, found):
            self.description = [(name, None) for name in found.columns]
            self.fetchall = found.rows

    found = mcnet.Sketch.from_table(Cursor(_result(connection, weight="n")))
    assert alike(found, mcnet.scan(ROWS, weight="n", **NAMES))
    assert found.rows == 5, "a row of weight 0 is no row"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_that_differ_in_case_alone_are_refused_where_they_are_one_column(dialect):
    names = {"score": "p", "label": "click", "field": ["Site", "site"]}
    if dialect in ("duckdb", "bigquery", "spark", "trino"):
        with pytest.raises(mcnet.InputError, match=f"{dialect} takes 'Site' and 'site' for one column"):
            mcnet.sketch_query("t", dialect=dialect, **names)
    else:
        assert "Site" in mcnet.sketch_query("t", dialect=dialect, **names)


def test_results_without_a_row_that_counts_are_told_apart(connection):
    connection.execute("CREATE TABLE bare AS SELECT NULL::DOUBLE AS p, 1 AS click, 0 AS n, 'x' AS country")
    with pytest.raises(mcnet.InputError, match="a value is missing in each of the 1 rows of the query"):
        mcnet.scan(connection, table="bare", drop_missing=True, **NAMES)
    with pytest.raises(mcnet.InputError, match="every row of the query has weight 0"):
        mcnet.scan(connection, table="rows", where="n = 0", weight="n", **NAMES)


def test_parts_of_a_table_add_up(connection):
    parts = [mcnet.scan(connection, table="rows", where=where, **NAMES) for where in ("n < 2", "NOT (n < 2) OR n = 9")]
    assert alike(parts[0] + parts[1], mcnet.scan(ROWS, **NAMES))


def test_periods_and_folds(connection):
    options = {"score": "p", "label": "click", "field": ["country", "day"], "every": {"day": "1d"}}
    assert alike(mcnet.scan(connection, table="rows", **options), mcnet.scan(ROWS, **options))
    counted = {"score": "p", "label": "click", "field": "n", "every": {"n": "2"}}
    assert alike(mcnet.scan(connection, table="rows", **counted), mcnet.scan(ROWS, **counted))
    split = mcnet.scan(connection, table="rows", folds=3, **NAMES)
    assert split.folds == 3
    assert alike(split.unfolded(), mcnet.scan(ROWS, **NAMES))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("p", None, r"p has 1 value missing, NaN or infinite; drop or fill"),
        ("p", float("nan"), r"p has 1 value missing, NaN or infinite"),
        ("p", float("inf"), r"p has 1 value missing, NaN or infinite"),
        ("p", 1.5, r"p has 1 value outside \[0, 1\]; pass logits"),
        ("p", -1e-9, r"p has 1 value outside \[0, 1\]"),
        ("click", None, r"click has 1 value missing"),
        ("click", 2.0, r"click has 1 value outside \[0, 1\]"),
        ("n", None, r"n has 1 value missing"),
        ("n", -1.0, r"n has 1 value below 0"),
        ("part", 0.5, r"folds has 1 value missing, or no whole number from 0 to 99"),
        ("part", 100.0, r"folds has 1 value missing, or no whole number from 0 to 99"),
    ],
)
@pytest.mark.parametrize("resolution", [512, "exact"])
def test_rows_that_scan_refuses_are_refused(column, value, message, resolution):
    numbers = {"p": [0.2, 0.3], "click": [0.0, 1.0], "n": [1.0, 0.0], "part": [1.0, 0.0]}
    rows = pl.DataFrame({**numbers, column: [numbers[column][0], value]}, strict=False)
    options = {"score": "p", "label": "click", "weight": "n", "folds": "part", "resolution": resolution}
    with duckdb.connect() as connection:
        connection.register("rows", rows.to_arrow())
        with pytest.raises(mcnet.InputError, match=message):
            mcnet.scan(connection, table="rows", **options)
        with pytest.raises(mcnet.InputError):
            mcnet.scan(rows, **options)
        if "missing" in message and column != "part":
            found = mcnet.scan(connection, table="rows", drop_missing=True, **options)
            expected = mcnet.scan(rows, drop_missing=True, **options)
            assert alike(found, expected)
            assert found.dropped_rows == expected.dropped_rows == 1


def test_a_missing_logit_is_refused_and_an_infinite_one_is_an_end():
    rows = pl.DataFrame({"p": [0.5, float("inf"), float("-inf"), 900.0], "click": [0, 1, 1, 0]})
    options = {"score": "p", "label": "click", "score_type": "logit"}
    with duckdb.connect() as connection:
        connection.register("rows", rows.to_arrow())
        assert alike(mcnet.scan(connection, table="rows", **options), mcnet.scan(rows, **options))
        connection.register("bad", rows.with_columns(p=pl.lit(float("nan"))).to_arrow())
        with pytest.raises(mcnet.InputError, match="p has 4 values missing"):
            mcnet.scan(connection, table="bad", **options)


def test_a_result_of_another_version_or_of_no_query_is_refused(connection):
    result = _result(connection)
    about = json.loads(result["mcnet_sketch"][0])
    for changed, message in (({**about, "version": 9}, "version 9"), ({"version": 1, "x": 2}, "no query of mcnet")):
        table = result.with_columns(mcnet_sketch=pl.lit(json.dumps(changed)))
        with pytest.raises(mcnet.FileFormatError, match=message):
            mcnet.Sketch.from_table(table)
    with pytest.raises(mcnet.InputError, match="no column 'mcnet_scores'"):
        mcnet.Sketch.from_table(result.drop("mcnet_scores"))
    with pytest.raises(mcnet.InputError, match="mixes 2 different queries"):
        mcnet.Sketch.from_table(pl.concat([result, _result(connection, resolution=64)]))
    with pytest.raises(mcnet.InputError, match="is empty"):
        mcnet.Sketch.from_table(result.clear())
    with pytest.raises(mcnet.FileFormatError, match="more positives than weight"):
        mcnet.Sketch.from_table(result.with_columns(mcnet_positives=pl.lit(99.0)))
    with pytest.raises(mcnet.FileFormatError, match="none of resolution 512"):
        mcnet.Sketch.from_table(result.with_columns(mcnet_cell=pl.lit(90_000)))
    with pytest.raises(mcnet.InputError, match="from_table was given int"):
        mcnet.Sketch.from_table(3)


def test_wrong_use_is_refused_in_plain_words(connection):
    with pytest.raises(mcnet.InputError, match="name the table with table="):
        mcnet.scan(connection, **NAMES)
    with pytest.raises(mcnet.InputError, match="are for connections to databases"):
        mcnet.scan(ROWS, table="rows", **NAMES)
    with pytest.raises(mcnet.InputError, match=r"duckdb refused the query of the sketch: .*nowhere"):
        mcnet.scan(connection, table="nowhere", **NAMES)
    with pytest.raises(mcnet.InputError, match="has the name of a column of the result"):
        mcnet.sketch_query("t", score="p", label="click", field="mcnet_cell")
    for given in ({"score": "mcnet__s"}, {"where": "MCNET__k > 3"}, {"table": "mcnet__grid"}):
        with pytest.raises(mcnet.InputError, match="begins with mcnet__, as those of the query do"):
            mcnet.sketch_query(**{"table": "t", **NAMES, **given})
    with pytest.raises(mcnet.InputError, match="zoned has 'day', which is not in every"):
        mcnet.sketch_query("t", zoned=["day"], **NAMES)
    with pytest.raises(mcnet.InputError, match="it must be one of duckdb"):
        mcnet.sketch_query("t", dialect="oracle", **NAMES)

    class Unknown:
        def cursor(self):
            raise AssertionError

    with pytest.raises(mcnet.InputError, match="pass dialect="):
        mcnet.scan(Unknown(), table="t", **NAMES)
