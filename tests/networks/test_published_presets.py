"""MCNet's presets of the paper: what they honour, what they refuse, and what they warn of."""

import warnings

import numpy as np
import pytest
import torch

import mcnet
from mcnet import CalibrationWarning, InputError, MCNet, NotSupportedError
from mcnet.datasets.simulator import simulate

pytestmark = pytest.mark.networks

SMALL = {"bins": 3, "hidden": (8, 8), "embedding": 4, "steps": 6}


@pytest.fixture(scope="module")
def log():
    return simulate(6_000, rate=0.2, seed=2)


def literal(variant, **changes):
    return MCNet.paper(variant, **(SMALL | {"learning_rate": 1e-3} | changes))


def fit(calibrator, log, field=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(log.score, log.label, field=field)


def test_mcnet_none_is_one_curve_and_says_that_it_pools_a_field(log):
    with pytest.warns(CalibrationWarning, match="mcnet does not use the field field: its values are pooled"):
        pooled = literal("none").fit(log.score, log.label, field=log.text("field"))
    assert pooled.model_.fields == ()
    np.testing.assert_allclose(pooled.predict(log.score), fit(literal("none"), log).predict(log.score), rtol=1e-4)


def test_mcnet_field_without_a_field_says_that_it_is_mcnet_none(log):
    with pytest.warns(CalibrationWarning, match="there is no field, so this is MCNet-None"):
        literal("field").fit(log.score, log.label)


@pytest.mark.parametrize("made", [mcnet.MCNet, mcnet.NeuCalib, mcnet.AdaCalib, mcnet.BayesMCNet])
def test_a_balance_term_without_a_field_is_refused(log, made):
    with pytest.raises(NotSupportedError, match="alpha_balance > 0 compares field values"):
        made(alpha_balance=1.0).fit(log.score, log.label)


def test_the_preset_with_a_balance_term_needs_a_field_and_is_one_curve(log):
    with pytest.raises(NotSupportedError, match="alpha_balance > 0 compares field values"):
        literal("none", alpha_balance=1.0).fit(log.score, log.label)
    field = log.text("field")
    balanced = fit(literal("none", alpha_balance=50.0, balance="field", epochs=6), log, field)
    assert balanced.model_.fields == ()
    assert balanced.model_.balanced_by == ("field",)
    np.testing.assert_array_equal(balanced.predict(log.score, field), balanced.predict(log.score))
    plain = fit(literal("none", epochs=6), log)
    assert spread(log, balanced) < spread(log, plain)


@pytest.mark.parametrize("balance", ["global", "field"])
def test_one_curve_trained_on_a_sketch_balances_field_values(log, balance):
    given = {"bins": 3, "hidden": (8, 8), "embedding": 4, "field_aware": False}
    plain = fit(MCNet(**given), log)
    faint = fit(MCNet(**given, alpha_balance=1e-9, balance=balance), log, log.text("field"))
    usual = np.quantile(log.score, np.linspace(0.02, 0.98, 49))
    np.testing.assert_allclose(faint.predict(usual), plain.predict(usual), rtol=0.05)
    strong = fit(MCNet(**given, alpha_balance=30.0, balance=balance), log, log.text("field"))
    assert strong.model_.fields == ()
    assert strong.bins_ == 3
    assert spread(log, strong, balance) < spread(log, faint, balance)
    order = np.sort(log.score)
    assert (np.diff(strong.predict(order)) >= 0.0).all()


def spread(log, fitted, balance="field"):
    codes, p = log.fields["field"], fitted.predict(log.score)
    excess = np.bincount(codes, weights=p - log.label)
    return float((excess / (np.bincount(codes) if balance == "field" else len(codes))).std())


def test_a_literal_fit_that_is_worse_than_the_scores_says_so(log):
    calibrated = log.probability
    with pytest.warns(CalibrationWarning, match="worse than that of the base scores"):
        literal("none", learning_rate=0.05, epochs=1, batch=500).fit(calibrated, log.label)


def test_a_literal_fit_whose_probabilities_are_clipped_says_so(log):
    with pytest.warns(CalibrationWarning) as caught:
        literal("none", learning_rate=0.3, epochs=2, batch=500).fit(log.score**2, log.score > 0.6)
    assert any("the function left (0, 1) for" in str(warning.message) for warning in caught)


ON_ROWS = {"training": "rows", "field_aware": False}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"hidden": ()}, "hidden is \\(\\); it has the width of each hidden layer"),
        ({"hidden": 8}, "hidden is 8; it has the width"),
        ({"hidden": (8, 0)}, "hidden\\[1\\] is 0; it must be a whole number above 0"),
        ({"learning_rate": -1}, "learning_rate is -1; it must be a number > 0"),
        ({"learning_rate": 0}, "learning_rate is 0; it must be a number > 0"),
        ({"learning_rate": "x"}, "learning_rate is 'x'; it must be a number > 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be a number > 0"),
        ({"weight_decay": -1}, "weight_decay is -1; it must be a number ≥ 0"),
        ({"weight_decay": None}, "weight_decay is None; it must be a number ≥ 0"),
        ({"progress": 3}, r"progress is 3; it must be a function of \(steps done, steps, loss\)"),
        ({"scale": False}, "scale=False leaves out the scale of each bin"),
        ({"start": "warm"}, "start is 'warm'; it must be one of identity, random, torch"),
        ({"activation": "gelu"}, "activation is 'gelu'; it must be one of silu, tanh, relu"),
        (
            {"quadrature": "lean"},
            "quadrature is 'lean', but it counts only with training='rows'; leave quadrature at 'plain'",
        ),
        ({"epochs": 3}, "epochs is 3, but it counts only with training='rows'; leave epochs at 2"),
        ({"batch": 64}, "batch is 64, but it counts only"),
        ({"learning_rate": 0.1}, "learning_rate is 0.1, but it counts only"),
        ({"weight_decay": 0.1}, "weight_decay is 0.1, but it counts only"),
        ({"steps": None}, "steps is None, but it counts only"),
        ({"network": "lmn", "derivative": "elu"}, "derivative is 'elu', but the network 'lmn' does not use it"),
        ({"network": "minmax", "steps": 9, **ON_ROWS}, "steps is 9, but the network 'minmax' does not use it"),
        ({"steps": None, "quadrature": "lean", **ON_ROWS}, "it needs a number of steps"),
        ({"scale": "yes"}, "scale is 'yes'; it must be True or False"),
        ({"field_aware": None}, "field_aware is None; it must be True or False"),
        ({"seed": 0.5}, "seed is 0.5; it must be a whole number"),
        ({"device": "abacus"}, "device is 'abacus'; it must be 'cpu' or 'cuda'"),
        ({"alpha_balance": "x"}, "alpha_balance is 'x'; it must be a number ≥ 0"),
        ({"steps": 0}, "steps is 0; it must be a whole number above 0"),
        ({"embedding": 0}, "embedding is 0; it must be a whole number above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(log, setting, message):
    with pytest.raises(InputError, match=message):
        MCNet(**setting).fit(log.score, log.label)


def test_scale_can_be_left_out_on_rows(log):
    fitted = fit(literal("none", scale=False, epochs=1), log)
    assert np.isfinite(fitted.predict(log.score)).all()


@pytest.mark.parametrize("variant", ["none", "field"])
def test_rows_that_share_their_nodes_are_trained_alike(log, variant):
    field = log.text("field") if variant == "field" else None
    slow, quick = (fit(literal(variant, steps=steps, epochs=1), log, field) for steps in (50, None))
    np.testing.assert_allclose(quick.predict(log.score, field), slow.predict(log.score, field), rtol=1e-3)
    assert quick.get_params()["steps"] is None


def test_the_gradient_can_be_integrated_and_is_the_same(log):
    plain, lean = (fit(literal("none", quadrature=kind, epochs=1), log) for kind in ("plain", "lean"))
    np.testing.assert_allclose(lean.predict(log.score), plain.predict(log.score), rtol=1e-4)


def test_the_start_of_torch_is_that_of_its_layers(log):
    made = literal("none", start="torch", epochs=1, learning_rate=1e-12, hidden=(64, 64), embedding=128, bins=20)
    bank = fit(made, log).network_.bank
    first = bank.network.score_weight.detach().abs()
    assert 0.9 * 129**-0.5 < float(first.max()) <= 129**-0.5  # one score beside an embedding of 128
    for layers, inputs in ((bank.network.derivative_weights, 129), (bank.bias_weights, 128)):
        for index, into in ((1, inputs), (2, 64), (3, 64), (4, 64), (5, 64)):
            largest = float(layers[index].detach().abs().max())
            assert 0.5 * into**-0.5 < largest <= into**-0.5, index
    offset, scale = bank.bias(bank.embed(bank.edges.new_zeros(1, 0).long()))[:, 0].detach().unbind(-1)
    assert (offset.abs() > 0).all()
    assert (scale.abs() > 0).all()
    other = fit(made.set_params(seed=1), log).network_.bank
    assert not np.array_equal(other.bias_weights[1].detach(), bank.bias_weights[1].detach())


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_the_activation_is_relu_on_rows_and_silu_on_a_sketch_unless_chosen(log, activation):
    on_rows = fit(literal("none", activation=activation, epochs=1), log)
    on_sketch = fit(MCNet(bins=2, hidden=(4, 4), embedding=2, activation=activation), log)
    assert on_rows.network_.bank.shape.activation == (activation or "relu")
    assert on_sketch.network_.bank.shape.activation == (activation or "silu")


def test_a_score_on_an_edge_is_in_the_bin_that_training_put_it_in(log):
    fitted = fit(literal("none", bins=20, epochs=6, learning_rate=1e-3), log)
    edges = fitted.network_.bank.edges.numpy()
    below = np.nextafter(edges, 0.0)
    for scores, place in ((edges, np.arange(1, len(edges) + 1)), (below, np.arange(len(edges)))):
        exact = fitted.predict(scores, exact=True)
        bank = fitted.network_.bank
        expected = bank(torch.as_tensor(scores), torch.as_tensor(place), torch.zeros(len(scores), 0, dtype=torch.long))
        np.testing.assert_allclose(exact, expected.detach().numpy(), rtol=1e-5)
    jumps = np.abs(fitted.predict(edges, exact=True) - fitted.predict(below, exact=True))
    assert (jumps > 1e-6).any()  # the two sides of an edge are different functions
    np.testing.assert_allclose(fitted.predict(edges), fitted.predict(edges, exact=True), rtol=1e-4)


def test_rows_are_needed_for_training_on_rows(log):
    with pytest.raises(NotSupportedError, match="needs the rows themselves"):
        MCNet.paper("field").fit_sketch(mcnet.Sketch.from_rows(log.score, log.label))
    with pytest.raises(InputError, match="it must be 'none' or 'field'"):
        MCNet.paper("both")


def test_the_presets_are_cloned_changed_and_fitted_on_a_sketch(log):
    from sklearn.base import clone

    copy = clone(MCNet.paper("field", epochs=3))
    assert copy.get_params() == MCNet.paper("field", epochs=3).get_params()
    other = MCNet.paper("none", training="sketch", bins=2, hidden=(4,), embedding=2)
    with pytest.raises(InputError, match="epochs is 3, but"):
        copy.set_params(training="sketch").fit(log.score, log.label)
    assert np.isfinite(other.fit(log.score, log.label).predict([0.1])).all()
