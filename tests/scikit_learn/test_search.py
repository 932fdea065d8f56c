import numpy as np
import pytest
import sklearn
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score

import mcnet


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.01, 0.9, 5000)
    field = rng.choice(["a", "b"], 5000)
    labels = (rng.random(5000) < np.where(field == "a", 0.5, 0.9) * scores).astype(int)
    return scores, labels, field


def test_the_score_is_the_negative_log_loss(rows):
    scores, labels, _ = rows
    weight = np.arange(5000) % 4
    fitted = mcnet.Platt().fit(scores, labels)
    assert fitted.score(scores, labels) == pytest.approx(-log_loss(labels, fitted.predict(scores)))
    weighted = -log_loss(labels, fitted.predict(scores), sample_weight=weight)
    assert fitted.score(scores, labels, weight=weight) == pytest.approx(weighted)


def test_a_search_finds_the_better_parameter(rows):
    scores, labels, _ = rows
    search = GridSearchCV(mcnet.Histogram(), {"bins": [1, 12]}, cv=3).fit(scores, labels)
    assert search.best_params_ == {"bins": 12}
    assert search.predict(scores).shape == (5000,)
    assert len(cross_val_score(mcnet.Isotonic(), scores[:, None], labels, cv=3)) == 3


def test_fields_and_weights_are_routed_to_fit_and_score(rows):
    scores, labels, field = rows
    with sklearn.config_context(enable_metadata_routing=True):
        candidate = mcnet.PerField("platt", shrinkage=0.0)
        candidate.set_fit_request(field=True, weight=True).set_score_request(field=True, weight=True)
        search = GridSearchCV(candidate, {"shrinkage": [0.0, 1e9]}, cv=3)
        search.fit(scores, labels, field=field, weight=np.ones(5000))
    assert search.best_params_ == {"shrinkage": 0.0}


def test_an_argument_that_is_not_there_cannot_be_routed():
    with pytest.raises(mcnet.InputError, match="fit of Platt has no argument 'feild'; it has field, weight"):
        mcnet.Platt().set_fit_request(feild=True)
