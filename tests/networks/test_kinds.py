"""Every kind of monotone network: it rises by construction, follows the truth, is compiled, saved and restored."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.datasets.simulator import simulate
from mcnet.errors import InputError
from mcnet.metrics import kl_to_truth
from mcnet.networks import MonotonicCalibration
from mcnet.networks.kinds import NETWORKS, MonotoneNetwork, unused_settings
from mcnet.networks.monotone import BankShape, MonotoneBank, Ranges

SMALL = {"bins": 2, "hidden": (8, 8), "embedding": 4}
RANGES = Ranges(
    edges=np.array([-4.0, -2.5]),
    left=np.array([-7.0, -4.0, -2.5]),
    right=np.array([-4.0, -2.5, 1.0]),
    mean=np.array([-5.0, -3.2, -2.0]),
    spread=np.array([0.6, 0.4, 0.5]),
)


@pytest.fixture(scope="module")
def log():
    return simulate(8_000, rate=0.2, seed=4)


def shaken(network, start, seed, size, width=6, sizes=(3,)):
    """Return a bank whose parameters were all moved at random."""
    shape = BankShape(hidden=(width, width), embedding=3, network=network, start=start)
    bank = MonotoneBank(shape, sizes, RANGES, seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in bank.parameters():
            p += size * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return bank


@pytest.mark.parametrize("network", NETWORKS)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    size=st.sampled_from([0.0, 0.3, 3.0]),
    width=st.integers(1, 9),
    start=st.sampled_from(["identity", "random", "torch"]),
)
def test_the_slope_is_positive_and_that_of_the_value(network, seed, size, width, start):
    bank = shaken(network, start, seed, size, width)
    context = bank.embed(torch.arange(4)[:, None])
    points = torch.linspace(-12.0, 6.0, 120, dtype=torch.float64).expand(3, 1, -1)
    slope = bank.network.slope(bank._inputs(points), context)
    assert slope.shape == (3, 4, 120)
    assert (slope > 0).all()
    if bank.network.has_value:
        inputs = bank._inputs(points).requires_grad_()
        value = bank.network.value(inputs.expand(3, 4, -1), context)
        (found,) = torch.autograd.grad(value[:, 2].sum(), inputs)
        torch.testing.assert_close(found[:, 0], slope[:, 2])
        assert (value.diff(dim=-1) > 0).all()
    single = bank.float().network.slope(bank._inputs(points), context.float())
    assert (single > 0).all()


@pytest.mark.parametrize("network", NETWORKS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20), scores=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=30))
def test_a_module_never_falls_inside_a_bin(network, seed, scores):
    module = MonotonicCalibration(
        torch.linspace(0.01, 0.9, 50), (2,), network=network, start="torch", seed=seed, bins=3, hidden=(6,), embedding=3
    ).double()
    ordered = torch.as_tensor(sorted(scores), dtype=torch.float64)
    with torch.no_grad():
        p = module(ordered, torch.ones(len(ordered), dtype=torch.int64))
    same = torch.diff(module.bank.bin_of(torch.logit(ordered))) == 0
    assert (torch.diff(p)[same] >= -1e-12).all()


@pytest.mark.parametrize("network", NETWORKS)
def test_it_starts_near_the_identity(network, log):
    score = torch.as_tensor(log.score[:500])
    with torch.no_grad():
        started = MonotonicCalibration(score, network=network, **SMALL)(score)
    torch.testing.assert_close(started.double(), score, rtol=0.3 if network == "minmax" else 1e-4, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_fit_on_a_sketch_is_calibrated_rises_and_can_be_resumed(network, log, tmp_path):
    field = log.text("field")
    fitted = mcnet.MCNet(network=network, **SMALL).fit(log.score, log.label, field=field)
    p = fitted.predict(log.score, field)
    assert p.sum() == pytest.approx(log.label.sum(), rel=2e-3)
    assert kl_to_truth(p, log.probability).value < 0.5 * kl_to_truth(log.score, log.probability).value
    np.testing.assert_allclose(p, fitted.predict(log.score, field, exact=True), rtol=2e-3)
    grid = np.linspace(0.001, 0.9, 3_000)
    for value in np.unique(field):
        assert (np.diff(fitted.predict(grid, [value] * len(grid))) >= 0.0).all()
    fitted.save(tmp_path / "model.json", training_state=True)
    np.testing.assert_array_equal(mcnet.load(tmp_path / "model.json").predict(log.score, field), p)
    again = mcnet.MCNet.resume(tmp_path / "model.json")
    assert again.network == network
    exact = fitted.predict(log.score[:99], field[:99], exact=True)
    np.testing.assert_allclose(again.predict(log.score[:99], field[:99], exact=True), exact, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::mcnet.CalibrationWarning")
@pytest.mark.parametrize("variant", ["none", "field"])
@pytest.mark.parametrize("network", NETWORKS)
def test_training_on_rows_lowers_the_loss(network, variant, log):
    quick = {"steps": None} if network == "umnn" else {}
    made = mcnet.MCNet.paper(variant, network=network, learning_rate=3e-3, epochs=4, batch=256, **quick, **SMALL)
    field = log.fields["field"] if variant == "field" else None
    p = made.fit(log.score, log.label, field=field).predict(log.score, field)
    before, after = (-np.log(np.where(log.label, q, 1 - q)).mean() for q in (log.score, p))
    assert after < before


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "umnn"])
def test_a_module_without_integrals_is_exported_and_trained(network, log):
    score, value = torch.as_tensor(log.score[:300]), torch.as_tensor(log.fields["field"][:300].astype(np.int64))
    label = torch.as_tensor(log.label[:300])
    module = MonotonicCalibration(score, (int(value.max()) + 1,), network=network, start="torch", **SMALL)
    module.loss(score, value, label).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.bank.network.parameters())
    batch = torch.export.Dim("batch")
    with torch.no_grad():
        exported = torch.export.export(
            module.eval(), (score, value), dynamic_shapes={"score": {0: batch}, "context": {0: batch}}
        )
        again = exported.module()(score[:77], value[:77])
        torch.testing.assert_close(again, module(score[:77], value[:77]), rtol=1e-5, atol=1e-7)
    known = module.compile_curves().parameters
    assert (known["network"], known["start"], known["scale"], known["activation"]) == (network, "torch", True, "silu")


def test_a_fourth_kind_is_one_class_and_one_line(log, monkeypatch):
    class Line(MonotoneNetwork):
        """A straight line per bin, whose slope is exp of one number."""

        has_value = True

        def __init__(self, shape, bins, width, generator):
            super().__init__(shape, bins, width, generator)
            self.log_slope = torch.nn.Parameter(torch.zeros(bins, 1, 1))

        def start_as_identity(self):
            return 1.0

        def slope(self, inputs, context, *weights):
            return (weights[0] if weights else self.log_slope).exp().expand(-1, context.shape[1], inputs.shape[2])

        def value(self, inputs, context):
            return self.slope(inputs, context) * inputs

    monkeypatch.setitem(NETWORKS, "line", Line)
    fitted = mcnet.MCNet(network="line", **SMALL).fit(log.score, log.label, field=log.text("field"))
    p = fitted.predict(log.score, log.text("field"))
    assert p.sum() == pytest.approx(log.label.sum(), rel=2e-3)
    assert (np.diff(fitted.predict(np.linspace(0.001, 0.9, 999), ["0"] * 999)) >= 0.0).all()
    with pytest.raises(InputError, match="derivative is 'elu', but the network 'line' does not use it"):
        mcnet.MCNet(network="line", derivative="elu").fit(log.score, log.label)
    Line.uses = ("derivative",)
    assert unused_settings("line") == ("steps", "quadrature")


@pytest.mark.parametrize("setting", [{"derivative": "elu"}, {"steps": 9}, {"quadrature": "lean"}])
@pytest.mark.parametrize("network", ["lmn", "minmax"])
def test_a_module_refuses_settings_that_its_kind_does_not_use(network, setting):
    with pytest.raises(InputError, match=f"but the network '{network}' does not use it"):
        MonotonicCalibration([0.1, 0.2], network=network, **setting)
    assert MonotonicCalibration.paper("none", [0.1, 0.2], network=network).steps == 20


def test_a_kind_that_is_none_is_refused(log):
    with pytest.raises(InputError, match="network is 'lstm'; it must be one of umnn, lmn, minmax"):
        mcnet.MCNet(network="lstm").fit(log.score, log.label)
    with pytest.raises(InputError, match="network is 'lstm'; it must be one of umnn, lmn, minmax"):
        MonotonicCalibration(torch.as_tensor(log.score), network="lstm")


def test_weights_saved_before_there_were_kinds_are_still_read():
    bank, other = (shaken("umnn", "identity", seed, 0.3) for seed in (1, 2))
    old = {name.removeprefix("network."): value for name, value in bank.state_dict().items()}
    assert "score_weight" in old
    other.load_state_dict(old)
    points = torch.linspace(-8, 1, 40, dtype=torch.float64)
    codes = torch.arange(40)[:, None] % 4
    torch.testing.assert_close(*(b(points, b.bin_of(points), codes) for b in (bank, other)))
