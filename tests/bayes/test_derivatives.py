"""BayesMCNet against slow and plain code: derivatives of the posterior, its Newton system, its maximum."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from tests.bayes.test_bayes import cells_of, two_fields

from benchmarks.bayes_shapes import shape_basis
from mcnet.bayes import likelihood
from mcnet.bayes.fit import fit_bayes
from mcnet.bayes.likelihood import make_cells
from mcnet.bayes.model import Incidence, State, make_panels, make_shapes
from mcnet.bayes.newton import Arrow, Balance, Information, Posterior, conjugate_gradients, own_variances
from mcnet.bayes.prior import EmpiricalBayes


def make_posterior(rows=2_000, panels=7, shape="step", fields=2, seed=0, inside=np.inf):
    """The posterior of a simulated log; its panels are of the scores whose logits are `inside` of the mean."""
    log = two_fields(rows, seed=seed, rate=0.2)
    names = ["country", "source"][:fields]
    x, contexts, w, y, codes, sizes = cells_of(log, names)
    kept = np.abs(x - x.mean()) < inside
    grid = make_panels(x[kept], w[kept], y[kept], panels)
    shapes = make_shapes(grid, shape_basis(grid, shape, 5), 3)
    return Posterior(
        cells=make_cells(grid, x, contexts, w, y, len(codes)),
        shapes=shapes,
        incidence=Incidence(codes, sizes),
        strengths=EmpiricalBayes().first(fields, 0),
    )


def random_state(posterior, seed=0, size=0.3):
    draw = np.random.default_rng(seed)
    width = posterior.shapes.deviation.shape[1]
    return State(
        posterior.centre + size * draw.standard_normal(len(posterior.centre)),
        [size * draw.standard_normal((count, width)) for count in posterior.incidence.sizes],
    )


def gradient(posterior, state):
    return posterior.gradient(state, posterior.evaluate(state))


def information_at(posterior, state):
    return posterior.information(posterior.evaluate(state))


def flatten(state):
    return np.concatenate([state.shared, *(numbers.ravel() for numbers in state.values)])


def unflatten(vector, like):
    shared, rest = vector[: len(like.shared)], vector[len(like.shared) :]
    values = []
    for numbers in like.values:
        values.append(rest[: numbers.size].reshape(numbers.shape))
        rest = rest[numbers.size :]
    return State(shared, values)


def slow_calibrated(panels, offset, log_slope, logits):
    """The integral of the step function exp(log-slope), panel by panel."""
    t = (logits - panels.centre) / panels.scale
    start = panels.edges[panels.origin]
    bounds = np.concatenate([[-np.inf], panels.edges, [np.inf]])
    total = np.full(len(t), offset)
    for panel in range(len(panels.mass)):
        low, high = np.minimum(t, start), np.maximum(t, start)
        overlap = np.clip(np.minimum(high, bounds[panel + 1]) - np.maximum(low, bounds[panel]), 0.0, None)
        total += np.sign(t - start) * overlap * np.exp(log_slope[panel])
    return total


# --- the numbers underneath ------------------------------------------------------------------------------------------


def test_cells_are_calibrated_by_the_plain_integral():
    posterior = make_posterior()
    cells, at = posterior.cells, posterior.evaluate(random_state(posterior))
    panels = cells.panels
    near = np.array([panels.edges[g - 1] if g > panels.origin else panels.edges[g] for g in range(len(panels.mass))])
    raw = panels.centre + panels.scale * (near[cells.panel] + cells.place)
    for context in range(cells.contexts):
        own = cells.context == context
        expected = slow_calibrated(panels, at.offset[context], at.log_slopes[context], raw[own])
        np.testing.assert_allclose(at.logits[own], expected, rtol=1e-12, atol=1e-12)


def test_products_with_the_panels_crossed_are_running_sums():
    posterior = make_posterior()
    panels, slopes = posterior.cells.panels, posterior.evaluate(random_state(posterior)).slopes
    found, lengths = slopes @ panels.crossed.T, np.diff(panels.edges, prepend=panels.edges[0], append=panels.edges[-1])
    for panel in range(len(panels.mass)):
        between = range(panels.origin + 1, panel) if panel > panels.origin else range(panel + 1, panels.origin + 1)
        sign = 1.0 if panel > panels.origin else -1.0
        expected = sign * sum((slopes[:, g] * lengths[g] for g in between), np.zeros(len(slopes)))
        np.testing.assert_allclose(found[:, panel], expected, rtol=1e-12, atol=1e-15)


def test_the_loss_is_minus_the_plain_log_likelihood():
    posterior = make_posterior()
    cells, at = posterior.cells, posterior.evaluate(random_state(posterior))
    p = expit(at.logits)
    plain = -np.sum(cells.positives * np.log(p) + (cells.weight - cells.positives) * np.log1p(-p))
    assert cells.loss(at) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("shape", ["step", "linear", "cubic"])
def test_the_gradient_is_the_derivative_of_the_value(shape):
    posterior = make_posterior(shape=shape)
    state = random_state(posterior)
    point, step = flatten(state), 1e-5
    slow = np.array(
        [
            (posterior.value(unflatten(point + h, state)) - posterior.value(unflatten(point - h, state))) / (2 * step)
            for h in step * np.eye(len(point))
        ]
    )
    np.testing.assert_allclose(flatten(gradient(posterior, state)), slow, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("normalize", ["global", "field"])
def test_the_balanced_gradient_is_the_derivative_of_the_balanced_value(normalize):
    posterior = make_posterior()
    state, balance = random_state(posterior), Balance(0.5, normalize, 2)
    point, step = flatten(state), 1e-5
    slow = [
        balance.value_and_gradient(posterior, unflatten(point + h, state))[0]
        - balance.value_and_gradient(posterior, unflatten(point - h, state))[0]
        for h in step * np.eye(len(point))
    ]
    fast = flatten(balance.value_and_gradient(posterior, state)[1])
    np.testing.assert_allclose(fast, np.array(slow) / (2 * step), rtol=1e-5, atol=1e-4)


def dense_information(information, state):
    size = len(flatten(state))
    return np.column_stack([flatten(information.times(unflatten(unit, state))) for unit in np.eye(size)])


@pytest.mark.parametrize("inside", [np.inf, 0.8])
@pytest.mark.parametrize("shape", ["step", "cubic"])
def test_the_information_is_the_weighted_square_of_derivatives(shape, inside):
    posterior = make_posterior(rows=500, shape=shape, inside=inside)
    assert (posterior.cells.panel == 0).any() == (inside < np.inf)
    state = random_state(posterior)
    point, step = flatten(state), 1e-5

    def calibrated(vector):
        return posterior.evaluate(unflatten(vector, state)).logits

    jacobian = np.column_stack(
        [(calibrated(point + h) - calibrated(point - h)) / (2 * step) for h in step * np.eye(len(point))]
    )
    chance = expit(calibrated(point))
    weight = posterior.cells.weight * chance * (1 - chance)
    prior = np.zeros((len(point), len(point)))
    shared = len(state.shared)
    prior[:shared, :shared] = posterior.strengths.shared_precision(posterior.shapes)
    diagonal = [
        np.tile(posterior.strengths.value_precision(field, posterior.shapes), len(numbers))
        for field, numbers in enumerate(state.values)
    ]
    prior[range(shared, len(point)), range(shared, len(point))] = np.concatenate(diagonal)
    slow = jacobian.T @ (weight[:, None] * jacobian) + prior
    fast = dense_information(information_at(posterior, state), state)
    np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-5)


def test_the_information_is_the_same_in_chunks(monkeypatch):
    posterior = make_posterior(rows=500, shape="linear")
    state = random_state(posterior)
    whole = dense_information(information_at(posterior, state), state)
    monkeypatch.setattr(likelihood, "CHUNK", 100)
    np.testing.assert_allclose(dense_information(information_at(posterior, state), state), whole, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("fields", [1, 2])
def test_the_newton_system_is_solved_as_a_dense_solver_would(fields):
    posterior = make_posterior(fields=fields)
    state = random_state(posterior)
    information = information_at(posterior, state)
    assert isinstance(information, Information)
    right = random_state(posterior, seed=5)
    found, _ = conjugate_gradients(information, Arrow(information), right, tolerance=1e-22, iterations=500)
    expected = np.linalg.solve(dense_information(information, state), flatten(right))
    np.testing.assert_allclose(flatten(found), expected, rtol=1e-6, atol=1e-9)


def test_variances_of_one_field_are_the_diagonal_of_the_inverse():
    posterior = make_posterior(fields=1)
    state = random_state(posterior)
    information = information_at(posterior, state)
    inverse = np.diag(np.linalg.inv(dense_information(information, state)))
    arrow = Arrow(information)
    covariance = arrow.shared_covariance()
    shared = len(state.shared)
    np.testing.assert_allclose(np.diag(covariance), inverse[:shared], rtol=1e-6)
    np.testing.assert_allclose(
        own_variances(arrow.inverse[0], arrow.coupling[0], covariance).ravel(), inverse[shared:], rtol=1e-6
    )


# --- the optimum -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["country"], ["country", "source"]])
def test_the_optimum_is_that_of_a_generic_optimiser(names):
    log = two_fields(3_000, rate=0.1)
    x, contexts, w, y, codes, sizes = cells_of(log, names)
    model = fit_bayes(x, contexts, w, y, codes, sizes, panels=10, bends=3, lift=False)
    posterior = Posterior(
        make_cells(model.panels, x, contexts, w, y, len(codes)),
        model.shapes,
        Incidence(codes, sizes),
        model.strengths,
    )
    assert np.max(np.abs(flatten(gradient(posterior, model.state)))) < 0.02
    best = posterior.value(model.state)
    slow = minimize(
        lambda v: (posterior.value(unflatten(v, model.state)), flatten(gradient(posterior, unflatten(v, model.state)))),
        flatten(random_state(posterior, seed=1)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-6},
    )
    assert best <= slow.fun + 1e-5
    draw = np.random.default_rng(0)
    point = flatten(model.state)
    for _ in range(20):
        nudged = unflatten(point + 0.01 * draw.standard_normal(len(point)), model.state)
        assert posterior.value(nudged) > best


# --- behaviour -------------------------------------------------------------------------------------------------------
