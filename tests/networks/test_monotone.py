import numpy as np
import pytest
import torch

from mcnet.errors import InputError
from mcnet.networks.monotone import BankShape, MonotoneBank, Ranges

RANGES = Ranges(
    edges=np.array([-4.0, -2.5]),
    left=np.array([-7.0, -4.0, -2.5]),
    right=np.array([-4.0, -2.5, 1.0]),
    mean=np.array([-5.0, -3.2, -2.0]),
    spread=np.array([0.6, 0.4, 0.5]),
)
SMALL = {"hidden": (8, 8), "embedding": 5}


def shaken(shape: BankShape, sizes: tuple[int, ...] = (3,), scale: float = 1.0) -> MonotoneBank:
    bank = MonotoneBank(shape, sizes, RANGES, seed=1).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in bank.parameters():
            p += scale * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return bank


@pytest.mark.parametrize("positive", ["sigmoid", "softplus", "elu"])
@pytest.mark.parametrize("lower", ["zero", "edge", "centre"])
@pytest.mark.parametrize("activation", ["silu", "tanh", "relu"])
def test_jacobian_is_strictly_positive_everywhere(positive, lower, activation) -> None:
    shape = BankShape(**SMALL, positive=positive, lower=lower, activation=activation)
    bank = shaken(shape)
    for p in bank.network.derivative_weights:
        p.data *= 3.0  # saturate some units
    points = torch.linspace(-16, 16, 200, dtype=torch.float64, requires_grad=True)
    codes = torch.arange(200)[:, None] % 4
    for lean in (False, True):
        values = bank(points, bank.bin_of(points.detach()), codes, 30, lean)
        (slope,) = torch.autograd.grad(values.sum(), points)
        assert torch.isfinite(values).all()
        if lean:  # Leibniz: the slope is the integrand itself
            assert (slope > 0).all()
    context = bank.embed(torch.arange(4)[:, None])
    grid = torch.linspace(-20, 20, 300, dtype=torch.float64).expand(3, 1, -1)
    assert (bank.derivative(grid, context) > 0).all()
    assert (bank.float().derivative(grid, context.float()) > 0).all()


@pytest.mark.parametrize("positive", ["sigmoid", "softplus", "elu"])
@pytest.mark.parametrize("lower", ["zero", "edge", "centre"])
def test_starts_as_the_identity(positive, lower) -> None:
    bank = MonotoneBank(BankShape(**SMALL, positive=positive, lower=lower), (3,), RANGES)
    points = torch.linspace(-9, 3, 50, dtype=torch.float64)
    values = bank(points, bank.bin_of(points), torch.zeros(50, 1, dtype=torch.long))
    torch.testing.assert_close(values.double(), points, rtol=1e-5, atol=1e-5)


def test_only_without_a_scale_is_the_slope_bounded_by_one() -> None:
    bank = MonotoneBank(BankShape(**SMALL, scale=False, direct=False), (3,), RANGES)
    points = torch.tensor([-3.9, -2.6], dtype=torch.float64)
    low, high = bank(points, bank.bin_of(points), torch.zeros(2, 1, dtype=torch.long)).tolist()
    assert 0.5 < (high - low) / 1.3 < 1.0
    with pytest.raises(InputError, match="direct"):
        MonotoneBank(BankShape(**SMALL, scale=False), (3,), RANGES)


@pytest.mark.parametrize("lower", ["zero", "edge", "centre"])
@pytest.mark.parametrize("share_embedding", [False, True])
@pytest.mark.parametrize("combine", ["sum", "concat"])
def test_shared_integrals_equal_a_quadrature_a_row(lower, share_embedding, combine) -> None:
    shape = BankShape(**SMALL, lower=lower, share_embedding=share_embedding, combine=combine)
    bank = shaken(shape, (3, 2), 0.3)
    random = np.random.default_rng(0)
    points = random.uniform(-9, 2, 60)
    codes = torch.as_tensor(np.stack([random.integers(0, 4, 60), random.integers(0, 3, 60)], axis=1))
    bins = bank.bin_of(torch.as_tensor(points))
    expected = bank(torch.as_tensor(points), bins, codes, 400)
    context = bank.embed(codes)
    bias = bank.offset_and_scale(codes, context)
    derivative = bank.derivative(bank.nodes(32)[:, None, :], context)
    rule = torch.as_tensor(bank.rule(32)(points, bins.numpy()))
    at = (bins, torch.arange(60))
    area = (rule * derivative[at]).sum(-1)
    found = bank.origin[bins] + bias[at][:, 0] + bias[at][:, 1].exp() * area
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)


def test_lean_rows_have_the_same_values_and_gradients() -> None:
    bank = shaken(BankShape(**SMALL), scale=0.3)
    points = torch.linspace(-8, 1, 40, dtype=torch.float64)
    codes = torch.arange(40)[:, None] % 4
    found = []
    for lean in (False, True):
        bank.zero_grad()
        values = bank(points, bank.bin_of(points), codes, 60, lean)
        values.square().sum().backward()
        found.append((values.detach(), [p.grad.clone() for p in bank.parameters()]))
    torch.testing.assert_close(found[0][0], found[1][0])
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
