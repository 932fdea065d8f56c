"""The Newton system of several fields: eliminated and factored forms against a dense solver, in few iterations."""

import numpy as np
import pytest

from mcnet.bayes import solver as block_solver
from mcnet.bayes import solver as newton_system
from mcnet.bayes.solver import Arrow, Information, JointMatrix, NewtonSystem, joint_information
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
    return Information(
        incidence=Incidence(codes, sizes),
        shared=whole.sum(axis=0),
        cross=cross,
        own=cross @ deviation,
        prior=np.eye(SHARED),
        precision=[np.linspace(1.0, 4.0 + field, WIDTH) for field in range(len(sizes))],
    )


def random_state(sizes, seed=1):
    rng = np.random.default_rng(seed)
    return State(rng.normal(size=SHARED), [rng.normal(size=(size, WIDTH)) for size in sizes])


def flat(state):
    return np.concatenate([state.shared, *(part.ravel() for part in state.values)])


def dense(information):
    """The matrix column by column, by products with the unit vectors."""
    like = random_state(information.incidence.sizes)
    columns = []
    for unit in np.eye(len(flat(like))):
        rest, values = unit[SHARED:], []
        for part in like.values:
            values.append(rest[: part.size].reshape(part.shape))
            rest = rest[part.size :]
        columns.append(flat(information.times(State(unit[:SHARED], values))))
    return np.column_stack(columns)


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


def test_eliminating_the_combinations_saves_iterations():
    codes, sizes = crossed(12, 10)
    information = make_information(codes, sizes)
    right = random_state(sizes)
    _, without = newton_system.conjugate_gradients(information, Arrow(information), right)
    system = NewtonSystem(information, Arrow(information))
    system.solve(right)
    assert system.iterations < without


def test_few_values_in_many_contexts_are_solved_by_one_matrix():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 2, (2_000, 12))
    information = make_information(codes, [2] * 12)
    assert JointMatrix.is_worth_it(information)
    system = NewtonSystem(information, Arrow(information))
    right = random_state([2] * 12)
    np.testing.assert_allclose(
        flat(system.solve(right)), np.linalg.solve(dense(information), flat(right)), rtol=1e-6, atol=1e-9
    )
    assert system.iterations == 1
    # The same matrix serves where the curvature has changed a little.
    changed = Information(
        information.incidence,
        1.2 * information.shared,
        1.2 * information.cross,
        1.2 * information.own,
        information.prior,
        [2.0 * part for part in information.precision],
    )
    again = NewtonSystem(changed, Arrow(changed), system.joint)
    found = flat(again.solve(right))
    expected = np.linalg.solve(dense(changed), flat(right))
    assert again.joint is system.joint
    assert again.iterations <= 6
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-3 * np.abs(expected).max())


def test_the_joint_matrix_is_the_curvature_with_and_without_numba(monkeypatch):
    rng = np.random.default_rng(6)
    codes = rng.integers(-1, 3, (60, 3))
    information = make_information(codes, [3, 3, 3])
    expected = dense(information)
    matrix, starts = joint_information(information, 3)
    np.testing.assert_allclose(matrix, expected, rtol=1e-10, atol=1e-10)
    assert starts == (SHARED, SHARED + 3 * WIDTH, SHARED + 6 * WIDTH)
    fewer, _ = joint_information(information, 2)
    np.testing.assert_allclose(fewer, expected[: len(fewer), : len(fewer)], rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(block_solver, "numba_installed", lambda: False)
    np.testing.assert_allclose(joint_information(information, 3)[0], expected, rtol=1e-10, atol=1e-10)


def test_compiled_products_equal_plain_ones(monkeypatch):
    codes, sizes = crossed(5, 4, 0.6)
    information, state = make_information(codes, sizes), random_state(sizes)
    plain = flat(information.times(state))
    monkeypatch.setattr(block_solver, "FEWEST_COMPILED_CONTEXTS", 0)
    np.testing.assert_allclose(flat(information.times(state)), plain, rtol=1e-12, atol=1e-12)


def test_columns_that_a_context_does_not_reach_are_left_out(monkeypatch):
    codes = np.random.default_rng(7).integers(-1, 3, (40, 2))
    information, state = make_information(codes, [3, 3]), random_state([3, 3])
    for context, (first, beyond) in enumerate([(1, 3), (2, 4), (4, 5), (1, 5), (1, 1)] * 8):
        information.cross[context, :, 1:first] = information.cross[context, :, beyond:] = 0.0
    information.cross[3, 0] = 0.0
    assert information.spans[:3].tolist() == [[1, 3], [2, 4], [4, 5]]
    assert information.spans[3].tolist() == [1, 5]
    assert information.spans[4, 0] >= information.spans[4, 1]
    plain, expected = flat(information.times(state)), dense(information)
    np.testing.assert_allclose(joint_information(information, 2)[0], expected, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(block_solver, "FEWEST_COMPILED_CONTEXTS", 0)
    np.testing.assert_allclose(flat(information.times(state)), plain, rtol=1e-12, atol=1e-12)
