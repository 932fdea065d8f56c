"""The Newton system of several fields against a dense solver, in few iterations."""

import numpy as np

from mcnet.bayes.model import Incidence, State
from mcnet.bayes.newton import TOLERANCE, Arrow, Information, conjugate_gradients

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
        shared=whole.sum(axis=0) + np.eye(SHARED),
        own=cross @ deviation,
        couplings=incidence.totals(cross),
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
    matrix[:SHARED, :SHARED] = information.shared
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


def test_one_field_is_solved_at_once():
    information, right = make_information(np.arange(6)[:, None], [6]), random_state([6])
    found = Arrow(information).solve(right)
    np.testing.assert_allclose(flat(found), np.linalg.solve(dense(information), flat(right)), rtol=1e-6, atol=1e-9)


def test_several_fields_and_their_combinations_are_solved_by_few_iterations():
    for codes, sizes in (
        crossed(5, 4),
        crossed(30, 20, 0.6),
        (np.random.default_rng(5).integers(0, 2, (2_000, 12)), [2] * 12),
    ):
        information, solution = make_information(codes, sizes), random_state(sizes)
        arrow, right, expected = Arrow(information), information.times(solution), flat(solution)
        closely, _ = conjugate_gradients(information, arrow, right, 1e-20)
        np.testing.assert_allclose(flat(closely), expected, rtol=1e-4, atol=1e-5)
        _, taken = conjugate_gradients(information, arrow, right, TOLERANCE)
        assert taken < 30
        gained = flat(conjugate_gradients(information, arrow, right)[0]) @ flat(right)
        assert gained > 0.8 * (expected @ flat(right))


def test_products_are_those_of_the_matrix():
    codes, sizes = crossed(5, 4, 0.6)
    information, state = make_information(codes, sizes), random_state(sizes)
    expected = dense(information) @ flat(state)
    np.testing.assert_allclose(flat(information.times(state)), expected, rtol=1e-12, atol=1e-12)
