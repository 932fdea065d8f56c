"""Intervals contain the true value about as often as they claim."""

from collections.abc import Callable

import numpy as np
import pytest

from mcnet.metrics import (
    Estimate,
    auc,
    brier,
    cal_n,
    f_ece,
    f_rce,
    gauc,
    group_sums,
    kl_to_truth,
    log_loss,
    log_loss_difference,
    pcoc,
    pcoc_std,
    poisson_bootstrap,
    prob_ece,
    smooth_ece,
)

Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], Estimate]

TRUTH = np.tile(np.linspace(0.01, 0.12, 12), 4)
CODES = np.repeat(np.arange(4), 12)
SIZES = np.repeat([4000.0, 900.0, 500.0, 200.0], 12)
FACTORS = {"miscalibrated": np.repeat([1.2, 0.85, 1.0, 1.5], 12), "calibrated": np.ones(48)}

ANALYTIC: dict[str, Metric] = {
    "pcoc": lambda p, y, w: pcoc(group_sums(p, y, CODES, w)),
    "auc": auc,
    "gauc": lambda p, y, w: gauc(p, y, CODES, w),
    "log_loss": log_loss,
    "brier": brier,
}
NOISE_AWARE: dict[str, Metric] = {
    "f_rce": lambda p, y, w: f_rce(group_sums(p, y, CODES, w)),
    "f_rce without epsilon": lambda p, y, w: f_rce(group_sums(p, y, CODES, w), epsilon=0),
    "f_ece": lambda p, y, w: f_ece(group_sums(p, y, CODES, w)),
    "pcoc_std": lambda p, y, w: pcoc_std(group_sums(p, y, CODES, w)),
    "prob_ece": lambda p, y, w: prob_ece(p, y, w, bins=10),
    "cal_n": lambda p, y, w: cal_n(group_sums(p, y, np.arange(48) % 12, w)),
}


def coverage(metric: Metric, p: np.ndarray, trials: int) -> float:
    """Draw labels again and again: how often does the interval contain the value at the true rates?"""
    rng = np.random.default_rng(7)
    # So many rows have no noise to speak of, and their value is the one that the interval is about.
    target = metric(p, TRUTH, SIZES * 1e6).value
    hits = 0
    for _ in range(trials):
        found = metric(p, rng.binomial(SIZES.astype(int), TRUTH) / SIZES, SIZES)
        hits += found.low - 1e-9 <= target <= found.high + 1e-9
    return hits / trials


@pytest.mark.parametrize("case", FACTORS)
@pytest.mark.parametrize("name", ANALYTIC)
def test_analytic_intervals_contain_the_truth(case, name):
    assert 0.92 <= coverage(ANALYTIC[name], TRUTH * FACTORS[case], 500) <= 0.98


@pytest.mark.parametrize("case", FACTORS)
@pytest.mark.parametrize("name", NOISE_AWARE)
def test_noise_aware_intervals_contain_the_truth(case, name):
    # 600 draws give 0.94 to 0.98; so few may fall short of that by three standard errors.
    assert coverage(NOISE_AWARE[name], TRUTH * FACTORS[case], 80) >= 0.86


@pytest.mark.parametrize("case", FACTORS)
def test_the_interval_of_the_smooth_error_contains_the_truth(case):
    # 200 draws give 0.92 and 0.97.
    assert coverage(smooth_ece, TRUTH * FACTORS[case], 30) >= 0.77


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_contexts_with_a_positive_each_still_get_an_honest_interval(factor):
    rng = np.random.default_rng(3)
    truth, sizes = np.full(800, 0.02), rng.integers(10, 120, 800).astype(float)
    contexts = np.arange(800)
    target = f_rce(group_sums(truth * factor, truth, contexts, sizes * 1e6)).value
    labels = [rng.binomial(sizes.astype(int), truth) / sizes for _ in range(20)]
    found = [f_rce(group_sums(truth * factor, y, contexts, sizes)) for y in labels]
    assert sum(one.low - 1e-9 <= target <= one.high for one in found) >= 17
    assert np.mean([one.value for one in found]) > target + 0.1


def test_the_interval_is_of_the_true_error_also_where_it_lies_below_the_value():
    # 60 values of different sizes and errors, so noisy that the value is mostly noise.
    rng = np.random.default_rng(11)
    sizes, truth = rng.integers(50, 3_000, 60).astype(float), rng.uniform(0.01, 0.05, 60)
    p, values = truth * np.exp(rng.normal(0.0, 0.1, 60)), np.arange(60)
    target = f_rce(group_sums(p, truth, values, sizes * 1e6)).value
    found = [f_rce(group_sums(p, rng.binomial(sizes.astype(int), truth) / sizes, values, sizes)) for _ in range(100)]
    assert np.mean([one.low <= target <= one.high for one in found]) >= 0.88
    assert np.mean([one.value > one.high for one in found]) > 0.3, "an interval around the value would miss the error"
    assert np.mean([one.floor for one in found]) > target


def test_the_difference_of_log_losses_is_covered_and_far_narrower_than_its_parts():
    rng = np.random.default_rng(5)
    p, q = TRUTH * 1.2, TRUTH * 0.9
    target = log_loss_difference(p, q, TRUTH, SIZES).value
    found = [log_loss_difference(p, q, rng.binomial(SIZES.astype(int), TRUTH) / SIZES, SIZES) for _ in range(400)]
    assert 0.91 <= np.mean([one.low <= target <= one.high for one in found]) <= 0.98
    errors = [one.standard_error for one in found]
    assert np.mean(errors) == pytest.approx(np.std([one.value for one in found]), rel=0.1)
    one = log_loss(p, TRUTH, SIZES)
    assert np.mean(errors) < 0.2 * (one.high - one.low) / 3.92


@pytest.mark.parametrize("name", ["pcoc", "auc", "gauc", "log_loss", "brier"])
def test_analytic_and_bootstrap_intervals_agree(name):
    rng = np.random.default_rng(2)
    y = rng.binomial(SIZES.astype(int), TRUTH) / SIZES
    p = TRUTH * FACTORS["miscalibrated"]
    analytic = ANALYTIC[name](p, y, SIZES)
    drawn = poisson_bootstrap(ANALYTIC[name], p, y, SIZES, replicates=400)
    assert drawn.value == pytest.approx(analytic.value, rel=1e-12)
    assert drawn.high - drawn.low == pytest.approx(analytic.high - analytic.low, rel=0.15)


def test_clusters_widen_the_bootstrap_interval():
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(200), 10)
    y = np.repeat(rng.random(200) < 0.3, 10).astype(float)
    p = np.full(2000, 0.3)
    rows = poisson_bootstrap(brier, p, y)
    grouped = poisson_bootstrap(brier, p, y, clusters=clusters)
    assert grouped.high - grouped.low > 2 * (rows.high - rows.low)


@pytest.mark.parametrize("size", [200, 20_000])
def test_floors_are_what_true_probabilities_produce(size):
    rng = np.random.default_rng(4)
    p = np.linspace(0.01, 0.05, 20)
    w = np.full(100, size / 100)
    codes = np.repeat(np.arange(5), 20)
    positives = rng.binomial(int(w[0]), p, (4000, 5, 20)).sum(axis=2)
    predicted, rows = w[0] * p.sum(), 20 * w[0]
    found = group_sums(np.tile(p, 5), np.tile(p, 5), codes, w)
    relative = (np.abs(positives - predicted) / (positives + 0.01 * rows)).mean()
    assert f_rce(found).floor == pytest.approx(relative, rel=0.05)
    assert f_ece(found).floor == pytest.approx((np.abs(positives - predicted) / rows).mean(), rel=0.05)


def test_the_floor_of_the_smooth_error_is_what_true_probabilities_produce():
    rng = np.random.default_rng(4)
    p = rng.beta(2, 60, 20_000)
    found = [smooth_ece(p, (rng.random(p.size) < p).astype(float)) for _ in range(10)]
    assert found[0].floor == pytest.approx(np.mean([one.value for one in found]), rel=0.25)


def test_kl_needs_no_labels_and_its_interval_covers():
    rng = np.random.default_rng(6)
    truth = rng.beta(2, 60, (200, 500))
    found = [kl_to_truth(row * 1.1, row) for row in truth]
    target = kl_to_truth(truth.ravel() * 1.1, truth.ravel()).value
    assert 0.88 <= np.mean([one.low <= target <= one.high for one in found]) <= 0.99
