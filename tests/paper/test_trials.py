"""Trials: what is measured is what it says, and the methods behave as the study says they must."""

import numpy as np
import pytest

from mcnet.paper.auxiliary import trial_with_features
from mcnet.paper.balance import MODELS
from mcnet.paper.literal import LiteralRecipe, predict_literal, train_literal
from mcnet.paper.sources import open_source
from mcnet.paper.tasks import Sample
from mcnet.paper.trials import ROSTER, measure, order_violations, run_trial
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


def test_mcnet_with_the_field_comes_nearest_to_the_truth_and_keeps_the_order(task):
    trials = {c.name: run_trial(c, task) for c in ROSTER if c.name not in ("NeuCalib", "AdaCalib")}
    assert min(trials, key=lambda name: trials[name]["distance"]) == "MCNet-Field"
    assert trials["MCNet-Field"]["violations"] == 0
    assert trials["MCNet-None"]["violations"] == 0
    assert abs(trials["MCNet-None"]["auc"] - trials["Base"]["auc"]) < 5e-4
    assert trials["MCNet-None"]["fitted_pcoc"] == pytest.approx(1.0, abs=2e-3)


def test_the_balance_term_narrows_the_field_pcocs_of_a_common_curve(task):
    none = next(c for c in MODELS if c.name == "MCNet-None")
    plain, balanced = (run_trial(none, task, alpha_balance=alpha) for alpha in (0.0, 10.0))
    fitted = next(c for c in ROSTER if c.name == "MCNet-None")
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


@pytest.mark.parametrize("model", ["NeuCalib", "MCNet-None", "MCNet-Field"])
def test_an_auxiliary_network_ranks_rows_that_the_scores_do_not(blind, model):
    contender = next(c for c in ROSTER if c.name == model)
    trial = trial_with_features(contender, blind)
    assert trial["auc"] > 0.55
    assert trial["pcoc"] == pytest.approx(1.0, abs=0.3)


def test_epochs_without_early_stopping_go_on_learning_the_rows_they_see(blind):
    few, many = (fit_epochs(blind, epochs) for epochs in (1, 4))
    losses = [measure(fit.predict(blind.validation), blind.validation)["log_loss"] for fit in (few, many)]
    assert losses[1] < losses[0]
