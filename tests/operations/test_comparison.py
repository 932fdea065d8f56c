import numpy as np

from mcnet.operations.gate import compared, mean_difference


def test_the_interval_covers_the_mean_of_independent_periods_as_often_as_it_says():
    rng = np.random.default_rng(1)
    for periods in (3, 6, 28):
        covered = 0
        for _ in range(1000):
            weight = rng.integers(500, 1500, periods).astype(float)
            _, low, high = mean_difference(weight * rng.normal(0.01, 0.05, periods), weight)
            covered += low <= 0.01 <= high
        assert covered > 910, periods  # 950 are meant; few clusters of unequal size lose a little


def test_related_neighbours_make_the_interval_wider():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=400)
    alone = np.array(mean_difference(noise, np.ones(400)))
    runs = np.array(mean_difference(np.repeat(noise[:100], 4), np.ones(400)))
    assert (runs[2] - runs[1]) / np.repeat(noise[:100], 4).std() > 1.3 * (alone[2] - alone[1]) / noise.std()


def test_one_period_has_no_interval_and_condemns_nobody():
    found = compared("another", ["mon"], [5.0], [10.0])
    assert (found.difference, found.low, found.high) == (0.5, -np.inf, np.inf)
    assert not found.is_worse


def test_a_difference_in_every_period_is_found():
    assert compared("another", list("abcdef"), [1.0, 1.2, 0.9, 1.1, 1.0, 1.05], [10.0] * 6).is_worse
    assert not compared("another", list("abcdef"), [1.0, -1.2, 0.9, -1.1, 1.0, -1.05], [10.0] * 6).is_worse
