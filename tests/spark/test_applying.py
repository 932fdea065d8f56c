"""A model applied by Spark gives what `predict` gives, bit for bit."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from tests.sketches import alike

import mcnet


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(3)
    scores = np.concatenate([[0.0, 1.0, 0.5, 1e-9], generator.beta(1.0, 12.0, 4_000)])
    country = generator.choice(np.array(["NL", "FR", "DE", "unseen", "a'b`{x}"]), len(scores))
    labels = (generator.random(len(scores)) < scores * 0.7).astype(np.int8)
    return pl.DataFrame({"score": scores, "label": labels, "country": country}).with_columns(
        pl.when(pl.col("country") == "DE").then(None).otherwise(pl.col("country")).alias("country")
    )


@pytest.fixture(scope="module")
def model(rows):
    known = rows.filter(pl.col("country").is_null() | (pl.col("country") != "unseen"))
    return mcnet.BayesMCNet().fit_sketch(mcnet.scan(known, score="score", label="label", field="country")).model_


def collected(df, *columns):
    return pl.from_arrow(df.toArrow()).select(columns)


def test_arrow_gives_the_bits_of_predict_and_keeps_the_rows(spark, rows, model):
    from mcnet.spark import apply

    df = spark.createDataFrame(rows.to_arrow()).repartition(3)
    found = pl.from_arrow(apply(df, model).toArrow())
    assert found.columns == ["score", "label", "country", "calibrated"]
    assert np.array_equal(found["calibrated"], model.predict(found["score"], {"country": found["country"]}))
    assert found.drop("calibrated").sort(pl.all()).equals(rows.sort(pl.all()))


def test_intervals_are_two_more_columns(spark, rows, model):
    from mcnet.spark import apply

    df = spark.createDataFrame(rows.head(500).to_arrow())
    found = pl.from_arrow(apply(df, model, interval=0.9, column="p").toArrow())
    low, high = model.interval(found["score"], {"country": found["country"]}, 0.9)
    assert found.columns[3:] == ["p", "p_low", "p_high"]
    assert np.array_equal(found["p_low"], low)
    assert np.array_equal(found["p_high"], high)


def test_missing_scores_stay_missing_and_impossible_ones_end_the_job(spark, model):
    from mcnet.spark import apply

    df = spark.createDataFrame([(None, "NL"), (0.25, "NL")], "score double, country string")
    bad = spark.createDataFrame([(1.5, "NL")], "score double, country string")
    assert [row.calibrated is None for row in apply(df, model).collect()] == [True, False]
    with pytest.raises(Exception, match=r"outside \[0, 1\]"):
        apply(bad, model).collect()


def test_what_cannot_be_applied_is_refused_at_once(spark, model):
    from mcnet.spark import apply

    df = spark.createDataFrame([(0.5, "NL", 1.0)], "score double, country string, calibrated double")
    with pytest.raises(mcnet.InputError, match="has a column 'calibrated' already"):
        apply(df, model)
    with pytest.raises(mcnet.InputError, match="has a column 'calibrated' already"):
        apply(df, model, column="Calibrated")
    with pytest.raises(mcnet.InputError, match="no column 'country'"):
        apply(df.drop("country"), model)
    with pytest.raises(mcnet.InputError, match="give a Spark DataFrame"):
        apply(pl.DataFrame({"score": [0.5]}), model)


def test_decimals_with_more_digits_than_a_double_have_their_own_curves(spark, tmp_path):
    from mcnet.spark import apply, sketch

    generator = np.random.default_rng(4)
    prices = ["123456789012345678.01", "123456789012345678.02", "0.01", "2.00"]
    price = generator.integers(0, 4, 2_000)
    labels = (generator.random(2_000) < 0.05 + 0.2 * price).astype(np.int8)
    table = pl.DataFrame({"score": generator.random(2_000), "label": labels, "price": [prices[i] for i in price]})
    table = table.with_columns(pl.col("price").cast(pl.Decimal(22, 2)))
    table.write_parquet(tmp_path / "log.parquet")
    df, columns = spark.read.parquet(str(tmp_path / "log.parquet")), {"score": "score", "label": "label"}
    found = sketch(df, field="price", **columns)
    assert alike(found, mcnet.scan(table, field="price", **columns))
    assert found.contexts.values == (("0.01", *prices[:2], "2"),)
    model = mcnet.BayesMCNet().fit_sketch(found).model_
    got = collected(apply(df, model), "score", "price", "calibrated")
    assert np.array_equal(got["calibrated"], model.predict(got["score"], got["price"]))
    two = model.predict([0.5, 0.5], pl.Series(prices[:2]).cast(pl.Decimal(22, 2)))
    assert two[0] != two[1]


def test_a_stream_is_calibrated(spark, rows, model, tmp_path):
    from mcnet.spark import apply

    rows.head(200).write_parquet(tmp_path / "0.parquet")
    stream = spark.readStream.schema("score double, label byte, country string").parquet(str(tmp_path))
    query = apply(stream, model).writeStream.format("memory").queryName("calibrated_rows").trigger(availableNow=True)
    query.start().awaitTermination()
    found = pl.from_arrow(spark.table("calibrated_rows").toArrow())
    assert np.array_equal(found["calibrated"], model.predict(found["score"], {"country": found["country"]}))


def test_a_column_is_replaced_where_it_is(spark, model):
    from mcnet.spark import apply

    df = spark.createDataFrame([(0.5, 1.0, "NL")], "score double, Calibrated double, country string")
    found = apply(df, model, replace=True)
    assert found.columns == ["score", "calibrated", "country"]
    assert found.first().calibrated == model.predict([0.5], {"country": ["NL"]})[0]


def test_the_entry_of_class_1_of_a_vector_is_the_score(spark, model):
    from pyspark.ml.linalg import Vectors

    from mcnet.spark import apply

    df = spark.createDataFrame([(Vectors.dense([0.75, 0.25]), "NL")], ["probability", "country"])
    assert apply(df, model, score="probability").first().calibrated == model.predict([0.25], {"country": ["NL"]})[0]


def test_executors_import_little(model, tmp_path):
    """What travels to an executor needs neither PySpark's ML nor the packages that fit."""
    from pyspark import cloudpickle

    from mcnet.spark.applying import _arrow_function

    function = _arrow_function(model, "probability", None)
    (tmp_path / "function").write_bytes(cloudpickle.dumps(getattr(function, "func", function)))
    code = (
        "import sys, pickle; pickle.load(open(sys.argv[1], 'rb'));"
        "print(sorted({'mcnet.spark', 'mcnet.calibrators', 'polars', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "function")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "[]\n"
