"""The stages of `pyspark.ml`: in a pipeline, saved and loaded, in a cross-validation."""

import numpy as np
import polars as pl
import pytest

import mcnet


@pytest.fixture(scope="module")
def frame(spark):
    generator = np.random.default_rng(2)
    feature = generator.normal(size=3_000)
    country = generator.choice(["NL", "FR"], 3_000)
    rate = 1.0 / (1.0 + np.exp(2.0 - feature - (country == "NL")))
    label = (generator.random(3_000) < rate).astype(np.float64)
    table = pl.DataFrame({"feature": feature, "country": country, "label": label})
    return spark.createDataFrame(table.to_arrow()).cache()


def test_a_pipeline_is_fitted_saved_and_loaded(spark, frame, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import VectorAssembler

    from mcnet.spark import CalibrationEstimator, CalibrationEstimatorModel

    stages = [
        VectorAssembler(inputCols=["feature"], outputCol="features"),
        LogisticRegression(maxIter=3),
        CalibrationEstimator(fieldCols=["country"], method="per-field", methodParams={"inner": "platt"}),
    ]
    pipeline = Pipeline(stages=stages)
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    fitted = Pipeline.load(str(tmp_path / "pipeline")).fit(frame)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    loaded = PipelineModel.load(str(tmp_path / "fitted"))
    stage = loaded.stages[-1]
    assert isinstance(stage, CalibrationEstimatorModel)
    assert (stage.getScoreCol(), stage.getFieldCols(), stage.uid) == ("probability", ["country"], fitted.stages[-1].uid)
    found = loaded.transform(frame).select("probability", "country", "calibrated").limit(200).collect()
    scores, countries = [float(row.probability[1]) for row in found], [row.country for row in found]
    served = fitted.stages[-1].calibration.predict(np.array(scores), {"country": countries})
    assert [row.calibrated for row in found] == served.tolist()


def test_the_fit_is_that_of_mcnet_on_the_same_rows(spark, frame):
    from pyspark.sql import functions as F

    from mcnet.spark import CalibrationEstimator

    scored = frame.withColumn("raw", F.expr("1 / (1 + exp(2 - feature))"))
    model = CalibrationEstimator(scoreCol="raw", fieldCols=["country"], outputCol="p").fit(scored)
    rows = pl.from_arrow(scored.toArrow())
    sketch = mcnet.scan(rows, score="raw", label="label", field="country")
    expected = mcnet.BayesMCNet().fit_sketch(sketch).model_
    found = pl.from_arrow(model.transform(scored).toArrow())
    np.testing.assert_allclose(found["p"], expected.predict(found["raw"], {"country": found["country"]}), rtol=1e-6)
    model.calibration.save  # noqa: B018 (the model can be saved, exported and served)


@pytest.mark.filterwarnings("ignore:base does not use the field")
def test_cross_validation_chooses_a_method(spark, frame):
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
    from pyspark.sql import functions as F

    from mcnet.spark import CalibrationEstimator, CalibrationEvaluator

    scored = frame.withColumn("raw", F.expr("1 / (1 + exp(3 - 2 * feature))"))
    estimator = CalibrationEstimator(scoreCol="raw", fieldCols=["country"])
    grid = ParamGridBuilder().addGrid(estimator.method, ["base", "platt-field"]).build()
    judge = CalibrationEvaluator(fieldCols=["country"])
    assert not judge.isLargerBetter()
    chosen = CrossValidator(estimator=estimator, estimatorParamMaps=grid, evaluator=judge, numFolds=2, seed=1).fit(
        scored
    )
    assert chosen.avgMetrics[1] < chosen.avgMetrics[0]
    assert chosen.bestModel.calibration.method == "platt-field"


def test_wrong_parameters_are_refused_with_their_names(spark, frame):
    from mcnet.spark import CalibrationEstimator, CalibrationEvaluator

    with pytest.raises(mcnet.InputError, match="there is no method 'plat'"):
        CalibrationEstimator(scoreCol="feature", method="plat").fit(frame)
    with pytest.raises(mcnet.InputError, match="it must be a JSON object"):
        CalibrationEstimator(scoreCol="feature", methodParams="[1]").fit(frame)
    with pytest.raises(mcnet.InputError, match="there is no metric 'auk'"):
        CalibrationEvaluator(metricName="auk", probabilityCol="feature").evaluate(frame)
