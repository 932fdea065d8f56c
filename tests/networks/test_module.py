"""MCNet as a module: in anybody's loop, exported, compiled to a served model."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import mcnet
from mcnet.errors import InputError
from mcnet.export.sql import export_sql
from mcnet.networks import MonotonicCalibration
from mcnet.networks.bank import fit_bank_on_rows, paper_config
from mcnet.networks.objective import balance_loss
from mcnet.networks.training import Rows

SMALL = {"bins": 4, "hidden": (8, 8), "embedding": 4}


def rows(log, count=4_000, seed=1):
    logit, value, label = log.draw(count, seed)
    return torch.as_tensor(1 / (1 + np.exp(-logit))), torch.as_tensor(value), torch.as_tensor(label)


def train(module, score, value, label, epochs, rate=1e-2):
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(epochs):
        optimiser.zero_grad()
        module.loss(score, value, label).backward()
        optimiser.step()


def test_it_starts_as_the_identity_or_at_random(log):
    score, value, _ = rows(log)
    with torch.no_grad():
        same = MonotonicCalibration(score, (4,), **SMALL)(score, value)
        other = MonotonicCalibration(score, (4,), start="random", **SMALL)(score, value)
    torch.testing.assert_close(same.double(), score, rtol=1e-4, atol=1e-6)
    assert (other - same).abs().max() > 0.01


@pytest.mark.parametrize("space", ["logit", "probability"])
def test_lean_and_plain_quadrature_have_the_same_loss_and_gradients(log, space):
    score, value, label = rows(log, 500)
    found = []
    for quadrature in ("plain", "lean"):
        module = MonotonicCalibration(
            score, (4,), quadrature=quadrature, start="random", space=space, alpha_balance=0.5, **SMALL
        ).double()
        module.loss(score, value, label).backward()
        found.append([p.grad for p in module.parameters()])
    for plain, lean in zip(*found, strict=True):
        torch.testing.assert_close(plain, lean, rtol=1e-8, atol=1e-12)


def test_it_learns_what_each_field_value_needs(log):
    score, value, label = rows(log)
    module = MonotonicCalibration(score, (4,), **SMALL)
    with torch.no_grad():
        before = float(module.loss(score, value, label))
    train(module, score, value, label, epochs=30, rate=3e-2)
    with torch.no_grad():
        assert float(module.loss(score, value, label)) < before - 0.004


def test_gradients_reach_a_base_predictor_trained_jointly():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1_500, 3, generator=generator)
    value = torch.randint(0, 2, (1_500,), generator=generator)
    truth = torch.sigmoid(features @ torch.tensor([1.0, -0.5, 0.0]) - 2.0 + value)
    label = (torch.rand(1_500, generator=generator) < truth).float()
    torch.manual_seed(0)
    base = nn.Linear(3, 1)
    with torch.no_grad():
        start = base(features)[:, 0]
    module = MonotonicCalibration(start, 2, score_type="logit", **SMALL)
    optimiser = torch.optim.Adam([*base.parameters(), *module.parameters()], lr=5e-2)
    losses = []
    for _ in range(50):
        optimiser.zero_grad()
        loss = module.loss(base(features)[:, 0], value, label)
        loss.backward()
        assert float(base.weight.grad.abs().sum()) > 0
        optimiser.step()
        losses.append(float(loss.detach()))
    best = float(nn.functional.binary_cross_entropy(truth, label))
    assert losses[-1] < best + 0.02 < losses[0]


def test_weights_count_as_rows(log):
    score, value, label = rows(log, 200)
    module = MonotonicCalibration(score, (4,), start="random", alpha_balance=1.0, **SMALL).double()
    weight = torch.arange(200) % 3
    index = torch.repeat_interleave(torch.arange(200), weight)
    with torch.no_grad():
        weighed = module.loss(score, value, label, weight)
        repeated = module.loss(score[index], value[index], label[index])
    torch.testing.assert_close(weighed, repeated, rtol=1e-9, atol=0.0)


def test_the_balance_term_of_a_batch_is_over_all_values_as_in_training_on_rows():
    score = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    value, label = torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    found = {}
    for alpha in (0.0, 1.0):
        module = MonotonicCalibration(score, (3,), alpha_balance=alpha, beta_order=0.0, **SMALL).double()
        with torch.no_grad():
            found[alpha] = float(module.loss(score, value, label))
    with torch.no_grad():
        p = module(score, value)
    # The third value has no row here, and is in balance: DIFF = 0.
    differences = np.array([float((p - label)[value == v].sum()) / 4 for v in range(3)])
    assert found[1.0] - found[0.0] == pytest.approx(differences.std(), rel=1e-6)
    rows = torch.ones(4, dtype=torch.float64)
    trained = balance_loss(p, rows, label, value, 3)
    assert found[1.0] - found[0.0] == pytest.approx(float(trained), rel=1e-6)
    with torch.no_grad():  # a value never seen is one more
        more = module.loss(score, torch.tensor([0, 0, 1, -1]), label)
    assert torch.isfinite(more)


def test_with_several_fields_the_balance_term_is_that_of_training_on_rows(log):
    score, value, label = rows(log, 200)
    fields = torch.stack([value, value % 2 + (value == 3)], dim=1)  # 4 of 12 combinations
    columns = {"a": fields[:, 0].numpy(), "b": fields[:, 1].numpy()}
    sketch = mcnet.Sketch.from_rows(score.numpy(), label.numpy(), field=columns)
    module = MonotonicCalibration(sketch, alpha_balance=1.0, beta_order=0.0, **SMALL).double()
    plain = MonotonicCalibration(sketch, beta_order=0.0, **SMALL).double()
    with torch.no_grad():
        term = float(module.loss(score, fields, label) - plain.loss(score, fields, label))
        p = module(score, fields)
    trained = Rows.of(score.numpy(), label.numpy(), fields.numpy())
    groups = int(trained.group.max()) + 1
    assert groups == len(sketch.contexts) < 12
    expected = float(balance_loss(p, trained.weight.double(), label.double(), trained.group, groups))
    assert term == pytest.approx(expected, rel=1e-5)
    # A combination that the sketch does not have is one more.
    other = torch.tensor([[0, 1]] * 100 + [[0, 0]] * 100)
    with torch.no_grad():
        term = float(module.loss(score, other, label) - plain.loss(score, other, label))
        excess = (module(score, other) - label).numpy() / 200
    differences = [excess[:100].sum(), excess[100:].sum()] + [0.0] * (groups - 1)
    assert term == pytest.approx(np.std(differences), rel=1e-5)


def test_with_several_fields_the_balance_term_needs_the_contexts_of_a_sketch(log):
    score = rows(log, 50)[0]
    with pytest.raises(InputError, match="make the module from a sketch of the training rows"):
        MonotonicCalibration(score, (4, 3), alpha_balance=1.0, **SMALL)


@pytest.mark.parametrize("variant", ["none", "field"])
def test_the_published_network_as_a_module_is_that_of_the_preset(log, variant):
    score, value, label = rows(log, 3_000)
    sizes = (4,) if variant == "field" else None
    module = MonotonicCalibration.paper(variant, score, sizes, seed=5)
    config, schedule = paper_config(field=variant == "field")
    shape = config.shape
    assert module.bank.shape == shape
    assert (module.steps, module.bank.bins, module.config.penalties.order_in("probability")) == (50, 20, 1.0)
    codes = value.numpy()[:, None] if sizes else None
    fit = fit_bank_on_rows(
        torch.logit(score).numpy(),
        label.numpy(),
        codes,
        sizes or (),
        config=replace(config, seed=5),
        schedule=replace(schedule, max_steps=1, rate=1e-12),
        score=score.numpy(),
    )
    np.testing.assert_array_equal(module.bank.edges.numpy(), fit.bank.edges.numpy())
    for ours, theirs in zip(module.bank.state_dict().values(), fit.bank.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_the_preset_of_the_module_refuses_what_it_is_not(log):
    score = rows(log, 100)[0]
    with pytest.raises(InputError, match="it must be 'none' or 'field'"):
        MonotonicCalibration.paper("both", score)
    with pytest.raises(InputError, match="MCNet-None sees no field"):
        MonotonicCalibration.paper("none", score, (4,))
    with pytest.raises(InputError, match="MCNet-Field needs the number of values"):
        MonotonicCalibration.paper("field", score)


def test_a_value_never_seen_has_the_curve_of_a_zero_embedding(log):
    score, value, label = rows(log)
    module = MonotonicCalibration(score, (4,), **SMALL)
    train(module, score, value, label, epochs=5)
    with torch.no_grad():
        for table in module.bank.tables:
            table[:, 0] = table[:, -1]
        for table in module.bank.direct:
            table[:, 0] = table[:, -1]
        unseen, zero = (module(score[:50], torch.full((50,), code)) for code in (-1, 0))
    torch.testing.assert_close(unseen, zero)


@pytest.mark.parametrize("quadrature", ["plain", "lean"])
def test_it_can_be_exported(log, quadrature):
    score, value, _ = rows(log, 300)
    module = MonotonicCalibration(score, (4,), start="random", quadrature=quadrature, **SMALL).eval()
    batch = torch.export.Dim("batch")
    with torch.no_grad():
        exported = torch.export.export(
            module, (score, value), dynamic_shapes={"score": {0: batch}, "context": {0: batch}}
        )
        again = exported.module()(score[:77], value[:77])
        torch.testing.assert_close(again, module(score[:77], value[:77]), rtol=1e-5, atol=1e-7)


def test_compiled_curves_are_the_function_and_a_model_that_is_served(log, tmp_path):
    score, value, label = rows(log, 2_000)
    module = MonotonicCalibration(score, (4,), **SMALL)
    train(module, score, value, label, epochs=20)
    countries = ["NL", "US", "DE", "FR"]
    model = module.compile_curves({"country": countries})
    field = {"country": np.array(countries)[value.numpy()]}
    with torch.no_grad():
        exact = module(score, value).numpy()
    served = model.predict(score.numpy(), field)
    assert np.median(np.abs(served / exact - 1)) < 1e-3
    model.save(tmp_path / "model.json")
    np.testing.assert_array_equal(mcnet.load(tmp_path / "model.json").predict(score.numpy(), field), served)
    export_sql(model, tmp_path / "model.sql", dialect="duckdb")
    assert "NL" in (tmp_path / "model.sql").read_text(encoding="utf-8")


def test_a_sketch_brings_its_fields(log):
    score, value, label = rows(log, 2_000)
    names = np.array(["c", "a", "d", "b"])[value.numpy()]
    sketch = mcnet.Sketch.from_rows(score.numpy(), label.numpy(), field={"country": names})
    module = MonotonicCalibration(sketch, **SMALL)
    assert module.sizes == (4,)
    model = module.compile_curves()
    assert model.fields == ("country",)
    np.testing.assert_allclose(model.predict([0.02, 0.05], {"country": ["a", "b"]}), [0.02, 0.05], rtol=1e-3)


def test_the_state_comes_back(log):
    score, value, label = rows(log, 500)
    module, other = (MonotonicCalibration(score, (4,), **SMALL) for _ in range(2))
    train(module, score, value, label, epochs=3)
    other.load_state_dict(module.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(module(score, value), other(score, value))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sizes": (0,)}, "sizes is"),
        ({"sizes": 4}, "give their"),
        ({"quadrature": "exact"}, "quadrature is 'exact'; it must be one of plain, lean"),
        ({"space": "prob"}, "space is 'prob'"),
        ({"start": "zero"}, "start is 'zero'"),
        ({"derivative": "exp"}, "derivative is 'exp'"),
        ({"activation": "gelu"}, "activation is 'gelu'"),
        ({"lower": "left"}, "lower is 'left'"),
        ({"balance": "row"}, "balance is 'row'"),
        ({"hidden": ()}, r"hidden is \(\)"),
        ({"bins": 0}, "bins is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"embedding": 0}, "embedding is 0"),
        ({"beta_order": -1.0}, "beta_order is -1.0"),
        ({"alpha_balance": "x"}, "alpha_balance is 'x'"),
        ({"direct": "no"}, "direct is 'no'; it must be True or False"),
        ({"alpha_balance": 1.0}, "alpha_balance > 0 compares field values; pass sizes="),
    ],
)
def test_wrong_use_is_refused_in_words(arguments, said):
    with pytest.raises(mcnet.InputError, match=said):
        MonotonicCalibration([0.1, 0.2, 0.3], **(SMALL | arguments))(torch.tensor([0.2]))


def tensor(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


NAN, INFINITE = float("nan"), float("inf")
GOOD = {
    "score": tensor(0.1, 0.2, 0.3),
    "context": tensor(0, 1, -1, dtype=torch.int64),
    "label": tensor(0, 1, 0),
    "weight": tensor(1, 2, 1),
}
WRONG_SCORES = [
    (tensor(0.1, NAN, 0.3), r"score has 1 value missing, NaN or infinite \(first: row 1, nan\)"),
    (tensor(0.1, 0.2, 1.5), r"score has 1 value outside \[0, 1\] \(first: row 2, 1.5\); pass logits"),
    (tensor(-0.1, 0.2, 0.3), r"score has 1 value outside \[0, 1\]"),
    (tensor(0, 1, 1, dtype=torch.int64), "score is a tensor of torch.int64"),
    (GOOD["score"][:, None], r"score has shape \(3, 1\); give one number per row, \[rows\], such as score\[:, 0\]"),
    (torch.tensor(0.2), r"score has shape \(\)"),
    (np.array([0.1, 0.2, 0.3]), "score is ndarray; give a tensor"),
]
WRONG_CONTEXTS = [
    (None, "the module has 1 field"),
    (tensor(0, 1, 2, dtype=torch.int64), r"context has the code 2 in row 2, field 0, whose codes are 0 … 1; −1 is"),
    (tensor(0, -2, 1, dtype=torch.int64), "context has the code -2 in row 1"),
    (tensor(0, 1, 1), "context is a tensor of torch.float64; codes are whole numbers"),
    (tensor(True, False, True, dtype=torch.bool), "context is a tensor of torch.bool"),
    (tensor(0, 1, dtype=torch.int64), r"context has shape \(2,\); give the codes of each row, \[3\] or \[3, fields\]"),
    (torch.zeros(3, 2, dtype=torch.int64), "context has 2 field"),
    ([0, 1, 1], "context is list; give a tensor of codes"),
]
WRONG_LABELS = [
    (tensor(0, 1, 2), r"label has 1 value outside \[0, 1\] \(first: row 2, 2\)"),
    (tensor(-1, 1, 1, dtype=torch.int64), r"label has 1 value outside"),
    (tensor(0, NAN, 1), "label has 1 value missing, NaN or infinite"),
    (GOOD["label"][:, None], r"label has shape \(3, 1\); give one per score, \(3,\)"),
    (tensor(0, 1), r"label has shape \(2,\)"),
    ([0, 1, 0], "label is list"),
]
WRONG_WEIGHTS = [
    (tensor(1, -1, 1), "weight has 1 value below 0"),
    (tensor(1, INFINITE, 1), "weight has 1 value missing, NaN or infinite"),
    (tensor(0, 0, 0), "weight is 0 for every row"),
    (torch.ones(3, 1), r"weight has shape \(3, 1\)"),
]
WRONG_ROWS = [
    (name, value, said)
    for name, cases in zip(GOOD, (WRONG_SCORES, WRONG_CONTEXTS, WRONG_LABELS, WRONG_WEIGHTS), strict=True)
    for value, said in cases
]


@pytest.fixture(scope="module")
def small():
    return MonotonicCalibration([0.1, 0.2, 0.3], sizes=2, **SMALL)


@pytest.mark.parametrize(("name", "value", "said"), WRONG_ROWS)
def test_wrong_rows_are_refused_in_words(small, name, value, said):
    given = GOOD | {name: value}
    with pytest.raises(mcnet.InputError, match=said):
        small.loss(**given)
    if name in ("score", "context"):
        with pytest.raises(mcnet.InputError, match=said):
            small(given["score"], given["context"])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int64, torch.float16, torch.float32])
def test_labels_and_weights_of_any_type_count_the_same(small, dtype):
    changed = {name: GOOD[name].to(torch.uint8 if dtype == torch.bool else dtype) for name in ("label", "weight")}
    changed["label"] = changed["label"].to(dtype)
    with torch.no_grad():
        torch.testing.assert_close(small.loss(**(GOOD | changed)), small.loss(**GOOD))


def test_infinite_logits_are_refused_and_finite_ones_of_any_size_are_not():
    module = MonotonicCalibration([-3.0, -1.0, 0.5], score_type="logit", **SMALL)
    with pytest.raises(mcnet.InputError, match="infinite logits"):
        module(tensor(0.0, INFINITE))
    with torch.no_grad():
        found = module(tensor(-1000.0, -2.0, 1000.0))
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert (found.diff() > 0).all()


def test_the_ends_of_the_unit_interval_are_scores(small):
    score = tensor(0.0, 1.0).requires_grad_()
    loss = small.loss(score, tensor(0, 0, dtype=torch.int64), tensor(0, 1))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(score.grad).all()


def test_an_empty_batch_has_no_probabilities_and_no_loss(small):
    nothing, none = tensor(), tensor(dtype=torch.int64)
    assert small(nothing, none).shape == (0,)
    with pytest.raises(mcnet.InputError, match="the batch is empty"):
        small.loss(nothing, none, nothing)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scores": [0.1, NAN]}, "score has 1 value missing, NaN"),
        ({"scores": tensor(0.1, 1.2)}, r"score has 1 value outside \[0, 1\]"),
        ({"scores": []}, "score is empty"),
        ({"weight": [1.0, -1.0, 1.0]}, "weight has 1 value below 0"),
        ({"weight": [1.0, 1.0]}, "differ in length"),
        ({"weight": tensor(0, 0, 0)}, "weight"),
        ({"score_type": "percent"}, "score_type is 'percent'"),
        ({"sizes": 2.0}, "sizes is 2.0"),
        ({"sizes": True}, "sizes is True"),
        ({"sizes": "ab"}, "sizes is 'ab'"),
    ],
)
def test_wrong_scores_to_place_the_bins_are_refused_in_words(arguments, said):
    with pytest.raises(mcnet.InputError, match=said):
        MonotonicCalibration(**({"scores": [0.1, 0.2, 0.3]} | arguments | SMALL))


def test_scores_and_weights_of_a_training_loop_place_the_bins():
    score = torch.linspace(0.1, 0.9, 9, requires_grad=True)
    weight = torch.ones(9, dtype=torch.bfloat16)
    for given in (score, score.to(torch.bfloat16), score.detach().numpy()):
        assert MonotonicCalibration(given, np.int64(2), weight=weight, **SMALL).bank.bins == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"country": ["NL"]}, r"fields has \(1,\) values; the module was made for \(2,\)"),
        ({"country": ["NL", "NL"]}, "fields has the value 'NL' of country twice"),
        ({"country": "NL"}, "fields has the values of each field by its name"),
        (["NL", "US"], "fields has the values of each field by its name"),
    ],
)
def test_wrong_field_values_are_refused_in_words(small, fields, said):
    with pytest.raises(mcnet.InputError, match=said):
        small.compile_curves(fields)


def test_a_training_that_diverged_has_no_curves():
    module = MonotonicCalibration([0.1, 0.2, 0.3], **SMALL)
    with torch.no_grad():
        next(module.parameters()).fill_(NAN)
    with pytest.raises(mcnet.InputError, match="its training diverged"):
        module.compile_curves()


def test_torchs_compiler_is_not_loaded_with_the_networks():
    # It takes several seconds.
    code = "import sys, mcnet.networks.bank, mcnet.networks.module; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
