"""MCNet-None: one curve for all rows, with a field for the balance term alone."""

import numpy as np
import pytest

import mcnet
from mcnet.datasets.simulator import SimulatedLog, simulate
from mcnet.errors import CalibrationWarning


@pytest.fixture(scope="module")
def log() -> SimulatedLog:
    return simulate(200_000, seed=5)


def spread(log: SimulatedLog, fitted: mcnet.BayesMCNet) -> float:
    codes, p = log.fields["field"], fitted.predict(log.score)
    pcoc = np.bincount(codes, weights=p) / np.bincount(codes, weights=log.label)
    return float(pcoc.std())


def test_without_balance_it_is_the_fit_without_a_field(log: SimulatedLog) -> None:
    plain = mcnet.BayesMCNet().fit(log.score, log.label)
    one = mcnet.BayesMCNet(field_aware=False).fit(log.score, log.label)
    np.testing.assert_allclose(one.predict(log.score), plain.predict(log.score), rtol=1e-9)
    with pytest.warns(CalibrationWarning, match="does not use the field field"):
        mcnet.BayesMCNet(field_aware=False).fit(log.score, log.label, field=log.fields["field"])


def test_a_faint_balance_term_changes_next_to_nothing(log: SimulatedLog) -> None:
    plain = mcnet.BayesMCNet().fit(log.score, log.label)
    faint = mcnet.BayesMCNet(field_aware=False, alpha_balance=1e-9).fit(log.score, log.label, field=log.fields["field"])
    # Cells of a wide panel are merged by field value, which moves the curve where hardly any rows are.
    usual = np.quantile(log.score, np.linspace(0.01, 0.99, 99))
    np.testing.assert_allclose(faint.predict(usual), plain.predict(usual), rtol=5e-3)


def test_the_balance_term_narrows_the_spread_of_field_values(log: SimulatedLog) -> None:
    spreads = []
    for alpha in (0.001, 1.0, 10.0):
        fitted = mcnet.BayesMCNet(field_aware=False, alpha_balance=alpha)
        fitted.fit(log.score, log.label, field=log.fields["field"])
        assert fitted.model_.contexts.names == ()
        np.testing.assert_array_equal(fitted.predict(log.score, field=log.fields["field"]), fitted.predict(log.score))
        spreads.append(spread(log, fitted))
        order = np.argsort(log.score)
        assert np.all(np.diff(fitted.predict(log.score[order])) >= 0.0)
    assert spreads == sorted(spreads, reverse=True)


def test_intervals_and_warm_starts_know_no_field(log: SimulatedLog) -> None:
    fitted = mcnet.BayesMCNet(field_aware=False, alpha_balance=1.0, warm_start=True)
    fitted.fit(log.score, log.label, field=log.fields["field"])
    before = fitted.predict([0.01, 0.05])
    low, high = fitted.interval([0.01, 0.05])
    assert np.all((low < before) & (before < high))
    fitted.fit(log.score, log.label, field=log.fields["field"])
    np.testing.assert_allclose(fitted.predict([0.01, 0.05]), before, rtol=1e-2)


def test_one_class_makes_one_constant() -> None:
    fitted = mcnet.BayesMCNet(field_aware=False, alpha_balance=1.0)
    with pytest.warns(CalibrationWarning, match="every row is negative"):
        fitted.fit([0.1, 0.2, 0.3], [0, 0, 0], field=["a", "b", "a"])
    assert fitted.predict([0.1, 0.9]).tolist() == [0.125, 0.125]
