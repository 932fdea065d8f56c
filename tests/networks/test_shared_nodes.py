"""Nodes shared by the rows of a bin give the values and gradients of one quadrature per row."""

import dataclasses

import numpy as np
import pytest
import torch

from mcnet.networks.bank import BankOnRows, BankOnSharedNodes, fit_bank_on_rows, paper_config, place_bins
from mcnet.networks.monotone import MonotoneBank
from mcnet.networks.objective import Penalties, log_loss_from_probabilities
from mcnet.networks.training import RowSchedule


def shaken(field: bool, **shape: object) -> tuple[MonotoneBank, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A bank away from its start, points in the units of its space, codes and labels of 2,048 rows."""
    config, _ = paper_config(field)
    config = dataclasses.replace(config, shape=dataclasses.replace(config.shape, hidden=(32, 32), **shape))
    random = np.random.default_rng(0)
    logit = random.normal(-4.0, 1.0, 2048)
    points = logit if config.shape.space == "logit" else 1.0 / (1.0 + np.exp(-logit))
    label = (random.random(2048) < 1.0 / (1.0 + np.exp(-logit))).astype(np.float64)
    bank = MonotoneBank(config.shape, (4,) if field else (), place_bins(points, np.ones(2048), label, config))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in bank.parameters():
            parameter += 0.003 * torch.randn(parameter.shape, generator=generator)
    codes = torch.as_tensor(random.integers(0, 4, 2048))[:, None][:, : 1 if field else 0]
    return bank, torch.as_tensor(points), codes, torch.as_tensor(label, dtype=torch.float32)


def contexts_of(field: bool) -> torch.Tensor:
    return torch.arange(4)[:, None] if field else torch.zeros((1, 0), dtype=torch.int64)


@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("start", ["identity", "random", "torch"])
def test_values_penalty_and_gradients_are_those_of_one_quadrature_per_row(field: bool, start: str) -> None:
    bank, points, codes, label = shaken(field, start=start)
    found = []
    for function in (BankOnRows(bank, contexts_of(field), 50), BankOnSharedNodes(bank, contexts_of(field))):
        bank.zero_grad()
        values, penalty = function.at_rows(points, codes), function.order_penalty()
        (log_loss_from_probabilities(values, torch.ones(len(values)), label) + penalty).backward()
        gradient = torch.cat([p.grad.flatten() for p in bank.parameters() if p.grad is not None])
        found.append((values.detach(), penalty.detach(), gradient))
    (values, penalty, gradient), (shared, shared_penalty, shared_gradient) = found
    scale = float(values.abs().max())
    torch.testing.assert_close(shared, values, rtol=0, atol=2e-5 * scale)
    torch.testing.assert_close(shared_penalty, penalty, rtol=1e-3, atol=1e-5 * scale)
    assert float((shared_gradient - gradient).norm() / gradient.norm()) < 1e-3


def test_codes_that_are_no_context_are_evaluated_too() -> None:
    bank, points, codes, _ = shaken(True, space="logit", lower="centre", activation="silu")
    unseen = torch.where(torch.arange(len(codes))[:, None] % 3 == 0, 4, codes)
    each, shared = BankOnRows(bank, contexts_of(True), 50), BankOnSharedNodes(bank, contexts_of(True))
    torch.testing.assert_close(shared.at_rows(points, unseen), each.at_rows(points, unseen), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared.order_penalty(), each.order_penalty(), rtol=1e-3, atol=1e-5)


def test_the_penalty_of_a_step_is_that_of_its_parameters() -> None:
    bank, points, codes, _ = shaken(False)
    function = BankOnSharedNodes(bank, contexts_of(False))
    function.at_rows(points, codes)
    first = function.order_penalty().detach()
    with torch.no_grad():
        bank.bias_weights[-1][:, :, 0] += torch.linspace(0.1, 0.0, bank.bins)[:, None]
    assert float(function.order_penalty().detach()) > float(first) + 0.05


def test_training_on_shared_nodes_ends_where_one_quadrature_per_row_does() -> None:
    random = np.random.default_rng(3)
    logit = random.normal(-3.0, 1.0, 4000)
    label = (random.random(4000) < 1.0 / (1.0 + np.exp(0.5 - logit))).astype(np.float64)
    config, _ = paper_config(field=False)
    # Without the order penalty, whose kinks would let roundings grow.
    shape = dataclasses.replace(config.shape, hidden=(16, 16))
    config = dataclasses.replace(config, bins=4, shape=shape, penalties=Penalties(order=0.0))
    schedule = RowSchedule(epochs=2, batch=500, rate=1e-3)
    fits = [
        fit_bank_on_rows(logit, label, config=config, schedule=schedule, steps=steps).predict(logit)
        for steps in (50, None)
    ]
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-3)


def test_after_every_epoch_the_fit_can_be_seen() -> None:
    random = np.random.default_rng(3)
    logit = random.normal(-3.0, 1.0, 2000)
    label = (random.random(2000) < 0.1).astype(np.float64)
    config, _ = paper_config(field=False)
    config = dataclasses.replace(config, bins=2, shape=dataclasses.replace(config.shape, hidden=(8, 8)))
    seen = {}
    fit = fit_bank_on_rows(
        logit,
        label,
        config=config,
        schedule=RowSchedule(epochs=3, batch=500, rate=1e-3),
        steps=None,
        after_epoch=lambda epoch, now: seen.update({epoch: (now.descent.steps, now.predict(logit[:9]))}),
    )
    assert [steps for steps, _ in seen.values()] == [4, 8, 12]
    np.testing.assert_array_equal(seen[3][1], fit.predict(logit[:9]))
