"""WithFeatures over each kind of calibrator: what it gains, what it refuses, what it leaves alone."""

from dataclasses import asdict, replace

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score

import mcnet
from mcnet import (
    AdaCalib,
    BayesMCNet,
    CalibrationWarning,
    InputError,
    MCNet,
    NeuCalib,
    NotSupportedError,
    PerField,
    Platt,
    WithFeatures,
)
from mcnet.bayes.prior import EmpiricalBayes
from mcnet.export.targets import export_model
from mcnet.networks import with_features as joint_training
from mcnet.networks.training_points import FeatureEncoding

pytestmark = pytest.mark.networks

ROWS = 5_000
IDS = {"row_ids": np.arange(ROWS), "base_row_ids": np.arange(ROWS, 2 * ROWS)}
SMALL = {"bins": 2, "hidden": (8, 8), "embedding": 4}
# Each kind of fit: the calibrator's class, its parameters, and whether it is given the field.
KINDS = {
    "bayes": (BayesMCNet, {}, True),
    "bayes-none": (BayesMCNet, {}, False),
    "mcnet-field": (MCNet, SMALL, True),
    "neucalib": (NeuCalib, {"bins": 5}, False),
    "adacalib": (AdaCalib, {"candidates": (2, 4), "steps": 50}, True),
}


class Log:
    """Rows whose truth depends on the score, the field and (with a signal) the features."""

    def __init__(self, rows=ROWS, seed=0, signal=1.0):
        rng = np.random.default_rng(seed)
        self.score = expit(rng.normal(-1.5, 1.0, rows))
        self.field = rng.choice(["NL", "FR", "DE"], rows, p=[0.6, 0.3, 0.1])
        self.number, group = rng.normal(size=rows), rng.integers(0, 4, rows)
        self.group = np.array(["a", "b", "c", "d"])[group]
        features = self.number + np.array([-0.8, 0.0, 0.3, 0.8])[group]
        base = 1.2 * logit(self.score) + np.where(self.field == "FR", 0.5, 0.0)
        self.truth = expit(base + signal * features)
        self.label = (rng.random(rows) < self.truth).astype(float)

    @property
    def features(self):
        return pl.DataFrame({"number": self.number, "group": self.group})

    def of(self, use_field):
        return self.field if use_field else None


@pytest.fixture(scope="module")
def train():
    return Log()


@pytest.fixture(scope="module")
def test():
    return Log(20_000, seed=1)


@pytest.fixture(scope="module")
def fits(train):
    """One fit of every kind on rows with a signal."""
    return {kind: fit(kind, train) for kind in KINDS}


@pytest.fixture
def epochs(monkeypatch):
    """Set the number of epochs."""
    usual = joint_training.feature_schedule

    def set_epochs(number):
        shorter = lambda rows, seed: replace(usual(rows, seed), epochs=number)  # noqa: E731
        monkeypatch.setattr(joint_training, "feature_schedule", shorter)

    return set_epochs


def fit(kind, log, features=None, **more):
    made, parameters, use_field = KINDS[kind]
    features = log.features if features is None else features
    calibrator = WithFeatures(made(**parameters))
    return calibrator.fit(log.score, log.label, field=log.of(use_field), features=features, **(IDS | more))


@pytest.mark.parametrize("kind", KINDS)
def test_features_that_know_more_than_the_score_help(kind, fits, test):
    calibrator, field = fits[kind], test.of(KINDS[kind][2])
    plain = calibrator.model_.predict(test.score, field)
    both = calibrator.predict(test.score, field, features=test.features)
    assert roc_auc_score(test.label, both) > roc_auc_score(test.label, plain) + 0.04
    assert log_loss(test.label, both) < log_loss(test.label, plain) - 0.02
    assert both.sum() == pytest.approx(test.truth.sum(), rel=0.06)
    gain = calibrator.feature_gain_
    assert gain.rows == ROWS // 10
    assert gain.log_loss > 3 * gain.standard_error > 0
    assert gain.auc > 0.02
    exact = calibrator.predict(test.score, field, features=test.features, exact=True)
    np.testing.assert_allclose(both, exact, rtol=5e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_training_starts_from_the_plain_calibrator(kind, train, epochs):
    epochs(0)
    calibrator, field = fit(kind, train), train.of(KINDS[kind][2])
    both = calibrator.predict(train.score, field, features=train.features)
    plain = clone(calibrator.calibrator).fit(train.score, train.label, field=field)
    np.testing.assert_allclose(
        calibrator.model_.predict(train.score, field), plain.predict(train.score, field), rtol=1e-4
    )
    np.testing.assert_allclose(both, plain.predict(train.score, field), rtol=1e-5)


@pytest.mark.parametrize("kind", ["bayes", "neucalib"])
def test_noise_does_no_harm(kind):
    log, test = Log(signal=0.0), Log(20_000, seed=1, signal=0.0)
    calibrator, field = fit(kind, log), test.of(KINDS[kind][2])
    plain = calibrator.model_.predict(test.score, field)
    both = calibrator.predict(test.score, field, features=test.features)
    assert log_loss(test.label, both) < log_loss(test.label, plain) + 5e-4


def test_the_seed_decides(train, test, epochs):
    epochs(2)

    def predict(calibrator):
        return calibrator.predict(test.score, test.field, features=test.features)

    first = predict(fit("bayes", train))
    np.testing.assert_allclose(first, predict(fit("bayes", train)), rtol=1e-4)
    other = WithFeatures(BayesMCNet(), seed=1)
    other.fit(train.score, train.label, field=train.field, features=train.features, **IDS)
    assert not np.allclose(first, predict(other), rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_resumed_it_predicts_the_same(kind, fits, test, tmp_path):
    calibrator, field, path = fits[kind], test.of(KINDS[kind][2]), tmp_path / "model.json"
    calibrator.save(path)
    resumed = type(calibrator).resume(path)
    for exact in (False, True):
        given = {"features": test.features, "exact": exact}
        np.testing.assert_allclose(
            resumed.predict(test.score, field, **given), calibrator.predict(test.score, field, **given), rtol=1e-6
        )
    assert resumed.feature_gain_ == calibrator.feature_gain_
    if KINDS[kind][0] is BayesMCNet:
        assert resumed.calibrator_.pooled_values_ == calibrator.calibrator_.pooled_values_
    with pytest.warns(CalibrationWarning, match="without its features"):
        served = mcnet.load(path)
    np.testing.assert_array_equal(served.predict(test.score, field), calibrator.model_.predict(test.score, field))
    assert served.provenance["schedule"] == calibrator.schedule_


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_holds_among_rows_alike_in_features(kind, fits, test):
    calibrator = fits[kind]
    assert not calibrator.monotone
    assert calibrator.model_.monotone
    scores = np.sort(test.score[:2_000])
    field = np.full(2_000, "FR") if KINDS[kind][2] else None
    alike = test.features[:1].select(pl.all().repeat_by(2_000).explode())
    assert (np.diff(calibrator.predict(scores, field, features=alike)) >= 0.0).all()


def test_it_is_no_curve_and_says_so(fits, tmp_path):
    calibrator = fits["bayes"]
    with pytest.raises(NotSupportedError, match="no curve of the score"):
        _ = calibrator.curves_
    with pytest.raises(NotSupportedError, match="no curve of the score"):
        export_model(calibrator, tmp_path / "model.sql")
    export_model(calibrator.model_, tmp_path / "model.sql")
    assert len(calibrator.model_.curves) == 4
    with pytest.raises(NotSupportedError, match="uncertainty"):
        calibrator.interval([0.1], ["NL"])


@pytest.mark.parametrize("kind", ["bayes", "mcnet-field", "neucalib", "adacalib"])
def test_features_are_needed_and_a_sketch_has_none(kind, train, fits):
    made, parameters, use_field = KINDS[kind]
    field, rows = train.of(use_field), (train.score, train.label)
    with pytest.raises(NotSupportedError, match="pass features="):
        WithFeatures(made(**parameters)).fit(*rows, field=field)
    with pytest.raises(NotSupportedError, match="pass features="):
        fits[kind].predict(train.score, field)
    with pytest.raises(NotSupportedError, match="features of the rows"):
        fits[kind].predict_one(0.1, "NL")
    with pytest.raises(NotSupportedError, match="a sketch does not keep"):
        WithFeatures(made(**parameters)).fit_sketch(mcnet.Sketch.from_rows(*rows, field=field))


def test_what_is_no_calibrator_without_features_is_refused(train):
    for wrong in (WithFeatures(), 3, None):
        with pytest.raises(InputError, match="a calibrator without features"):
            WithFeatures(wrong).fit(train.score, train.label, features=train.features, **IDS)
    with pytest.raises(InputError, match="no method 'wings'"):
        WithFeatures("wings").fit(train.score, train.label, features=train.features, **IDS)


def test_a_classical_method_takes_features_too(train, test, epochs, tmp_path):
    epochs(3)
    fitted = WithFeatures("platt").fit(train.score, train.label, features=train.features, **IDS)
    p = fitted.predict(test.score, features=test.features)
    assert roc_auc_score(test.label, p) > roc_auc_score(test.label, test.score) + 0.04
    fitted.save(tmp_path / "model.json")
    resumed = WithFeatures.resume(tmp_path / "model.json")
    np.testing.assert_allclose(resumed.predict(test.score, features=test.features), p, rtol=1e-12)


@pytest.mark.parametrize(
    "inner", [PerField(Platt(smooth_targets=True), shrinkage=10.0), BayesMCNet(prior=EmpiricalBayes())]
)
def test_a_resumed_calibrator_can_be_fitted_again(inner, train, epochs, tmp_path):
    epochs(1)
    fitted = WithFeatures(inner).fit(train.score, train.label, field=train.field, features=train.features, **IDS)
    fitted.save(tmp_path / "model.json")
    resumed = WithFeatures.resume(tmp_path / "model.json")
    expected = inner if isinstance(inner, PerField) else BayesMCNet()  # a prior of one's own is in no file
    assert repr(resumed.calibrator) == repr(expected)
    resumed.fit(train.score, train.label, field=train.field, features=train.features, **IDS)


def test_the_schedule_is_told(fits):
    schedule = fits["bayes"].schedule_
    assert schedule["batch"] == 100
    assert schedule["rate"] == 1e-3
    assert fits["bayes"].model_.provenance["schedule"] == schedule


def test_rows_of_the_base_predictor_are_refused(train):
    with pytest.raises(InputError, match=r"trained on 3 of the 5,000 rows \(first: row 4997, id 4997\)"):
        fit("bayes-none", train, base_row_ids=np.arange(ROWS - 3, 2 * ROWS))
    texts = [f"r{i}" for i in range(ROWS)]
    with pytest.raises(InputError, match=r"trained on 1 of .*row 5, id r5"):
        fit("bayes-none", train, row_ids=texts, base_row_ids=["r5", "x"])
    with pytest.raises(InputError, match="missing in row 0"):
        fit("bayes-none", train, row_ids=[None, *texts[1:]], base_row_ids=["x"])
    with pytest.raises(InputError, match="give both or none"):
        fit("bayes-none", train, base_row_ids=None)
    with pytest.raises(InputError, match="differ in length"):
        fit("bayes-none", train, row_ids=np.arange(5))
    with pytest.warns(CalibrationWarning, match="not known whether the base predictor") as caught:
        fit("bayes-none", train, row_ids=None, base_row_ids=None)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_other_columns_are_refused(train, test, fits):
    calibrator, features = fits["bayes-none"], test.features

    def predict(given):
        return calibrator.predict(test.score, features=given)

    with pytest.raises(InputError, match="lack group"):
        predict(features.drop("group"))
    with pytest.raises(InputError, match="unknown extra"):
        predict(features.with_columns(extra=1))
    with pytest.raises(InputError, match="but were a table"):
        predict(np.zeros((len(test.score), 2)))
    with pytest.raises(InputError, match="score has 20,000, features has 10"):
        predict(features[:10])
    with pytest.raises(InputError, match="differ in length"):
        fit("bayes-none", train, features=features)
    with pytest.raises(InputError, match="shape"):
        fit("bayes-none", train, features=train.number)
    with pytest.raises(InputError, match="2-D NumPy array or a table"):
        fit("bayes-none", train, features=[[1.0]] * ROWS)
    np.testing.assert_allclose(predict(features), predict(features.select("group", "number").to_pandas()), rtol=1e-6)


def test_missing_and_unseen_values_have_an_answer(train, test):
    number = np.where(np.arange(ROWS) % 5 == 0, np.nan, train.number)
    group = np.where(np.arange(ROWS) % 7 == 0, None, train.group)
    calibrator = fit("bayes-none", train, features=pd.DataFrame({"number": number, "group": group}))
    assert calibrator.feature_gain_.log_loss > 0.0

    def predict(one, other):
        rows = len(test.score)
        given = pd.DataFrame({"number": np.full(rows, one), "group": pd.Series([other] * rows, dtype=object)})
        return calibrator.predict(test.score, features=given)

    plain = calibrator.model_.predict(test.score).mean()
    for unknown in (predict(0.0, "new"), predict(np.nan, None), predict(np.nan, "new")):
        assert unknown.mean() == pytest.approx(plain, rel=0.35)
    # Beyond what was seen, a number counts as the end of what was.
    np.testing.assert_allclose(predict(1e9, "a"), predict(np.nanmax(number), "a"), rtol=1e-6)
    assert predict(0.0, "a").mean() < predict(0.0, "d").mean()


def test_every_kind_of_column_is_encoded():
    frame = pl.DataFrame(
        {
            "whole": [1, 2, None],
            "flag": [True, False, None],
            "text": ["x", "y", "x"],
            "kind": pl.Series(["p", "q", "p"], dtype=pl.Categorical),
            "price": pl.Series(["1.5", "2.5", "3.5"]).cast(pl.Decimal(10, 2)),
        }
    )
    encoding = FeatureEncoding.learn(frame)
    assert [column.name for column in encoding.numbers] == ["whole", "price"]
    assert encoding.sizes == (3, 2, 2)
    encoded = encoding.encode(frame)
    np.testing.assert_allclose(encoded.numbers[:, :2], [[-1, 0], [1, 0], [0, 1]])
    again = msgspec.convert(asdict(encoding), FeatureEncoding).encode(frame.to_arrow())
    np.testing.assert_array_equal(encoded.categories, again.categories)
    np.testing.assert_array_equal(encoded.numbers, again.numbers)
    with pytest.raises(InputError, match="'when' is of type"):
        FeatureEncoding.learn({"when": np.array(["2024-01-01"], dtype="datetime64[D]")})
    with pytest.raises(InputError, match="infinite in row 1"):
        FeatureEncoding.learn(np.array([[0.0], [np.inf]]))
    with pytest.raises(InputError, match="had 1 in fit"):
        FeatureEncoding.learn(np.ones((2, 1))).encode(np.ones((2, 2)))


def test_an_array_of_numbers_and_weights_of_zero(train):
    numbers = np.column_stack([train.number, train.group == "d"])
    weight = np.r_[np.ones(ROWS - 1_000), np.zeros(1_000)]
    calibrator = fit("neucalib", train, features=numbers, weight=weight)
    assert calibrator.feature_gain_.rows == (ROWS - 1_000) // 10
    assert calibrator.feature_gain_.log_loss > 0.0


def test_too_few_or_one_class_leave_the_plain_calibrator(train):
    few, ids = slice(0, 60), {"row_ids": np.arange(60), "base_row_ids": []}
    given = {"features": train.features[few], **ids}
    with pytest.warns(CalibrationWarning, match="too few rows of one class"):
        small = WithFeatures().fit(train.score[few], train.label[few], **given)
    plain = small.model_.predict(train.score)
    np.testing.assert_allclose(small.predict(train.score, features=train.features), plain, rtol=1e-12)
    with pytest.warns(CalibrationWarning, match="every row is negative|too few rows of one class"):
        constant = WithFeatures(NeuCalib()).fit(train.score[few], np.zeros(60), **given)
    assert len(np.unique(constant.predict(train.score, features=train.features))) == 1


def test_one_score_for_all_still_learns_from_features(train):
    score = np.full(ROWS, 0.2)
    with pytest.warns(CalibrationWarning, match="all rows have one score"):
        calibrator = WithFeatures(NeuCalib()).fit(score, train.label, features=train.features, **IDS)
    assert calibrator.feature_gain_.auc_before == 0.5
    assert calibrator.feature_gain_.auc_after > 0.6


def test_the_paper_variant_works_in_logits(train, epochs):
    epochs(2)
    given = {"features": train.features, **IDS}
    with pytest.raises(InputError, match="space='logit'"):
        WithFeatures(MCNet.paper("none")).fit(train.score, train.label, **given)
    paper = WithFeatures(MCNet.paper("none", space="logit", **SMALL, epochs=1, steps=4, learning_rate=1e-3))
    paper.fit(train.score, train.label, **given)
    assert paper.feature_gain_.log_loss > 0.0
    assert paper.schedule_["rate"] == 1e-3


def test_a_warm_start_meets_a_new_field_value(train, epochs):
    epochs(2)
    calibrator = WithFeatures(MCNet(warm_start=True, **SMALL))
    known = train.field != "DE"
    for rows in (known, np.ones(ROWS, dtype=bool)):
        ids = {"row_ids": IDS["row_ids"][rows], "base_row_ids": IDS["base_row_ids"]}
        given = {"field": train.field[rows], "features": train.features.filter(rows)}
        calibrator.fit(train.score[rows], train.label[rows], **given, **ids)
    assert calibrator.model_.contexts.values == (("FR", "NL", "DE"),)
    both = calibrator.predict(train.score, train.field, features=train.features)
    for value in ("FR", "NL", "DE"):
        own = train.field == value
        assert both[own].sum() == pytest.approx(train.truth[own].sum(), rel=0.1)


def test_a_sketch_cannot_judge_features():
    rng = np.random.default_rng(0)
    score = rng.uniform(0.05, 0.4, 2_000)
    label = rng.random(2_000) < score
    with pytest.warns(CalibrationWarning, match="base predictor was trained on these rows"):
        fitted = mcnet.WithFeatures("platt").fit(score, label, features=rng.normal(size=(2_000, 1)))
    with pytest.raises(NotSupportedError, match="needs the features of rows, which a sketch does not keep"):
        mcnet.evaluate_sketch(fitted, mcnet.Sketch.from_rows(score, label))
