"""Pairs of fields: bounded in number, chosen by their residuals, rare combinations left to the sum of the fields."""

import numpy as np

import mcnet
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
