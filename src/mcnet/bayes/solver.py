"""Solve the Newton system: a shared block, small blocks of field values, conjugate gradients for several fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from mcnet._shared.arrays import FloatArray
from mcnet.bayes.model import Incidence, State

RIDGE = 1e-10
"""Rounding may eat what the data leave undetermined: so much of its diagonal is added to a matrix."""
TOLERANCE = 3e-2
"""Of what a step can gain, conjugate gradients may miss this share: the next step has it."""


@dataclass(frozen=True)
class Information:
    """The curvature of the log-posterior, kept as the sums that products with it need.

    `shared` `[S, S]` is that of the shared vector, its prior included. The likelihood's are `own[c]` `[P, P]` per
    context, and `couplings[field]` `[values, P, S]`: what couples the numbers of a value with the shared vector, summed
    over its contexts. `precision[field]` is the diagonal of each value's prior.
    """

    incidence: Incidence
    shared: FloatArray
    own: FloatArray
    couplings: list[FloatArray]
    precision: list[FloatArray]

    def times(self, state: State) -> State:
        """Return the product of the whole matrix with a vector."""
        shared, size = self.shared @ state.shared, len(state.shared)
        moved = self.incidence.gather(state.values, self.own.shape[1])
        totals, values = self.incidence.totals(np.einsum("cpq,cq->cp", self.own, moved)), []
        for total, coupling, numbers, precision in zip(
            totals, self.couplings, state.values, self.precision, strict=True
        ):
            by_shared = coupling.reshape(-1, size)
            shared += numbers.reshape(-1) @ by_shared
            values.append(total + (by_shared @ state.shared).reshape(numbers.shape) + numbers * precision)
        return State(shared, values)


class Arrow:
    """An arrow-shaped matrix, solved by eliminating every value's small block (a Schur complement).

    With one field it is the information matrix itself. With F fields it leaves out what couples values of different
    fields and takes 1/F of what couples them with the shared block, which keeps it positive definite; then its inverse
    approximates the posterior covariance, and it is the preconditioner of `conjugate_gradients`.
    """

    def __init__(self, information: Information) -> None:
        share = 1.0 / max(sum(size > 0 for size in information.incidence.sizes), 1)
        blocks = zip(information.incidence.totals(information.own), information.precision, strict=True)
        self.inverse = [np.asarray(np.linalg.inv(_raised(own + np.diag(precision)))) for own, precision in blocks]
        self.coupling = [
            share * (inverse @ cross) for inverse, cross in zip(self.inverse, information.couplings, strict=True)
        ]
        schur = information.shared
        for pulled, cross in zip(self.coupling, information.couplings, strict=True):
            schur = schur - pulled.reshape(-1, len(schur)).T @ cross.reshape(-1, len(schur))
        try:
            self._factor = scipy.linalg.cho_factor(_raised(schur))
        except np.linalg.LinAlgError:  # rounding has made it indefinite: the nearest one that is not
            values, vectors = np.linalg.eigh(0.5 * (schur + schur.T))
            values = np.maximum(values, 1e-8 * max(float(values[-1]), np.finfo(np.float64).tiny))
            self._factor = scipy.linalg.cho_factor((vectors * values) @ vectors.T)

    def solve(self, state: State) -> State:
        """Return the solution for one right-hand side."""
        residual = state.shared.copy()
        for coupling, numbers in zip(self.coupling, state.values, strict=True):
            residual -= numbers.reshape(-1) @ coupling.reshape(-1, len(residual))
        shared = scipy.linalg.cho_solve(self._factor, residual, check_finite=False)
        values = [
            np.einsum("vpq,vq->vp", inverse, numbers) - coupling @ shared
            for inverse, coupling, numbers in zip(self.inverse, self.coupling, state.values, strict=True)
        ]
        return State(shared, values)

    def shared_covariance(self) -> FloatArray:
        """Return the shared block of the inverse."""
        return np.asarray(scipy.linalg.cho_solve(self._factor, np.eye(len(self._factor[0]))))

    def value_variances(self, shared_covariance: FloatArray) -> list[FloatArray]:
        """Return the diagonal of the inverse at every value's coefficients: `[values, P]` for each field."""
        blocks = zip(self.inverse, self.coupling, strict=True)
        return [own_variances(inverse, coupling, shared_covariance) for inverse, coupling in blocks]


def own_variances(blocks: FloatArray, coupling: FloatArray, shared_covariance: FloatArray) -> FloatArray:
    """Return the variances of values' numbers `[values, P]`: given the shared vector, and through it."""
    flat = coupling.reshape(-1, len(shared_covariance))
    through = np.einsum("is,is->i", flat @ shared_covariance, flat)
    return np.asarray(np.einsum("vpp->vp", blocks) + through.reshape(coupling.shape[:2]))


def _raised(matrices: FloatArray) -> FloatArray:
    """Return matrices with RIDGE of their diagonal added, the larger ones' share included."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    lift = RIDGE * np.maximum(diagonal, RIDGE * diagonal.max(axis=-1, keepdims=True, initial=1e-300))
    return np.asarray(matrices + lift[..., None] * np.eye(matrices.shape[-1]))


def conjugate_gradients(
    information: Information, arrow: Arrow, right: State, tolerance: float = TOLERANCE, iterations: int = 200
) -> tuple[State, int]:
    """Solve the system of several fields with the help of its arrow; return the solution and the iterations taken.

    It ends once about the share `tolerance` of the squared size of the solution, as the matrix measures it, is missing.
    """
    direction = arrow.solve(right)
    solution, residual, size = right.plus(-1.0, right), right, right.dot(direction)
    enough = tolerance * size
    for taken in range(1, iterations + 1):
        product = information.times(direction)
        step = size / direction.dot(product)
        solution, residual = solution.plus(step, direction), residual.plus(-step, product)
        conditioned = arrow.solve(residual)
        previous, size = size, residual.dot(conditioned)
        if size <= enough:
            return solution, taken
        direction = conditioned.plus(size / previous, direction)
    return solution, iterations
