"""A prior of one's own, in a module of its own."""

import importlib
import sys

import numpy as np
import pytest

import mcnet
from mcnet.bayes.prior import EmpiricalBayes, Prior
from mcnet.errors import InputError

MODULE = """
from dataclasses import replace
import numpy as np
from mcnet.bayes.prior import EmpiricalBayes

class Rigid:
    def first(self, fields, combinations):
        start = EmpiricalBayes().first(fields, combinations)
        return replace(start, values=np.full_like(start.values, 1e-8))

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
