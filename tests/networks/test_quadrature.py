import numpy as np
import pytest
import torch
from scipy import integrate as scipy_integrate
from torch import Tensor

from mcnet.networks.monotone import (
    clenshaw_curtis,
    cumulative_rule,
    integrate,
    integrate_lean,
    panel_nodes,
)


@pytest.mark.parametrize("steps", [1, 2, 5, 10, 50])
def test_weights_are_exact_for_polynomials_up_to_the_number_of_steps(steps: int) -> None:
    nodes, weights = clenshaw_curtis(steps)
    assert np.all(np.diff(nodes) > 0)
    assert np.all(weights > 0)
    for degree in range(steps + 1):
        exact = 0.0 if degree % 2 else 2.0 / (degree + 1)
        assert weights @ nodes**degree == pytest.approx(exact, abs=1e-14)


def test_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        clenshaw_curtis(0)


@pytest.mark.parametrize(("steps", "tolerance"), [(51, 1e-7), (50, 2e-5), (20, 1e-3)])
def test_weights_agree_with_umnn(steps: int, tolerance: float) -> None:
    from UMNN.NeuralIntegral import compute_cc_weights

    weights, nodes = compute_cc_weights(steps)
    ours, our_weights = clenshaw_curtis(steps)
    np.testing.assert_allclose(ours[::-1], nodes.numpy().ravel(), atol=1e-6)
    np.testing.assert_allclose(our_weights[::-1], weights.numpy().ravel(), atol=tolerance)


def bump(nodes: Tensor, height: Tensor, place: Tensor) -> Tensor:
    return height[..., None] * torch.sigmoid(2.0 * nodes - place[..., None]) + 0.1


@pytest.fixture
def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    draw = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(4)]
    draw[2] = draw[2].abs() + 0.5
    return draw[0], draw[1], draw[2], draw[3]


@pytest.mark.parametrize("rule", [integrate, integrate_lean])
def test_integral_agrees_with_scipy_for_any_limits(rule, problem) -> None:
    lower, upper, height, place = problem
    ours = rule(bump, lower, upper, (height, place), 50)
    for i in range(5):
        exact, _ = scipy_integrate.quad(
            lambda t, i=i: float(height[i]) / (1 + np.exp(-2 * t + float(place[i]))) + 0.1, lower[i], upper[i]
        )
        assert float(ours[i]) == pytest.approx(exact, abs=1e-12)


def test_lean_gradients_pass_gradcheck(problem) -> None:
    inputs = [x.clone().requires_grad_() for x in problem]
    assert torch.autograd.gradcheck(lambda *x: integrate_lean(bump, x[0], x[1], x[2:], 40, 7), inputs)


def test_lean_gradients_equal_those_of_plain_autograd(problem) -> None:
    found = []
    for rule in (integrate, integrate_lean):
        inputs = [x.clone().requires_grad_() for x in problem]
        rule(bump, inputs[0], inputs[1], inputs[2:], 50).square().sum().backward()
        found.append([x.grad for x in inputs])
    for plain, lean in zip(*found, strict=True):
        torch.testing.assert_close(plain, lean, rtol=1e-9, atol=1e-10)


def test_value_and_gradients_agree_with_umnn_from_zero() -> None:
    from UMNN import ParallelNeuralIntegral

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.sigmoid(self.layers(torch.cat([x, h], dim=1)))

    torch.manual_seed(0)
    net, upper, h = Net(), torch.randn(6, 1), torch.randn(6, 2)
    parameters = list(net.parameters())
    flat = torch.cat([p.reshape(-1) for p in parameters])
    theirs = ParallelNeuralIntegral.apply(torch.zeros(6, 1), upper, net, flat, h, 50)
    theirs.sum().backward()
    expected = [p.grad.clone() for p in parameters if p.grad is not None]

    def ours(nodes: Tensor, *_: Tensor) -> Tensor:
        x = nodes.reshape(-1, 1)
        return net(x, h.repeat_interleave(nodes.shape[-1], 0)).reshape(nodes.shape)

    value = integrate_lean(ours, torch.zeros(6), upper[:, 0], (), 50)
    torch.testing.assert_close(value, theirs[:, 0], rtol=0, atol=2e-5)
    net.zero_grad()
    integrate(ours, torch.zeros(6), upper[:, 0], (), 50).sum().backward()
    for p, e in zip(parameters, expected, strict=False):
        torch.testing.assert_close(p.grad, e, rtol=1e-3, atol=2e-5)


def test_cumulative_rule_agrees_with_scipy_and_with_clenshaw_curtis() -> None:
    edges = np.array([-1.0, 0.3, 2.0])
    points = np.linspace(-1, 2, 23)
    values = np.exp(-np.sin(3 * panel_nodes(edges, 24)))
    shared = cumulative_rule(points, edges, 24) @ values
    exact = [scipy_integrate.quad(lambda t: np.exp(-np.sin(3 * t)), -1, x)[0] for x in points]
    np.testing.assert_allclose(shared, exact, atol=1e-9)
    upper = torch.as_tensor(points)
    plain = integrate(lambda t: torch.exp(-torch.sin(3 * t)), torch.full_like(upper, -1.0), upper, (), 50)
    np.testing.assert_allclose(shared, plain.numpy(), atol=1e-9)


def test_cumulative_rule_continues_flat_beyond_its_ends_and_survives_empty_panels() -> None:
    edges = np.array([0.0, 0.0, 1.0])
    rule = cumulative_rule(np.array([-1.0, 0.0, 1.0, 3.0]), edges, 5)
    values = 2.0 + panel_nodes(edges, 5)
    np.testing.assert_allclose(rule @ values, [-2.0, 0.0, 2.5, 8.5], atol=1e-12)
