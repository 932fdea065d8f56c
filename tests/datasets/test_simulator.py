"""The simulator: seeded, monotone inside a context, and honest about its truth."""

import numpy as np
import polars as pl
import pytest

from mcnet.datasets.simulator import SimulatedField, simulate
from mcnet.metrics.scores import excess_log_loss, kl_to_truth


def test_the_same_seed_gives_the_same_rows():
    one, two, other = simulate(500, seed=3), simulate(500, seed=3), simulate(500, seed=4)
    np.testing.assert_array_equal(one.score, two.score)
    np.testing.assert_array_equal(one.label, two.label)
    assert not np.array_equal(one.score, other.score)


@pytest.mark.parametrize("shape", ["ripple", "kink"])
@pytest.mark.parametrize("fields", [1, 2])
def test_the_truth_rises_with_the_score_inside_a_context(shape, fields):
    specs = {f"f{i}": SimulatedField.zipf(5, ripple=0.9, slope_spread=0.3) for i in range(fields)}
    log = simulate(20_000, fields=specs, shape=shape, interaction=0.2, seed=1)
    context = sum(codes * 5**i for i, codes in enumerate(log.fields.values()))
    for value in np.unique(context):
        rows = context == value
        order = np.argsort(log.score[rows], kind="stable")
        assert np.all(np.diff(log.probability[rows][order]) >= 0)


@pytest.mark.parametrize("rate", [0.005, 0.02, 0.3])
def test_labels_and_truth_have_the_asked_mean_rate(rate):
    log = simulate(300_000, rate=rate, seed=2)
    assert log.probability.mean() == pytest.approx(rate, rel=0.03)
    assert log.label.mean() == pytest.approx(log.probability.mean(), abs=5 * np.sqrt(rate / 300_000))


def test_default_fields_have_four_values_of_very_different_size():
    share = np.bincount(simulate(100_000, seed=0).fields["field"]) / 100_000
    np.testing.assert_allclose(share, [0.9163, 0.0241, 0.0488, 0.0108], atol=0.005)


def test_the_base_score_is_miscalibrated_by_field():
    log = simulate(400_000, seed=0)
    codes = log.fields["field"]
    over = [log.score[codes == c].mean() / log.probability[codes == c].mean() for c in range(4)]
    assert max(over) / min(over) > 1.1


def test_own_rates_of_values_are_met():
    spec = SimulatedField(shares=(0.5, 0.5), rates=(0.01, 0.05))
    log = simulate(400_000, fields={"country": spec}, seed=0)
    means = [log.probability[log.fields["country"] == c].mean() for c in range(2)]
    np.testing.assert_allclose(means, [0.01, 0.05], rtol=0.02)


def test_drift_moves_the_truth_of_the_test_period_alone():
    log = simulate(100_000, test_rows=100_000, drift=0.2, seed=0)
    before, after = log.calibration(), log.test()
    assert len(before) == len(after) == 100_000
    assert before.period.max() == 0
    assert after.period.min() == 1
    assert after.probability.mean() / before.probability.mean() == pytest.approx(np.exp(0.2), rel=0.03)
    assert after.score.mean() == pytest.approx(before.score.mean(), rel=0.02)


def test_more_rows_of_the_same_world_keep_the_curves():
    small, large = simulate(2_000, seed=1, world=9), simulate(50_000, seed=2, world=9)
    for code in range(2):
        s, t = (log.fields["field"] == code for log in (small, large))
        order = np.argsort(large.score[t])
        expected = np.interp(small.score[s], large.score[t][order], large.probability[t][order])
        inside = (small.score[s] > np.quantile(large.score[t], 0.01)) & (
            small.score[s] < np.quantile(large.score[t], 0.99)
        )
        np.testing.assert_allclose(small.probability[s][inside], expected[inside], rtol=0.05)


def test_features_are_informative_and_reproducible():
    log = simulate(20_000, test_rows=5_000, rate=0.2, seed=0)
    numbers, groups = log.features(numeric=5, categorical=2)
    assert numbers.shape == (25_000, 5)
    assert groups.shape == (25_000, 2)
    assert groups[:, 0].min() == 0
    assert groups[:, 0].max() == 9
    np.testing.assert_array_equal(numbers, log.features(numeric=5, categorical=2)[0])
    correlation = np.corrcoef(numbers[:, 0], np.log(log.probability / (1 - log.probability)))[0, 1]
    assert abs(correlation) > 0.2
    part = log.calibration().features()[0], log.test().features()[0]
    assert len(part[0]) == 20_000
    assert not np.array_equal(part[0][:5_000], part[1])


def test_a_frame_holds_every_column_as_text_and_numbers():
    spec = SimulatedField(shares=(0.5, 0.5), names=("NL", "FR"))
    frame = simulate(50, test_rows=10, fields={"country": spec}, seed=0).frame()
    assert frame.columns == ["score", "label", "country", "probability", "period"]
    assert set(frame["country"]) == {"NL", "FR"}
    assert frame.filter(pl.col("period") == "test").height == 10


def test_the_kl_to_its_truth_is_the_expected_excess_log_loss():
    log = simulate(400_000, rate=0.3, seed=0)
    assert kl_to_truth(log.probability, log.probability).value == 0
    kl = kl_to_truth(log.score, log.probability).value
    assert kl == pytest.approx(excess_log_loss(log.score, log.probability, log.label).value, abs=2e-3)
    weight = np.zeros(len(log))
    weight[:10] = 2.0
    assert kl_to_truth(log.score, log.probability, weight).value == pytest.approx(
        kl_to_truth(log.score[:10], log.probability[:10]).value
    )
