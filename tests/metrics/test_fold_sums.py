"""Field values are compared within folds where each fold was predicted by a fit on the other ones."""

import numpy as np
import pytest

import mcnet
from mcnet.metrics.evaluation import evaluate_cells


def per_value_rates(seed, values=40, rows=200):
    """Return rows whose scores tell nothing, and fits of one rate per value that are as wrong as their rows are few."""
    rng = np.random.default_rng(seed)
    field = np.repeat(np.arange(values), rows).astype(str)
    label = (rng.random(len(field)) < 0.1).astype(float)
    return mcnet.Sketch.from_rows(np.full(len(field), 0.1), label, field=field, folds=5)


def held_back_rates(sketch):
    """Predict every value in every fold by its rate in the other folds."""
    weight, positives = (np.zeros((len(sketch.contexts), sketch.folds)) for _ in range(2))
    np.add.at(weight, (sketch.context, sketch.fold), sketch.weight)
    np.add.at(positives, (sketch.context, sketch.fold), sketch.positives)
    rate = (positives.sum(1, keepdims=True) - positives) / (weight.sum(1, keepdims=True) - weight)
    return rate[sketch.context, sketch.fold]


def test_the_error_of_values_is_not_hidden_by_adding_folds_up():
    found, expected, added_up = [], [], []
    for seed in range(5):
        sketch = per_value_rates(seed)
        p = held_back_rates(sketch)
        within = evaluate_cells(p, sketch, within_folds=True)
        # Noise of the held-back fold, and of a fit on four times as many rows.
        found.append(within.f_rce)
        expected.append(within.floor("f_rce") * np.sqrt(1.25))
        added_up.append(evaluate_cells(p, sketch).f_rce / within.floor("f_rce"))
    np.testing.assert_allclose(np.mean(found), np.mean(expected), rtol=0.1)
    assert np.mean(added_up) < 0.2  # what it looks like if the folds are added up: far below noise


def test_it_is_the_mean_of_the_folds():
    sketch = per_value_rates(9, values=6, rows=500)
    p = held_back_rates(sketch)
    whole = evaluate_cells(p, sketch, within_folds=True)
    parts = [
        (
            sketch.weight[sketch.fold == fold].sum(),
            evaluate_cells(p[sketch.fold == fold], sketch.fold_parts(fold)[1]).f_rce,
        )
        for fold in range(5)
    ]
    np.testing.assert_allclose(whole.f_rce, np.average([f for _, f in parts], weights=[w for w, _ in parts]))
    assert whole.fields["field"].table.values == evaluate_cells(p, sketch).fields["field"].table.values
    assert whole.log_loss == evaluate_cells(p, sketch).log_loss


def test_it_is_the_same_for_each_of_several_fields():
    rng = np.random.default_rng(3)
    n = 4000
    field = {"a": rng.integers(0, 3, n).astype(str), "b": rng.integers(0, 7, n).astype(str)}
    score = rng.uniform(0.05, 0.2, n)
    sketch = mcnet.Sketch.from_rows(score, (rng.random(n) < score).astype(float), field=field, folds=4)
    both = evaluate_cells(sketch.score, sketch, within_folds=True)
    for name in field:
        alone = evaluate_cells(sketch.score, sketch, by=[name], within_folds=True)
        np.testing.assert_allclose(both.fields[name].f_rce, alone.f_rce)


def test_a_comparison_by_folds_has_no_errors_far_below_noise():
    rng = np.random.default_rng(0)
    field = rng.integers(0, 60, 12_000).astype(str)
    score = rng.uniform(0.02, 0.3, 12_000)
    found = mcnet.select(score, rng.random(12_000) < score, field=field, methods=["platt", "per-field"])
    for result in found.results:
        assert result.evaluation.f_rce > 0.8 * result.evaluation.floor("f_rce")


def held_back_curve(seed, rows=20_000):
    """Return calibrated rows, and what an isotonic fit on the other folds predicts for each cell."""
    rng = np.random.default_rng(seed)
    score = 1 / (1 + np.exp(-rng.normal(-2.0, 0.8, rows)))
    field = rng.integers(0, 3, rows).astype(str)
    sketch = mcnet.Sketch.from_rows(score, (rng.random(rows) < score).astype(float), field=field, folds=5)
    return sketch, mcnet.select(sketch, methods=["isotonic"]).results[0].probabilities


@pytest.mark.parametrize("metric", ["prob_ece", "smooth_ece", "auc", "gauc"])
def test_errors_by_probability_and_the_order_of_rows_are_means_of_the_folds(metric):
    sketch, p = held_back_curve(0)
    whole = evaluate_cells(p, sketch, within_folds=True).estimates[metric]
    parts = [evaluate_cells(p[sketch.fold == fold], sketch.fold_parts(fold)[1]) for fold in range(5)]
    weight = [part.weight for part in parts]
    for figure in ("value", "floor"):
        expected = np.average([getattr(part.estimates[metric], figure) for part in parts], weights=weight)
        np.testing.assert_allclose(getattr(whole, figure), expected, rtol=1e-9)
    low, high = (
        np.average([getattr(part.estimates[metric], end) for part in parts], weights=weight) for end in ("low", "high")
    )
    assert whole.high - whole.low < high - low  # five folds together know more than each one


def test_folds_added_up_hide_errors_and_mix_orders():
    ratios = {metric: [] for metric in ("prob_ece", "smooth_ece")}
    for seed in range(4):
        sketch, p = held_back_curve(seed)
        within, added_up = evaluate_cells(p, sketch, within_folds=True), evaluate_cells(p, sketch)
        for metric, found in ratios.items():
            found.append([ev.estimates[metric].value / ev.floor(metric) for ev in (within, added_up)])
    for metric, found in ratios.items():
        inside, together = np.mean(found, axis=0)
        assert inside > 1.0, metric  # the noise of the rows, and that of the fit
        assert together < inside, metric
    # A rising curve keeps the order of scores but for ties, so its AUC is nearly theirs in every fold.
    base = evaluate_cells(sketch.score, sketch, within_folds=True).auc
    assert base - within.auc < 0.5 * (base - added_up.auc)


def test_a_curve_without_ties_has_the_auc_of_the_scores_in_a_comparison_by_folds():
    rng = np.random.default_rng(1)
    score = rng.uniform(0.02, 0.3, 3000)
    found = mcnet.select(score, rng.random(3000) < score, methods=["base", "platt"])
    np.testing.assert_allclose(found["platt"].evaluation.auc, found["base"].evaluation.auc, rtol=1e-12)


def test_pcoc_and_the_reliability_table_are_of_all_rows():
    sketch, p = held_back_curve(2)
    within, added_up = evaluate_cells(p, sketch, within_folds=True), evaluate_cells(p, sketch)
    assert within.estimates["pcoc"] == added_up.estimates["pcoc"]
    np.testing.assert_array_equal(within.reliability.observed, added_up.reliability.observed)
