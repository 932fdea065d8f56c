"""The Newton system of several fields: eliminated and factored forms against a dense solver, in few iterations."""

import numpy as np
import pytest

from mcnet.bayes import solver
from mcnet.bayes.solver import Arrow, FieldMatrix, Information, NewtonSystem, conjugate_gradients, joint_information
from mcnet.bayes.structure import Incidence, State

WIDTH, SHARED = 3, 5


def make_information(codes, sizes, seed=0, pairs=()):
    """A curvature as cells give it: every context's blocks are sums over cells of one vector with itself."""
    rng = np.random.default_rng(seed)
    contexts = len(codes)
    by_shared = rng.normal(size=(contexts, 4, SHARED))
    deviation = rng.normal(size=(SHARED, WIDTH))
    weight = rng.uniform(0.1, 3.0, (contexts, 4))
    whole = np.einsum("cr,crs,crt->cst", weight, by_shared, by_shared)
    cross = np.einsum("cst,sp->cpt", whole, deviation)
    incidence = Incidence(codes, sizes, pairs)
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


def test_eliminating_the_combinations_saves_iterations():
    codes, sizes = crossed(12, 10)
    information = make_information(codes, sizes)
    right = random_state(sizes)
    _, without = conjugate_gradients(information, Arrow(information), right)
    system = NewtonSystem(information, Arrow(information))
    system.solve(right)
    assert system.iterations < without


def test_few_values_in_many_contexts_are_solved_by_one_matrix():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 2, (2_000, 12))
    information = make_information(codes, [2] * 12)
    assert FieldMatrix.worthwhile(information) == WIDTH
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
        1.2 * information.own,
        [1.2 * coupling for coupling in information.couplings],
        information.prior,
        [2.0 * part for part in information.precision],
    )
    again = NewtonSystem(changed, Arrow(changed), system.matrix)
    found = flat(again.solve(right))
    expected = np.linalg.solve(dense(changed), flat(right))
    assert again.matrix is system.matrix
    assert again.iterations <= 6
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-3 * np.abs(expected).max())


def three_fields_and_their_pairs():
    """Three fields, and all pairs of them as three more; some pairs have no deviation of their own."""
    sizes, of = [9, 7, 5], [(0, 1), (0, 2), (1, 2)]
    codes = np.array([(a, b, c) for a in range(9) for b in range(7) for c in range(5)])
    codes = codes[np.random.default_rng(8).random(len(codes)) < 0.8]
    for first, second in of:
        _, pair = np.unique(codes[:, first] * sizes[second] + codes[:, second], return_inverse=True)
        codes = np.column_stack([codes, np.where(pair == 3, -1, pair - (pair > 3))])
        sizes = [*sizes, int(codes[:, -1].max()) + 1]
    return codes, sizes, of


@pytest.mark.parametrize("numbers", [1, 2, WIDTH])
def test_the_matrix_of_fields_changes_the_number_of_iterations_alone(numbers):
    codes, sizes, pairs = three_fields_and_their_pairs()
    information = make_information(codes, sizes, pairs=pairs)
    # Many rows and weak priors: what fields and pairs have in common is told apart by the priors alone.
    information = information.under(information.prior, [0.1 * part for part in information.precision])
    right, arrow = random_state(sizes), Arrow(information)
    expected = np.linalg.solve(dense(information), flat(right))
    by_arrow, slow = conjugate_gradients(information, arrow, right, 1e-16, 2_000)
    by_matrix, fast = conjugate_gradients(
        information, FieldMatrix(information, numbers).under(information, None), right, 1e-16, 2_000
    )
    for solution in (by_arrow, by_matrix):
        np.testing.assert_allclose(flat(solution), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert fast < slow


def test_copies_are_what_pairs_with_a_value_have_in_common():
    codes, sizes, pairs = three_fields_and_their_pairs()
    incidence = Incidence(codes, sizes, pairs)
    copies = incidence.copies
    numbers = np.random.default_rng(9).normal(size=(sum(sizes), 2))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for copy, total in enumerate(copies.sums @ numbers):
        owner, value = copies.field[copy], copies.value[copy]
        field = int(np.searchsorted(starts, value, side="right")) - 1
        members = np.unique(codes[codes[:, field] == value - starts[field], owner])
        members = members[members >= 0]
        np.testing.assert_allclose(total, numbers[starts[owner] + members].sum(axis=0), atol=1e-12)
        assert copies.pairs[copy] == len(members)
    assert np.asarray(copies.of_value.sum(axis=1)).tolist() == [3.0] * sum(sizes[:3])


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
    narrower, _ = joint_information(information, 3, numbers=2)
    kept = np.concatenate([np.arange(SHARED), SHARED + np.flatnonzero(np.arange(9 * WIDTH) % WIDTH < 2)])
    np.testing.assert_allclose(narrower, expected[np.ix_(kept, kept)], rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(solver, "numba_installed", lambda: False)
    np.testing.assert_allclose(joint_information(information, 3)[0], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("known_width", [0, 10**9])
def test_products_are_those_of_the_matrix(monkeypatch, known_width):
    codes, sizes = crossed(5, 4, 0.6)
    information, state = make_information(codes, sizes), random_state(sizes)
    expected = dense(information) @ flat(state)
    np.testing.assert_allclose(flat(information.times(state)), expected, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(solver, "FEWEST_COMPILED_CONTEXTS", 0)
    monkeypatch.setattr(solver, "FEWEST_FOR_KNOWN_WIDTH", known_width)
    np.testing.assert_allclose(flat(information.times(state)), expected, rtol=1e-12, atol=1e-12)
