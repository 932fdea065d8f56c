"""The prior: what few positives may change, and a prior of one's own in a module of its own."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest

import mcnet
from mcnet._shared.arrays import sigmoid
from mcnet.bayes.posterior import BayesFit
from mcnet.bayes.prior import LEVEL_WIDTHS, OFFSET_WIDTHS, EmpiricalBayes, Prior, default_strengths, relearn
from mcnet.bayes.structure import State, make_panels, make_shapes, shape_basis
from mcnet.errors import InputError

MODULE = """
from dataclasses import replace
import numpy as np
from mcnet.bayes.prior import default_strengths

class Rigid:
    def first(self, fields, combinations):
        start = default_strengths(fields, combinations)
        return replace(start, values=tuple(np.full(3, 1e-8) for _ in start.values))

    def learn(self, strengths, shapes, state, variances, shared_covariance):
        return strengths
"""


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    field = rng.integers(0, 3, 3_000)
    logits = rng.normal(-1.0, 1.0, 3_000)
    chance = 1.0 / (1.0 + np.exp(-logits - np.array([-0.8, 0.0, 0.8])[field]))
    return 1.0 / (1.0 + np.exp(-logits)), (rng.random(3_000) < chance).astype(int), field


def test_a_prior_from_a_temporary_module_is_the_one_that_is_used(tmp_path, monkeypatch, rows):
    (tmp_path / "rigid_prior.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    prior = importlib.import_module("rigid_prior").Rigid()
    monkeypatch.delitem(sys.modules, "rigid_prior")
    assert isinstance(prior, Prior)
    scores, labels, field = rows
    rigid = mcnet.BayesMCNet(prior=prior).fit(scores, labels, field=field)
    free = mcnet.BayesMCNet().fit(scores, labels, field=field)
    apart = [np.ptp([fitted.predict_one(0.3, value) for value in ("0", "1", "2")]) for fitted in (rigid, free)]
    assert apart[0] < 1e-3 < 0.1 < apart[1]


def test_the_default_prior_is_empirical_bayes(rows):
    scores, labels, field = rows
    one = mcnet.BayesMCNet().fit(scores, labels, field=field)
    two = mcnet.BayesMCNet(prior=EmpiricalBayes()).fit(scores, labels, field=field)
    np.testing.assert_allclose(two.predict(scores, field), one.predict(scores, field), rtol=1e-9)


def test_what_is_no_prior_is_refused(rows):
    with pytest.raises(InputError, match="prior is 3; it needs the methods first and learn"):
        mcnet.BayesMCNet(prior=3).fit(*rows[:2])


def excess(method, base, values=0, seeds=16, rows=1_000):
    """Return the mean log-loss over the raw scores on the true probabilities, and the same of other methods."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        truth = rng.normal(-4.0, 1.0, rows + 20_000)
        p, score, field = sigmoid(truth), sigmoid(base(truth)), rng.integers(0, max(values, 1), len(truth))
        label = rng.random(rows) < p[:rows]
        given, asked = ({"field": f} if values else {} for f in (field[:rows], field[rows:]))
        fitted = mcnet.calibrator(method).fit(score[:rows], label, **given)
        q = np.column_stack([score[rows:], fitted.predict(score[rows:], **asked)])
        loss = -(p[rows:, None] * np.log(q) + (1 - p[rows:, None]) * np.log1p(-q)).mean(axis=0)
        found.append(loss[1] - loss[0])
    return 1e5 * float(np.mean(found))


@pytest.mark.filterwarnings("ignore::mcnet.CalibrationWarning")
def test_thirty_positives_hardly_harm_scores_that_are_right():
    alone, with_field = (excess("mcnet-bayes", lambda truth: truth, values) for values in (0, 4))
    platt, offset = (excess(method, lambda truth: truth) for method in ("platt", "offset"))
    assert alone < 0.6 * offset < 0.6 * platt
    assert with_field < offset


@pytest.mark.filterwarnings("ignore::mcnet.CalibrationWarning")
def test_thirty_positives_correct_scores_that_are_badly_wrong():
    def wrong(truth):
        return 1.6 * truth + 3.2

    best = min(excess(method, wrong) for method in ("offset", "platt"))
    assert best < -500.0
    assert all(excess("mcnet-bayes", wrong, values) < 0.9 * best for values in (0, 4))


def test_offset_and_slope_are_the_mean_over_all_prior_widths_weighted_by_evidence():
    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=400))
    panels = make_panels(x, np.ones(400), (np.arange(400) % 7 == 0).astype(float), 8)
    shapes = make_shapes(panels, shape_basis(panels, "step"), 3)
    size = 1 + len(shapes.level)
    known = np.diag(rng.uniform(1.0, 40.0, size)) + 3.0  # a normal likelihood of the shared vector
    slope = 4.0 * rng.normal(size=size)
    first = default_strengths(0, 0)

    def mode(strengths):
        return np.linalg.inv(known + strengths.shared_precision(shapes)) @ slope

    modes, evidence = [], []
    for offset, share in OFFSET_WIDTHS.items():
        for level, of_level in LEVEL_WIDTHS.items():
            prior = replace(first, offset=offset**2, level=level**2).shared_precision(shapes)
            modes.append(np.linalg.inv(known + prior) @ slope)
            determinants = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(known + prior)[1]
            evidence.append(np.log(share * of_level) + 0.5 * (determinants + slope @ modes[-1]))
    mean = np.average(modes, axis=0, weights=np.exp(np.array(evidence) - max(evidence)))
    covariance = np.linalg.inv(known + first.shared_precision(shapes))
    learnt = relearn(first, shapes, State(mode(first), []), [], covariance)
    found = mode(replace(first, offset=learnt.offset, level=learnt.level))
    assert found[0] == pytest.approx(mean[0], rel=1e-6)
    assert shapes.level @ found[1:] == pytest.approx(shapes.level @ mean[1:], rel=1e-6)


def test_a_training_state_of_before_has_the_wide_prior_it_was_fitted_with(rows):
    fit = mcnet.BayesMCNet().fit(*rows[:2]).posterior_
    arrays = fit.arrays()
    again = BayesFit.from_arrays(arrays)
    assert (again.strengths.offset, again.strengths.level) == (fit.strengths.offset, fit.strengths.level)
    del arrays["line_strengths"]
    assert (BayesFit.from_arrays(arrays).strengths.offset, BayesFit.from_arrays(arrays).strengths.level) == (9.0, 0.25)
