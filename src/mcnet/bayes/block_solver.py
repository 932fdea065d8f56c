"""Solving the Newton system: a shared block, and many small blocks of field values attached to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mcnet._shared.numba_loops import compiled, numba_installed
from mcnet._shared.typing import FloatArray
from mcnet.bayes.incidence import FEWEST_COMPILED_CONTEXTS, Incidence
from mcnet.bayes.structure import State

__all__ = ["Arrow", "Information", "conjugate_gradients", "joint_information"]


@dataclass(frozen=True)
class Information:
    """The curvature of the log-posterior, kept as the sums that products with it need.

    `shared` `[S, S]`, `cross[c]` `[P, S]` and `own[c]` `[P, P]` are the likelihood's, the last two per context;
    `prior` `[S, S]` is the prior's precision of the shared vector, `precision[field]` its diagonal for each value.
    """

    incidence: Incidence
    shared: FloatArray
    cross: FloatArray
    own: FloatArray
    prior: FloatArray
    precision: list[FloatArray]

    def times(self, state: State) -> State:
        """The product of the whole matrix with a vector."""
        width = self.own.shape[1]
        moved = self.incidence.gather(state.values, width)
        shared = (self.shared + self.prior) @ state.shared
        if len(moved) > FEWEST_COMPILED_CONTEXTS and numba_installed():
            felt = np.empty_like(moved)
            _product_kernel()(self.cross, self.own, state.shared, moved, shared, felt)
        else:
            shared += moved.reshape(-1) @ self.cross.reshape(-1, len(state.shared))
            felt = self.cross @ state.shared + np.matmul(self.own, moved[:, :, None])[:, :, 0]
        totals = zip(self.incidence.totals(felt), state.values, self.precision, strict=True)
        return State(shared, [total + numbers * precision for total, numbers, precision in totals])

    @cached_property
    def value_sums(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """`own` and `cross` summed over the contexts of every value, for each field."""
        return self.incidence.totals(self.own), self.incidence.totals(self.cross)

    def under(self, prior: FloatArray, precision: list[FloatArray]) -> Information:
        """The same likelihood under another prior."""
        changed = replace(self, prior=prior, precision=precision)
        if "value_sums" in vars(self):
            vars(changed)["value_sums"] = self.value_sums
        return changed


@cache
def _product_kernel() -> Any:
    """The products of every context's blocks with a vector, which read the blocks from memory once."""

    def products(cross, own, shared, moved, by_shared, felt):  # type: ignore[no-untyped-def]
        contexts, width, size = cross.shape
        for context in range(contexts):
            for number in range(width):
                block = cross[context, number]
                by, value = moved[context, number], 0.0
                for place in range(size):
                    value += block[place] * shared[place]
                for place in range(size):
                    by_shared[place] += by * block[place]
                for place in range(width):
                    value += own[context, number, place] * moved[context, place]
                felt[context, number] = value

    return compiled(products)


def joint_information(information: Information, fields: int) -> tuple[FloatArray, tuple[int, ...]]:
    """The curvature as one matrix, for the shared block and the first fields; and where each field starts in it."""
    incidence, width = information.incidence, information.own.shape[1]
    size = len(information.shared)
    starts = np.cumsum([size, *(width * values for values in incidence.sizes[:fields])])
    matrix = np.zeros((starts[-1], starts[-1]))
    matrix[:size, :size] = information.shared + information.prior
    for one in range(fields):
        first = slice(starts[one], starts[one + 1])
        cross = incidence.total(one, information.cross).reshape(-1, size)
        matrix[first, :size], matrix[:size, first] = cross, cross.T
        for two in range(one, fields):
            second = slice(starts[two], starts[two + 1])
            values = incidence.sizes[one], incidence.sizes[two]
            blocks = np.zeros((*values, width, width))
            codes = incidence.codes[:, one], incidence.codes[:, two]
            known = (codes[0] >= 0) & (codes[1] >= 0)
            np.add.at(blocks, (codes[0][known], codes[1][known]), information.own[known])
            block = blocks.transpose(0, 2, 1, 3).reshape(values[0] * width, values[1] * width)
            matrix[first, second], matrix[second, first] = block, block.T
        places = np.arange(starts[one], starts[one + 1])
        matrix[places, places] += np.tile(information.precision[one], incidence.sizes[one])
    return matrix, tuple(starts[:-1].tolist())


class Arrow:
    """An arrow-shaped matrix, solved by eliminating every value's small block (a Schur complement).

    With one field it is the information matrix itself. With F fields it leaves out what couples values of different
    fields and takes 1/F of what couples them with the shared block, which keeps it positive definite; then it
    preconditions conjugate gradients, and its inverse approximates the posterior covariance.
    """

    def __init__(self, information: Information, ridge: float = 0.0) -> None:
        incidence = information.incidence
        share = 1.0 / max(incidence.fields, 1)
        self.inverse: list[FloatArray] = []
        self.coupling: list[FloatArray] = []
        schur = information.shared + information.prior
        diagonal = np.arange(information.own.shape[1])
        for field, (own, cross) in enumerate(zip(*information.value_sums, strict=True)):
            blocks = own.copy()
            blocks[:, diagonal, diagonal] += information.precision[field]
            if ridge > 0.0:
                blocks[:, diagonal, diagonal] += ridge * blocks[:, diagonal, diagonal].max(axis=1, keepdims=True)
            np.linalg.cholesky(blocks)  # raises LinAlgError unless every block is positive definite
            inverse = np.asarray(np.linalg.inv(blocks), dtype=np.float64)
            pulled = share * (inverse @ cross)
            schur -= pulled.reshape(-1, schur.shape[0]).T @ cross.reshape(-1, schur.shape[0])
            self.inverse.append(inverse)
            self.coupling.append(pulled)
        self._factor = _factor(schur, strict=ridge == 0.0)

    def solve(self, state: State) -> State:
        """The solution for one right-hand side."""
        size = len(state.shared)
        residual = state.shared.copy()
        for coupling, numbers in zip(self.coupling, state.values, strict=True):
            residual -= numbers.reshape(-1) @ coupling.reshape(-1, size)
        shared = cho_solve(self._factor, residual)
        values = [
            np.matmul(inverse, numbers[:, :, None])[:, :, 0] - coupling @ shared
            for inverse, coupling, numbers in zip(self.inverse, self.coupling, state.values, strict=True)
        ]
        return State(shared, values)

    def shared_covariance(self) -> FloatArray:
        """The shared block of the inverse."""
        size = self._factor[0].shape[0]
        return np.asarray(cho_solve(self._factor, np.eye(size)))

    def value_variances(self, shared_covariance: FloatArray) -> list[FloatArray]:
        """The diagonal of the inverse at every value's coefficients: `[values, P]` for each field."""
        size = len(shared_covariance)
        variances = []
        for inverse, coupling in zip(self.inverse, self.coupling, strict=True):
            flat = coupling.reshape(-1, size)
            through = np.einsum("is,is->i", flat @ shared_covariance, flat)
            variances.append(np.einsum("vpp->vp", inverse) + through.reshape(coupling.shape[:2]))
        return variances


def _factor(matrix: FloatArray, *, strict: bool) -> tuple[FloatArray, bool]:
    """Return the Cholesky factor of a matrix; a strict one raises LinAlgError unless it is positive definite.

    Rounding may eat what the data leave undetermined: a small ridge restores it. Very large weights may make even that
    fail; then, unless strict, the nearest matrix whose eigenvalues are all clearly positive is factored.
    """
    raised = matrix.copy()
    diagonal = np.diag_indices_from(matrix)
    raised[diagonal] += 1e-10 * np.maximum(matrix[diagonal], 1e-10 * float(np.trace(matrix)) / len(matrix))
    try:
        factor: tuple[FloatArray, bool] = cho_factor(raised)
        return factor
    except np.linalg.LinAlgError:
        if strict:
            raise
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    values = np.maximum(values, 1e-8 * max(float(values[-1]), np.finfo(np.float64).tiny))
    nearest: tuple[FloatArray, bool] = cho_factor((vectors * values) @ vectors.T)
    return nearest


def conjugate_gradients(
    information: Information, arrow: Arrow, right: State, tolerance: float = 1e-6, iterations: int = 200
) -> State:
    """Solve the Newton system; exact at once when there is but one field."""
    direction = arrow.solve(right)
    if information.incidence.fields <= 1:
        return direction
    solution = right.plus(-1.0, right)
    residual = right
    size = first = residual.dot(direction)
    for _ in range(iterations):
        product = information.times(direction)
        curvature = direction.dot(product)
        if curvature <= 0:
            raise np.linalg.LinAlgError("the information matrix is not positive definite")
        step = size / curvature
        solution = solution.plus(step, direction)
        residual = residual.plus(-step, product)
        conditioned = arrow.solve(residual)
        previous, size = size, residual.dot(conditioned)
        if size <= tolerance * first:
            break
        direction = conditioned.plus(size / previous, direction)
    return solution
