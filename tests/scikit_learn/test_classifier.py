import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import get_scorer, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import mcnet
from mcnet import CalibratedClassifier
from mcnet.errors import CalibrationWarning, InputError, NotSupportedError


@pytest.fixture(scope="module")
def rows():
    """Redundant features make naive Bayes overconfident; one country clicks less than its features say."""
    X, y = make_classification(6000, n_features=8, n_informative=3, n_redundant=5, random_state=0)
    rng = np.random.default_rng(0)
    country = rng.choice(["NL", "FR"], 6000)
    y = np.where((country == "FR") & (rng.random(6000) < 0.5), 0, y)
    return X, y, country


def table(rows, kind):
    X, _, country = rows
    columns = {"country": country, **{f"x{i}": X[:, i] for i in range(X.shape[1])}}
    return {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind](columns)


@pytest.mark.parametrize(
    ("inner", "method"),
    [(LogisticRegression(), "mcnet-bayes"), (RidgeClassifier(), "platt")],
    ids=["probabilities", "decisions"],
)
def test_scikit_learns_own_checks_pass(inner, method):
    with warnings.catch_warnings():
        # The checks fit on rows of one score, and cast NaN to whole numbers themselves.
        warnings.simplefilter("ignore", CalibrationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        check_estimator(CalibratedClassifier(inner, method=method), on_skip=None)


def test_calibration_beats_an_overconfident_classifier(rows):
    X, y, _ = rows
    plain = GaussianNB().fit(X[:4000], y[:4000])
    model = CalibratedClassifier(GaussianNB(), method="isotonic").fit(X[:4000], y[:4000])
    assert log_loss(y[4000:], model.predict_proba(X[4000:])) < log_loss(y[4000:], plain.predict_proba(X[4000:])) - 0.05
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.array_equal(model.predict(X), (model.predict_proba(X)[:, 1] > 0.5).astype(int))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize("prefit", [False, True])
def test_a_field_of_a_table_calibrates_each_of_its_values(rows, kind, prefit):
    _, y, country = rows
    X = table(rows, kind)
    base = LogisticRegression()
    if prefit:
        base.fit(X.drop(columns="country") if kind == "pandas" else X.drop("country"), y)
    cv = "prefit" if prefit else 5
    model = CalibratedClassifier(base, method="platt-field", field="country", cv=cv, keep_field=False).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    assert "country" not in model.estimator_.feature_names_in_
    for value in ("NL", "FR"):
        assert p[country == value].mean() / y[country == value].mean() == pytest.approx(1.0, abs=0.02)


def test_a_table_and_an_array_give_the_same(rows):
    X, y, country = rows
    number = (country == "NL").astype(float)
    array = np.column_stack([number, X])
    frame = pd.DataFrame(array, columns=["c", *(f"x{i}" for i in range(8))])
    by_number = CalibratedClassifier(method="platt-field", field=0, keep_field=False).fit(array, y)
    by_name = CalibratedClassifier(method="platt-field", field=["c"], keep_field=False).fit(frame, y)
    assert np.allclose(by_number.predict_proba(array), by_name.predict_proba(frame))
    assert by_number.estimator_.n_features_in_ == 8
    kept = CalibratedClassifier(method="platt-field", field=0).fit(array, y)
    assert kept.estimator_.n_features_in_ == 9


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_the_classifier_keeps_the_field_column_by_default(rows, kind):
    """A field that decides about the label must stay a feature: without it the ranking is worse."""
    _, y, _ = rows
    X = table(rows, kind)
    encoded = make_column_transformer((OneHotEncoder(), ["country"]), remainder="passthrough")
    classifier = make_pipeline(encoded, LogisticRegression())
    train, test = X[:4000], X[4000:]
    kept = CalibratedClassifier(classifier, method="platt-field", field="country").fit(train, y[:4000])
    assert "country" in kept.estimator_.feature_names_in_
    plain = clone(classifier).fit(train, y[:4000])
    found, expected = (roc_auc_score(y[4000:], m.predict_proba(test)[:, 1]) for m in (kept, plain))
    assert found > expected - 0.01
    assert roc_auc_score(y[4000:], kept.estimator_.predict_proba(test)[:, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "array"])
def test_an_error_of_the_classifier_names_the_other_columns_of_strings(rows, kind):
    _, y, _ = rows
    X = table(rows, "pandas").assign(other="DE", numbers=1)
    field, other = ("country", "'other'")
    if kind == "array":
        field, other = -len(X.columns) + list(X.columns).index(field), str(list(X.columns).index("other"))
        X = X.to_numpy(dtype=object)
    elif kind == "polars":
        X = pl.from_pandas(X)
    elif kind == "arrow":
        X = pa.Table.from_pandas(X)
    advice = rf"{other}, which has strings: drop it from X, or encode it for the classifier \(in a Pipeline"
    model = CalibratedClassifier(LogisticRegression(), method="platt-field", field=field, keep_field=False)
    with pytest.raises(
        InputError, match=rf"keep_field=False takes the field .* away from the classifier, but not {advice}"
    ):
        model.fit(X, y)
    with pytest.raises(InputError, match=rf"pass keep_field=False .*; it also sees {advice}"):
        model.set_params(keep_field=True).fit(X, y)


def test_an_error_of_the_classifier_says_what_may_be_done_about_the_field(rows):
    _, y, _ = rows
    X = table(rows, "pandas")
    message = "LogisticRegression refused the rows: could not convert string.*'country'.*pass keep_field=False"
    with pytest.raises(InputError, match=message):
        CalibratedClassifier(method="platt-field", field="country").fit(X, y)
    encoded = make_column_transformer((OneHotEncoder(), ["country"]), remainder="passthrough")
    classifier = make_pipeline(encoded, LogisticRegression())
    with pytest.raises(InputError, match=r"refused the rows: .*keep_field=False takes the field 'country' away"):
        CalibratedClassifier(classifier, method="platt-field", field="country", keep_field=False).fit(X, y)
    with pytest.raises(ValueError, match="could not convert string") as caught:
        CalibratedClassifier(method="platt").fit(X, y)
    assert not isinstance(caught.value, InputError)


def test_it_works_in_a_pipeline_and_a_search_over_methods(rows):
    X, y, country = rows
    array = np.column_stack([X, (country == "NL").astype(float)])
    inner = CalibratedClassifier(make_pipeline(StandardScaler(), GaussianNB()), method="base", field=8, cv=3)
    search = GridSearchCV(
        make_pipeline("passthrough", inner),
        {"calibratedclassifier__method": ["base", "platt", mcnet.Histogram(bins=5), "platt-field"]},
        scoring="neg_log_loss",
        cv=3,
    ).fit(array, y)
    assert search.best_params_ == {"calibratedclassifier__method": "platt-field"}
    assert search.predict_proba(array).shape == (6000, 2)


def test_weights_count_as_repeated_rows_when_the_classifier_is_fitted_before(rows):
    X, y, _ = rows
    base = LogisticRegression().fit(X, y)
    weight = np.arange(len(y)) % 3
    weighted = CalibratedClassifier(base, method="platt", cv="prefit").fit(X, y, sample_weight=weight)
    repeated = CalibratedClassifier(base, method="platt", cv="prefit").fit(
        np.repeat(X, weight, 0), np.repeat(y, weight)
    )
    assert np.allclose(weighted.predict_proba(X), repeated.predict_proba(X))


def test_weights_reach_the_classifier_and_the_calibrator(rows):
    X, y, _ = rows
    weight = np.where(y == 1, 3.0, 1.0)
    model = CalibratedClassifier(GaussianNB(), method="platt").fit(X, y, sample_weight=weight)
    expected = GaussianNB().fit(X, y, sample_weight=weight)
    assert np.allclose(model.estimator_.predict_proba(X), expected.predict_proba(X))
    p = model.predict_proba(X)[:, 1]
    assert np.average(p, weights=weight) == pytest.approx(np.average(y, weights=weight), abs=0.01)
    with pytest.raises(NotSupportedError, match="KNeighborsClassifier does not take sample_weight"):
        CalibratedClassifier(KNeighborsClassifier(), method="platt").fit(X, y, sample_weight=weight)


def test_metadata_are_routed(rows):
    X, y, _ = rows
    weight = np.where(y == 1, 3.0, 1.0)
    plain = CalibratedClassifier(GaussianNB(), method="platt").fit(X, y, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = GaussianNB().set_fit_request(sample_weight=True)
        routed = CalibratedClassifier(inner, method="platt", cv=5).fit(X, y, sample_weight=weight)
        assert np.allclose(routed.predict_proba(X), plain.predict_proba(X))
        model = CalibratedClassifier(inner, method="platt").set_fit_request(sample_weight=True)
        scorer = get_scorer("neg_brier_score").set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"method": ["platt", "beta"]}, scoring=scorer, cv=3)
        search.fit(X, y, sample_weight=weight)
        grouped = CalibratedClassifier(GaussianNB(), method="platt", cv=GroupKFold(3))
        assert grouped.fit(X, y, groups=np.arange(len(y)) % 7).predict_proba(X).shape == (6000, 2)
    with pytest.raises(InputError, match="enable_metadata_routing"):
        CalibratedClassifier(method="platt").fit(X, y, groups=y)


def test_other_splitters_and_few_rows_of_a_class(rows):
    X, y, _ = rows
    assert CalibratedClassifier(method="platt", cv=KFold(3, shuffle=True, random_state=0)).fit(
        X, y
    ).classes_.tolist() == [
        0,
        1,
    ]
    few = np.r_[np.flatnonzero(y == 1)[:3], np.flatnonzero(y == 0)[:50]]
    assert CalibratedClassifier(method="platt").fit(X[few], y[few]).predict(X).shape == (6000,)


def test_classes_may_be_words_and_refitting_forgets(rows):
    X, y, _ = rows
    words = np.where(y == 1, "click", "none")
    model = CalibratedClassifier(method="platt").fit(X, words)
    assert model.classes_.tolist() == ["click", "none"]
    assert set(model.predict(X)) == {"click", "none"}
    again = clone(model).fit(X[:, :4], y)
    assert model.fit(X[:, :4], y).n_features_in_ == 4
    np.testing.assert_allclose(model.predict_proba(X[:, :4]), again.predict_proba(X[:, :4]), rtol=1e-9)


def test_what_cannot_be_used_is_said(rows):
    X, y, country = rows
    with pytest.raises(NotFittedError):
        CalibratedClassifier(method="platt").predict_proba(X)
    with pytest.raises(NotFittedError):
        CalibratedClassifier(GaussianNB(), method="platt", cv="prefit").fit(X, y)
    with pytest.raises(InputError, match="prefit"):
        CalibratedClassifier(method="platt", cv="often").fit(X, y)
    with pytest.raises(InputError, match="no method 'magic'"):
        CalibratedClassifier(method="magic").fit(X, y)
    with pytest.raises(InputError, match="one class only"):
        CalibratedClassifier(method="platt").fit(X, np.zeros(6000))
    with pytest.raises(InputError, match="Only binary classification"):
        CalibratedClassifier(method="platt").fit(X, np.arange(6000) % 3)
    with pytest.raises(InputError, match="at least 2 of each class"):
        CalibratedClassifier(method="platt").fit(X[:50], np.arange(50) == 0)
    with pytest.raises(InputError, match="no column 'where'"):
        CalibratedClassifier(method="platt-field", field="where").fit(table(rows, "pandas"), y)
    for field, said in (("country", "give the number"), (8, "it has 8 columns")):
        with pytest.raises(InputError, match=said):
            CalibratedClassifier(method="platt-field", field=field).fit(X, y)
    with pytest.raises(NotSupportedError, match="needs a field"):
        CalibratedClassifier(method="platt-field").fit(X, y)
    assert len(country) == len(y)
