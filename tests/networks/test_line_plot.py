"""NeuCalib's line plot: the optimum of its problem, with exact derivatives, and no torch."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import mcnet
from mcnet.datasets.simulator import simulate
from mcnet.networks import baselines as line_plot
from mcnet.networks.baselines import LinePlotProblem, fit_line_plot, line_knots


@pytest.fixture(scope="module")
def problem():
    log = simulate(20_000, rate=0.1, seed=3)
    sketch = mcnet.Sketch.from_rows(log.score, log.label, field=log.text("field"))
    cells = (sketch.logit, sketch.weight, sketch.positives, sketch.context.astype(np.int64))
    return LinePlotProblem(*cells, len(sketch.contexts))


def spread(problem, line):
    excess = np.bincount(problem.group, weights=line.predict(problem.points) * problem.weight - problem.positives)
    return float((excess / np.bincount(problem.group, weights=problem.weight)).std())


@pytest.mark.parametrize("normalise", ["global", "field"])
def test_gradient_and_hessian_are_the_derivatives_of_the_loss(problem, normalise):
    given = replace(problem, order=0.5, balance=3.0, normalise=normalise)
    objective = line_plot._Objective(given, line_knots(given.points, given.weight, 8))
    moves = np.random.default_rng(0).normal(size=len(objective.knots)) * 0.5
    steps = 1e-6 * np.eye(len(moves))
    slopes = [(objective.value(moves + step) - objective.value(moves - step)) / 2e-6 for step in steps]
    bends = [(objective.gradient(moves + step) - objective.gradient(moves - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(objective.gradient(moves), slopes, atol=1e-7)
    np.testing.assert_allclose(objective.hessian(moves), bends, atol=1e-7)


def test_it_is_the_optimum_of_its_convex_problem(problem, monkeypatch):
    monkeypatch.setattr(line_plot, "PRIOR_DEVIATION", 1e3)
    line = fit_line_plot(replace(problem, order=0.0), 6)

    def loss(values):
        at = np.interp(problem.points, line.knots, values)
        return float((problem.weight * np.logaddexp(0, at) - problem.positives * at).sum() / problem.weight.sum())

    best = minimize(loss, line.values + 0.1, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    assert loss(line.values) <= best.fun + 1e-9
    p = line.predict(problem.points)
    assert (p * problem.weight).sum() == pytest.approx(problem.positives.sum(), rel=1e-5)


def test_it_hardly_falls_under_its_penalty_and_continues_from_an_earlier_one():
    logit, positives = np.linspace(-3, 0, 40), np.where(np.arange(40) % 8 < 4, 30.0, 10.0)
    problem = LinePlotProblem(logit, np.full(40, 100.0), positives, np.zeros(40, dtype=np.int64), 1, order=0.0)
    assert fit_line_plot(problem, 10).falls() > 1.0
    held = fit_line_plot(replace(problem, order=1.0), 10)
    assert held.falls() < 0.02
    again = fit_line_plot(replace(problem, order=1.0), 10, held)
    np.testing.assert_allclose(again.values, held.values, atol=1e-5)


def test_balance_evens_out_the_field_values(problem):
    # One line can even out field values only where their scores differ.
    apart = replace(problem, points=problem.points + problem.group, order=0.0, normalise="field")
    assert spread(apart, fit_line_plot(replace(apart, balance=1.0), 20)) < 0.7 * spread(apart, fit_line_plot(apart, 20))
