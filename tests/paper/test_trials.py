"""Trials: what is measured is what it says, and the methods behave as the study says they must."""

import numpy as np
import pytest

from mcnet.paper.auxiliary import trial_with_features
from mcnet.paper.balance import MODELS
from mcnet.paper.literal import LiteralRecipe, predict_literal, train_literal
from mcnet.paper.sources import open_source
from mcnet.paper.tasks import Sample
from mcnet.paper.trials import ROSTER, contenders, measure, order_violations, run_trial, settings_note
from mcnet.paper.with_features import fit_epochs


@pytest.fixture(scope="module")
def task():
    return open_source("simulated", scale=0.03).tasks(0, wanted=("CTR (AliExpress)",), shift=False)[0]


def test_order_violations_are_counted_inside_a_field_value_only():
    field = np.array([0, 0, 1, 1], dtype=np.int32)
    sample = Sample(np.array([0.1, 0.2, 0.15, 0.3]), np.zeros(4, np.int8), field)
    assert order_violations(np.array([0.1, 0.2, 0.05, 0.06]), sample) == 0
    assert order_violations(np.array([0.2, 0.1, 0.05, 0.06]), sample) == 1


def test_the_truth_itself_is_at_no_distance(task):
    figures = measure(task.test.truth, task.test)
    assert figures["distance"] == 0.0
    assert figures["pcoc"] == pytest.approx(1.0, abs=0.05)


def quick(roster, name):
    return next(contender for contender in contenders(roster, quick=True) if contender.name == name)


def test_the_names_of_the_paper_are_the_published_networks_and_ours_has_its_own():
    methods = {contender.name: (contender.method, contender.sees_field) for contender in ROSTER}
    assert methods["MCNet-None"] == ("mcnet", False)
    assert methods["MCNet-Field"] == ("mcnet", True)
    assert methods["BayesMCNet"] == ("mcnet-bayes", True)
    assert ROSTER[-4].build().get_params()["field_aware"] is False


def test_a_page_names_the_settings_really_used():
    full, small = (settings_note(contenders(ROSTER, quick)) for quick in (False, True))
    assert "MCNet-Field = mcnet(bins=20)" in full
    assert "MCNet-Field = mcnet(bins=5, hidden=(16,), embedding=4)" in small


def test_models_with_the_field_come_nearest_to_the_truth_and_keep_the_order(task):
    names = ("Base", "Isotonic Regression", "Platt Scaling", "MCNet-None", "MCNet-Field", "BayesMCNet")
    trials = {name: run_trial(quick(ROSTER, name), task) for name in names}
    nearest = sorted(trials, key=lambda name: trials[name]["distance"])
    assert set(nearest[:2]) == {"MCNet-Field", "BayesMCNet"}
    for name in ("MCNet-None", "MCNet-Field", "BayesMCNet"):
        assert trials[name]["violations"] == 0
    assert abs(trials["MCNet-None"]["auc"] - trials["Base"]["auc"]) < 5e-4
    assert trials["MCNet-None"]["fitted_pcoc"] == pytest.approx(1.0, abs=5e-3)


def test_the_balance_term_narrows_the_field_pcocs_of_a_common_curve(task):
    none = quick(MODELS, "BayesMCNet, no field")
    plain, balanced = (run_trial(none, task, alpha_balance=alpha) for alpha in (0.0, 10.0))
    fitted = quick(ROSTER, "BayesMCNet, no field")
    assert plain["log_loss"] == run_trial(fitted, task)["log_loss"]
    assert balanced["pcoc_std"] < plain["pcoc_std"]


def test_literal_training_starts_at_the_base_score_and_goes_on_from_where_it_was(task):
    small = task.first(6000)
    recipe = LiteralRecipe(epochs=1).smaller()
    once = train_literal(small, recipe)
    test = predict_literal(once, small, small.test, field=False)
    # A learning rate of 1e-5 and three steps move next to nothing.
    np.testing.assert_allclose(test, small.test.score, atol=1e-3)
    again = train_literal(small, recipe, warm=once)
    assert not np.array_equal(predict_literal(again, small, small.test, field=False), test)


def test_literal_training_with_the_field_treats_values_apart(task):
    small = task.first(6000)
    fit = train_literal(small, LiteralRecipe(field=True, rate=1e-2, epochs=2).smaller())
    probability = predict_literal(fit, small, small.test, field=True)
    assert np.all((probability > 0) & (probability < 1))


@pytest.fixture(scope="module")
def blind():
    """A task with features whose scores are noise: everything is left to the features."""
    source = open_source("simulated", scale=0.004)
    (rich,) = source.tasks(2, wanted=("CTR (AliExpress)",), shift=False, trained="all")
    draw = np.random.default_rng(0)
    noise = (np.exp(draw.normal(-4, 0.3, len(part))) for part in (rich.validation, rich.test))
    return rich.scored(*noise)


@pytest.mark.parametrize("model", ["NeuCalib", "MCNet-None", "BayesMCNet"])
def test_an_auxiliary_network_ranks_rows_that_the_scores_do_not(blind, model):
    trial = trial_with_features(quick(ROSTER, model), blind)
    assert trial["auc"] > 0.55
    assert trial["pcoc"] == pytest.approx(1.0, abs=0.3)


def test_epochs_without_early_stopping_go_on_learning_the_rows_they_see(blind):
    few, many = (fit_epochs(blind, epochs) for epochs in (1, 4))
    losses = [measure(fit.predict(blind.validation), blind.validation)["log_loss"] for fit in (few, many)]
    assert losses[1] < losses[0]
