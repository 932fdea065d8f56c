"""PCOC, F-RCE and their relatives, against numbers worked out by hand."""

import numpy as np
import pytest

from mcnet.errors import InputError
from mcnet.metrics import f_ece, f_rce, group_pcoc, group_sums, pcoc, pcoc_std


def sums_of(weight, positives, predicted):
    """Return sums of groups in which every row has the same probability."""
    weight, positives, predicted = (np.asarray(column, dtype=float) for column in (weight, positives, predicted))
    return group_sums(predicted / weight, positives / weight, np.arange(weight.size), weight)


def test_the_published_base_model_has_the_published_f_rce():
    # PCOC 0.7727 at a click rate of 2.4 %: one field stands for all, as every value is under-predicted.
    rows = 5_559_301
    clicks = 0.02448 * rows
    base = sums_of([rows], [clicks], [0.7727 * clicks])
    assert pcoc(base).value == pytest.approx(0.7727)
    assert f_rce(base).value == pytest.approx(0.161, abs=5e-4)
    assert f_rce(base, epsilon=0).value == pytest.approx(0.227, abs=5e-4)


def test_field_errors_by_hand():
    found = sums_of([100, 50], [10, 4], [12, 3])
    assert f_rce(found, epsilon=0).value == pytest.approx((100 * 2 / 10 + 50 * 1 / 4) / 150)
    assert f_rce(found).value == pytest.approx((100 * 2 / 11 + 50 * 1 / 4.5) / 150)
    assert f_ece(found).value == pytest.approx(3 / 150)


def test_pcoc_std_is_the_sample_deviation_of_the_field_pcocs():
    found = pcoc_std(sums_of([100, 100, 100, 50], [10, 10, 10, 0], [8, 10, 12, 1]))
    assert found.value == pytest.approx(np.std([0.8, 1.0, 1.2], ddof=1))
    assert found.note == "1 without positives left out"


def test_one_field_value_has_no_spread_and_says_so():
    found = pcoc_std(sums_of([100], [10], [8]))
    assert np.isnan(found.value)
    assert "two field values" in found.note


def test_values_without_positives_make_the_plain_ratio_infinite_unless_dropped():
    found = sums_of([100, 50], [10, 0], [12, 3])
    plain = f_rce(found, epsilon=0)
    assert plain.value == np.inf
    assert "drop_empty" in plain.note
    assert f_rce(found, epsilon=0, drop_empty=True).value == pytest.approx(0.2)
    assert f_rce(found).value == pytest.approx((100 * 2 / 11 + 50 * 3 / 0.5) / 150)


def test_nothing_left_after_dropping_is_said():
    found = f_rce(sums_of([10], [0], [1]), epsilon=0, drop_empty=True)
    assert np.isnan(found.value)
    assert "no field value" in found.note


def test_no_positives_leave_pcoc_undefined_with_a_reason():
    found = pcoc(sums_of([100], [0], [2]))
    assert np.isnan(found.value)
    assert "positive" in found.note


def test_a_value_without_positives_still_bounds_its_pcoc_from_below():
    value, low, high = group_pcoc(sums_of([1000], [0], [12]))
    assert np.isnan(value[0])
    assert low[0] == pytest.approx(12 / 3.689, rel=1e-3)
    assert high[0] == np.inf


def test_a_value_without_rows_changes_nothing():
    full = group_sums([0.1, 0.3], [0, 1], [0, 2])
    packed = group_sums([0.1, 0.3], [0, 1], [0, 1])
    for metric in (f_rce, f_ece):
        assert metric(full).value == pytest.approx(metric(packed).value)


def test_a_negative_epsilon_is_refused():
    with pytest.raises(InputError, match="epsilon is -1"):
        f_rce(sums_of([1], [1], [0.5]), epsilon=-1)


def test_a_level_outside_zero_and_one_is_refused():
    with pytest.raises(InputError, match="level is 95"):
        pcoc(sums_of([1], [1], [0.5]), level=95)


def test_sums_of_a_field_follow_from_those_of_its_contexts():
    rng = np.random.default_rng(0)
    p, y = rng.random(300), rng.integers(0, 2, 300)
    context = rng.integers(0, 6, 300)
    merged = group_sums(p, y, context, count=6).merged(np.arange(6) // 2, 3)
    direct = group_sums(p, y, context // 2)
    for name in vars(direct):
        np.testing.assert_allclose(getattr(merged, name), getattr(direct, name))


def test_second_moments_are_those_of_single_rows():
    rng = np.random.default_rng(1)
    p, y = rng.random(50), rng.integers(0, 2, 50)
    found = group_sums(p, y).second_moment(1.3, 0.7, 0.2)[0]
    assert found == pytest.approx(((1.3 * y - 0.7 * p - 0.2) ** 2).sum())


def test_a_hundred_thousand_contexts_have_a_floor_but_no_interval():
    rng = np.random.default_rng(2)
    size = 100_000
    found = f_rce(sums_of(np.full(size, 50), rng.binomial(50, 0.02, size), np.full(size, 1.0)))
    assert found.value == pytest.approx(found.floor, rel=0.02)
    assert np.isnan([found.low, found.high]).all()
