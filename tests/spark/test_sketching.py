"""A sketch made by Spark is the sketch that `scan` makes, bit for bit."""

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike

import mcnet
from mcnet.metrics.evaluation import evaluate_cells

ROWS = 30_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return a folder of Parquet files with every kind of row that must not be lost or moved."""
    generator = np.random.default_rng(11)
    scores = np.concatenate([[0.0, 1.0, 0.5, 5e-324, 1.0 - 2.0**-53], generator.beta(0.8, 14.0, ROWS - 5)])
    # Scores just beside edges of the grid, but not within rounding of them.
    edges = mcnet.Sketch.from_rows([0.5], [0]).grid.edges[4_000:4_300]
    scores[100:400], scores[400:700] = edges * (1.0 + 1e-12), edges * (1.0 - 1e-12)
    values = np.array(["NL", "Ünï'c\\ödé`{x}", "7", "7.0", "", "\n"])
    country = pl.Series(values[generator.integers(0, len(values), ROWS)])
    table = pl.DataFrame(
        {
            "score": scores,
            "label": generator.random(ROWS) < 0.6 * scores,
            "country": pl.Series([None if i % 17 == 0 else text for i, text in enumerate(country)]),
            "shop": generator.integers(0, 50, ROWS).astype(np.float64) / 2,
            "weight": generator.integers(0, 4, ROWS),
            "fold": generator.integers(0, 3, ROWS),
            "bid": np.round(generator.lognormal(0.0, 0.8, ROWS), 3),
        }
    ).with_columns(paid=pl.when("label").then("bid"))
    folder = tmp_path_factory.mktemp("log")
    for part in range(4):
        table[part * ROWS // 4 : (part + 1) * ROWS // 4].write_parquet(folder / f"{part}.parquet")
    return folder


def both(spark, log, shape=lambda df: df, **columns):
    from mcnet.spark import sketch

    columns = {"score": "score", "label": "label", **columns}
    return sketch(shape(spark.read.parquet(str(log))), **columns), mcnet.scan(str(log), **columns)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"field": "country"},
        {"field": ["country", "shop"], "weight": "weight"},
        {"field": "country", "weight": "weight", "folds": "fold", "negatives_kept": 0.25},
        {"field": "shop", "resolution": "exact"},
        {"field": "country", "resolution": 64},
        {"field": "country", "value": "bid"},
        {"field": ["country", "shop"], "weight": "weight", "value": "bid", "folds": "fold"},
        {"field": "country", "weight": "weight", "value_per_positive": "paid"},
    ],
    ids=lambda columns: " ".join(map(str, columns)) or "score and label alone",
)
def test_the_cells_are_those_of_scan(spark, log, columns):
    found, expected = both(spark, log, **columns)
    assert alike(found, expected)
    assert found.rows == expected.rows
    assert (found.value_kind is None) == ("value" not in columns and "value_per_positive" not in columns)
    assert (found.columns, found.negatives_kept) == (expected.columns, expected.negatives_kept)


def test_money_is_that_of_one_scan(spark, log):
    found, expected = both(spark, log, lambda df: df.repartition(7), field="country", value="bid")
    parts = [mcnet.scan(file, score="score", label="label", field="country", value="bid") for file in log.iterdir()]
    ours, theirs, merged = (
        evaluate_cells(one.score, one).money for one in (found, expected, mcnet.Sketch.merged(parts))
    )
    assert merged.to_dict() == theirs.to_dict()
    assert alike(found, expected)
    assert ours.over.value == pytest.approx(theirs.over.value, rel=1e-6)
    assert ours.under.value == pytest.approx(theirs.under.value, rel=1e-6)


@pytest.mark.parametrize("partitions", [1, 19])
def test_partitions_and_order_change_nothing(spark, log, partitions):
    found, expected = both(
        spark, log, lambda df: df.orderBy("shop").repartition(partitions, "label"), field="country", weight="weight"
    )
    assert alike(found, expected)


def test_only_cells_come_to_the_driver(spark, log):
    """Rows and partitions do not change what is collected: one row per cell."""
    from mcnet.spark import sketch

    collected, kind = [], type(spark.range(1))
    whole = kind.toArrow

    def counted(frame):
        table = whole(frame)
        collected.append((table.num_rows, table.nbytes))
        return table

    df = spark.read.parquet(str(log))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "toArrow", counted)
        once = sketch(df, score="score", label="label", field="country")
        more = sketch(df.union(df).union(df).repartition(31), score="score", label="label", field="country")
    assert more.total_weight == 3 * once.total_weight
    assert collected[0][0] == collected[1][0] == len(once)
    assert collected[0][1] == collected[1][1]


def test_folds_by_number_split_every_cell_the_same_way_every_time(spark, log):
    from mcnet.spark import sketch

    df = spark.read.parquet(str(log))
    first = sketch(df, score="score", label="label", folds=3)
    again = sketch(df.repartition(7), score="score", label="label", folds=3)
    assert alike(first, again)
    assert alike(first.unfolded(), mcnet.scan(str(log), score="score", label="label"))


def test_rows_that_cannot_be_used_are_counted_and_refused(spark):
    from mcnet.spark import sketch

    rows = [(0.5, 1), (None, 0), (float("nan"), 0), (0.25, None)]
    df = spark.createDataFrame(rows, "score double, label int")
    with pytest.raises(mcnet.InputError, match="label has 1 value missing"):
        sketch(df, score="score", label="label")
    assert sketch(df, score="score", label="label", drop_missing=True).rows == 1
    with pytest.raises(mcnet.InputError, match=r"score has 1 value outside \[0, 1\]"):
        sketch(spark.createDataFrame([(1.5, 1)], "score double, label int"), score="score", label="label")
    with pytest.raises(mcnet.InputError, match="no column 'click'; it has score, label"):
        sketch(df, score="score", label="click")
    with pytest.raises(mcnet.InputError, match="no rows"):
        sketch(df.where("false"), score="score", label="label")


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_texts_that_are_no_numbers_end_the_job(spark, ansi):
    """Outside ANSI mode a cast of Spark would make missing values of them."""
    from mcnet.spark import apply, sketch

    rows = spark.createDataFrame([("0.5", "1"), (" 0.25 ", "0"), (None, "1")], "score string, label string")
    bad = spark.createDataFrame([("0.5", 1), ("half", 0)], "score string, label int")
    known = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = sketch(rows, score="score", label="label", drop_missing=True)
        assert alike(found, mcnet.Sketch.from_rows([0.5, 0.25], [1, 0]))
        with pytest.raises(Exception, match="score is not a number: 'half'; convert the column first"):
            sketch(bad, score="score", label="label", drop_missing=True)
        model = mcnet.Platt().fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1]).model_
        with pytest.raises(Exception, match="score is not a number: 'half'"):
            apply(bad, model).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", known)


def test_metrics_are_those_of_the_rows(spark, log):
    from mcnet.spark import evaluate

    table = pl.read_parquet(f"{log}/*.parquet")
    found = evaluate(spark.read.parquet(str(log)), probability="score", label="label", field="country")
    scores = table["score"].clip(1e-7, 1.0 - 1e-7)  # as in every sketch
    expected = mcnet.evaluate(scores, table["label"], field={"country": table["country"]})
    assert found.rows == expected.rows
    for name in ("pcoc", "auc", "log_loss", "f_rce"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=2e-3)


def test_no_view_is_left_behind(spark, log):
    before = {table.name for table in spark.catalog.listTables()}
    both(spark, log)
    assert {table.name for table in spark.catalog.listTables()} == before


def test_names_types_and_values_of_every_kind_give_the_cells_of_scan(spark, tmp_path):
    """Reserved words as names, float scores and -0.0, boolean labels, decimal weights, texts that only look alike."""
    from mcnet.spark import sketch

    generator = np.random.default_rng(6)
    values = ["é", "e\u0301", "É", " é", "NULL", "\u0130", None]
    table = pl.DataFrame(
        {
            "select": pl.Series([-0.0, 0.0, 1.0, *generator.beta(1.0, 9.0, 697)], dtype=pl.Float32),
            "order by": generator.random(700) < 0.1,
            "Group": pl.Series(generator.integers(0, 9, 700)).cast(pl.Decimal(12, 2)),
            "from`x": pl.Series([values[i % 7] for i in range(700)]),
            "day": pl.Series(generator.integers(20_000, 20_005, 700), dtype=pl.Int32).cast(pl.Date),
        }
    )
    table.write_parquet(tmp_path / "log.parquet")
    df = spark.read.parquet(str(tmp_path / "log.parquet"))
    columns = {"score": "select", "label": "order by", "weight": "Group", "field": ["from`x", "day"]}
    assert alike(sketch(df, **columns), mcnet.scan(tmp_path / "log.parquet", **columns))
    with pytest.raises(mcnet.InputError, match="no column 'group'"):
        sketch(df, **{**columns, "weight": "group"})
    bad = spark.createDataFrame([(0.5, float("nan")), (0.5, 1.0)], "score double, label double")
    with pytest.raises(mcnet.InputError, match="label has 1 value missing, NaN or infinite"):
        sketch(bad, score="score", label="label")


def test_derived_fields_are_cut_as_a_scan_cuts_them(spark, tmp_path):
    from mcnet.spark import apply, sketch

    generator = np.random.default_rng(4)
    seconds = generator.integers(0, 14 * 86_400, 2_000)
    moments = np.datetime64("2026-11-02T00:00", "us") + seconds.astype("timedelta64[s]")
    table = pl.DataFrame({"score": generator.random(2_000), "age": generator.gamma(3.0, 10.0, 2_000), "ts": moments})
    table = table.with_columns(
        pl.Series("label", generator.random(2_000) < table["score"].to_numpy() / 2).cast(pl.Int32),
        pl.when(pl.int_range(pl.len()) % 40 > 0).then(pl.col("age")),
        pl.col("ts").dt.replace_time_zone("UTC"),
    )
    table.write_parquet(tmp_path / "log.parquet")
    df = spark.read.parquet(str(tmp_path / "log.parquet"))
    columns = {"score": "score", "label": "label", "field": ["age:number", "ts:hour", "ts:weekday"]}
    whole = mcnet.scan(table, **columns, bins=4)
    assert alike(sketch(df, **columns, like=whole), whole)
    assert len(sketch(df, **{**columns, "field": "age:number"}).contexts.edges["age:number"]) == 15
    model = mcnet.calibrator("offset-field").fit_sketch(whole).model_
    made = pl.from_arrow(apply(df, model).toArrow()).sort("score")
    ordered = table.sort("score")
    expected = model.predict(ordered["score"], {"age": ordered["age"], "ts": ordered["ts"]})
    np.testing.assert_allclose(made["calibrated"], expected, rtol=1e-12)
