import math

import pytest
import torch

from mcnet.networks.objective import (
    balance_loss,
    log_loss_from_logits,
    log_loss_from_probabilities,
    order_loss,
)


def test_log_loss_of_two_cells_by_hand() -> None:
    weight, positives = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0])
    p = torch.tensor([0.2, 0.6])
    expected = -(math.log(0.2) + 2 * math.log(0.8) + math.log(0.6)) / 4
    assert float(log_loss_from_probabilities(p, weight, positives)) == pytest.approx(expected, rel=1e-6)
    assert float(log_loss_from_logits(torch.logit(p), weight, positives)) == pytest.approx(expected, rel=1e-6)


def test_log_loss_goes_on_as_a_tangent_outside_the_unit_interval() -> None:
    p = torch.tensor([-0.5], requires_grad=True)
    loss = log_loss_from_probabilities(p, torch.ones(1), torch.ones(1), least=0.1)
    assert loss.item() == pytest.approx(-(math.log(0.1) + (-0.5 - 0.1) / 0.1), rel=1e-5)
    loss.backward()
    assert float(p.grad) == pytest.approx(-10.0, rel=1e-5)
    above = torch.tensor([1.5], requires_grad=True)
    log_loss_from_probabilities(above, torch.ones(1), torch.zeros(1), least=0.1).backward()
    assert float(above.grad) == pytest.approx(10.0, rel=1e-5)


@pytest.mark.parametrize(("inside", "outside", "label"), [(0.0, -3.0, 0.0), (1.0, 4.0, 1.0)])
def test_nothing_is_gained_by_leaving_the_unit_interval(inside: float, outside: float, label: float) -> None:
    losses = [
        log_loss_from_probabilities(torch.tensor([p]), torch.ones(1), torch.tensor([label])) for p in (inside, outside)
    ]
    assert losses[0] == losses[1] == 0.0


def test_order_loss_counts_only_falls_between_bins() -> None:
    ends, starts = torch.tensor([0.5, 0.2, 0.9]), torch.tensor([0.3, 0.4, 0.8])
    assert float(order_loss(ends, starts)) == pytest.approx(0.3)
    assert float(order_loss(ends, starts, rounding=0.1)) == pytest.approx((0.2 - 0.05) + 0.1**2 / 0.2)


def test_balance_loss_by_hand_in_both_variants() -> None:
    p, y = torch.tensor([0.5, 0.5, 0.1, 0.3]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    group, weight = torch.tensor([0, 0, 0, 1]), torch.ones(4)
    # Excess: 0.1 over three rows of value 0, −0.7 over one row of value 1.
    a, b = 0.1 / 4, -0.7 / 4
    assert float(balance_loss(p, weight, y, group, 2)) == pytest.approx(abs(a - b) / 2, rel=1e-5)
    a, b = 0.1 / 3, -0.7
    assert float(balance_loss(p, weight, y, group, 2, "field")) == pytest.approx(abs(a - b) / 2, rel=1e-5)


def test_balance_loss_counts_absent_values_only_in_the_global_variant() -> None:
    p, y = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 0.0])
    group, weight = torch.tensor([0, 1]), torch.ones(2)
    assert float(balance_loss(p, weight, y, group, 3, "field")) == pytest.approx(0.0, abs=1e-5)
    assert float(balance_loss(p, weight, y, group, 3)) == pytest.approx(math.sqrt(2 / 9) * 0.25, rel=1e-4)


def test_balance_loss_of_one_value_is_zero_and_its_gradient_finite() -> None:
    p = torch.tensor([0.5, 0.2], requires_grad=True)
    assert float(balance_loss(p, torch.ones(2), torch.zeros(2), torch.zeros(2, dtype=torch.long), 1)) == 0.0
    balance_loss(p, torch.ones(2), p.detach(), torch.tensor([0, 1]), 2).backward()
    assert torch.isfinite(p.grad).all()
