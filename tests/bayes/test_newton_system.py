"""The Newton system of several fields: eliminated and factored forms against a dense solver, in few iterations."""

import numpy as np
import pytest

from mcnet.bayes import solver
from mcnet.bayes.solver import Arrow, Information, NewtonSystem, conjugate_gradients
from mcnet.bayes.structure import Incidence, State

WIDTH, SHARED = 3, 5


def make_information(codes, sizes, seed=0):
    """A curvature as cells give it: every context's blocks are sums over cells of one vector with itself."""
    rng = np.random.default_rng(seed)
    contexts = len(codes)
    by_shared = rng.normal(size=(contexts, 4, SHARED))
    deviation = rng.normal(size=(SHARED, WIDTH))
    weight = rng.uniform(0.1, 3.0, (contexts, 4))
    whole = np.einsum("cr,crs,crt->cst", weight, by_shared, by_shared)
    cross = np.einsum("cst,sp->cpt", whole, deviation)
    incidence = Incidence(codes, sizes)
    return Information(
        incidence=incidence,
        shared=whole.sum(axis=0),
        own=cross @ deviation,
        couplings=incidence.totals(cross),
        prior=np.eye(SHARED),
        precision=[np.linspace(1.0, 4.0 + field, WIDTH) for field in range(len(sizes))],
    )


def random_state(sizes, seed=1):
    rng = np.random.default_rng(seed)
    return State(rng.normal(size=SHARED), [rng.normal(size=(size, WIDTH)) for size in sizes])


def flat(state):
    return np.concatenate([state.shared, *(part.ravel() for part in state.values)])


def dense(information):
    """The matrix itself: per context, its own block between all of its values."""
    incidence = information.incidence
    starts = SHARED + WIDTH * np.concatenate([[0], np.cumsum(incidence.sizes)])
    matrix = np.zeros((starts[-1], starts[-1]))
    matrix[:SHARED, :SHARED] = information.shared + information.prior
    for codes, own in zip(incidence.codes, information.own, strict=True):
        rows = [starts[field] + WIDTH * code + np.arange(WIDTH) for field, code in enumerate(codes) if code >= 0]
        for one in rows:
            for two in rows:
                matrix[np.ix_(one, two)] += own
    for field, (size, coupling) in enumerate(zip(incidence.sizes, information.couplings, strict=True)):
        rows = slice(starts[field], starts[field + 1])
        matrix[rows, :SHARED] = coupling.reshape(-1, SHARED)
        matrix[:SHARED, rows] = matrix[rows, :SHARED].T
        matrix[rows, rows] += np.diag(np.tile(information.precision[field], size))
    return matrix


def crossed(one, two, share=1.0):
    """Two fields and their combinations; some combinations have no deviation of their own."""
    codes = np.array([(a, b) for a in range(one) for b in range(two)])
    rng = np.random.default_rng(3)
    kept = rng.random(len(codes)) < share
    pair = np.full(len(codes), -1)
    pair[kept] = rng.permutation(int(kept.sum()))
    return np.column_stack([codes, pair]), [one, two, int(kept.sum())]


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_combinations_of_two_fields_are_eliminated_exactly(share):
    codes, sizes = crossed(5, 4, share)
    information = make_information(codes, sizes)
    assert information.incidence.one_to_one() == 2
    system = NewtonSystem(information, Arrow(information))
    right = random_state(sizes)
    expected = np.linalg.solve(dense(information), flat(right))
    error = flat(system.solve(right)) - expected
    size = expected @ dense(information) @ expected
    assert error @ dense(information) @ error < 2e-6 * size  # the tolerance of the iterations


@pytest.mark.parametrize("largest", [0, 10_000])
def test_several_fields_are_solved_by_one_matrix_or_by_iterations(largest, monkeypatch):
    monkeypatch.setattr(solver, "LARGEST_MATRIX", largest)
    codes = np.random.default_rng(5).integers(0, 2, (2_000, 12))
    information, right = make_information(codes, [2] * 12), random_state([2] * 12)
    found = NewtonSystem(information, Arrow(information)).solve(right, 1e-16)
    np.testing.assert_allclose(flat(found), np.linalg.solve(dense(information), flat(right)), rtol=1e-5, atol=1e-7)


def test_the_joint_matrix_is_the_curvature():
    rng = np.random.default_rng(6)
    codes = rng.integers(-1, 3, (60, 3))
    information = make_information(codes, [3, 3, 3])
    expected = dense(information)
    matrix, starts = information.joint(3)
    np.testing.assert_allclose(matrix, expected, rtol=1e-10, atol=1e-10)
    assert starts == (SHARED, SHARED + 3 * WIDTH, SHARED + 6 * WIDTH)
    fewer, _ = information.joint(2)
    np.testing.assert_allclose(fewer, expected[: len(fewer), : len(fewer)], rtol=1e-10, atol=1e-10)


def test_products_are_those_of_the_matrix():
    codes, sizes = crossed(5, 4, 0.6)
    information, state = make_information(codes, sizes), random_state(sizes)
    expected = dense(information) @ flat(state)
    np.testing.assert_allclose(flat(information.times(state)), expected, rtol=1e-12, atol=1e-12)
