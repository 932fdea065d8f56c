"""AUC, GAUC, log-loss and Brier against scikit-learn, and the distance to a known truth."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from mcnet.errors import InputError
from mcnet.metrics import (
    auc,
    brier,
    excess_log_loss,
    gauc,
    group_sums,
    kl_to_truth,
    log_loss,
    log_loss_difference,
    poisson_bootstrap,
)

RNG = np.random.default_rng(11)
P = np.round(RNG.beta(1, 20, 2000), 3).clip(0.001, 0.999)
Y = (RNG.random(2000) < P).astype(float)
W = RNG.integers(0, 4, 2000).astype(float)
CODES = RNG.integers(0, 9, 2000)


def test_auc_with_ties_and_weights_is_that_of_scikit_learn():
    assert auc(P, Y, W).value == pytest.approx(sklearn_metrics.roc_auc_score(Y, P, sample_weight=W), abs=1e-12)


def test_auc_takes_fractional_labels_as_so_many_positives_and_negatives():
    p = np.array([0.1, 0.2, 0.2, 0.5])
    split = auc(np.repeat(p, 2), np.tile([1.0, 0.0], 4), np.array([1, 9, 2, 8, 4, 6, 5, 5.0]))
    whole = auc(p, [0.1, 0.2, 0.4, 0.5], np.full(4, 10.0))
    assert whole.value == pytest.approx(split.value)
    assert (whole.low, whole.high) == pytest.approx((split.low, split.high))


def test_delong_by_the_book():
    positives, negatives = P[Y == 1], P[Y == 0]
    wins = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
    variance = wins.mean(1).var(ddof=1) / positives.size + wins.mean(0).var(ddof=1) / negatives.size
    found = auc(P, Y)
    width = np.log(found.high / (1 - found.high)) - np.log(found.low / (1 - found.low))
    expected = 2 * 1.959964 * np.sqrt(variance) / (found.value * (1 - found.value))
    assert width == pytest.approx(expected, rel=1e-6)


def test_a_perfect_order_has_an_interval_of_some_width():
    found = auc([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert found.value == 1
    assert 0.05 < found.low < 0.95
    assert found.high == 1


@pytest.mark.parametrize("weight", [None, 0.1, 1 / 3])
@pytest.mark.parametrize("falling", [False, True])
def test_a_perfect_order_of_many_rows_is_nearly_sure(weight, falling):
    y = (np.arange(4000) % 10 == 0) * 1.0
    p = np.where(y == 1, 0.9, 0.05) + np.arange(4000) * 1e-6
    p, size = (1 - p if falling else p), 400 * (weight or 1.0)
    w = None if weight is None else np.full(4000, weight)
    for found in (auc(p, y, w), gauc(p, y, np.zeros(4000, dtype=int), w)):
        ends = (1 - found.high, 1 - found.low) if falling else (found.low, found.high)
        assert found.value == (0 if falling else 1)
        assert ends == pytest.approx((0.025 ** (1 / size), 1.0), rel=1e-9)


def test_the_interval_of_perfect_groups_is_that_of_the_group_that_tells_least():
    y = np.array([0, 1, 0, 1, 0, 1, 0, 0, 0, 1])
    found = gauc(np.where(y == 1, 0.9, 0.1), y, np.repeat([0, 1], [6, 4]))
    assert (found.low, found.high) == (pytest.approx(0.025 ** (0.4 / 1)), 1.0)


@pytest.mark.parametrize(("labels", "which"), [([0, 0], "negative"), ([1, 1], "positive")])
def test_one_class_has_no_auc_and_says_so(labels, which):
    found = auc([0.2, 0.4], labels)
    assert np.isnan(found.value)
    assert which in found.note


def test_gauc_is_the_weighted_mean_of_group_aucs_without_single_class_groups():
    y = np.where(CODES == 4, 0.0, Y)
    parts, weights = [], []
    for code in range(9):
        rows = (code == CODES) & (W > 0)
        if 0 < y[rows].sum() < rows.sum():
            parts.append(sklearn_metrics.roc_auc_score(y[rows], P[rows], sample_weight=W[rows]))
            weights.append(W[rows].sum())
    found = gauc(P, y, CODES, W)
    assert found.value == pytest.approx(np.average(parts, weights=weights), abs=1e-12)
    assert found.note == "1 group of one class left out"


def test_the_interval_of_an_imperfect_gauc_ends_below_one():
    p, y = np.array([0.1, 0.2, 0.3, 0.9, 0.8, 0.25] * 2), np.array([0, 0, 0, 1, 1, 1] * 2)
    found = gauc(p, y, np.repeat([0, 1], 6))
    assert 0.0 < found.low < found.value < found.high < 1.0


def test_gauc_of_many_groups_is_that_of_few():
    sparse = CODES.astype(np.int64) * 10_000
    assert gauc(P, Y, sparse, W).value == pytest.approx(gauc(P, Y, CODES, W).value, abs=1e-12)


def test_gauc_without_any_group_of_both_classes_says_so():
    assert "both classes" in gauc([0.1, 0.2], [0, 1], [0, 1]).note


def test_log_loss_and_brier_are_those_of_scikit_learn():
    assert log_loss(P, Y, W).value == pytest.approx(sklearn_metrics.log_loss(Y, P, sample_weight=W), rel=1e-12)
    expected = sklearn_metrics.brier_score_loss(Y, P, sample_weight=W)
    assert brier(P, Y, W).value == pytest.approx(expected, rel=1e-12)


def test_log_loss_clips_where_it_says():
    assert log_loss([0.0], [1], clip=1e-7).value == pytest.approx(-np.log(1e-7))
    assert log_loss([1.0], [1]).value == pytest.approx(0, abs=1e-14)
    with pytest.raises(InputError, match="clip is 0"):
        log_loss([0.5], [1], clip=0)


def test_the_paired_difference_is_the_difference_of_log_losses():
    q = np.full(P.size, Y.mean())
    found = log_loss_difference(P, q, Y, W)
    assert found.value == pytest.approx(log_loss(P, Y, W).value - log_loss(q, Y, W).value)
    assert found.low < found.value < found.high
    terms = np.log(np.where(Y == 1, q, 1 - q)) - np.log(np.where(Y == 1, P, 1 - P))
    repeated = np.repeat(terms, W.astype(int))
    assert found.standard_error == pytest.approx(repeated.std() / np.sqrt(repeated.size))


def test_excess_over_the_truth_has_the_divergence_as_its_mean():
    worse = np.minimum(P * 1.3, 0.999)
    assert excess_log_loss(P, P, Y).value == 0
    # With the expected labels the two are the same number.
    assert excess_log_loss(worse, P, P, W).value == pytest.approx(kl_to_truth(worse, P, W).value)
    assert kl_to_truth(worse, P, W).value > 0


@pytest.mark.parametrize("function", [auc, log_loss, brier])
@pytest.mark.parametrize("column", range(3))
def test_a_missing_value_is_refused(function, column):
    for missing in (np.ma.array(P, mask=np.arange(len(P)) == 2), np.where(np.arange(len(P)) == 2, np.nan, P)):
        given = [P, Y, W]
        given[column] = missing
        with pytest.raises(InputError, match="has a value missing, NaN or infinite in row 2"):
            function(*given)


@pytest.mark.parametrize("level", [-1.0, 1.0, 3.0])
def test_a_level_outside_the_unit_interval_is_refused_by_every_interval(level):
    for metric in (lambda: auc([0.1, 0.2], [0, 1], level=level), lambda: brier([0.1, 0.2], [0, 1], level=level)):
        with pytest.raises(InputError, match=f"level is {level}; a confidence level lies between 0 and 1"):
            metric()
    with pytest.raises(InputError, match=f"level is {level}; a confidence level lies between 0 and 1"):
        poisson_bootstrap(brier, [0.1, 0.2], [0, 1], level=level)


@pytest.mark.parametrize("codes", [[0, 0, 1], [0, 0, 1, 1, 1, 7]])
def test_codes_of_other_rows_are_refused(codes):
    rows = [0.4, 0.1, 0.3, 0.2], [0, 1, 0, 1]
    message = f"the columns differ in length: probabilities has 4, {{}} has {len(codes)} rows"
    with pytest.raises(InputError, match=message.format("codes")):
        gauc(*rows, codes)
    with pytest.raises(InputError, match=message.format("codes")):
        group_sums(*rows, codes)
    with pytest.raises(InputError, match=message.format("clusters")):
        poisson_bootstrap(brier, *rows, clusters=codes)
