"""Few positives: the fit is averaged over how wrong the base scores may be, by evidence."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, logsumexp
from scipy.stats import norm

import mcnet
from mcnet.bayes import averaging, fit
from mcnet.bayes.averaging import (
    FIELD_WIDTHS,
    LEVEL_SHARES,
    LEVEL_WIDTHS,
    SLOPE_MEANS,
    SLOPE_SHARES,
    SLOPE_WIDTHS,
    fit_lines,
)
from mcnet.bayes.solver import Arrow
from mcnet.bayes.structure import State


def world(rows, seed, rate=0.03, level=0.0, slope=1.0, values=3):
    """Scores whose true logit is level + slope × theirs, labels, field values."""
    rng = np.random.default_rng(seed)
    base = rng.normal(logit(rate) - 0.4, 1.0, rows)
    label = rng.random(rows) < expit(level + slope * base)
    label[:2] = [True, False]
    return expit(base), label.astype(float), rng.integers(0, values, rows).astype(str)


def without_average(monkeypatch):
    monkeypatch.setattr(fit, "averaged_share", lambda table: 0.0)


def integrated(logits, weight, positives, centre, level, slope, mean):
    """The logarithm of the evidence of a line under normal priors, by a sum over a fine grid of (b, a)."""
    unit = np.linspace(-6.0, 6.0, 121)
    b, a = (part.ravel()[:, None] for part in np.meshgrid(level * unit, mean + slope * unit))
    z = logits + b + a * (logits - centre)
    logs = z @ positives - np.logaddexp(0.0, z) @ weight
    logs += norm.logpdf(b[:, 0], scale=level) + norm.logpdf(a[:, 0], loc=mean, scale=slope)
    return logsumexp(logs) + np.log(level * slope * (unit[1] - unit[0]) ** 2)


@pytest.mark.parametrize("positives", [12, 150])
def test_the_evidence_of_lines_is_the_integral_of_their_likelihood(positives):
    scores, labels, _ = world(round(positives / 0.03), seed=positives, level=0.3)
    cell, which = np.unique(np.round(logit(scores), 1), return_inverse=True)
    cells = cell, np.bincount(which).astype(float), np.bincount(which, weights=labels)
    lines = fit_lines(*cells)
    wide = np.array([LEVEL_WIDTHS[-1], SLOPE_WIDTHS[-1]]) ** 2
    tight = averaging.tightened(lines.moves[:, :, :2], lines.numbers[:, :2], wide)
    shares = np.log(np.outer(LEVEL_SHARES, SLOPE_SHARES).ravel())
    logs = lines.evidence[0] + tight.evidence[0] - shares
    for level, slope in ((1, 1), (2, 3), (3, 4)):
        found = logs[level * len(SLOPE_WIDTHS) + slope]
        truth = integrated(*cells, lines.centre, LEVEL_WIDTHS[level], SLOPE_WIDTHS[slope], SLOPE_MEANS[slope])
        assert found == pytest.approx(truth, abs=0.2)


def test_the_evidence_of_levels_of_values_is_the_integral_over_each():
    scores, labels, field = world(600, seed=4, rate=0.1)
    value = field.astype(np.int64)
    lines = fit_lines(logit(scores), np.ones(600), labels, value, 3)
    # Given (b, a) the values are independent: compare each line's profile with one-dimensional integrals.
    grid = np.linspace(-6.0, 6.0, 2_001)
    for number, width in enumerate(FIELD_WIDTHS[1:], start=1):
        b, a = lines.numbers[number, :2]
        z = logit(scores) + b + a * (logit(scores) - lines.centre)
        exact, laplace = 0.0, 0.0
        for each in range(3):
            rows = value == each
            at = np.array([labels[rows] @ (z[rows] + x) - np.logaddexp(0.0, z[rows] + x).sum() for x in grid])
            exact += logsumexp(at + norm.logpdf(grid, scale=width)) + np.log(grid[1] - grid[0])
            x = lines.numbers[number, 2 + each]
            p = expit(z[rows] + x)
            laplace += labels[rows] @ (z[rows] + x) - np.logaddexp(0.0, z[rows] + x).sum() - 0.5 * x**2 / width**2
            laplace -= 0.5 * np.log1p(width**2 * np.sum(p * (1 - p)))
        assert laplace == pytest.approx(exact, abs=0.05)
        wide = np.array([LEVEL_WIDTHS[-1], SLOPE_WIDTHS[-1]])
        rest = lines.evidence[number] - laplace + 0.5 * np.sum((np.array([b, a]) / wide) ** 2) + np.log(wide).sum()
        assert rest == pytest.approx(0.5 * np.linalg.slogdet(lines.moves[number, :, :2])[1], abs=1e-4)


def test_scores_that_few_rows_agree_with_stay_as_they_are():
    scores, labels, field = world(700, seed=2)
    for fields in ({}, {"field": field}):
        fitted = mcnet.BayesMCNet().fit(scores, labels, **fields)
        np.testing.assert_allclose(fitted.predict(scores, **fields), scores, rtol=1e-8)


def test_few_positives_move_scores_less_than_an_offset_does():
    moved = []
    for seed in range(12):
        scores, labels, _ = world(400, seed=seed)
        fitted, offset = (mcnet.calibrator(name).fit(scores, labels) for name in ("mcnet-bayes", "offset"))
        moved.append([np.abs(logit(each.predict(scores)) - logit(scores)).mean() for each in (fitted, offset)])
    assert np.mean(moved, axis=0)[0] < 0.4 * np.mean(moved, axis=0)[1]


def test_scores_that_are_clearly_wrong_are_corrected(monkeypatch):
    scores, labels, _ = world(5_000, seed=1, level=-1.0, slope=0.6)
    averages = logit(mcnet.BayesMCNet().fit(scores, labels).predict(scores))
    without_average(monkeypatch)
    alone = logit(mcnet.BayesMCNet().fit(scores, labels).predict(scores))
    assert np.abs(averages - alone).mean() < 0.1 * np.abs(alone - logit(scores)).mean()


def test_many_positives_give_the_bits_of_the_fit_alone(monkeypatch):
    scores, labels, field = world(25_000, seed=3, rate=0.3, values=4)
    averages = mcnet.BayesMCNet().fit(scores, labels, field=field).predict(scores, field)
    without_average(monkeypatch)
    np.testing.assert_array_equal(mcnet.BayesMCNet().fit(scores, labels, field=field).predict(scores, field), averages)


def test_values_of_a_field_that_says_nothing_lie_closer_together_than_those_of_the_fit_alone(monkeypatch):
    apart = []
    for _ in range(2):
        for seed in range(6):
            scores, labels, field = world(3_000, seed=seed, level=0.5)
            fitted = mcnet.BayesMCNet().fit(scores, labels, field=field)
            apart.append(np.ptp([logit(fitted.predict_one(0.05, value)) for value in "012"]))
        without_average(monkeypatch)
    assert np.mean(apart[:6]) < 0.9 * np.mean(apart[6:])


@pytest.mark.filterwarnings("ignore::mcnet.CalibrationWarning")
@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(20, 400),
    level=st.floats(-2.0, 2.0),
    slope=st.floats(0.0, 2.0),
    values=st.sampled_from([1, 3, 30]),
)
def test_averages_rise_and_weights_count_as_repetitions_in_any_order(seed, rows, level, slope, values):
    scores, labels, field = world(rows, seed, rate=0.2, level=level, slope=slope, values=values)
    repeated = np.random.default_rng(seed).integers(1, 4, rows)
    order = np.random.default_rng(seed).permutation(rows)
    make = partial(mcnet.BayesMCNet, isotonic_share=0.0)
    weighted = make().fit(scores, labels, field=field, weight=repeated)
    again = make().fit(*(np.repeat(part, repeated) for part in (scores, labels)), field=np.repeat(field, repeated))
    shuffled = make().fit(scores[order], labels[order], field=field[order], weight=repeated[order])
    grid = np.linspace(0.001, 0.999, 200)
    curve = weighted.predict(grid, np.full(200, field[0]))
    assert (np.diff(curve) >= 0.0).all()
    for other in (again, shuffled):
        np.testing.assert_allclose(logit(other.predict(grid, np.full(200, field[0]))), logit(curve), atol=1e-5)


@pytest.mark.parametrize("fields", [1, 2])
def test_a_field_whose_values_may_all_be_alike_counts_for_less_and_one_that_clearly_tells_keeps_its_values(
    monkeypatch, fields
):
    scores, _, first = world(1_000, seed=11, values=4)
    second = np.roll(first, 1)

    def spread(apart):
        truth = np.where(first == "0", apart, 0.0)
        label = (np.random.default_rng(3).random(len(scores)) < expit(logit(scores) + 0.8 + truth)).astype(float)
        given = {"a": first} if fields == 1 else {"a": first, "b": second}
        fitted = mcnet.BayesMCNet().fit(scores, label, field=given)
        p = [fitted.predict([0.05], field={name: [value] for name in given})[0] for value in "0123"]
        return np.ptp(logit(p))

    averaged = spread(0.0), spread(3.0)
    monkeypatch.setattr(averaging, "ALIKE_SHARE", 1e-12)
    before = spread(0.0), spread(3.0)
    assert averaged[0] < 0.9 * before[0]
    assert averaged[1] == pytest.approx(before[1], rel=0.01)


def test_several_fields_are_averaged_too():
    scores, labels, field = world(500, seed=6)
    both = {"one": field, "two": field[::-1]}
    fitted = mcnet.BayesMCNet().fit(scores, labels, field=both)
    np.testing.assert_allclose(logit(fitted.predict(scores, both)), logit(scores), atol=0.3)
    low, high = fitted.interval(scores, both)
    assert (low < scores).all()
    assert (scores < high).all()


def test_intervals_of_scores_that_stay_as_they_are_have_a_width():
    scores, labels, _ = world(700, seed=2)
    low, high = mcnet.BayesMCNet().fit(scores, labels).interval(scores)
    assert (low < scores).all()
    assert (scores < high).all()
    assert np.median(logit(high) - logit(low)) > 0.05


@pytest.mark.parametrize("with_field", [False, True])
def test_a_tighter_prior_gives_nearly_the_mode_and_the_evidence_of_a_fit_under_it(monkeypatch, with_field):
    scores, labels, field = world(12_000, seed=8, rate=0.05, level=0.3, slope=0.9)
    seen = []
    monkeypatch.setattr(fit, "averaged", lambda lifted, full, share: seen.append(full) or lifted)
    fitted = mcnet.BayesMCNet().fit(scores, labels, **({"field": field} if with_field else {}))
    full, number = seen[0], 2 * len(SLOPE_WIDTHS) + 2  # a level of ±0.5 logits, a slope of 1 ± 0.1
    state, posterior = full.state, full.posterior
    directions = np.zeros((2, len(state.shared)))
    directions[0, 0], directions[1, 1:] = 1.0, fitted.posterior_.shapes.level
    wide = np.array([averaging.OFFSET_VARIANCE, averaging.LEVEL_VARIANCE])
    more = directions.T @ np.diag(averaging.PRECISIONS[:, number] - 1.0 / wide) @ directions
    tight = replace(posterior)
    vars(tight)["shared_precision"] = posterior.shared_precision + more

    def evidence(model, at, arrow):
        of_prior = 0.5 * np.linalg.slogdet(model.shared_precision)[1]
        return averaging.log_evidence(model, at, arrow) + of_prior

    moved = state
    for _ in range(10):  # the slow way: Newton's steps to the maximum under the tighter prior
        arrow = Arrow(tight.information(tight.contexts(moved), observed=True))
        moved = moved.plus(-1.0, arrow.solve(tight.gradient(moved)))
    moves = [full.arrow.solve(State(pull, [np.zeros_like(part) for part in state.values])) for pull in directions]
    covariance = directions @ np.stack([move.shared for move in moves]).T
    known = averaging.tightened(covariance[None], (directions @ (state.shared - posterior.centre))[None], wide)
    near = state.plus(known.pull[0, number, 0], moves[0]).plus(known.pull[0, number, 1], moves[1])
    assert np.abs(directions @ (moved.shared - state.shared)).max() > 0.01
    np.testing.assert_allclose(directions @ near.shared, directions @ moved.shared, atol=0.005)
    gained = known.evidence[0, number] - averaging.LOG_SHARES[number]
    slow = evidence(tight, moved, arrow) - evidence(posterior, state, full.arrow)
    assert gained == pytest.approx(slow, abs=0.3)
