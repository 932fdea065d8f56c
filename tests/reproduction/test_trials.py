"""Trials: what is measured is what it says, and the methods behave as the study says they must."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel
from sklearn.isotonic import IsotonicRegression

from mcnet._shared.arrays import clip_scores
from mcnet.calibrators import methods as registry
from mcnet.errors import InputError
from mcnet.networks.bank import BankOnSharedNodes
from mcnet.networks.objective import balance_loss, log_loss_from_probabilities
from reproduction.auxiliary import trial_with_features
from reproduction.balance import MODELS
from reproduction.literal import (
    LiteralRecipe,
    best_monotone_log_loss,
    follow_literal,
    objective_and_gradient,
    predict_literal,
    train_literal,
    watch_forces,
)
from reproduction.significance import errors, paired_test
from reproduction.sources import open_source
from reproduction.tasks import Sample
from reproduction.trials import (
    ROSTER,
    RowParts,
    Trial,
    fit_task,
    measure,
    order_violations,
    own_methods,
    run_trial,
    settings_note,
    trained_note,
)
from reproduction.with_features import BesideRecipe, fit_beside


@pytest.fixture(scope="module")
def task():
    found = open_source("simulated", scale=0.03).tasks(0, wanted=("CTR (AliExpress)",), shift=False)[0]
    return replace(found, share=1.0)  # as if the paper had no more rows, so that trainings as printed are short


def test_order_violations_are_counted_inside_a_field_value_only():
    field = np.array([0, 0, 1, 1], dtype=np.int32)
    sample = Sample(np.array([0.1, 0.2, 0.15, 0.3]), np.zeros(4, np.int8), field)
    assert order_violations(np.array([0.1, 0.2, 0.05, 0.06]), sample) == 0
    assert order_violations(np.array([0.2, 0.1, 0.05, 0.06]), sample) == 1


def test_the_truth_itself_is_at_no_distance(task):
    figures = measure(task.test.truth, task.test)
    assert figures["distance"] == 0.0
    assert figures["pcoc"] == pytest.approx(1.0, abs=0.05)
    assert figures["clipped"] == 0.0


def test_rows_that_were_clipped_are_counted():
    sample = Sample(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 1, 0, 1], np.int8), np.zeros(4, np.int32))
    assert measure(np.array([1e-7, 0.2, 0.3, 1.0 - 1e-7]), sample)["clipped"] == 0.5


def row(name, roster=ROSTER):
    return next(contender for contender in roster if contender.name == name)


def test_the_names_of_the_paper_are_the_published_networks_and_ours_has_its_own():
    for training in ("as printed", "trained on", "with our priors"):
        none, field = (row(f"MCNet-{variant}, {training}") for variant in ("None", "Field"))
        assert (none.method, none.sees_field, none.published) == ("mcnet", False, "MCNet-None")
        assert (field.method, field.sees_field, field.published) == ("mcnet", True, "MCNet-Field")
    assert row("MCNet-None, with our priors").build().get_params()["field_aware"] is False
    assert row("MCNet-Field, as printed").recipe.field
    assert row("BayesMCNet").method == "mcnet-bayes"


def test_a_page_names_the_settings_really_used():
    note = settings_note(ROSTER)
    assert "MCNet-None, as printed = 20 bins, ReLU networks of 128 × 128, embedding 128, probability space" in note
    assert "Adam at 1e-05, batches of 2048, 2 epochs, β = 1, from the identity" in note
    assert "MCNet-Field, with our priors = mcnet(bins=20, field_aware=True), SiLU networks of 128 × 128" in note
    assert "the rows of a bin share the nodes" in note


def test_models_with_the_field_come_nearest_to_the_truth_and_keep_the_order(task):
    names = (
        "Base",
        "Isotonic Regression",
        "Platt Scaling",
        "MCNet-None, with our priors",
        "MCNet-Field, with our priors",
        "BayesMCNet",
    )
    trials = {name: run_trial(row(name), task) for name in names}
    nearest = sorted(trials, key=lambda name: trials[name]["distance"])
    assert set(nearest[:2]) == {"MCNet-Field, with our priors", "BayesMCNet"}
    for name in names[3:]:
        assert trials[name]["violations"] == 0
    assert abs(trials["MCNet-None, with our priors"]["auc"] - trials["Base"]["auc"]) < 5e-4
    assert trials["MCNet-None, with our priors"]["fitted_pcoc"] == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("name", ["BayesMCNet, no field", "MCNet-None, with our priors"])
def test_the_balance_term_narrows_the_field_pcocs_of_a_common_curve(task, name):
    plain, balanced = (run_trial(row(name, MODELS), task, alpha=alpha) for alpha in (0.0, 10.0))
    assert plain["log_loss"] == run_trial(row(name), task)["log_loss"]
    assert balanced["pcoc_std"] < plain["pcoc_std"]


def test_the_balance_term_changes_a_literal_training_that_does_not_see_the_field(task):
    small, recipe = (
        task.first(20_000),
        LiteralRecipe(bins=5, hidden=(16, 16), rate=1e-3, epochs=6, order=0.0, falling=True),
    )
    # Scores twice too low: the largest value's error stands out, and the balance term is about nothing else.
    low = small.scored(small.validation.score / 2.0, small.test.score / 2.0)
    plain, balanced = (train_literal(low, replace(recipe, balance=alpha)) for alpha in (0.0, 5.0))
    p, q = (predict_literal(fit, low, low.validation, field=False) for fit in (plain, balanced))
    assert spread(q, low.validation) < 0.7 * spread(p, low.validation)


def spread(probability, sample):
    """The regulariser itself: the deviation over field values of Σ (p − y) / N."""
    return float((np.bincount(sample.field, probability - sample.label) / len(sample)).std())


def test_literal_training_starts_at_the_base_score_and_can_be_followed(task):
    small = task.first(6000)
    recipe = LiteralRecipe(hidden=(16, 16))

    def look(fit):
        return predict_literal(fit, small, small.test, field=False)

    seen = follow_literal(small, recipe, (1, 3), look)
    assert list(seen) == [1, 3]
    # A learning rate of 1e-5 and three steps move next to nothing.
    np.testing.assert_allclose(seen[1], small.test.score, atol=1e-3)
    np.testing.assert_array_equal(seen[3], look(train_literal(small, replace(recipe, epochs=3))))
    assert not np.array_equal(seen[1], seen[3])


def test_literal_training_with_the_field_treats_values_apart(task):
    small = task.first(6000)
    fit = train_literal(small, LiteralRecipe(field=True, rate=1e-2, hidden=(16, 16)))
    probability = predict_literal(fit, small, small.test, field=True)
    assert np.all((probability > 0) & (probability < 1))
    codes = np.zeros((100, 1), dtype=np.int64)
    logits = np.linspace(-5, -2, 100)
    assert not np.allclose(fit.predict(logits, codes), fit.predict(logits, codes + 1), rtol=1e-3)


def test_the_order_penalty_only_passes_pulls_on_from_bin_to_bin(task):
    small, recipe = task.first(30_000), LiteralRecipe(rate=1e-3, hidden=(32, 32), epochs=2)
    fit = train_literal(small, recipe)
    forces = watch_forces(fit, small, recipe)
    assert forces.order.sum() == pytest.approx(0.0, abs=1e-6)
    assert forces.order_size > 2.0 * forces.log_loss_size
    without = watch_forces(fit, small, replace(recipe, order=0.0))
    assert not without.order.any()


def test_a_falling_learning_rate_ends_where_it_stands_still(task):
    small = task.first(6000)
    recipe = LiteralRecipe(rate=1e-3, hidden=(16, 16), epochs=4)
    looks = [
        follow_literal(
            small, replace(recipe, falling=falling), (3, 4), lambda fit: fit.bank.network.score_weight.detach().clone()
        )
        for falling in (False, True)
    ]
    moved = [float((seen[4] - seen[3]).abs().max()) for seen in looks]
    assert moved[1] < 0.5 * moved[0]


@pytest.fixture(scope="module")
def blind():
    """A task with features whose scores are noise: everything is left to the features."""
    source = open_source("simulated", scale=0.004)
    (rich,) = source.tasks(2, wanted=("CTR (AliExpress)",), shift=False, trained="all")
    draw = np.random.default_rng(0)
    noise = (np.exp(draw.normal(-4, 0.3, len(part))) for part in (rich.validation, rich.test))
    return replace(rich.scored(*noise), share=1.0)


@pytest.mark.parametrize("model", ["NeuCalib", "MCNet-None, with our priors", "BayesMCNet"])
def test_an_auxiliary_network_ranks_rows_that_the_scores_do_not(blind, model):
    trial = trial_with_features(row(model), blind)
    assert trial["auc"] > 0.55
    assert trial["pcoc"] == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize(("training", "field"), [("as printed", True), ("with our priors", False)])
def test_epochs_without_early_stopping_go_on_learning_the_rows_they_see(blind, training, field):
    losses = []

    def look(epochs, fitted):
        losses.append(measure(fitted.predict(blind.validation), blind.validation)["log_loss"])

    fit_beside(blind, BesideRecipe(field, training, 3), look)
    assert len(losses) == 3
    if training == "with our priors":
        assert losses[2] < losses[1] < losses[0]
    else:  # a learning rate of 1e-4 and a few steps move next to nothing
        assert max(losses) - min(losses) < 1e-3


@pytest.mark.parametrize(("seeds", "known"), [(1, False), (3, True)])
def test_a_paired_test_has_a_p_value_from_two_seeds_on(seeds, known):
    def trials(values):
        return [Trial({"f_rce": value, "pcoc": 1.0 + value}, np.zeros(1), 0.0) for value in values[:seeds]]

    methods = {"a": trials([0.3, 0.31, 0.32]), "b": trials([0.2, 0.21, 0.23]), "ours": trials([0.1, 0.12, 0.13])}
    test = paired_test(methods, "ours", "f_rce", ("a", "b"))
    assert test.baseline == "b"
    assert test.difference == pytest.approx(-0.1, abs=0.004)
    if known:
        assert test.p_value == pytest.approx(ttest_rel([0.1, 0.12, 0.13], [0.2, 0.21, 0.23]).pvalue)
        assert test.p_value < 0.05
    else:
        assert np.isnan(test.p_value)
    assert errors(methods["ours"], "pcoc") == pytest.approx([0.1, 0.12, 0.13][:seeds])


def test_the_published_objective_trained_on_is_lower_than_as_printed_and_says_how_far_it_got(task):
    small = task.first(8_000)
    printed, longer = (row(f"MCNet-None, {training}") for training in ("as printed", "trained on"))
    assert longer.recipe.order == 1.0
    assert longer.recipe.balance == 0.0
    assert longer.recipe.falling
    quick = replace(longer, recipe=replace(longer.recipe, steps=80, rate=1e-3))
    trained = fit_task(quick, small).trained
    assert trained.steps == 80
    assert trained.gradient > 0.0
    assert 0.0 < trained.gap < 100.0
    start = train_literal(small, printed.recipe)
    before, steep = objective_and_gradient(start, small, printed.recipe)
    assert trained.objective < before
    assert np.isfinite(steep)
    note = trained_note({("MCNet-None, trained on", "CTR"): [trained]})[0]
    assert "gradient norm" in note
    assert f"{trained.gap:.3g} nats above the best monotone function" in note


@pytest.mark.parametrize("balance", [0.0, 3.0])
def test_the_objective_and_its_gradient_are_those_of_all_rows(task, balance):
    small = task.first(70_000)  # more than one part
    recipe = LiteralRecipe(bins=3, hidden=(8,), rate=1e-2, balance=balance, epochs=1)
    fit = train_literal(small, recipe)
    objective, norm = objective_and_gradient(fit, small, recipe)
    rows = small.validation
    function = BankOnSharedNodes(copy.deepcopy(fit.bank), torch.zeros((1, 0), dtype=torch.int64))
    parameters = list(function.bank.parameters())
    codes, ones = torch.zeros((len(rows), 0), dtype=torch.int64), torch.ones(len(rows))
    label, group = (torch.as_tensor(column, dtype=torch.int64) for column in (rows.label, rows.field))
    values = function.at_rows(torch.as_tensor(clip_scores(rows.score)), codes)
    loss = log_loss_from_probabilities(values, ones, label.float(), recipe.tangent_below) + function.order_penalty()
    if balance:
        loss = loss + balance * balance_loss(values, ones, label.float(), group, int(group.max()) + 1)
    found = torch.autograd.grad(loss, parameters, materialize_grads=True)
    assert objective == pytest.approx(float(loss.detach()), rel=1e-5)
    assert norm == pytest.approx(sum(float(g.double().square().sum()) for g in found) ** 0.5, rel=1e-3)


def test_a_training_as_printed_has_the_papers_number_of_steps_however_few_the_rows(task):
    small = replace(task.first(6_000), share=0.01)
    assert LiteralRecipe().as_long_as_printed(small).steps == 2 * 293  # 600,000 rows in batches of 2048
    assert small.passes(2, 2048) * 3 == pytest.approx(2 * 293, abs=3)
    printed = row("MCNet-None, as printed")
    shorter = replace(printed, recipe=replace(printed.recipe, batch=200_000, hidden=(8,)))
    assert fit_task(shorter, small).trained.steps == 6
    assert LiteralRecipe(steps=7).as_long_as_printed(small).steps == 7


def test_without_its_priors_the_network_is_otherwise_the_same(task):
    small = task.first(20_000)
    on, off = (row(f"MCNet-Field, {training}").build() for training in ("with our priors", "priors off"))
    assert on.get_params() == off.get_params()
    ours, without = on._config(20), off._config(20)
    assert replace(without, priors=ours.priors) == ours
    assert without.penalties.order_in("logit", without.priors.jump) > 0.0
    quick = replace(row("MCNet-Field, priors off"), parameters={"bins": 2, "hidden": (8,), "embedding": 4})
    assert fit_task(quick, small).predict(small.test).max() < 1.0


@pytest.mark.parametrize("field", [False, True])
def test_no_monotone_function_has_a_lower_log_loss_than_isotonic_regression(task, field):
    small = task.first(8_000).validation
    best = best_monotone_log_loss(task.first(8_000), field)
    assert best < np.mean(-np.log(np.where(small.label, small.truth, 1 - small.truth)))
    label = small.label.astype(np.float64)
    rate = np.zeros(len(small))
    for value in np.unique(small.field) if field else [None]:
        chosen = np.ones(len(small), bool) if value is None else small.field == value
        rate[chosen] = IsotonicRegression().fit_transform(small.score[chosen], label[chosen])
    by_hand = -np.log(np.where(small.label, np.maximum(rate, 1e-300), 1 - rate)).mean()
    assert best == pytest.approx(by_hand)


def test_the_interval_over_rows_is_that_of_the_log_loss(task):
    one, two = (RowParts.of(p, task.test) for p in (task.test.score, task.test.truth))
    loss = [-np.log(np.where(task.test.label, p, 1 - p)) for p in (task.test.score, task.test.truth)]
    difference = loss[0] - loss[1]
    drawn = one.drawn("log_loss") - two.drawn("log_loss")
    assert drawn.mean() == pytest.approx(difference.mean(), abs=3 * difference.std() / len(difference) ** 0.5)
    assert drawn.std() == pytest.approx(difference.std() / len(difference) ** 0.5, rel=0.25)
    figures = measure(task.test.score, task.test)
    distance = one.drawn("distance") - two.drawn("distance")
    assert distance.mean() == pytest.approx(figures["distance"], rel=0.05)
    assert np.median(one.drawn("f_rce")) == pytest.approx(figures["f_rce"], rel=0.1)
    assert np.median(one.drawn("pcoc")) == pytest.approx(abs(figures["pcoc"] - 1.0), rel=0.1)


def test_a_method_of_ones_own_is_a_row_of_the_table(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from mcnet.calibrators.base import Calibrator, constant_rate\n"
        "from mcnet.calibrators.methods import add_method\n"
        "from mcnet.curves.curves import Curves\n\n\n"
        "@add_method\n"
        "class Mine(Calibrator):\n"
        '    """One rate."""\n\n'
        '    method = "mine-of-a-test"\n'
        "    complexity = 5\n\n"
        "    def _fit_curves(self, sketch):\n"
        "        return Curves.constant(constant_rate(sketch), 1)\n"
    )
    monkeypatch.setattr(registry, "_ADDED", {})
    (mine,) = own_methods(str(tmp_path / "mine.py"))
    assert (mine.name, mine.sees_field) == ("mine-of-a-test", False)
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="registers no method"):
        own_methods(str(tmp_path / "none.py"))
