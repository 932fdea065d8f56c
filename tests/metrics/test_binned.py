"""Bins of the probability and the smooth error, against brute force and relplot."""

import numpy as np
import pytest
import relplot

from mcnet.errors import InputError
from mcnet.metrics import (
    cal_n,
    group_sums,
    prob_ece,
    reliability,
    smooth_ece,
    smooth_ece_at,
)
from mcnet.metrics.calibration_error import equal_mass_bins
from mcnet.metrics.intervals import wilson


def test_equal_mass_bins_of_distinct_values_are_quantiles():
    p = np.random.default_rng(0).permutation(np.arange(1000) / 1000)
    found = equal_mass_bins(p, np.ones(1000), 20)
    np.testing.assert_array_equal(np.bincount(found), 50)
    np.testing.assert_array_equal(found, (p * 1000).round().astype(int) // 50)


def test_ties_share_a_bin_and_bins_may_be_fewer():
    p = np.array([0.1] * 60 + [0.2] * 10 + [0.3] * 30)
    found = equal_mass_bins(p, np.ones(100), 5)
    assert [np.unique(found[p == value]).tolist() for value in (0.1, 0.2, 0.3)] == [[0], [1], [1]]


def test_prob_ece_by_hand():
    p, y = [0.1, 0.3, 0.6, 0.8], [0, 1, 1, 0]
    assert prob_ece(p, y, bins=2).value == pytest.approx((abs(0.4 - 1) + abs(1.4 - 1)) / 4)


def test_no_bins_are_refused():
    with pytest.raises(InputError, match="bins is 0"):
        prob_ece([0.1], [0], bins=0)


def test_cal_n_of_the_formula():
    bins = group_sums([0.05, 0.2], [0.1, 0.15], [0, 1], [1000, 1000])
    assert cal_n(bins).value == pytest.approx(0.745, abs=5e-4)


def test_cal_n_names_what_made_it_infinite():
    nothing_predicted = group_sums([0.0, 0.5], [1, 1], [0, 1])
    assert cal_n(nothing_predicted).note == "1 of 2 bins has only probabilities of 0: use fewer bins or delta > 0"
    assert cal_n(nothing_predicted).value == np.inf
    both = group_sums([0.0, 0.5], [1, 0], [0, 1])
    assert "1 of 2 bins has no positives and 1 of 2 bins has only probabilities of 0" in cal_n(both).note


def test_cal_n_with_an_empty_bin_is_infinite_unless_smoothed():
    bins = group_sums([0.05, 0.2], [0.0, 0.2], [0, 1], [100, 100])
    assert cal_n(bins).value == np.inf
    assert "1 of 2 bins" in cal_n(bins).note
    assert cal_n(bins, delta=1).value == pytest.approx(np.sqrt(5**2 / 2))


def test_reliability_puts_every_row_in_one_bin():
    rng = np.random.default_rng(3)
    p = rng.beta(1, 30, 5000)
    y = (rng.random(5000) < p).astype(float)
    table = reliability(p, y, bins=10)
    assert len(table) == 10
    assert table.weight.sum() == 5000
    assert table.positives.sum() == y.sum()
    assert (table.lowest <= table.mean_prediction).all()
    assert (table.mean_prediction <= table.highest).all()
    assert (table.highest[:-1] < table.lowest[1:]).all()
    assert (table.observed_low <= table.observed).all()
    assert (table.observed <= table.observed_high).all()
    assert table.to_dict()["weight"] == [500.0] * 10


def test_wilson_by_the_book():
    low, high = wilson(np.array([0.0, 10.0]), np.array([10.0, 10.0]))
    np.testing.assert_allclose(low, [0, 0.7225], atol=1e-4)
    np.testing.assert_allclose(high, [0.2775, 1], atol=1e-4)


@pytest.mark.parametrize("rate", [2.0, 20.0])
@pytest.mark.parametrize("width", [0.005, 0.05])
def test_the_smooth_error_at_a_width_is_that_of_relplot(rate, width):
    rng = np.random.default_rng(5)
    truth = rng.beta(2, rate, 20_000)
    y = (rng.random(truth.size) < truth).astype(float)
    p = truth**1.1
    assert smooth_ece_at(width, p, y) == pytest.approx(relplot.metrics.smECE_sigma(p, y, width), rel=0.02)


def test_the_smooth_error_is_that_of_relplot_where_its_grid_is_fine_enough():
    rng = np.random.default_rng(6)
    truth = rng.beta(2, 3, 20_000)
    y = (rng.random(truth.size) < truth).astype(float)
    assert smooth_ece(truth**1.4, y).value == pytest.approx(relplot.smECE(truth**1.4, y), abs=2e-3)


def test_the_smooth_error_is_its_own_width_even_at_click_rates():
    rng = np.random.default_rng(8)
    truth = rng.beta(2, 98, 50_000)
    y = (rng.random(truth.size) < truth).astype(float)
    p = truth * 1.2
    found = smooth_ece(p, y).value
    assert smooth_ece_at(found, p, y) == pytest.approx(found, rel=2e-3)
    assert found == pytest.approx(abs(p.mean() - y.mean()), rel=0.2)


def test_the_smooth_kernel_keeps_all_mass_at_the_borders():
    # All rows err the same way, so smoothing loses nothing, wherever they lie.
    for p in (0.0, 1e-6, 0.5, 1.0):
        assert smooth_ece_at(0.1, [p] * 4, [1 - round(p)] * 4) == pytest.approx(abs(p - (1 - round(p))), rel=1e-6)


def test_merging_close_rows_hardly_changes_the_smooth_error(monkeypatch):
    rng = np.random.default_rng(8)
    truth = rng.beta(2, 98, 140_000)
    y = (rng.random(truth.size) < truth).astype(float)
    merged = smooth_ece_at(0.001, truth * 1.1, y)
    monkeypatch.setattr("mcnet.metrics.calibration_error._cells", lambda p, y, w: (p, y, w))
    assert merged == pytest.approx(smooth_ece_at(0.001, truth * 1.1, y), rel=1e-6)


def test_labels_that_are_all_as_expected_leave_an_interval_of_some_width():
    found = prob_ece(np.linspace(0.1, 0.109, 200), np.zeros(200))
    assert found.low < 0.9 * found.value
    assert found.high == pytest.approx(found.value)


def test_the_lower_end_without_positives_is_the_rate_that_would_show_one():
    found = prob_ece(np.full(200, 0.1), np.zeros(200), bins=1)
    # No positive among n rows is no surprise up to a rate r with (1 − r)^n = 2.5 %.
    assert 0.1 - found.low == pytest.approx(1 - 0.025 ** (1 / 200), rel=0.15)
