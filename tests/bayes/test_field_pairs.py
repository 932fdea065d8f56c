"""Several fields: pairs, bounded in number and chosen by their residuals; what each field contributes."""

import numpy as np
import pytest

import mcnet
from mcnet import BayesMCNet, Sketch
from mcnet._shared.arrays import logit, sigmoid
from mcnet.bayes import structure as field_pairs
from mcnet.bayes.structure import combine, interacting_pairs


def test_of_many_fields_the_pairs_that_interact_are_chosen():
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 2, (4_000, 8))
    variance = np.full(4_000, 2.0)
    effect = np.where(codes[:, 2] == codes[:, 5], 0.5, -0.5)
    residual = effect + np.sqrt(variance) * draw.standard_normal(4_000)
    assert (2, 5) in interacting_pairs(codes, [2] * 8, residual, variance)
    assert len(interacting_pairs(codes, [2] * 8, np.sqrt(variance) * draw.standard_normal(4_000), variance)) < 4


def test_a_fit_of_many_fields_has_a_bounded_number_of_pairs():
    draw = np.random.default_rng(1)
    fields = {f"f{number}": draw.integers(0, 2, 6_000) for number in range(7)}
    scores = draw.uniform(0.05, 0.5, 6_000)
    moved = np.where(fields["f0"] == fields["f1"], 0.2, -0.04)
    fitted = mcnet.BayesMCNet(isotonic_share=0.0).fit(scores, draw.random(6_000) < scores + moved, field=fields)
    pairs = [(pair.first, pair.second) for pair in fitted.posterior_.combinations]
    assert (0, 1) in pairs
    assert len(pairs) <= field_pairs.MOST_PAIRS


def test_combinations_that_cannot_be_told_are_left_out_where_there_are_very_many(monkeypatch):
    codes = np.array([[0, 0], [0, 1], [1, 0]])
    information = np.array([5.0, 0.1, 3.0])
    assert len(combine(codes, [2, 2], 0, 1, information, 1.0).keys) == 3
    monkeypatch.setattr(field_pairs, "COMBINATIONS_KEPT_WHOLE", 1)
    assert combine(codes, [2, 2], 0, 1, information, 1.0).keys.tolist() == [0, 2]


def _two_fields_and_noise(rows=12_000, seed=1):
    rng = np.random.default_rng(seed)
    score = sigmoid(rng.normal(-1.5, 1.0, rows))
    strong, weak = rng.integers(0, 6, rows), rng.integers(0, 4, rows)
    noise = rng.integers(0, 40, rows)
    moved = np.array([0.8, -0.7, 0.3, 0.0, -0.2, 0.1])[strong] + np.array([0.3, -0.3, 0.0, 0.1])[weak]
    label = rng.random(rows) < sigmoid(logit(score) + moved)
    fields = {"strong": strong.astype(str), "weak": weak.astype(str), "noise": noise.astype(str)}
    return Sketch.from_rows(score, label, field=fields)


def test_what_a_field_contributes_is_what_a_fit_without_it_loses_on_other_rows():
    sketch, others = _two_fields_and_noise(), _two_fields_and_noise(60_000, seed=99)
    known = {line["field"]: line for line in BayesMCNet().fit_sketch(sketch).model_.provenance["contributions"]}

    def loss(fields):
        rows = others.only(*fields)
        p = BayesMCNet().fit_sketch(sketch.only(*fields)).model_.predict_cells(rows)
        return -float((rows.positives * np.log(p) + (rows.weight - rows.positives) * np.log1p(-p)).sum()) / rows.rows

    whole = loss(("strong", "weak", "noise"))
    for name in known:
        lost = loss([other for other in known if other != name]) - whole
        assert known[name]["log_loss_saved"] == pytest.approx(lost, rel=0.2, abs=1e-3)
    assert known["strong"]["log_loss_saved"] > 2e-3 + known["weak"]["log_loss_saved"]
    assert known["weak"]["log_loss_saved"] > 1e-3
    assert known["noise"]["log_loss_saved"] < 2e-4
    odds = {value["value"]: value["odds"] for value in known["strong"]["strongest"]}
    assert odds["0"] / odds["1"] == pytest.approx(np.exp(1.5), rel=0.2)


def test_rare_values_owe_more_of_their_level_to_the_prior():
    rng = np.random.default_rng(0)
    field = np.repeat(["common", "usual", "rare"], [20_000, 2000, 60])
    score = sigmoid(rng.normal(-1.0, 1.0, len(field)))
    moved = np.select([field == "usual", field == "rare"], [0.5, -0.4], 0.1)
    sketch = Sketch.from_rows(score, rng.random(len(field)) < sigmoid(logit(score) + moved), field={"f": field})
    (line,) = BayesMCNet().fit_sketch(sketch).model_.provenance["contributions"]
    own = {value["value"]: value["own"] for value in line["strongest"]}
    assert own["common"] > own["usual"] > own["rare"] > 0.0
    assert 0.9 < line["own"] <= 1.0
    assert {value["value"]: value["rows"] for value in line["strongest"]}["rare"] == 60


def test_a_model_without_fields_contributes_nothing():
    sketch = _two_fields_and_noise(2000).pooled()
    assert "contributions" not in BayesMCNet().fit_sketch(sketch).model_.provenance
