"""Lines in torch, AdaCalib, training on rows and the auxiliary network."""

import json

import numpy as np
import pytest
import torch
from scipy.special import expit

from mcnet.calibrators.training_state import TrainingState
from mcnet.errors import InputError
from mcnet.networks.adaptive import AdaptiveConfig, AdaptiveFit, fit_adaptive, restore_adaptive
from mcnet.networks.bank import (
    BankConfig,
    BankOnRows,
    LineFunction,
    fit_bank,
    fit_bank_on_rows,
    interpolate,
    paper_config,
)
from mcnet.networks.baselines import LinePlot, LinePlotProblem, fit_line_plot
from mcnet.networks.monotone import BankShape
from mcnet.networks.optimise import Schedule
from mcnet.networks.training import AuxiliaryNetwork, RowSchedule, fit_with_auxiliary
from mcnet.networks.training_points import TrainingCells

SMALL = BankShape(hidden=(16, 16), embedding=8)


def one_line(cells: TrainingCells) -> LinePlot:
    problem = LinePlotProblem(cells.logit, cells.weight, cells.positives, cells.context, len(cells.codes))
    return fit_line_plot(problem, 20)


def test_interpolation_is_that_of_numpy_inside_and_straight_outside() -> None:
    knots, values = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.0, 2.0, 3.0])
    points = torch.tensor([-1.0, 0.5, 1.0, 2.0, 5.0])
    assert interpolate(knots, values, points).tolist() == [-2.0, 1.0, 2.0, 2.5, 4.0]


@pytest.fixture(scope="module")
def adaptive(cells: TrainingCells) -> AdaptiveFit:
    return fit_adaptive(cells, AdaptiveConfig(hidden=32, schedule=Schedule(steps=120, peak=2e-2, cycles=2)))


def test_adaptive_functions_beat_one_line_for_all(adaptive: AdaptiveFit, cells: TrainingCells, log) -> None:
    test, value, _ = log.draw(50_000, 9)
    truth = log.truth(test, value)
    assert (
        log.divergence(truth, adaptive.predict(test, value)) < log.divergence(truth, one_line(cells).predict(test)) / 5
    )
    assert set(adaptive.choices()) <= {5, 10, 20}


def test_adaptive_functions_have_the_positives_of_their_own_rows(adaptive: AdaptiveFit, cells: TrainingCells) -> None:
    # The pooled curve, which no row of a known value gets, does not make up for what the others miss.
    own = adaptive.predict(cells.logit, cells.codes[cells.context])
    assert (own * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=1e-5)


def test_adaptive_choice_of_bins_receives_a_gradient(adaptive: AdaptiveFit) -> None:
    last = adaptive.function.choice_layers[2]
    assert float(last.detach().abs().max()) > 0


def test_adaptive_fit_survives_storage_and_pools_unseen_values(adaptive: AdaptiveFit, cells: TrainingCells) -> None:
    arrays, about = adaptive.state()
    again = restore_adaptive(TrainingState(arrays, json.loads(json.dumps(about))))
    codes = np.arange(len(cells.logit)) % 6 - 1
    np.testing.assert_allclose(again.predict(cells.logit, codes), adaptive.predict(cells.logit, codes), rtol=1e-12)
    pooled = adaptive.predict(cells.logit, np.full(len(cells.logit), 77))
    assert (pooled * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=0.1)


def test_adaptive_functions_need_no_field(cells: TrainingCells) -> None:
    plain = TrainingCells.of(cells.logit, cells.weight, cells.positives)
    fit = fit_adaptive(plain, AdaptiveConfig(hidden=8, schedule=Schedule(steps=60, peak=2e-2, cycles=1)))
    assert (fit.predict(cells.logit) * cells.weight).sum() == pytest.approx(cells.positives.sum(), rel=0.05)


def test_literal_training_lowers_the_loss_on_held_out_rows(log) -> None:
    logit, value, label = log.draw(6000)
    config, schedule = paper_config(field=True)
    assert (config.bins, schedule.batch, schedule.rate, config.penalties.order) == (20, 2048, 1e-4, 1.0)
    small = BankShape(**{**config.shape.__dict__, "hidden": (8, 8), "embedding": 4})
    config = BankConfig(**{**config.__dict__, "shape": small, "bins": 4})
    schedule = RowSchedule(epochs=4, batch=256, rate=1e-3, held_out=0.2, unseen=0.05)
    for lean in (False, True):
        fit = fit_bank_on_rows(logit, label, value, (4,), None, config, schedule, 20, lean)
        p = fit.predict(logit, value)
        before, after = (-(label * np.log(q) + (1 - label) * np.log1p(-q)).mean() for q in (expit(logit), p))
        assert after < before
    again = fit_bank_on_rows(logit, label, value, (4,), None, config, schedule, 20, lean, warm=fit)
    assert again.bank is not fit.bank


def test_rows_and_cells_train_the_same_model(log) -> None:
    logit, value, label = log.draw(4000)
    config = BankConfig(bins=3, shape=SMALL, schedule=Schedule(steps=20, cycles=1))
    fit = fit_bank(log.summarise(logit, value, label), config)
    rows = BankOnRows(fit.bank, torch.arange(4)[:, None])
    with torch.no_grad():
        values = rows.at_rows(torch.as_tensor(logit), torch.as_tensor(value)[:, None])
    np.testing.assert_allclose(expit(values.numpy()), fit.predict(logit, value), rtol=1e-4)


@pytest.mark.parametrize("kind", ["bank", "lines", "adaptive"])
def test_auxiliary_network_learns_what_the_score_does_not_know(kind: str, log) -> None:
    logit, value, _ = log.draw(8000)
    random = np.random.default_rng(1)
    numbers, categories = random.normal(size=(8000, 2)), random.integers(0, 3, (8000, 1))
    chance = expit(logit + 2.5 + 1.5 * numbers[:, 0] + np.array([-1, 0, 1])[categories[:, 0]])
    label = (random.random(8000) < chance).astype(float)
    cells = log.summarise(logit, value, label)
    schedule = Schedule(steps=20, cycles=1)
    if kind == "bank":
        fit = fit_bank(cells, BankConfig(bins=2, shape=SMALL, schedule=schedule))
        function = BankOnRows(fit.bank, torch.arange(4)[:, None], steps=10)
    elif kind == "lines":
        function = LineFunction(one_line(cells).knots)
    else:
        function = fit_adaptive(cells, AdaptiveConfig(candidates=(2, 4), hidden=8, schedule=schedule)).function
    codes = value[:, None]
    rows = RowSchedule(epochs=6, batch=512, rate=5e-3, held_out=0.1)
    fit = fit_with_auxiliary(
        function, logit, label, codes, (4,), numbers, categories, (3,), hidden=(16, 16), schedule=rows
    )
    p = fit.predict(logit, codes, numbers, categories)
    assert np.corrcoef(p, chance)[0, 1] > 0.9
    assert all(torch.isfinite(t).all() for t in (*fit.function.parameters(), *fit.auxiliary.parameters()))
    unknown = fit.predict(logit[:5], codes[:5], numbers[:5], np.full((5, 1), 9))
    assert ((unknown > 0) & (unknown < 1)).all()


def test_auxiliary_network_starts_at_zero_and_needs_logits() -> None:
    network = AuxiliaryNetwork(np.zeros(3), np.ones(3), (4,))
    assert (network(torch.randn(5, 3), torch.zeros(5, 1, dtype=torch.long)) == 0).all()
    cells = TrainingCells.of(np.array([-3.0, -2.0, -1.0]), np.full(3, 1000.0), np.array([50.0, 100, 250]))
    config = BankConfig(
        bins=1, shape=BankShape(hidden=(4, 4), space="probability"), schedule=Schedule(steps=2, cycles=1)
    )
    function = BankOnRows(fit_bank(cells, config).bank, torch.empty(1, 0, dtype=torch.long))
    with pytest.raises(InputError, match="logit space"):
        fit_with_auxiliary(function, cells.logit, np.ones(3), np.empty((3, 0), dtype=int), ())
